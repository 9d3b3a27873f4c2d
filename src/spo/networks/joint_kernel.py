"""Q(s, a) of many actions in one state, by an MLP as one GPU kernel.

XLA writes the features of every layer to memory and reads them again, for the product and for the activation. The
kernel avoids this traffic: it keeps the features of a block of actions in registers, from the first layer to the
output. It has not been timed yet. `benchmarks/q_values.py` compares its time with XLA's.

Factors of its products have the 10 bits of TF32, but the range of float16. Numbers far below the largest one of their
state and action, or of their column of a weight matrix, are therefore less exact than in TF32: those below 6e-5 of it.
"""

import functools
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from spo.networks.torsos import Activation
from spo.types import Array, Float, PyTree

#: (params, observation, actions [K, A]) -> Q of each action
ValuesFn: TypeAlias = Callable[[PyTree[Array], Any, Float[Array, "K A"]], Float[Array, " K"]]


class Layers(NamedTuple):
    """Parameters of the MLP. The first layer reads the observation, then the action."""

    kernels: Sequence[Float[Array, "inputs width"]]
    biases: Sequence[Float[Array, " width"]]
    output_kernel: Float[Array, " width"]
    output_bias: Float[Array, ""]


#: Actions of one program of the kernel, features that it computes at a time, and its warps of 32 threads. SMC-ENT has
#: 64 actions for each state.
BLOCK_SIZE, CHUNK_SIZE, NUM_WARPS = 64, 128, 4
#: Up to this width, the features of a block fit into registers.
LARGEST_WIDTH = 256
#: Rows and columns of a product in Triton, at least.
SMALLEST_SIZE = 16
#: Numbers are divided by the largest of them, or by this if all are smaller.
SMALLEST_SCALE = 1e-30
#: Activations that the kernel was tested with, each with its form in the kernel. Triton's maximum drops NaN.
ACTIVATIONS: Mapping[Activation, Activation] = {nn.silu: nn.silu, nn.relu: lambda x: jnp.where(x <= 0.0, 0.0, x)}
#: With JAX 0.10, XLA's compiler fails at MPO's update on Ant if it contains the kernel.
OLDEST_JAX = (0, 11)
#: GPUs without TF32, by the start of their compute capability: those before Ampere.
WITHOUT_TF32 = ("5.", "6.", "7.")


def make_values_fn(
    plain: ValuesFn,
    inputs_and_layers: Callable[[PyTree[Array], Any], tuple[Float[Array, " F"], Layers]],
    activation: Activation,
    interpret: bool = False,
) -> ValuesFn:
    """Returns `plain`, computed by the kernel on NVIDIA GPUs where the network and the number of actions suit it.

    `inputs_and_layers` returns the observation as a vector, and the parameters of the layers. `interpret` interprets
    the kernel on any device. Derivatives are those of `plain`.
    """

    def by_kernel(params: PyTree[Array], observation: Any, actions: Float[Array, "K A"]) -> Float[Array, " K"]:
        inputs, layers = inputs_and_layers(params, observation)
        return _apply(activation, layers, inputs, actions, interpret)

    @jax.custom_jvp
    def fused(params: PyTree[Array], observation: Any, actions: Float[Array, "K A"]) -> Float[Array, " K"]:
        if interpret:
            return by_kernel(params, observation, actions)
        return jax.lax.platform_dependent(params, observation, actions, cuda=by_kernel, default=plain)

    fused.defjvp(lambda inputs, tangents: jax.jvp(plain, inputs, tangents))

    def values_fn(params: PyTree[Array], observation: Any, actions: Float[Array, "K A"]) -> Float[Array, " K"]:
        if not interpret:
            if jax.default_backend() != "gpu":
                return plain(params, observation, actions)
            layers = jax.eval_shape(lambda: inputs_and_layers(params, observation)[1])
            if not can_use_kernel(activation, layers, actions):
                return plain(params, observation, actions)
        return fused(params, observation, actions)

    return values_fn


def can_use_kernel(activation: Activation, layers: Layers, actions: Float[Array, "K A"]) -> bool:
    """Returns True where the kernel is possible, and XLA's products would be no more exact."""
    widths = {kernel.shape[1] for kernel in layers.kernels}
    return (
        jax.__version_info__ >= OLDEST_JAX
        and importlib.util.find_spec("jax.experimental.pallas.triton") is not None
        and _uses_tf32()
        and activation in ACTIVATIONS
        and all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((layers, actions)))
        and len(widths) == 1
        and max(widths) <= LARGEST_WIDTH
        and max(widths) % CHUNK_SIZE == 0
        and actions.shape[0] % BLOCK_SIZE == 0
    )


def _uses_tf32() -> bool:
    """Returns True where XLA rounds the factors of products to TF32."""
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    return (
        precision in (None, "default", "tensorfloat32")
        and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
        and not capability.startswith(WITHOUT_TF32)
    )


def _apply(
    activation: Activation,
    layers: Layers,
    inputs: Float[Array, " F"],
    actions: Float[Array, "K A"],
    interpret: bool,
) -> Float[Array, " K"]:
    """Runs one program per block of actions. The observation's part of the first layer is computed before, once."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    (num_actions, action_size), width = actions.shape, layers.output_kernel.shape[0]
    chunks = [slice(start, start + CHUNK_SIZE) for start in range(0, width, CHUNK_SIZE)]

    of_inputs, of_actions = jnp.split(layers.kernels[0], [inputs.shape[0]])
    base = inputs @ of_inputs + layers.biases[0]
    padding = max(SMALLEST_SIZE, 1 << (action_size - 1).bit_length()) - action_size
    actions = jnp.pad(actions, ((0, 0), (0, padding)))
    kernels = [jnp.pad(of_actions, ((0, padding), (0, 0))), *layers.kernels[1:]]
    scales = [jnp.maximum(jnp.max(jnp.abs(kernel), axis=0, keepdims=True), SMALLEST_SCALE) for kernel in kernels]
    kernels = [(kernel / scale).astype(jnp.float16) for kernel, scale in zip(kernels, scales, strict=True)]

    def program(
        actions_ref: Any, kernel_refs: Any, scale_refs: Any, bias_refs: Any, output_ref: Any, values_ref: Any
    ) -> None:
        features, rows = [actions_ref[...]], [slice(None)]  # in parts of their columns, with the rows of the kernel
        for kernel_ref, scale_ref, bias_ref in zip(kernel_refs, scale_refs, bias_refs, strict=True):
            factors, scale = _as_factors(features)
            features = [
                ACTIVATIONS[activation](
                    scale * scale_ref[:, chunk] * _sum_of_products(factors, kernel_ref, rows, chunk)
                    + bias_ref[chunk][None, :]
                )
                for chunk in chunks
            ]
            rows = chunks
        parts = [
            jnp.sum(part * output_ref[chunk][None, :], axis=1) for part, chunk in zip(features, chunks, strict=True)
        ]
        values_ref[...] = functools.reduce(jnp.add, parts)

    def whole(array: Array) -> Any:
        return pallas.BlockSpec(array.shape, lambda _: (0,) * array.ndim)

    shared = (kernels, scales, [base, *layers.biases[1:]], layers.output_kernel)
    values = pallas.pallas_call(
        program,
        grid=(num_actions // BLOCK_SIZE,),
        in_specs=(
            pallas.BlockSpec((BLOCK_SIZE, actions.shape[1]), lambda block: (block, 0)),
            *jax.tree.map(whole, shared),
        ),
        out_specs=pallas.BlockSpec((BLOCK_SIZE,), lambda block: (block,)),
        out_shape=jax.ShapeDtypeStruct((num_actions,), jnp.float32),
        compiler_params=triton.CompilerParams(num_warps=NUM_WARPS, num_stages=1),
        interpret=interpret,
        name="joint_mlp",
    )(actions, *shared)
    return values + layers.output_bias


def _as_factors(parts: Sequence[Array]) -> tuple[list[Array], Array]:
    """Returns the parts of rows [rows, columns] in float16, and the scale [rows, 1] of products with them.

    A GPU of NVIDIA rounds float32 factors to the 10 bits of TF32 by default. float16 has as many, in half the memory,
    and NVIDIA's data sheets give twice the rate for its products. Rows are divided by their largest number, so that
    none overflows, and the columns of the kernels likewise.
    """
    largest = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(part), axis=1, keepdims=True) for part in parts])
    scale = jnp.maximum(largest, SMALLEST_SCALE)
    inverse = 1.0 / scale
    return [(part * inverse).astype(jnp.float16) for part in parts], scale


def _sum_of_products(factors: Sequence[Array], kernel_ref: Any, rows: Sequence[slice], columns: slice) -> Array:
    """Returns the product of the rows, cut into parts, with the columns of a kernel."""
    products = [
        jnp.dot(factor, kernel_ref[row, columns], preferred_element_type=jnp.float32)
        for factor, row in zip(factors, rows, strict=True)
    ]
    return functools.reduce(jnp.add, products)
