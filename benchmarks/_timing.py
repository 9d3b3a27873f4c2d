"""Timing, hardware, provenance and output of rows, shared by all benchmarks."""

import datetime
import functools
import json
import pathlib
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable

import jax

from spo.provenance import command_line, git_commit, num_cores


def typical_seconds(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Returns the seconds of one call and their spread (half the interquartile range), without compilation and warm-up.

    On a GPU it is the median of the wall-clock times. On a CPU, which other programs share, it is the mean of the
    processor times of all our threads together. Some systems add the time of a running thread to the process only every
    few milliseconds, so that one call lacks what the next one has too much: a minimum would be too short.
    """
    on_cpu = jax.default_backend() == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    for _ in range(2):
        jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = clock()
        jax.block_until_ready(function())
        seconds.append(clock() - start)
    typical = statistics.fmean(seconds) if on_cpu else statistics.median(seconds)
    if repeats < 4:
        return typical, max(seconds) - min(seconds)
    lower, _, upper = statistics.quantiles(seconds, n=4)
    return typical, (upper - lower) / 2


def hardware() -> str:
    """Returns the kind of GPU, or "CPU" with the number of cores that this process may use."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    return f"CPU, {num_cores()} cores"


def processor() -> str:
    """Returns the name of the processor as far as the system provides it."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1].strip() if named else platform.processor() or platform.machine()


@functools.cache
def _commit() -> str | None:
    return git_commit()


def provenance() -> dict[str, str | None]:
    """Returns hardware, versions, commit, date and command: every stored row has them."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "device": hardware(),
        "processor": processor(),
        "jax": jax.__version__,
        "python": sys.version.split()[0],
        "commit": _commit(),
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M:%S"),
        "command": command_line(),
    }


def write_rows(rows: list[dict], path: pathlib.Path | None) -> None:
    """Writes the rows as JSON, one row per line, so that a diff shows which rows changed."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(rows)} rows written to {path}")
