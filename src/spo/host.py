"""Less work for the host at the start of a run.

Outside of `jit`, JAX compiles a program for every operation and shape. On a GPU that takes longer than on a CPU.
"""

import contextlib
import gc
import threading
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """Creates and computes arrays on the CPU. They can be used on every device, as a NumPy array can.

    Where JAX may not use the CPU (`JAX_PLATFORMS=cuda`), nothing changes.
    """
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        yield
        return
    with jax.default_device(device):
        yield


#: Number of threads inside `collection_paused`, whether the collector was enabled before, and the lock of both.
_num_paused, _was_enabled = 0, True
_lock = threading.Lock()


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pauses Python's garbage collector: while a program is traced it finds little, and takes a tenth of the time."""
    global _num_paused, _was_enabled
    with _lock:
        if _num_paused == 0:
            _was_enabled = gc.isenabled()
        _num_paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _num_paused -= 1
            if _num_paused == 0 and _was_enabled:
                gc.enable()


def abstract_key() -> jax.ShapeDtypeStruct:
    """Returns shape and type of a random key, for `jax.eval_shape`. Nothing is compiled, as it is for a key."""
    return jax.eval_shape(jax.random.key, 0)
