"""Seconds from starting a run to the end of its first iteration, with and without compiled programs kept from before.

    python benchmarks/first_update.py --out results/benchmarks/h200/first_update.json
    python benchmarks/first_update.py --presets default paper/rubiks_cube --num-envs 64       on a CPU
    python benchmarks/first_update.py --tiny                                                  that it runs

Each preset is started twice as `spo train`, in programs of their own: with an empty cache, and with what the first
start left in it. What is printed is what the run's summary says, which is nearly all compiling.
"""

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=list(presets.PRESETS), choices=presets.PRESETS)
    parser.add_argument("--num-envs", type=int, help="instead of the preset's")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, and the preset default only")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()
    sizes = TINY if options.tiny else [] if options.num_envs is None else ["--num-envs", str(options.num_envs)]
    rows: list[dict[str, Any]] = []
    for preset in ["default"] if options.tiny else options.presets:
        with tempfile.TemporaryDirectory() as folder:
            try:
                seconds = [start(preset, sizes, pathlib.Path(folder), number) for number in range(2)]
            except subprocess.CalledProcessError as error:
                print(f"{preset} does not run here: {error.stderr.strip().splitlines()[-1]}", flush=True)
                continue
        rows.append(
            {
                "preset": preset,
                "num_envs": options.num_envs or presets.get(preset).config.num_envs,
                "seconds_with_an_empty_cache": seconds[0],
                "seconds_with_a_full_cache": seconds[1],
            }
            | _timing.provenance()
        )
        _timing.write_rows(rows, options.out)
        print(f"{preset}: {seconds[0]:.1f} s to the first update, {seconds[1]:.1f} s the second time", flush=True)


def start(preset: str, sizes: list[str], folder: pathlib.Path, number: int) -> float:
    """Seconds to the first update of a new run."""
    run = folder / f"run{number}"
    command = [sys.executable, "-m", "spo.cli", "train", preset, "--quiet", "--run", str(run), *SHORT, *sizes]
    environment = os.environ | {"SPO_CACHE": str(folder / "cache")}
    subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads((run / "summary.json").read_text("utf-8"))["time_to_first_update"]


if __name__ == "__main__":
    main()
