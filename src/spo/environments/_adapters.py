"""Helpers of the adapters to other libraries: imports, options, and arrays of one layout."""

import contextlib
import functools
import importlib
import io
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jaxtyping import UInt8

from spo.installation import install_hint
from spo.known_environments import suggest_environments
from spo.types import Bool, PyTree

#: Receives what other libraries print. It passes nothing on to the terminal; a run's log adds itself as a handler.
LOG = logging.getLogger("spo.libraries")
LOG.propagate = False
LOG.addHandler(logging.NullHandler())


def require(module: str, extra: str) -> ModuleType:
    """Imports `module`. The error names the extra of this package that installs it."""
    package = module.partition(".")[0]
    begun = module in sys.modules  # perhaps by another thread, which `import_module` waits for
    try:
        with contextlib.nullcontext() if begun else output_to_log(package):
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the library is installed and lacks a dependency of its own
        raise ModuleNotFoundError(
            f"The package {package} is not installed: {install_hint(extra)}.", name=package
        ) from error


#: Held by the thread that has redirected the streams of the process, or the warnings of MuJoCo.
_streams = threading.RLock()


@contextlib.contextmanager
def output_to_log(package: str) -> Iterator[None]:
    """Sends what a library prints to the logger "spo.libraries", which a run's log collects.

    The output of compiled code is included, which writes to the file descriptors of the process. Another thread that
    calls this waits: the streams belong to all threads. So a library that `require` imports must not import a module
    that builds an environment on import. Two threads that import one each would wait for each other.
    """
    with _streams, tempfile.TemporaryFile() as file, contextlib.ExitStack() as stack:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):  # a process without this stream
                original = os.dup(descriptor)
                os.dup2(file.fileno(), descriptor)
                stack.callback(os.close, original)
                stack.callback(os.dup2, original, descriptor)
        # A stream of Python need not be that of the process, in a notebook for example.
        printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        try:
            yield
        finally:
            stack.close()
            file.seek(0)
            lines = printed.getvalue() + file.read().decode("utf-8", "replace")
            if lines.strip():
                LOG.warning("%s printed: %s", package, lines.strip())


@contextlib.contextmanager
def mujoco_warnings_to_log() -> Iterator[None]:
    """Sends MuJoCo's warnings to the same logger. By itself it appends them to MUJOCO_LOG.TXT in the current folder.

    Another thread that calls this waits.
    """
    mujoco = importlib.import_module("mujoco")
    with _streams:
        handler = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda text: LOG.warning("mujoco: %s", text))
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(handler)


def check_options(owner: str, given: Collection[str], allowed: Iterable[str]) -> None:
    """Raises ValueError with the allowed options if `given` has another one."""
    allowed = sorted(allowed)
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        takes = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
        raise ValueError(f"{owner} has no option {', '.join(map(repr, unknown))}: {takes}.")


def unknown_name(library: str, family: str, name: str, known: Iterable[str]) -> ValueError:
    """Returns the error for a name that a library does not have. It names the closest ones.

    Args:
      library: title of the library.
      family: family of its environments, such as "jumanji".
      name: the unknown name, such as "snakes".
      known: names of the library, without the family.
    """
    closest = suggest_environments(f"{family}/{name}", [f"{family}/{one}" for one in known])
    return ValueError(f"{library} has no environment {name!r}. {closest}")


def jit_foreign(function: Callable[..., Any]) -> Callable[..., Any]:
    """Traces a function of another library once for each kind of arguments, with rank promotion allowed.

    This package runs with rank promotion forbidden in its tests. Tracing once saves seconds with physics, because an
    environment is stepped in several places of a program. `inline` leaves the compiled program unchanged.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return function(*arguments)

    return jax.jit(wrapped, inline=True)


def specs_of(tree: PyTree[Any]) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a pytree of arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def cast_like(specs: PyTree[jax.ShapeDtypeStruct], tree: PyTree[Any]) -> PyTree[jax.Array]:
    """Casts the leaves of `tree` to the dtypes of `specs`, without weak types.

    Some libraries return a Python number or a weakly typed array from `step` where `reset` returned an array. A scan
    refuses a carry whose type changes.
    """
    return jax.tree.map(lambda spec, leaf: jax.lax.convert_element_type(leaf, spec.dtype), specs, tree)


def draw_channels(
    observation: Bool[np.ndarray, "height width channels"], pixels_per_cell: int = 24
) -> UInt8[np.ndarray, "height_pixels width_pixels 3"]:
    """Draws a grid of Boolean channels, one colour for each channel. In a cell with several, the last one is shown."""
    hues = np.linspace(0.0, 2 * np.pi, observation.shape[-1], endpoint=False)[:, None] + np.array([0.0, 2.1, 4.2])
    colours = np.concatenate([np.zeros((1, 3)), 150 + 100 * np.cos(hues)]).astype(np.uint8)
    shown = np.max(observation * np.arange(1, observation.shape[-1] + 1), axis=-1)
    return colours[shown].repeat(pixels_per_cell, axis=0).repeat(pixels_per_cell, axis=1)
