"""What every benchmark shares: a fair clock, and rows that say where they come from."""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable

import jax


def typical_seconds(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The time of one call, compilation and warm-up left out, and its spread (half the interquartile range).

    It is the median. On a CPU, which other programs share, it is the least time that our own threads took together:
    what others take does not count.
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
    typical = min(seconds) if on_cpu else statistics.median(seconds)
    if repeats < 4:
        return typical, max(seconds) - min(seconds)
    lower, _, upper = statistics.quantiles(seconds, n=4)
    return typical, (upper - lower) / 2


def hardware() -> str:
    """What figures are compared on: the kind of GPU, or a CPU with so many cores for us."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU, {cores} cores"


def processor() -> str:
    """Its name, where the system tells."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1].strip() if named else platform.processor() or platform.machine()


def provenance() -> dict[str, str]:
    """Where a figure comes from: no figure travels without it."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "device": hardware(),
        "processor": processor(),
        "jax": jax.__version__,
        "python": sys.version.split()[0],
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M:%S"),
        "command": "python " + " ".join(sys.argv),
    }


def write_rows(rows: list[dict], path: pathlib.Path | None) -> None:
    """The rows as JSON, one row a line so that a change of figures reads well in a diff."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(rows)} rows written to {path}")
