"""Small networks for images and boards, for the CPU and for many seeds at once.

A convolution is a product of patches and one matrix. Under `vmap` over parameters (several seeds) it stays a product of
matrices, where XLA's convolutions become grouped ones, which a CPU computes slowly.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from spo.networks.torsos import HIDDEN_GAIN, ResidualBlock, check_sizes, dense, flatten
from spo.types import Array, Float, Observation, Shaped

#: Kinds of cells that a board of integers can show. Larger numbers count as the last kind.
NUM_CELL_KINDS = 16
#: Sides of a board: shorter arrays are lists, longer ones are images or tables.
SHORTEST_SIDE, LONGEST_SIDE = 3, 32
#: Cells of a small board. The layers of a CNN halve larger ones.
SMALL_AREA = 36


def is_picture(leaf: Any) -> bool:
    """Returns True for [height, width, channels], of any numbers."""
    return len(leaf.shape) == 3 and min(leaf.shape[:2]) >= SHORTEST_SIDE


def is_board(leaf: Any) -> bool:
    """Returns True for [height, width] of at most 32 x 32: cells as integers, truth values, or floats.

    Floats need sides of at least 5: smaller ones are more often tables, such as three objects with four features each.
    """
    if len(leaf.shape) != 2:
        return False
    shortest = 5 if jnp.issubdtype(leaf.dtype, jnp.floating) else SHORTEST_SIDE
    return min(leaf.shape) >= shortest and max(leaf.shape) <= LONGEST_SIDE


def is_small(leaf: Any) -> bool:
    """Returns True for a board or a picture of at most 36 cells, such as 6 x 6."""
    return (is_board(leaf) or is_picture(leaf)) and leaf.shape[0] * leaf.shape[1] <= SMALL_AREA


def cnn_channels(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the channels of a CNN for images of a shape: a layer for each time that their sides must be halved."""
    height, width, channels = *shape[:2], [16]
    while (height := -(-height // 2)) * (width := -(-width // 2)) > SMALL_AREA:
        channels.append(32)
    return tuple(channels)


class PatchConvolution(nn.Module):
    """Convolution with kernels of 3 x 3 and padded borders."""

    features: int
    gain: float = HIDDEN_GAIN
    stride: int = 1
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "height width channels"]) -> Float[Array, "rows columns features"]:
        height, width = x.shape[:2]
        padded = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
        shifts = [(row, column) for row in range(3) for column in range(3)]
        patches = [padded[r : r + height : self.stride, c : c + width : self.stride] for r, c in shifts]
        return dense(self.features, self.gain, self.dtype)(jnp.concatenate(patches, axis=-1))


class GridTorso(nn.Module):
    """Convolutions over each image and board of an observation, then a layer over their features and other numbers.

    With `num_blocks` of 0 it is a CNN, whose layers halve the sides while there are over 36 cells. Else it is a ResNet:
    it keeps the size of a board, and each convolution is followed by that number of residual blocks.
    """

    channels: Sequence[int] = (16,)
    width: int = 128
    num_blocks: int = 0
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes("GridTorso", channels=self.channels, width=self.width)
        if not self.channels:
            raise ValueError("GridTorso needs the channels of at least one layer, got none.")
        super().__post_init__()

    @nn.compact
    def __call__(self, observation: Observation) -> Float[Array, " width"]:
        features = [
            self._convolve(leaf) if is_picture(leaf) or is_board(leaf) else flatten(leaf).astype(self.dtype)
            for leaf in jax.tree.leaves(observation)
        ]
        return nn.relu(dense(self.width, HIDDEN_GAIN, self.dtype)(jnp.concatenate(features)))

    def _convolve(self, grid: Shaped[Array, "height width *channels"]) -> Float[Array, " F"]:
        x = to_planes(grid).astype(self.dtype)
        for channels in self.channels:
            halves = self.num_blocks == 0 and x.shape[0] * x.shape[1] > SMALL_AREA
            x = nn.relu(PatchConvolution(channels, HIDDEN_GAIN, 2 if halves else 1, self.dtype)(x))

            def layer(gain: float, channels: int = channels) -> nn.Module:
                return PatchConvolution(channels, gain, dtype=self.dtype)

            for _ in range(self.num_blocks):
                x = ResidualBlock(layer, self.num_blocks * len(self.channels))(x)
        return jnp.ravel(nn.relu(x))


def to_planes(grid: Shaped[Array, "height width *channels"]) -> Float[Array, "height width planes"]:
    """Returns a grid as planes of numbers: one for each channel, and for each kind of cell where cells are integers.

    Bytes of an image with sides of 16 or more are divided by 255. In smaller ones they number the kinds of cells.
    """
    grid = grid if grid.ndim == 3 else grid[..., None]
    if not jnp.issubdtype(grid.dtype, jnp.integer):
        return grid.astype(jnp.float32)
    if grid.dtype == jnp.uint8 and min(grid.shape[:2]) >= 16:
        return grid.astype(jnp.float32) / 255.0
    kinds = jax.nn.one_hot(jnp.clip(grid, 0, NUM_CELL_KINDS - 1), NUM_CELL_KINDS)
    return kinds.reshape(*grid.shape[:2], -1)


__all__ = ["GridTorso", "cnn_channels", "is_board", "is_picture", "is_small"]
