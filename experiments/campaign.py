"""Lists and trains the runs of the core scale: the comparisons and ablations of claims 1 to 7.

    python experiments/campaign.py                       what is stored, what is missing, and the seconds it will take
    python experiments/campaign.py --run NAME ...        train these runs, or resume them
    python experiments/campaign.py --run NAME --store    train, then copy the records to results/runs/core

A run is trained in runs/core. Its records (no checkpoints) are copied to results/runs/core, where the claims read them.
Seconds are those of one program alone on an H200, from the speeds in results/benchmarks/h200/training.json.
"""

import argparse
import importlib
import pathlib
import shutil
import sys
from typing import Any

from _claims import ROOT, Setup
from _runs import CORE_RUNS, run_name, stored_speeds

from spo.reports.runs import read_summary

CLAIMS = ("discrete", "continuous", "training_scaling", "temperatures", "kl_targets", "advantages")
STORED_FILES = ("config.json", "environment.json", "metrics.jsonl", "summary.json")


def planned_runs() -> dict[str, Any]:
    """Returns the runs of all claims by folder name. Claims share the runs that they have in common."""
    runs = {}
    for name in CLAIMS:
        experiment = importlib.import_module(name)
        setup = Setup(experiment.CLAIM, "core", ROOT / "runs" / "core" / name, ROOT / "results" / "claims")
        runs |= {run_name(run): run for run in experiment.runs(setup).values()}
    return runs


def expected_seconds(experiment: Any) -> float | None:
    """Returns the seconds of training of all seeds, if the speed is known."""
    speed = stored_speeds().get((experiment.task, experiment.algorithm))
    return None if speed is None else experiment.steps * experiment.num_seeds / speed


def print_status(runs: dict[str, Any], folder: pathlib.Path) -> None:
    """Prints one line per run, and the sum of what is missing."""
    left = 0.0
    for name, experiment in runs.items():
        stored = read_summary(CORE_RUNS / name) is not None
        trained = read_summary(folder / name) is not None
        seconds = expected_seconds(experiment)
        state = "stored" if stored else "trained" if trained else "missing"
        left += 0 if stored or trained or seconds is None else seconds
        cost = "speed unknown" if seconds is None else f"{seconds:,.0f} s"
        print(f"{state:8} {name:45} {experiment.num_seeds} x {experiment.steps:<8.2g} {cost}")
    print(f"Left: about {left:,.0f} s of training, without compilation and evaluations.")


def train(name: str, experiment: Any, folder: pathlib.Path) -> None:
    """Trains one run, or resumes it."""
    from spo.training import loop

    loop.train(experiment, folder / name, resume=(folder / name / "config.json").exists())


def store(name: str, folder: pathlib.Path, target: pathlib.Path = CORE_RUNS) -> None:
    """Copies the records of a finished run, without checkpoints."""
    if read_summary(folder / name) is None:
        sys.exit(f"{folder / name} is not finished: run it again without --store.")
    (target / name).mkdir(parents=True, exist_ok=True)
    for file in STORED_FILES:
        shutil.copyfile(folder / name / file, target / name / file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = planned_runs()
    parser.add_argument("--run", nargs="+", choices=runs, default=[], metavar="NAME", help="train these runs")
    parser.add_argument(
        "--store", action="store_true", help="copy the records of the named runs when they are finished"
    )
    parser.add_argument(
        "--folder", type=pathlib.Path, default=ROOT / "runs" / "core", help="folder of the training runs"
    )
    options = parser.parse_args()
    for name in options.run:
        train(name, runs[name], options.folder)
        if options.store:
            store(name, options.folder)
    print_status(runs, options.folder)


if __name__ == "__main__":
    main()
