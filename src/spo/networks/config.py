"""Network configuration: sizes as plain data, and the architecture that they describe for an environment."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from spo.checks import PositiveInt, check_fields
from spo.networks.architectures import (
    Architecture,
    boxoban_architecture,
    cube_architecture,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.torsos import MLP, CubeTorso
from spo.types import Environment, PyTree


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the network. The kind of network follows from the environment's observations, as in the paper."""

    width: PositiveInt | None = None
    """Units per layer; None: the paper's (512 for Rubik's cube, 256 for flat observations)."""
    depth: PositiveInt | None = None
    """Number of layers; None: the paper's (2 for Rubik's cube, 4 for flat observations)."""
    channels: tuple[PositiveInt, ...] | None = None
    """For grids such as Boxoban: channels of each group of the ResNet; None: the paper's (256, 256, 512, 512)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the network's computation. Parameters are always float32."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="network.")


def make_architecture(environment: Environment, config: NetworkConfig) -> Architecture:
    """Returns the paper's network for the environment in the sizes of `config`.

    With `channels`, a grid of any size gets a ResNet with the paper's heads.
    """
    dtype = jnp.dtype(config.dtype)
    if config.channels is None:
        architecture = paper_architecture(environment.observation_spec, dtype)
    elif _is_grid(environment.observation_spec):
        architecture = boxoban_architecture(config.channels, dtype=dtype)
    else:
        raise ValueError(
            f"network.channels are those of a ResNet over a grid of cells such as Boxoban's, and {environment.name} "
            "shows no such grid: leave them out; network.width and network.depth size other networks."
        )
    if config.width is None and config.depth is None:
        return architecture
    if isinstance(architecture.torso, CubeTorso):
        width = config.width or 512
        return cube_architecture(width=width, num_layers=config.depth or 2, head_sizes=(width,), dtype=dtype)
    if isinstance(architecture.torso, MLP):
        return mlp_architecture(depth=config.depth or 4, width=config.width or 256, dtype=dtype)
    raise ValueError(
        f"network.width and network.depth apply to the cube and to flat observations only, and {environment.name} "
        "shows a grid: leave them out (None) and set network.channels, one number for each group of the ResNet."
    )


def _is_grid(observation_spec: PyTree[jax.ShapeDtypeStruct]) -> bool:
    leaves = jax.tree.leaves(observation_spec)
    return len(leaves) == 1 and len(leaves[0].shape) == 2 and jnp.issubdtype(leaves[0].dtype, jnp.integer)
