"""Torso and heads of the networks: the paper's (appendix "Environments"), and a CNN for images."""

from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from spo.networks.contract import Preprocess
from spo.networks.grids import GridTorso
from spo.networks.heads import VALUE_GAIN
from spo.networks.torsos import CNN, MLP, Activation, CubeTorso, ResNet, check_sizes, is_image
from spo.types import PyTree


class Architecture(NamedTuple):
    """The parts that networks of policies, values and Q values have in common: they differ in the output only."""

    #: module from an observation to features
    torso: nn.Module
    #: hidden layers of each head, between the torso and the output
    head_sizes: Sequence[int]
    #: activation between the layers of a head
    head_activation: Activation
    #: True: actor and critic use one torso; False: each has its own
    share_torso: bool
    #: number format of the computation; parameters and outputs are float32
    dtype: DTypeLike
    #: gain of the last layer of V and Q. With a small one, values start near 0 (departure 16).
    value_gain: float = VALUE_GAIN
    #: function of an observation, applied before the torso; None: none
    preprocess: Preprocess | None = None


def mlp_architecture(
    depth: int = 4, width: int = 256, activation: Activation = nn.silu, dtype: DTypeLike = jnp.float32
) -> Architecture:
    """Returns separate SiLU networks, for Brax and other flat observations. The paper's SMC-ENT has depth 3."""
    check_sizes("mlp_architecture", depth=depth, width=width)
    return Architecture(MLP((width,) * depth, activation, dtype), (), activation, share_torso=False, dtype=dtype)


def cube_architecture(
    width: int = 512,
    num_layers: int = 2,
    embedding_size: int = 4,
    head_sizes: Sequence[int] = (512,),
    dtype: DTypeLike = jnp.float32,
) -> Architecture:
    """Returns the network for Rubik's cube: embedded stickers, a shared residual torso, heads of one layer.

    Departure 15: the paper's "two layer residual network with layer size 512" is read as two linear layers, one from
    the 216 numbers of the embedding to `width`, and one whose output is added to it.
    """
    check_sizes("cube_architecture", head_sizes=head_sizes)
    torso = CubeTorso(width=width, num_layers=num_layers, embedding_size=embedding_size, dtype=dtype)
    return Architecture(torso, tuple(head_sizes), nn.relu, share_torso=True, dtype=dtype)


def boxoban_architecture(
    channels: Sequence[int] = (256, 256, 512, 512),
    num_cell_kinds: int = 7,
    head_sizes: Sequence[int] = (128, 128),
    dtype: DTypeLike = jnp.float32,
) -> Architecture:
    """Returns the network for Boxoban: a shared ResNet over the grid, heads of two layers.

    The seven kinds of cells are empty, wall, target, agent, box, agent on a target and box on a target.
    """
    check_sizes("boxoban_architecture", head_sizes=head_sizes)
    torso = ResNet(channels=tuple(channels), num_cell_kinds=num_cell_kinds, dtype=dtype)
    return Architecture(torso, tuple(head_sizes), nn.relu, share_torso=True, dtype=dtype)


def image_architecture(
    channels: Sequence[int] = (32, 64, 64, 64), width: int = 256, dtype: DTypeLike = jnp.float32
) -> Architecture:
    """Returns a shared CNN for observations with images [height, width, channels], alone or beside other arrays."""
    return Architecture(CNN(tuple(channels), width, dtype), (), nn.relu, share_torso=True, dtype=dtype)


def grid_architecture(
    channels: Sequence[int] = (16,), width: int = 128, num_blocks: int = 0, dtype: DTypeLike = jnp.float32
) -> Architecture:
    """Returns a small shared network for images (a CNN, without blocks) or boards (a ResNet): see `GridTorso`."""
    torso = GridTorso(tuple(channels), width, num_blocks, dtype)
    return Architecture(torso, (), nn.relu, share_torso=True, dtype=dtype)


def default_architecture(
    observation_spec: PyTree[jax.ShapeDtypeStruct], dtype: DTypeLike = jnp.float32
) -> Architecture:
    """Returns the paper's network, except for observations with images, of which the paper has none: a CNN."""
    if any(map(is_image, jax.tree.leaves(observation_spec))):
        return image_architecture(dtype=dtype)
    return paper_architecture(observation_spec, dtype)


def paper_architecture(observation_spec: PyTree[jax.ShapeDtypeStruct], dtype: DTypeLike = jnp.float32) -> Architecture:
    """Returns the paper's network for observations of the shape of the cube's or Boxoban's, else that of Brax."""
    leaves = jax.tree.leaves(observation_spec)
    if len(leaves) == 1 and jnp.issubdtype(leaves[0].dtype, jnp.integer):
        if leaves[0].shape == (6, 3, 3):
            return cube_architecture(dtype=dtype)
        if leaves[0].shape == (10, 10):
            return boxoban_architecture(dtype=dtype)
    return mlp_architecture(dtype=dtype)
