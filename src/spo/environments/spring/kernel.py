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


#: Rows that a thread reads or writes by one instruction of 16 bytes.
ROWS_AT_ONCE = 4


def _run_by_pallas(
    function: RowFunction, num_rows_out: int, shape: KernelShape, interpret: bool, rows_in: Float[Array, "B rows_in W"]
) -> Float[Array, "B rows_out W"]:
    """One member per thread. A block is contiguous, so neighbouring threads read neighbouring words.

    Triton's compiler analyses the whole kernel anew for every load and store of the source. With one for each row, that
    would take most of the time in which it compiles. So a block is loaded and stored in a few parts.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    batch, num_rows_in, width = rows_in.shape
    num_threads = shape.block_size * width
    # Padded with copies of the last environment. Zeros would be bodies without a rotation, which give NaNs.
    rows_in = _pad_with_last(rows_in, axis=0, multiple=shape.block_size)
    rows_in = _pad_with_last(rows_in, axis=1, multiple=ROWS_AT_ONCE)
    num_blocks = rows_in.shape[0] // shape.block_size
    rows_in = rows_in.reshape(num_blocks, shape.block_size, -1, ROWS_AT_ONCE, width)
    blocks_in = rows_in.transpose(0, 2, 1, 4, 3).reshape(num_blocks, -1, num_threads, ROWS_AT_ONCE)
    size_in, size_out = blocks_in.shape[1], -(-num_rows_out // ROWS_AT_ONCE)

    def kernel(block_in: Any, block_out: Any) -> None:
        rows: list[Number] = []
        for part in _parts(size_in):
            rows += _unstack(block_in[part].swapaxes(1, 2).reshape(-1, num_threads))
        rows_out = function(rows[:num_rows_in])
        rows_out += rows_out[-1:] * (-num_rows_out % ROWS_AT_ONCE)
        for part in _parts(size_out):
            stacked = _stack(rows_out[part.start * ROWS_AT_ONCE : part.stop * ROWS_AT_ONCE])
            block_out[part] = stacked.reshape(-1, ROWS_AT_ONCE, num_threads).swapaxes(1, 2)

    def blocks(size: int) -> Any:
        return pallas.BlockSpec((None, size, num_threads, ROWS_AT_ONCE), lambda program: (program, 0, 0, 0))

    blocks_out = pallas.pallas_call(
        kernel,
        grid=(num_blocks,),
        in_specs=[blocks(size_in)],
        out_specs=blocks(size_out),
        out_shape=jax.ShapeDtypeStruct((num_blocks, size_out, num_threads, ROWS_AT_ONCE), rows_in.dtype),
        compiler_params=triton.CompilerParams(num_warps=shape.num_warps, num_stages=1),
        interpret=interpret,
        name="spring_physics",
    )(blocks_in)
    rows_out = blocks_out.reshape(num_blocks, size_out, shape.block_size, width, ROWS_AT_ONCE)
    rows_out = rows_out.transpose(0, 2, 1, 4, 3).reshape(num_blocks * shape.block_size, -1, width)
    return rows_out[:batch, :num_rows_out]


def _pad_with_last(array: Array, axis: int, multiple: int) -> Array:
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, -array.shape[axis] % multiple)
    return jnp.pad(array, padding, mode="edge")


def _parts(size: int) -> list[slice]:
    """Returns slices of a sequence. Their lengths are powers of two, as Triton's arrays must be."""
    parts, start = [], 0
    while start < size:
        length = 1 << ((size - start).bit_length() - 1)
        parts.append(slice(start, start + length))
        start += length
    return parts


def _unstack(array: Float[Array, "N T"]) -> list[Float[Array, " T"]]:
    """Returns the rows of an array. For Triton, Pallas can split an array in half, and can't index it."""
    if array.shape[0] == 1:
        return [array.reshape(-1)]
    return [row for half in jnp.split(array, 2) for row in _unstack(half)]


def _stack(rows: Sequence[Number]) -> Float[Array, "N T"]:
    """Returns the rows as one array. For Triton, Pallas can join two arrays along a new last axis."""
    if len(rows) == 1:
        return rows[0][None]
    halves = [_stack(half)[..., None] for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :])]
    return jnp.concatenate(halves, axis=-1).transpose(2, 0, 1).reshape(len(rows), -1)
