"""Seconds from building a run to the end of its first iteration, with and without compiled programs kept from before.

    python benchmarks/first_update.py --out results/benchmarks/h200/first_update.json
    python benchmarks/first_update.py --presets default paper/rubiks_cube --num-envs 64       on a CPU
    python benchmarks/first_update.py --presets paper/boxoban --task.allow-partial       with options of `spo train`
    python benchmarks/first_update.py --tiny                                                  that it runs

Each preset is started twice as `spo train`, in programs of their own, and stopped once it has learned something: with
an empty cache, and with what the first start left in it. A run is judged before it learns anything, so that the time is
that of compiling, of an evaluation and of one iteration; how much of it had passed when it was judged is in the rows,
too. Where there are cores for it, `--side-by-side` starts all presets at once; they then wait for each other a little,
and the rows say so.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import _timing

from spo import presets

#: One iteration, and few episodes: with many, a small machine would be measured playing them.
SHORT = ["--steps", "1", "--logs-per-evaluation", "1", "--evaluation.num-evaluations", "1"]
SHORT += ["--evaluation.episodes", "16"]
TINY = ["--num-envs", "4", "--rollout-length", "4", "--sequence-length", "4", "--batch-size", "4", "--num-updates", "2"]
TINY += ["--replay-size", "64", "--network.width", "16"]


class Start(NamedTuple):
    """Seconds by the run's own clock, which starts once Python and JAX are there."""

    judged: float
    updated: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--presets", nargs="+", default=list(presets.PRESETS), choices=presets.PRESETS)
    parser.add_argument("--num-envs", type=int, help="instead of the preset's")
    parser.add_argument("--side-by-side", action="store_true", help="all presets at once")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, and the preset default only")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options, train_options = parser.parse_known_args()
    chosen = ["default"] if options.tiny else options.presets
    rows: list[dict[str, Any]] = []
    with concurrent.futures.ThreadPoolExecutor(len(chosen) if options.side_by_side else 1) as pool:
        starts = [pool.submit(start_twice, preset, options, train_options) for preset in chosen]
        for preset, both in zip(chosen, starts, strict=True):
            try:
                cold, warm = both.result()
            except RuntimeError as error:
                print(f"{preset} does not run here: {error}", flush=True)
                continue
            rows.append(
                {
                    "preset": preset,
                    "num_envs": options.num_envs or presets.get(preset).config.num_envs,
                    "train_options": train_options,
                    "side_by_side": options.side_by_side,
                    "seconds_with_an_empty_cache": cold.updated,
                    "seconds_with_a_full_cache": warm.updated,
                    "judged_with_an_empty_cache": cold.judged,
                    "judged_with_a_full_cache": warm.judged,
                }
                | _timing.provenance()
            )
            _timing.write_rows(rows, options.out)
            print(
                f"{preset}: {cold.updated:.1f} s to the first update, {warm.updated:.1f} s the second time", flush=True
            )


def start_twice(preset: str, options: argparse.Namespace, train_options: list[str]) -> tuple[Start, Start]:
    sizes = TINY if options.tiny else [] if options.num_envs is None else ["--num-envs", str(options.num_envs)]
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (start(preset, [*sizes, *train_options], pathlib.Path(folder), number) for number in range(2))
    return cold, warm


def start(preset: str, options: list[str], folder: pathlib.Path, number: int) -> Start:
    """Starts a new run, and stops it after its first update."""
    run = folder / f"run{number}"
    command = [sys.executable, "-m", "spo", "train", preset, "--quiet", "--run", str(run), *SHORT, *options]
    environment = os.environ | {"SPO_CACHE": str(folder / "cache")}
    said = folder / "said"  # a file takes any amount, where a pipe that nobody reads fills up
    with said.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        while "train" not in (seconds := seconds_by_kind(run / "metrics.jsonl")):
            if process.poll() is not None:
                raise RuntimeError(said.read_text("utf-8").strip().rpartition("\n")[-1])
            time.sleep(0.1)
        process.kill()  # asked to stop, it would first evaluate at length
    return Start(judged=seconds["evaluation"], updated=seconds["train"])


def seconds_by_kind(metrics: pathlib.Path) -> dict[str, float]:
    """When the first record of each kind was written."""
    if not metrics.exists():
        return {}
    lines = metrics.read_text("utf-8").splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written
    return {record["kind"]: record["time"]["wall_seconds"] for record in reversed(records)}


if __name__ == "__main__":
    main()
