"""Which torso and which heads: the paper's choice for each kind of world (appendix "Environments")."""

from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from spo.networks.torsos import MLP, Activation, CubeTorso, ResNet, check_sizes
from spo.types import PyTree


class Architecture(NamedTuple):
    """What is the same whatever the network predicts: policies, values and Q values differ in their output alone."""

    torso: nn.Module
    #: Layers of each head between the torso and its output.
    head_sizes: Sequence[int]
    head_activation: Activation
    #: Do actor and critic read the features of one torso, or has each its own?
    share_torso: bool
    #: The type of the computation; parameters and outputs are float32.
    dtype: DTypeLike


def mlp_architecture(
    depth: int = 4, width: int = 256, activation: Activation = nn.silu, dtype: DTypeLike = jnp.float32
) -> Architecture:
    """Brax, and any observation that may be flattened: separate SiLU networks. The paper's SMC-ENT has depth 3."""
    check_sizes("mlp_architecture", depth=depth, width=width)
    return Architecture(MLP((width,) * depth, activation, dtype), (), activation, share_torso=False, dtype=dtype)


def cube_architecture(
    width: int = 512,
    num_layers: int = 2,
    embedding_size: int = 4,
    head_sizes: Sequence[int] = (512,),
    dtype: DTypeLike = jnp.float32,
) -> Architecture:
    """Rubik's cube: embedded stickers, a shared residual torso, heads of one layer.

    We read the paper's "two layer residual network with layer size 512" as two linear layers: one from the 216 numbers
    of the embedding to `width`, one that adds to it.
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
    """Boxoban: a shared ResNet over the grid, heads of two layers.

    The seven cell kinds are empty, wall, target, agent, box, and the last two on a target.
    """
    check_sizes("boxoban_architecture", head_sizes=head_sizes)
    torso = ResNet(channels=tuple(channels), num_cell_kinds=num_cell_kinds, dtype=dtype)
    return Architecture(torso, tuple(head_sizes), nn.relu, share_torso=True, dtype=dtype)


def paper_architecture(observation_spec: PyTree[jax.ShapeDtypeStruct], dtype: DTypeLike = jnp.float32) -> Architecture:
    """The paper's network for observations that look like a cube's or like Boxoban's, else the MLP of its Brax runs."""
    leaves = jax.tree.leaves(observation_spec)
    if len(leaves) == 1 and jnp.issubdtype(leaves[0].dtype, jnp.integer):
        if leaves[0].shape == (6, 3, 3):
            return cube_architecture(dtype=dtype)
        if leaves[0].shape == (10, 10):
            return boxoban_architecture(dtype=dtype)
    return mlp_architecture(dtype=dtype)
