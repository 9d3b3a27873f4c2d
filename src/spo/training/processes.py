"""Training with several processes, one on each host, over a mesh of all their devices.

All processes run the same program on the same numbers. Only process 0 writes files and messages. The processes share a
file system.

They end in one of two ways:

-   Together, after a signal to any of them. At the end of an interval they compare their signals with
    `max_over_processes`. `spo.training.agreement` stops them during a long interval. All save the same state, and
    `end_together` waits for the last one.
-   One by one, after an error in one of them. `leaving_on_failure` ends this process at once. The others lose it: a
    collective operation fails, or JAX misses its heartbeat and aborts. They end with `LOST_CODE`.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils

from spo.types import PRNGKey

#: Seconds without a sign of life after which a process counts as lost.
HEARTBEAT_SECONDS = 30
#: Seconds for which a process waits for all others to start. $SPO_JOIN_SECONDS replaces it.
JOIN_SECONDS = 45
#: Exit code of a process that has lost another one: that of a temporary failure in sysexits.h.
LOST_CODE = 75
#: Words in the errors of collective operations and barriers that another process has left.
LOST_WORDS = (
    *("gloo", "nccl", "connection closed", "connection reset", "socket closed", "unavailable"),
    *("barrier", "heartbeat", "coordination service", "coordination_service"),
)

#: Longest wait for another process, which may compile or evaluate meanwhile. A lost process is noticed much earlier.
EXCHANGE_MILLISECONDS = 24 * 60 * 60 * 1000

#: Name and number of the next exchange. All processes make the same exchanges, so equal numbers belong together.
_exchanges: dict[str, Any] = {"folder": "spo/run", "count": 0}
_handlers: list[Any] = []  # C functions that must not be deleted


def join() -> None:
    """Connects this process to the others. Call it before any other use of JAX.

    Under Slurm, Open MPI, Kubernetes and on Cloud TPUs, JAX finds the other processes by itself. Elsewhere, set
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    num_processes, process_id = (os.environ.get(name) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
    seconds = os.environ.get("SPO_JOIN_SECONDS") or str(JOIN_SECONDS)
    if not seconds.isdecimal():
        raise ValueError(f"SPO_JOIN_SECONDS must be a whole number of seconds, got {seconds!r}.")
    # JAX's own handler of SIGTERM would replace that of the loop.
    jax.config.update("jax_enable_preemption_service", False)
    late = (
        f"Not all processes have joined within {seconds} seconds: start them together, or set SPO_JOIN_SECONDS to a "
        "longer time."
    )
    explain_aborts(late)
    try:
        jax.distributed.initialize(
            num_processes=None if num_processes is None else int(num_processes),
            process_id=None if process_id is None else int(process_id),
            initialization_timeout=int(seconds),
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except ValueError as error:
        raise ValueError(
            f"The other processes can't be found ({str(error).rstrip('.')}): set JAX_COORDINATOR_ADDRESS (host:port of "
            "process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID (from 0) for each of them."
        ) from None
    except RuntimeError as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            raise
        raise OSError(late) from None
    explain_aborts(lost_sentence("FOLDER"))


@contextlib.contextmanager
def leaving_on_failure(folder: Path) -> Iterator[None]:
    """Ends this process at once after an error that the others may not have. They notice it and end as well.

    Without this, the process would wait for the others at its end, and they for it.
    """
    if jax.process_count() == 1:
        yield
        return
    explain_aborts(lost_sentence(folder))
    try:
        yield
    except FloatingPointError:
        raise  # in all processes alike
    except Exception as error:
        if any(word in str(error).lower() for word in LOST_WORDS):
            _leave(lost_sentence(folder), LOST_CODE)
        _leave(str(error) or type(error).__name__, 2)


def lost_sentence(folder: Path | str) -> str:
    """Returns the sentence of a process that has lost another one."""
    return (
        "Another process of this run has ended or can't be reached, so this one ends too: start all of them again with "
        f"`spo train --resume {folder} --distributed`."
    )


def end_together(error: BaseException) -> None:
    """Waits for all processes, which end now. A process that ends a little later must not count the others as lost."""
    if jax.process_count() > 1:
        wait_for_all()
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 130
        explain_aborts("", code)


def explain_aborts(sentence: str, code: int = LOST_CODE) -> None:
    """Replaces the core dump with a sentence: JAX aborts in a thread of its own if it has lost another process."""

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handle(number: int) -> None:
        del number
        _leave(sentence, code)

    _handlers.append(handle)
    # Not `signal.signal`: its handlers run in the main thread, later, and `abort` does not wait.
    ctypes.CDLL(None).signal(int(signal.SIGABRT), handle)


def _leave(sentence: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        if sentence:
            print(f"spo: {sentence}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(code)


def is_first() -> bool:
    """Returns True in process 0, which writes files and messages."""
    return jax.process_index() == 0


def wait_for_all() -> None:
    """Waits until every process has called this function."""
    _exchange(0)


def broadcast_from_process_0(decision: bool) -> bool:
    """Returns the decision of process 0 in every process. Clocks differ, and a checkpoint needs all processes."""
    return bool(_exchange(int(decision))[0])


def max_over_processes(number: int) -> int:
    """Returns the largest number of all processes in every process."""
    return max(_exchange(number))


def publish(name: str, value: int) -> None:
    """Makes a number known to all processes."""
    _client().key_value_set(name, str(value), allow_overwrite=True)


def published(folder: str) -> dict[str, int]:
    """Returns the numbers that any process has published under names in `folder/`, without that part."""
    return {name.removeprefix(folder): int(value) for name, value in _client().key_value_dir_get(folder)}


def restart_exchanges() -> None:
    """Counts exchanges from 0 again, under another name. Processes that stop early are at different places."""
    _exchanges["folder"], _exchanges["count"] = "spo/end", 0


def _exchange(value: int) -> list[int]:
    """Returns the values of all processes, in every process. They make the same calls in the same order.

    The values do not pass through the devices, which may run a program that was given up.
    """
    if jax.process_count() == 1:
        return [value]
    count, rank = _exchanges["count"], jax.process_index()
    _exchanges["count"] = count + 1
    folder = f"{_exchanges['folder']}/{count}"
    publish(f"{folder}/{rank}", value)
    values = [
        int(_client().blocking_key_value_get(f"{folder}/{other}", EXCHANGE_MILLISECONDS))
        for other in range(jax.process_count())
    ]
    if count >= 2:  # all processes have read it: they have written the one after it
        _client().key_value_delete(f"{_exchanges['folder']}/{count - 2}/{rank}")
    return values


def _client() -> Any:
    return distributed.global_state.client


def place_keys(key_data: Any, sharding: jax.sharding.Sharding) -> PRNGKey:
    """Returns random keys on the devices of `sharding`. `jax.device_put` can't place keys on other hosts."""
    return jax.jit(jax.random.wrap_key_data, out_shardings=sharding)(key_data)


def to_host(tree: Any) -> Any:
    """Returns a tree of whole NumPy arrays. The parts that other processes hold are gathered."""

    def fetch(x: jax.Array) -> np.ndarray:
        if x.is_fully_addressable or x.is_fully_replicated:
            return np.asarray(x)
        return np.asarray(multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(fetch, tree)
