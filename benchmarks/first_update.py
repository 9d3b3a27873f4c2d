"""Seconds from starting a run to the end of its first iteration, with and without compiled programs kept from before.

    python benchmarks/first_update.py --out results/benchmarks/h200/first_update.json
    python benchmarks/first_update.py --presets default paper/rubiks_cube --num-envs 64       on a CPU
    python benchmarks/first_update.py --presets paper/boxoban --task.allow-partial       with options of `spo train`
    python benchmarks/first_update.py --tiny                                                  that it runs

Each preset is started twice as `spo train`, in programs of their own: with an empty cache, and with what the first
start left in it. What is printed is what the run's summary says, which is nearly all compiling. Where there are cores
for it, `--side-by-side` starts all presets at once; they then wait for each other a little, and the rows say so.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import _timing

from spo import presets

#: Enough for one iteration and one short evaluation.
SHORT = ["--steps", "1", "--logs-per-evaluation", "1", "--evaluation.num-evaluations", "1"]
SHORT += ["--evaluation.episodes", "16", "--evaluation.final-episodes", "16"]
TINY = ["--num-envs", "4", "--rollout-length", "4", "--sequence-length", "4", "--batch-size", "4", "--num-updates", "2"]
TINY += ["--replay-size", "64", "--network.width", "16"]


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
            except subprocess.CalledProcessError as error:
                print(f"{preset} does not run here: {error.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            rows.append(
                {
                    "preset": preset,
                    "num_envs": options.num_envs or presets.get(preset).config.num_envs,
                    "train_options": train_options,
                    "side_by_side": options.side_by_side,
                    "seconds_with_an_empty_cache": cold,
                    "seconds_with_a_full_cache": warm,
                }
                | _timing.provenance()
            )
            _timing.write_rows(rows, options.out)
            print(f"{preset}: {cold:.1f} s to the first update, {warm:.1f} s the second time", flush=True)


def start_twice(preset: str, options: argparse.Namespace, train_options: list[str]) -> tuple[float, float]:
    sizes = TINY if options.tiny else [] if options.num_envs is None else ["--num-envs", str(options.num_envs)]
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (start(preset, [*sizes, *train_options], pathlib.Path(folder), number) for number in range(2))
    return cold, warm


def start(preset: str, options: list[str], folder: pathlib.Path, number: int) -> float:
    """Seconds to the first update of a new run."""
    run = folder / f"run{number}"
    command = [sys.executable, "-m", "spo.cli", "train", preset, "--quiet", "--run", str(run), *SHORT, *options]
    environment = os.environ | {"SPO_CACHE": str(folder / "cache")}
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads((run / "summary.json").read_text("utf-8"))["time_to_first_update"]


if __name__ == "__main__":
    main()
