"""Errors of a device or host that has too little memory, as one sentence."""

import contextlib
import errno
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

#: Settings that decide the size of a program.
LOWER = (
    "Lower one of these: --num-seeds, --num-envs, --search.num-particles, --batch-size, --replay-size, "
    "--evaluation.final-episodes, --episodes."
)
#: Words in the errors of XLA, NumPy and C++ for the CPU and for GPUs, in lower case.
_WORDS = ("resource_exhausted", "out of memory", "unable to allocate", "cannot allocate memory", "bad_alloc")


class OutOfMemory(MemoryError):
    """A device or the host has too little memory. The message names the largest array and settings to lower."""


@contextlib.contextmanager
def explaining(state: Callable[[], Any], advice: str = LOWER) -> Iterator[None]:
    """Turns errors about memory into `OutOfMemory`.

    Args:
      state: returns a tree of abstract arrays, of which the largest is named.
      advice: the last sentence of the message.
    """
    try:
        yield
    except OutOfMemory:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"{_failure(error)} The largest array of the training state is {largest_array(state())}. {advice}"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True for an error about memory of any device."""
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        return False  # a full disk is a "resource exhausted" too
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in _WORDS)


def describe(error: BaseException) -> str:
    """Returns the message of an error about memory."""
    return str(error) if isinstance(error, OutOfMemory) else f"{_failure(error)} {LOWER}"


def largest_array(tree: Any) -> str:
    """Returns name, type, shape and size of the largest array of a tree."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    path, leaf = max(leaves, key=lambda item: _num_bytes(item[1]))
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return f"{name}, {leaf.dtype.name}{list(leaf.shape)}, {format_bytes(_num_bytes(leaf))}"


def _failure(error: BaseException) -> str:
    """Returns a sentence with the size that could not be allocated, if the error has it."""
    text = str(error)
    if found := re.search(r"allocat\w* (\d+) ?bytes", text):
        return f"There is too little memory: {format_bytes(int(found[1]))} could not be allocated."
    if found := re.search(r"allocat\w* ([\d.]+ ?[KMGTP]i?B)", text):
        return f"There is too little memory: {found[1]} could not be allocated."
    return "There is too little memory."


def _num_bytes(leaf: Any) -> int:
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def format_bytes(num_bytes: int) -> str:
    """Returns a number of bytes with its unit: "273 kB", "1.2 GB"."""
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:,.1f} kB" if num_bytes < 1e5 else f"{num_bytes / 1e3:,.0f} kB"
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"
