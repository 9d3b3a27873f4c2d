"""What every benchmark shares: a fair clock, and rows that say where they come from."""

import datetime
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import jax


def median_seconds(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and spread (half the interquartile range) of the time of one call, compilation and warm-up left out."""
    for _ in range(2):
        jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    if repeats < 4:
        return statistics.median(seconds), max(seconds) - min(seconds)
    lower, _, upper = statistics.quantiles(seconds, n=4)
    return statistics.median(seconds), (upper - lower) / 2


def provenance() -> dict[str, str]:
    """Where a figure comes from: no figure travels without it."""
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "python": sys.version.split()[0],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python " + " ".join(sys.argv),
    }


def write_rows(rows: list[dict], path: pathlib.Path | None) -> None:
    """The rows as JSON, one row a line so that a change of figures reads well in a diff."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(rows)} rows written to {path}")
