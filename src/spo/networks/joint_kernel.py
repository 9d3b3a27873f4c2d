"""Q(s, a) of many actions in one state, by an MLP as one GPU kernel.

XLA writes the features of every layer to memory and reads them again, for the product and for the activation. On a GPU
that takes longer than the products. The kernel keeps the features of a block of actions in registers, from the first
layer to the output.
"""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from spo.networks.torsos import Activation
from spo.types import Array, Float, PyTree

#: "pallas" is the kernel, "interpret" is the same kernel interpreted on any device.
Implementation: TypeAlias = Literal["xla", "pallas", "interpret"]
#: (params, observation, actions [K, A]) -> Q of each action
ValuesFn: TypeAlias = Callable[[PyTree[Array], Any, Float[Array, "K A"]], Float[Array, " K"]]


class Layers(NamedTuple):
    """Parameters of the MLP. The first layer reads the observation, then the action."""

    kernels: Sequence[Float[Array, "inputs width"]]
    biases: Sequence[Float[Array, " width"]]
    output_kernel: Float[Array, " width"]
    output_bias: Float[Array, ""]


class KernelShape(NamedTuple):
    """A program computes `block_size` rows, `chunk_size` features at a time, with `num_warps` times 32 threads."""

    block_size: int
    chunk_size: int
    num_warps: int


#: The first one is used whose sizes divide the number of actions and the width of the layers.
SHAPES = (KernelShape(block_size=128, chunk_size=128, num_warps=8), KernelShape(64, 64, 4))
#: Up to this width, the features of a block fit into registers.
LARGEST_WIDTH = 256
#: Rows and columns of a product in Triton, at least.
SMALLEST_SIZE = 16
#: Activations that Triton has.
ACTIVATIONS = (nn.silu, nn.relu)


def make_values_fn(
    plain: ValuesFn,
    inputs_and_layers: Callable[[PyTree[Array], Any], tuple[Float[Array, " F"], Layers]],
    activation: Activation,
    dtype: DTypeLike,
    implementation: Implementation | None = None,
) -> ValuesFn:
    """Returns `plain`, computed by the kernel on NVIDIA GPUs where the network and the number of actions suit it.

    `inputs_and_layers` returns the observation as a vector, and the parameters of the layers. `dtype` is the number
    format of the products. Derivatives are those of `plain`.
    """

    def by_kernel(params: PyTree[Array], observation: Any, actions: Float[Array, "K A"]) -> Float[Array, " K"]:
        inputs, layers = inputs_and_layers(params, observation)
        return _apply(activation, dtype, implementation == "interpret", layers, inputs, actions)

    @jax.custom_jvp
    def fused(params: PyTree[Array], observation: Any, actions: Float[Array, "K A"]) -> Float[Array, " K"]:
        if implementation is not None:
            return by_kernel(params, observation, actions)
        return jax.lax.platform_dependent(params, observation, actions, cuda=by_kernel, default=plain)

    fused.defjvp(lambda inputs, tangents: jax.jvp(plain, inputs, tangents))

    def values_fn(params: PyTree[Array], observation: Any, actions: Float[Array, "K A"]) -> Float[Array, " K"]:
        chosen = implementation
        if chosen is None:
            layers = jax.eval_shape(lambda: inputs_and_layers(params, observation)[1])
            chosen = "pallas" if can_use_kernel(activation, layers, actions) else "xla"
        return plain(params, observation, actions) if chosen == "xla" else fused(params, observation, actions)

    return values_fn


def can_use_kernel(activation: Activation, layers: Layers, actions: Float[Array, "K A"]) -> bool:
    """Returns True where the kernel is possible and as exact as products of XLA are."""
    widths = {kernel.shape[1] for kernel in layers.kernels}
    return (
        jax.default_backend() == "gpu"
        and importlib.util.find_spec("jax.experimental.pallas.triton") is not None
        and jax.config.jax_default_matmul_precision in (None, "default", "tensorfloat32")
        and activation in ACTIVATIONS
        and all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((layers, actions)))
        and len(widths) == 1
        and max(widths) <= LARGEST_WIDTH
        and _choose_shape(actions.shape[0], max(widths)) is not None
    )


def _choose_shape(num_actions: int, width: int) -> KernelShape | None:
    for shape in SHAPES:
        if num_actions % shape.block_size == 0 and width % shape.chunk_size == 0:
            return shape
    return None


def _apply(
    activation: Activation,
    dtype: DTypeLike,
    interpret: bool,
    layers: Layers,
    inputs: Float[Array, " F"],
    actions: Float[Array, "K A"],
) -> Float[Array, " K"]:
    """Runs one program per block of actions. The observation's part of the first layer is computed before, once."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    (num_actions, action_size), width = actions.shape, layers.output_kernel.shape[0]
    shape = _choose_shape(num_actions, width)
    assert shape is not None, (num_actions, width)
    chunks = [slice(start, start + shape.chunk_size) for start in range(0, width, shape.chunk_size)]
    factor_type = jnp.float16 if dtype == jnp.float32 else dtype

    of_inputs, of_actions = jnp.split(layers.kernels[0], [inputs.shape[0]])
    base = (inputs.astype(dtype) @ of_inputs.astype(dtype)).astype(jnp.float32) + layers.biases[0]
    padding = max(SMALLEST_SIZE, 1 << (action_size - 1).bit_length()) - action_size
    actions = jnp.pad(actions, ((0, 0), (0, padding)))
    kernels = [jnp.pad(of_actions, ((0, padding), (0, 0))), *layers.kernels[1:]]
    kernels = [kernel.astype(factor_type) for kernel in kernels]

    def program(actions_ref: Any, kernel_refs: Any, bias_refs: Any, output_ref: Any, values_ref: Any) -> None:
        features, rows = [actions_ref[...]], [slice(None)]  # in parts of their columns, with the rows of the kernel
        for kernel_ref, bias_ref in zip(kernel_refs, bias_refs, strict=True):
            factors, scale = _factors(features, factor_type)
            features = [
                activation(scale * _sum_of_products(factors, kernel_ref, rows, chunk) + bias_ref[chunk][None, :])
                for chunk in chunks
            ]
            rows = chunks
        parts = [jnp.sum(part * output_ref[chunk][None, :], axis=1) for part, chunk in zip(features, chunks)]
        values_ref[...] = functools.reduce(jnp.add, parts)

    def whole(array: Array) -> Any:
        return pallas.BlockSpec(array.shape, lambda _: (0,) * array.ndim)

    shared = (kernels, [base, *layers.biases[1:]], layers.output_kernel)
    values = pallas.pallas_call(
        program,
        grid=(num_actions // shape.block_size,),
        in_specs=(
            pallas.BlockSpec((shape.block_size, actions.shape[1]), lambda block: (block, 0)),
            *jax.tree.map(whole, shared),
        ),
        out_specs=pallas.BlockSpec((shape.block_size,), lambda block: (block,)),
        out_shape=jax.ShapeDtypeStruct((num_actions,), jnp.float32),
        compiler_params=triton.CompilerParams(num_warps=shape.num_warps, num_stages=1),
        interpret=interpret,
        name="joint_mlp",
    )(actions, *shared)
    return values + layers.output_bias


def _factors(parts: Sequence[Array], dtype: Any) -> tuple[list[Array], Array]:
    """Returns the parts of rows [rows, columns] as factors of a product, and the scale [rows, 1] of that product.

    A GPU rounds float32 factors to the 10 bits of TF32 by default. float16 has as many, and products of it are twice
    as fast. Rows are divided by their largest number, so that none overflows.
    """
    if dtype != jnp.float16:
        return [part.astype(dtype) for part in parts], jnp.ones((1, 1), jnp.float32)
    largest = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(part), axis=1, keepdims=True) for part in parts])
    scale = jnp.maximum(largest, 1e-30)
    inverse = 1.0 / scale
    return [(part * inverse).astype(dtype) for part in parts], scale


def _sum_of_products(factors: Sequence[Array], kernel_ref: Any, rows: Sequence[slice], columns: slice) -> Array:
    """Returns the product of the rows, cut into parts, with the columns of a kernel."""
    products = [
        jnp.dot(factor, kernel_ref[row, columns], preferred_element_type=jnp.float32)
        for factor, row in zip(factors, rows, strict=True)
    ]
    return functools.reduce(jnp.add, products)
