"""Compares SPO's training returns with the reference's learning curves, with the paper's settings.

    spo train paper/ant --num-seeds 5 --steps 18874368 --logs-per-evaluation 72 --evaluation.num-evaluations 1
    python experiments/parity.py runs/NAME --out results/parity/ant.json

The quantity is the mean return of the training episodes that ended in the last 1,048,576 environment steps. Parity
holds at a mark if the reference's value lies inside or below the 95 % prediction interval of our seeds: the interval
for one more seed.
"""

import json
import math
import pathlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import scipy.stats
import tyro

from spo.provenance import git_commit
from spo.reports.run_files import Record, read_config, read_records, read_starts

WINDOW = 1_048_576
#: Stoix 8fff19c, SPO with its own configuration files of the paper's settings, jax 0.11.2, one NVIDIA H200 (shared by
#: two programs), one seed per environment: environment steps -> mean return of training episodes in the last window.
REFERENCE = {
    "brax/ant": {4 * WINDOW: 2083.95, 10 * WINDOW: 8267.62, 18 * WINDOW: 10785.9},
    "brax/halfcheetah": {4 * WINDOW: 4010.23, 6 * WINDOW: 5179.73},
}


@dataclass(frozen=True)
class Options:
    """Compares a run with the reference's learning curve."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of a run of SPO with several seeds on brax/ant or brax/halfcheetah."""
    commit: str | None = None
    """Commit of the run, if its folder does not record one."""
    out: pathlib.Path | None = None
    """File for the result, as JSON."""


def window_returns(records: Sequence[Record], end: int) -> list[float]:
    """Returns each seed's mean return of the training episodes that ended in the window up to `end` steps."""
    totals: dict[int, list[float]] = {}
    for record in records:
        if record["kind"] == "train" and end - WINDOW < record["env_steps"] <= end:
            count, total = totals.setdefault(record["seed"], [0.0, 0.0])
            ended = record["metrics"]["episode/count"]
            totals[record["seed"]] = [count + ended, total + ended * record["metrics"].get("episode/return", 0.0)]
    return [total / count for _, (count, total) in sorted(totals.items())]


def prediction_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 % Student interval for one more value: mean ± t · s · √(1 + 1/n)."""
    if len(values) < 2:
        raise ValueError(f"A prediction interval needs at least two seeds, got {len(values)}.")
    half_width = scipy.stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
    mean = statistics.fmean(values)
    return mean - half_width, mean + half_width


def compare_at(records: Sequence[Record], env_steps: int, reference: float) -> dict[str, Any]:
    """Returns the comparison at one mark."""
    seeds = window_returns(records, env_steps)
    low, high = prediction_interval(seeds)
    return {
        "env_steps": env_steps,
        "seeds": seeds,
        "mean": statistics.fmean(seeds),
        "prediction_interval": [low, high],
        "reference": reference,
        "holds": bool(reference <= high),
    }


def main(options: Options) -> dict[str, Any]:
    config, records = read_config(options.run), read_records(options.run / "metrics.jsonl")
    if config["task"] not in REFERENCE:
        raise SystemExit(f"There is no reference for {config['task']}: choose a run on {' or '.join(REFERENCE)}.")
    last = max(record["env_steps"] for record in records)
    marks = [
        compare_at(records, env_steps, value)
        for env_steps, value in REFERENCE[config["task"]].items()
        if env_steps <= last
    ]
    starts = read_starts(options.run)
    result = {
        "task": config["task"],
        "task_options": config["task_options"],
        "num_seeds": config["num_seeds"],
        "marks": marks,
        "holds": all(mark["holds"] for mark in marks),
        "command": f"python experiments/parity.py {options.run}",
        "commit": git_commit(),
        "commit_of_run": options.commit or (starts[0].get("git_commit") if starts else None),
        "starts": starts,
    }
    for mark in marks:
        low, high = mark["prediction_interval"]
        seeds = ", ".join(f"{value:.0f}" for value in mark["seeds"])
        print(
            f"{mark['env_steps']:>11,} steps: seeds {seeds}; prediction interval {low:.0f} to {high:.0f}; reference "
            f"{mark['reference']:.0f}: {'parity' if mark['holds'] else 'no parity'}"
        )
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main(tyro.cli(Options))
