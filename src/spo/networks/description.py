"""A network in words, for the start of a run."""

from collections.abc import Sequence

import flax.linen as nn
import jax

from spo.networks.architectures import Architecture
from spo.networks.contract import Networks
from spo.networks.grids import GridTorso
from spo.networks.torsos import CNN, MLP, CubeTorso, ResNet
from spo.types import Array, PyTree


def describe_network(network: Architecture | Networks, kind: str, num_parameters: int) -> str:
    """Returns a line such as "Network: MLP of 4 x 256, 271,000 parameters".

    Args:
      network: the network.
      kind: `NetworkConfig.kind`, which names the user's own network.
      num_parameters: number of the parameters that are trained for one seed.
    """
    if ":" in kind:
        words = kind.partition(":")[2] if kind.startswith("object:") else kind
        torso = f" (torso {type(network.torso).__name__})" if isinstance(network, Architecture) else ""
        words = f"{words}{torso}"
    else:
        words = _describe_torso(network.torso) if isinstance(network, Architecture) else type(network).__name__
    return f"Network: {words}, {num_parameters:,} parameters"


def count_parameters(params: PyTree[Array]) -> int:
    """Returns the number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _describe_torso(torso: nn.Module) -> str:
    if isinstance(torso, MLP):
        return f"MLP of {_sizes(torso.hidden_sizes)}"
    if isinstance(torso, CubeTorso):
        return f"residual MLP of {torso.num_layers} x {torso.width} over embedded stickers"
    if isinstance(torso, ResNet):
        return f"ResNet with {_list(torso.channels)} channels"
    if isinstance(torso, GridTorso):
        kind = f"ResNet with {torso.num_blocks} blocks per layer," if torso.num_blocks else "CNN with"
        return f"{kind} {_list(torso.channels)} channels and {torso.width} units"
    if isinstance(torso, CNN):
        return f"CNN with {_list(torso.channels)} channels and {torso.width} units"
    return type(torso).__name__


def _sizes(sizes: Sequence[int]) -> str:
    return f"{len(sizes)} x {sizes[0]}" if len(set(sizes)) == 1 else " x ".join(map(str, sizes))


def _list(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
