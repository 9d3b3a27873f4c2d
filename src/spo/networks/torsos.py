"""Torsos: modules from one observation to one vector of features.

Every module is written for one observation. `jax.vmap` makes batches, and turns each layer into one large matrix
product or convolution. `dtype` is the number format of the computation; parameters are always float32.

Torsos and heads are initialised in the common way: orthogonal matrices and zero biases. The gain is √2 for hidden
layers (a ReLU halves the mean square), 1 for linear layers before a residual stack, and 0.01 for outputs: a policy is
then nearly uniform, and values are near 0.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from spo.types import Array, Float, Integer, Observation, Shaped

Activation = Callable[[Array], Array]

HIDDEN_GAIN = math.sqrt(2.0)


def dense(features: int, gain: float, dtype: DTypeLike, bias: float = 0.0, name: str | None = None) -> nn.Dense:
    """Returns a linear layer with an orthogonal kernel times `gain` and a constant bias."""
    return nn.Dense(
        features,
        dtype=dtype,
        kernel_init=nn.initializers.orthogonal(gain),
        bias_init=nn.initializers.constant(bias),
        name=name,
    )


def check_sizes(owner: str, **sizes: int | Sequence[int]) -> None:
    """Raises ValueError unless every size is a positive whole number."""
    for name, size in sizes.items():
        for number in size if isinstance(size, Sequence) else (size,):
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"{owner} needs positive whole numbers for {name}, got {size}.")


def only_leaf(observation: Observation, owner: str, shape: tuple[int | None, ...]) -> Array:
    """Returns the only leaf of an observation, an integer array; None in `shape` stands for any length."""
    leaves = jax.tree.leaves(observation)
    fits = (
        len(leaves) == 1
        and len(leaves[0].shape) == len(shape)
        and all(want in (None, got) for want, got in zip(shape, leaves[0].shape, strict=True))
        and jnp.issubdtype(leaves[0].dtype, jnp.integer)
    )
    if not fits:
        wanted = "x".join("any" if length is None else str(length) for length in shape)
        found = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]
        raise ValueError(
            f"{owner} takes one integer array of shape {wanted}, got {', '.join(found) or 'nothing'}: "
            "use mlp_architecture for other observations."
        )
    return leaves[0]


def flatten(observation: Observation) -> Float[Array, " F"]:
    """Returns a pytree of numbers as one float32 vector, leaves in the order of `jax.tree.leaves`."""
    leaves = jax.tree.leaves(observation)
    if not leaves:
        raise ValueError("An observation needs at least one array, got an empty pytree.")
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves])


class MLP(nn.Module):
    """Linear layers, each followed by the activation. The leaves of any pytree are flattened and concatenated."""

    hidden_sizes: Sequence[int]
    activation: Activation
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes("MLP", hidden_sizes=self.hidden_sizes)
        super().__post_init__()

    @nn.compact
    def __call__(self, observation: Observation) -> Float[Array, " F"]:
        features = flatten(observation)
        for size in self.hidden_sizes:
            features = self.activation(dense(size, HIDDEN_GAIN, self.dtype)(features))
        return features


class ResidualBlock(nn.Module):
    """x + layer(relu(layer(relu(x)))): the identity plus a correction ("pre-activation", He et al. 2016).

    `make_layer(gain)` returns a layer that keeps the shape of x. The second layer's gain is divided by the square root
    of the number of blocks in the stack. With the full gain, each block would double the variance of its input, and
    after eight blocks the features would be sixteen times too large.
    """

    make_layer: Callable[[float], nn.Module]
    num_blocks_in_stack: int

    @nn.compact
    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        correction = self.make_layer(HIDDEN_GAIN)(nn.relu(x))
        correction = self.make_layer(HIDDEN_GAIN / math.sqrt(self.num_blocks_in_stack))(nn.relu(correction))
        return x + correction


class ResidualMLP(nn.Module):
    """`num_layers` layers of one width: x = relu(W x) first, then x = x + relu(W x).

    The gain of the added layers is divided by the square root of their number, as in `ResidualBlock`. `first` replaces
    the first linear layer, for inputs that are not a vector.
    """

    width: int
    num_layers: int
    dtype: DTypeLike = jnp.float32
    first: nn.Module | None = None

    def __post_init__(self) -> None:
        check_sizes("ResidualMLP", width=self.width, num_layers=self.num_layers)
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Array) -> Float[Array, " width"]:
        first = dense(self.width, HIDDEN_GAIN, self.dtype) if self.first is None else self.first
        x = nn.relu(first(features))
        num_added = self.num_layers - 1
        for _ in range(num_added):
            x = x + nn.relu(dense(self.width, HIDDEN_GAIN / math.sqrt(num_added), self.dtype)(x))
        return x


class StickerLayer(nn.Module):
    """Embeds each sticker's colour in `embedding_size` numbers and applies a linear layer to `width`.

    Both together are one linear map of the one-hot stickers, and so one matrix product per batch. A lookup would give
    the same values, but its gradient is a scatter-add in which all stickers of a batch compete for a few rows.
    """

    width: int
    embedding_size: int
    num_colours: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, stickers: Integer[Array, "6 side side"]) -> Float[Array, " width"]:
        embedding = self.param("embedding", nn.initializers.normal(1.0), (self.num_colours, self.embedding_size))
        shape = (stickers.size * self.embedding_size, self.width)
        kernel = self.param("kernel", nn.initializers.orthogonal(HIDDEN_GAIN), shape)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.width,))
        by_sticker = kernel.reshape(stickers.size, self.embedding_size, self.width)
        composed = jnp.einsum("ce,sew->scw", embedding, by_sticker).reshape(-1, self.width)
        # A select instead of a conversion: XLA would write the comparison and its conversion to memory, one by one.
        is_colour = jnp.ravel(stickers)[:, None] == jnp.arange(self.num_colours)[None, :]
        one_hot = jnp.where(is_colour, jnp.ones((), self.dtype), jnp.zeros((), self.dtype))
        return jnp.ravel(one_hot) @ composed.astype(self.dtype) + bias.astype(self.dtype)


class CubeTorso(nn.Module):
    """Rubik's cube: each sticker's colour is embedded in `embedding_size` numbers, the input of a residual MLP."""

    width: int = 512
    num_layers: int = 2
    embedding_size: int = 4
    num_colours: int = 6
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes(
            "CubeTorso",
            width=self.width,
            num_layers=self.num_layers,
            embedding_size=self.embedding_size,
            num_colours=self.num_colours,
        )
        super().__post_init__()

    @nn.compact
    def __call__(self, observation: Observation) -> Float[Array, " width"]:
        stickers: Integer[Array, "6 side side"] = only_leaf(observation, "CubeTorso", (6, None, None))
        first = StickerLayer(self.width, self.embedding_size, self.num_colours, self.dtype)
        return ResidualMLP(self.width, self.num_layers, self.dtype, first)(stickers)


class ResNet(nn.Module):
    """ResNet over a grid of cell kinds: groups of [convolution, residual block x `blocks_per_group`], then flattened.

    Strides are 1 and borders are padded: a grid of any size keeps its size.
    """

    channels: Sequence[int] = (256, 256, 512, 512)
    num_cell_kinds: int = 7
    blocks_per_group: int = 2
    kernel_size: int = 3
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes(
            "ResNet",
            channels=self.channels,
            num_cell_kinds=self.num_cell_kinds,
            blocks_per_group=self.blocks_per_group,
            kernel_size=self.kernel_size,
        )
        if not self.channels:
            raise ValueError("ResNet needs the channels of at least one group, got none.")
        super().__post_init__()

    @nn.compact
    def __call__(self, observation: Observation) -> Float[Array, " F"]:
        cells: Integer[Array, "height width"] = only_leaf(observation, "ResNet", (None, None))
        x = jax.nn.one_hot(cells, self.num_cell_kinds, dtype=self.dtype)
        for features in self.channels:

            def layer(gain: float, features: int = features) -> nn.Module:
                return nn.Conv(
                    features,
                    (self.kernel_size, self.kernel_size),
                    dtype=self.dtype,
                    kernel_init=nn.initializers.orthogonal(gain),
                )

            x = layer(1.0)(x)
            for _ in range(self.blocks_per_group):
                x = ResidualBlock(layer, self.blocks_per_group * len(self.channels))(x)
        return jnp.ravel(nn.relu(x))


# --- Images -----------------------------------------------------------------------------------------------------------

#: Sides of the features at which convolutions stop to halve them.
SMALLEST_SIDE = 8


def is_image(leaf: Any) -> bool:
    """Returns True for [height, width, channels] of at least 8 x 8: numbers in float32, bytes, or truth values."""
    dtype = jnp.dtype(leaf.dtype)
    has_kind = jnp.issubdtype(dtype, jnp.floating) or dtype in (jnp.dtype(jnp.uint8), jnp.dtype(jnp.bool_))
    return has_kind and len(leaf.shape) == 3 and min(leaf.shape[:2]) >= 8


class CNN(nn.Module):
    """Convolutions over each image of an observation, then a layer over their features and all other numbers.

    A layer has kernels of 3 x 3 and halves the image while both of its sides are over 8. Bytes are divided by 255.
    """

    channels: Sequence[int] = (32, 64, 64, 64)
    width: int = 256
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes("CNN", channels=self.channels, width=self.width)
        if not self.channels:
            raise ValueError("A CNN needs the channels of at least one layer, got none.")
        super().__post_init__()

    @nn.compact
    def __call__(self, observation: Observation) -> Float[Array, " width"]:
        features = [
            self._convolve(leaf) if is_image(leaf) else flatten(leaf).astype(self.dtype)
            for leaf in jax.tree.leaves(observation)
        ]
        return nn.relu(dense(self.width, HIDDEN_GAIN, self.dtype)(jnp.concatenate(features)))

    def _convolve(self, image: Shaped[Array, "height width channels"]) -> Float[Array, " F"]:
        x = image.astype(self.dtype) / (255.0 if image.dtype == jnp.uint8 else 1.0)
        for channels in self.channels:
            stride = 2 if min(x.shape[:2]) > SMALLEST_SIDE else 1
            kernel_init = nn.initializers.orthogonal(HIDDEN_GAIN)
            x = nn.relu(nn.Conv(channels, (3, 3), stride, dtype=self.dtype, kernel_init=kernel_init)(x))
        return jnp.ravel(x)
