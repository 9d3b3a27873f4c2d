"""A function of rows over a batch of environments: compiled by XLA, or as one Pallas kernel."""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from spo.environments.spring.arithmetic import Number
from spo.types import Array, Float

#: "pallas" is the kernel, "interpret" is the same kernel interpreted on any device.
Implementation: TypeAlias = Literal["xla", "pallas", "interpret"]
#: From rows [B * W] to rows [B * W].
RowFunction: TypeAlias = Callable[[Sequence[Number]], list[Number]]


class KernelShape(NamedTuple):
    """A program of the kernel steps `block_size` environments with `num_warps` times 32 threads."""

    block_size: int = 32
    num_warps: int = 4


def batch_rows(
    function: RowFunction, num_rows_out: int, implementation: Implementation | None, shape: KernelShape
) -> Callable[[Float[Array, "B rows_in W"]], Float[Array, "B rows_out W"]]:
    """Maps `function` over a batch of environments.

    Without an implementation, the kernel is used on NVIDIA GPUs and XLA elsewhere. A version of JAX without the Triton
    backend of Pallas, which is due for removal, uses XLA everywhere.
    """
    # Traced once for all kernels: the rows of a block have one shape, whatever the number of blocks.
    function = jax.jit(function, inline=True)

    def xla(rows_in: Float[Array, "B rows_in W"]) -> Float[Array, "B rows_out W"]:
        return _run_by_xla(function, rows_in)

    # Under `jit`, calls with the same shape in one program share one kernel, which is slow to compile.
    @jax.jit
    def pallas(rows_in: Float[Array, "B rows_in W"]) -> Float[Array, "B rows_out W"]:
        return _run_by_pallas(function, num_rows_out, shape, implementation == "interpret", rows_in)

    if implementation is None and importlib.util.find_spec("jax.experimental.pallas.triton"):
        by_platform = functools.partial(_by_platform.bind, cuda=pallas, default=xla, num_rows_out=num_rows_out)
        return jax.jit(by_platform, inline=True)
    return pallas if implementation in ("pallas", "interpret") else xla


#: `jax.lax.platform_dependent` for functions of rows. An implementation is traced when a program is lowered for its
#: platform, and never for shapes alone: its thousands of operations take most of the time in which Ant is traced.
_by_platform = Primitive("spring_physics")


@_by_platform.def_abstract_eval
def _rows_out(rows_in: jax.core.ShapedArray, *, num_rows_out: int, **_: RowFunction) -> jax.core.ShapedArray:
    batch, _num_rows_in, width = rows_in.shape
    return rows_in.update(shape=(batch, num_rows_out, width))


@_by_platform.def_impl
def _evaluate(rows_in: Float[Array, "B rows_in W"], *, default: RowFunction, **_: Any) -> Float[Array, "B rows_out W"]:
    """Evaluates the operation where no program contains it: in `jax.disable_jit`, `jax.checkpoint` or checkify."""
    with jax.disable_jit(False):
        return jax.jit(default)(rows_in)


def _differentiate(rows_in: Any, tangents: Any, *, num_rows_out: int, **functions: RowFunction) -> tuple[Array, Array]:
    """Forward-mode derivatives of the function for the platform."""
    del num_rows_out
    return jax.jvp(lambda rows: jax.lax.platform_dependent(rows, **functions), rows_in, tangents)


ad.primitive_jvps[_by_platform] = _differentiate


def _lower_for(platform: str) -> Callable[..., Any]:
    def lower(context: mlir.LoweringRuleContext, rows_in: Any, *, num_rows_out: int, **functions: RowFunction) -> Any:
        del num_rows_out
        return mlir.lower_fun(functions[platform], multiple_results=False)(context, rows_in)

    return lower


mlir.register_lowering(_by_platform, _lower_for("default"))
mlir.register_lowering(_by_platform, _lower_for("cuda"), platform="cuda")


def _run_by_xla(function: RowFunction, rows_in: Float[Array, "B rows_in W"]) -> Float[Array, "B rows_out W"]:
    batch, num_rows_in, width = rows_in.shape
    rows_out = function(list(rows_in.swapaxes(0, 1).reshape(num_rows_in, -1)))
    return jnp.stack(rows_out).reshape(-1, batch, width).swapaxes(0, 1)


#: Rows that a thread reads or writes by one access of 16 bytes. Triton's compiler analyses the whole kernel anew for each
#: access: with a quarter of them, Humanoid's physics compiles in 12 s instead of 30 (two CPU cores).
ROWS_PER_ACCESS = 4


def _run_by_pallas(
    function: RowFunction, num_rows_out: int, shape: KernelShape, interpret: bool, rows_in: Float[Array, "B rows_in W"]
) -> Float[Array, "B rows_out W"]:
    """One member per thread. A block is contiguous, so neighbouring threads read neighbouring words."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    batch, num_rows_in, width = rows_in.shape
    num_threads = shape.block_size * width
    # Padded with copies of the last environment. Zeros would be bodies without a rotation, which give NaNs.
    rows_in = _pad_with_last(rows_in, axis=0, multiple=shape.block_size)
    rows_in = _pad_with_last(rows_in, axis=1, multiple=ROWS_PER_ACCESS)
    num_blocks, num_accesses_in = rows_in.shape[0] // shape.block_size, rows_in.shape[1] // ROWS_PER_ACCESS
    num_accesses_out = -(-num_rows_out // ROWS_PER_ACCESS)
    blocks_in = rows_in.reshape(num_blocks, shape.block_size, num_accesses_in, ROWS_PER_ACCESS, width)
    blocks_in = blocks_in.transpose(0, 2, 1, 4, 3).reshape(num_blocks, num_accesses_in, num_threads, ROWS_PER_ACCESS)

    def kernel(block_in: Any, block_out: Any) -> None:
        rows = [row for access in range(num_accesses_in) for row in _split(block_in[access])]
        rows_out = function(rows[:num_rows_in])
        rows_out += rows_out[-1:] * (-num_rows_out % ROWS_PER_ACCESS)
        for access in range(num_accesses_out):
            block_out[access] = _join(*rows_out[access * ROWS_PER_ACCESS : (access + 1) * ROWS_PER_ACCESS])

    def blocks(num_accesses: int) -> Any:
        sizes = (None, num_accesses, num_threads, ROWS_PER_ACCESS)
        return pallas.BlockSpec(sizes, lambda program: (program, 0, 0, 0))

    blocks_out = pallas.pallas_call(
        kernel,
        grid=(num_blocks,),
        in_specs=[blocks(num_accesses_in)],
        out_specs=blocks(num_accesses_out),
        out_shape=jax.ShapeDtypeStruct((num_blocks, num_accesses_out, num_threads, ROWS_PER_ACCESS), rows_in.dtype),
        compiler_params=triton.CompilerParams(num_warps=shape.num_warps, num_stages=1),
        interpret=interpret,
        name="spring_physics",
    )(blocks_in)
    rows_out = blocks_out.reshape(num_blocks, num_accesses_out, shape.block_size, width, ROWS_PER_ACCESS)
    rows_out = rows_out.transpose(0, 2, 1, 4, 3).reshape(num_blocks * shape.block_size, -1, width)
    return rows_out[:batch, :num_rows_out]


def _pad_with_last(array: Array, axis: int, multiple: int) -> Array:
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, -array.shape[axis] % multiple)
    return jnp.pad(array, padding, mode="edge")


def _split(columns: Float[Array, "T 4"]) -> list[Float[Array, " T"]]:
    """Returns the four columns. Pallas has no indexing of values for Triton, only splits in half."""
    even, odd = (half.reshape(-1, 2) for half in jnp.split(columns.reshape(-1, 2, 2), 2, axis=2))
    (first, third), (second, fourth) = jnp.split(even, 2, axis=1), jnp.split(odd, 2, axis=1)
    return [column.reshape(-1) for column in (first, second, third, fourth)]


def _join(first: Number, second: Number, third: Number, fourth: Number) -> Float[Array, "T 4"]:
    """Returns the columns side by side. Pallas joins two of one number per row for Triton."""

    def pair(one: Array, other: Array) -> Array:
        return jnp.concatenate([one[..., None], other[..., None]], axis=-1)

    return pair(pair(first, third), pair(second, fourth)).reshape(-1, 4)
