"""Seconds from the start of a run to the end of its first iteration, with an empty and a full compilation cache.

    python benchmarks/first_update.py --out results/benchmarks/h200/first_update.json
    python benchmarks/first_update.py --presets default paper/rubiks_cube --num-envs 64       on a CPU
    python benchmarks/first_update.py --presets paper/boxoban --task.allow-partial       with options of `spo train`
    python benchmarks/first_update.py --tiny                                                  smoke test

Each preset is started twice as `spo train`, in a process of its own: first with an empty cache, then with the cache of
the first start. It is stopped after its first update. A run is evaluated before it learns, so the time is that of
compilation, of one evaluation and of one iteration. The rows also contain the time at the end of the evaluation, and
the parts of a start: the number of compiled programs, and seconds in which programs were traced, lowered, and compiled
or read from the cache. Programs in two threads overlap, so the parts may add up to more than the whole. With
`--side-by-side` all presets start at once: they slow each other down a little, and the rows record it.
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
from collections import Counter
from typing import Any, NamedTuple

import _timing
import jax

from spo import presets
from spo.cli import main as spo_main

#: First argument of this file as the program that is measured.
CHILD = "--child"
#: JAX's names of the parts of a start, and ours.
PARTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace_seconds",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower_seconds",
    "/jax/core/compile/backend_compile_duration": "compile_or_read_seconds",
}
#: One iteration and few episodes: with many episodes, a small machine would spend most of the time in them.
SHORT = ["--steps", "1", "--logs-per-evaluation", "1", "--evaluation.num-evaluations", "1"]
SHORT += ["--evaluation.episodes", "16"]
TINY = ["--num-envs", "4", "--rollout-length", "4", "--sequence-length", "4", "--batch-size", "4", "--num-updates", "2"]
TINY += ["--replay-size", "64", "--network.width", "16"]


class Start(NamedTuple):
    """Seconds by the clock of the run, which starts after Python and JAX are loaded."""

    evaluated: float
    updated: float
    parts: dict[str, float]  # of the whole process


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--presets", nargs="+", default=list(presets.PRESETS), choices=presets.PRESETS)
    parser.add_argument("--num-envs", type=int, help="number of environments, instead of the preset's")
    parser.add_argument("--side-by-side", action="store_true", help="start all presets at once")
    parser.add_argument("--tiny", action="store_true", help="small sizes for a CPU, and only the preset `default`")
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
                print(f"{preset} does not run on this machine: {error}", flush=True)
                continue
            rows.append(
                {
                    "preset": preset,
                    "num_envs": options.num_envs or presets.get(preset).config.num_envs,
                    "train_options": train_options,
                    "side_by_side": options.side_by_side,
                    "seconds_with_an_empty_cache": cold.updated,
                    "seconds_with_a_full_cache": warm.updated,
                    "judged_with_an_empty_cache": cold.evaluated,
                    "judged_with_a_full_cache": warm.evaluated,
                    "parts_with_an_empty_cache": cold.parts,
                    "parts_with_a_full_cache": warm.parts,
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
    """Starts a new run and stops it after its first update."""
    run = folder / f"run{number}"
    parts = folder / f"parts{number}.json"
    command = [
        sys.executable,
        __file__,
        CHILD,
        str(parts),
        "train",
        preset,
        "--quiet",
        "--run",
        str(run),
        *SHORT,
        *options,
    ]
    # JAX's own variable would take precedence over the folder of this measurement.
    inherited = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment = inherited | {"SPO_CACHE": str(folder / "cache")}
    log = folder / "log"  # a file: a pipe that is not read fills up and blocks the run
    with log.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        while "train" not in (seconds := seconds_by_kind(run / "metrics.jsonl")):
            if process.poll() is not None:
                raise RuntimeError(log.read_text("utf-8").strip().rpartition("\n")[-1])
            time.sleep(0.1)
        found = json.loads(parts.read_text("utf-8"))
        process.kill()  # an orderly stop would first evaluate for long
    return Start(evaluated=seconds["evaluation"], updated=seconds["train"], parts=found)


def run_child(parts_path: pathlib.Path, arguments: list[str]) -> None:
    """Runs `spo` and keeps the parts of its start in a file, which is complete at any time."""
    parts: Counter[str] = Counter()

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event in PARTS:
            parts.update({PARTS[event]: seconds, "programs": event.endswith("backend_compile_duration")})
            draft = parts_path.with_suffix(".draft")
            draft.write_text(json.dumps(parts), "utf-8")
            draft.replace(parts_path)

    jax.monitoring.register_event_duration_secs_listener(listen)
    spo_main(arguments)


def seconds_by_kind(metrics: pathlib.Path) -> dict[str, float]:
    """Returns the time of the first record of each kind."""
    if not metrics.exists():
        return {}
    lines = metrics.read_text("utf-8").splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith("\n")]  # the last line may be incomplete
    return {record["kind"]: record["time"]["wall_seconds"] for record in reversed(records)}


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        run_child(pathlib.Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
