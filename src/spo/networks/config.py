"""Network configuration: kind and sizes as plain data, and the network that they describe for an environment."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from spo.checks import LayerCount, LayerSize, PositiveFloat, check_fields, shorten
from spo.importing import OBJECT, name_of
from spo.networks.architectures import (
    Architecture,
    boxoban_architecture,
    cube_architecture,
    default_architecture,
    grid_architecture,
    image_architecture,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.contract import Networks
from spo.networks.grids import cnn_channels, is_board, is_picture
from spo.networks.heads import VALUE_GAIN
from spo.networks.own import NetworkFunction, build_own_network, find_network
from spo.networks.torsos import CNN, MLP, CubeTorso
from spo.types import Environment, PyTree

KINDS = ("auto", "mlp", "cnn", "resnet", "paper")


@dataclass(frozen=True)
class NetworkConfig:
    """Kind and sizes of the network. By default the kind follows from the environment's observations."""

    kind: str = "auto"
    """Network: "mlp"; "cnn", for images; "resnet", for boards; "auto" is the paper's, and a CNN for images; "paper" has
    no CNN; `module:function` is your own."""
    width: LayerSize | None = None
    """Units per layer; None: the paper's (512 for Rubik's cube, 256 for flat observations), 256 after a CNN; 128 for
    mlp, cnn and resnet."""
    depth: LayerCount | None = None
    """Number of layers, or of blocks per layer of a resnet; None: the paper's (2 for Rubik's cube, 4 for flat
    observations), 2 layers of an mlp, 1 block of a resnet."""
    channels: tuple[LayerSize, ...] | None = None
    """Channels of each group of the ResNet for grids such as Boxoban (None: the paper's 256, 256, 512 and 512), or of
    each layer of the CNN for images (None: 32, 64, 64 and 64). None for cnn: 16, then 32 for each
    further layer that halves a large image; for resnet: 16."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the network's computation. Parameters are always float32."""
    value_gain: PositiveFloat = VALUE_GAIN
    """Gain of the last layer of the critic at the start, for all algorithms. With a small one, values start near 0."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="network.")
        if self.channels == ():
            raise ValueError("network.channels must have at least one number, got (): leave it out for the default.")
        if self.kind not in KINDS and ":" not in self.kind:
            raise ValueError(
                f"network.kind must be {', '.join(KINDS)} or the name of a function, module:function, got "
                f"{self.kind!r}."
            )
        sized = [name for name in ("width", "depth", "channels") if getattr(self, name) is not None]
        if ":" in self.kind and sized:
            raise ValueError(
                f"network.{sized[0]} is a size of the default networks, and network.kind is {self.kind}: leave it out "
                "and choose the sizes in your function."
            )


def make_architecture(environment: Environment, config: NetworkConfig) -> Architecture | Networks:
    """Returns the network for the environment in the kind and the sizes of `config`.

    With `channels`, a grid of any size gets a ResNet with the paper's heads.
    """
    network = _make_network(environment, config)
    return network._replace(value_gain=config.value_gain) if isinstance(network, Architecture) else network


def network_config(network: NetworkConfig | NetworkFunction | str) -> tuple[NetworkConfig, NetworkFunction | None]:
    """Returns the configuration of what `spo.train(network=...)` takes, and the function if it is one.

    The kind of a function is its `module:function`, or `object:NAME` if that does not lead back to it. The second needs
    `give_network` wherever the network is made.
    """
    if isinstance(network, NetworkConfig):
        return network, None
    if isinstance(network, str):
        return NetworkConfig(kind=network), None
    if not callable(network):
        raise ValueError(
            f"network must be a NetworkConfig, a function (observation_spec, action_spec) -> network, or its name "
            f"module:function, got {shorten(network)}."
        )
    return NetworkConfig(kind=name_of(network)), network


def _make_network(environment: Environment, config: NetworkConfig) -> Architecture | Networks:
    dtype = jnp.dtype(config.dtype)
    if ":" in config.kind:
        function = find_network(config.kind)
        specs = (environment.observation_spec, environment.action_spec)
        return build_own_network(config.kind.removeprefix(OBJECT), function, *specs, dtype)
    if config.kind in ("mlp", "cnn", "resnet"):
        return _make_kind(environment, config, dtype)
    make_default = default_architecture if config.kind == "auto" else paper_architecture
    architecture = make_default(environment.observation_spec, dtype)
    if isinstance(architecture.torso, CNN):
        return _sized_cnn(environment, config)
    if config.channels is not None:
        if not _is_grid(environment.observation_spec):
            raise ValueError(
                f"network.channels are those of a ResNet over a grid of cells such as Boxoban's, or of a CNN over "
                f"images, and {environment.name} shows neither: leave them out; network.width and network.depth size "
                "other networks."
            )
        architecture = boxoban_architecture(config.channels, dtype=dtype)
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


def _make_kind(environment: Environment, config: NetworkConfig, dtype: Any) -> Architecture:
    """Returns the network of a kind that was named, for any observation that it can take."""
    if config.kind == "mlp":
        if config.channels is not None:
            raise ValueError(
                'network.channels are those of a CNN or a ResNet, and network.kind is "mlp": leave them out.'
            )
        return mlp_architecture(depth=config.depth or 2, width=config.width or 128, dtype=dtype)
    leaves = jax.tree.leaves(environment.observation_spec)
    if not any(is_picture(leaf) or is_board(leaf) for leaf in leaves):
        raise ValueError(
            f"network.kind {config.kind} needs an image or a board, and {environment.name} shows neither: use mlp."
        )
    num_blocks = 0 if config.kind == "cnn" else config.depth or 1
    if config.kind == "cnn" and config.depth is not None:
        raise ValueError("network.depth does not apply to a cnn: set network.channels, one number for each layer.")
    grids = [leaf.shape for leaf in leaves if is_picture(leaf) or is_board(leaf)]
    channels = config.channels or (cnn_channels(max(grids)) if config.kind == "cnn" else (16,))
    return grid_architecture(channels, config.width or 128, num_blocks, dtype)


def _sized_cnn(environment: Environment, config: NetworkConfig) -> Architecture:
    if config.depth is not None:
        raise ValueError(
            f"network.depth does not apply to images, and {environment.name} shows one: leave it out (None) and set "
            "network.channels, one number for each layer of the CNN."
        )
    given = {"channels": config.channels, "width": config.width}
    sizes: dict[str, Any] = {name: size for name, size in given.items() if size is not None}
    return image_architecture(**sizes, dtype=jnp.dtype(config.dtype))


def _is_grid(observation_spec: PyTree[jax.ShapeDtypeStruct]) -> bool:
    leaves = jax.tree.leaves(observation_spec)
    return len(leaves) == 1 and len(leaves[0].shape) == 2 and jnp.issubdtype(leaves[0].dtype, jnp.integer)
