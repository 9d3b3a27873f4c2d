"""Chooses settings that the paper leaves open, by trials on a task that no claim is judged on.

    python experiments/trials.py                        what is trained, and what is missing
    python experiments/trials.py --run NAME ...         train these trials; "all" trains everything
    python experiments/trials.py --write                write results/trials/small_presets.json

Every algorithm gets the same number of trials, three. They vary what the algorithm has against a policy that settles
too early or moves too far: noise at the root, trust region, entropy. MPO has three more for its targets of Q. The
task is a cube of size 2. The score of a seed is the share of solved cubes with drawn actions, as the mean over the
evaluations after the first. The setting with the highest mean over five seeds is used.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
from typing import Any

from _claims import ROOT
from _runs import origin_of, with_settings

from spo import presets
from spo.networks.config import NetworkConfig
from spo.provenance import git_commit
from spo.reports.runs import Run, load_run, read_summary
from spo.reports.stats import mean_interval
from spo.training.experiment import EvaluationConfig

TASK = "rubiks_cube"
TASK_OPTIONS = {"size": 2, "min_scrambles": 1, "max_scrambles": 5, "eval_scrambles": 5}
NUM_SEEDS = 5
STEPS = 4e4
OUT = ROOT / "results" / "trials" / "small_presets.json"

_NO_NOISE: dict[str, Any] = {"root_exploration_weight": 0.0}
#: Algorithm -> name of the trial -> settings that differ from the small preset.
TRIALS: dict[str, dict[str, dict[str, Any]]] = {
    "spo": {
        "no noise, no trust region": _NO_NOISE | {"trust_region": False},
        "noise": {"root_exploration_weight": 0.25, "dirichlet_alpha": 0.3, "trust_region": False},
        "trust region 0.01": _NO_NOISE | {"trust_region": True, "kl_bound": 0.01, "initial_multiplier": 0.1},
    },
    "ppo": {f"entropy {value:g}": {"entropy_coefficient": value} for value in (0.0, 0.01, 0.03)},
    "mpo": {
        f"{targets}, trust region {bound:g}": {"kl_bound": bound, "q_targets": targets}
        for targets in ("retrace", "gae")
        for bound in (0.003, 0.01, 0.05)
    },
    "vmpo": {f"trust region {bound:g}": {"kl_bound": bound} for bound in (0.01, 0.05, 0.2)},
    "alphazero": {
        "no noise": _NO_NOISE,
        "noise 0.03": {"root_exploration_weight": 0.25, "dirichlet_alpha": 0.03},
        "noise 0.3": {"root_exploration_weight": 0.25, "dirichlet_alpha": 0.3},
    },
    "smc_ent": {f"entropy temperature {value:g}": {"entropy_temperature": value} for value in (0.01, 0.03, 0.1)},
}


def planned() -> dict[str, Any]:
    """Returns the runs of all trials by name."""
    return {
        f"{algorithm}, {name}": trial(algorithm, settings)
        for algorithm, of_algorithm in TRIALS.items()
        for name, settings in of_algorithm.items()
    }


def trial(algorithm: str, settings: dict[str, Any]) -> Any:
    """Returns the small preset on the cube of size 2, with other settings."""
    return dataclasses.replace(
        with_settings(presets.get("default", algorithm), **settings),
        task=TASK,
        task_options=TASK_OPTIONS,
        network=NetworkConfig(width=64),
        steps=STEPS,
        num_seeds=NUM_SEEDS,
        evaluation=EvaluationConfig(num_evaluations=5, episodes=128, final_episodes=128),
        logs_per_evaluation=1,
    )


def train(name: str, experiment: Any, folder: pathlib.Path) -> None:
    """Trains one trial, or resumes it. A finished one is left as it is."""
    from spo.training import loop

    if read_summary(folder / name) is None:
        loop.train(experiment, folder / name, resume=(folder / name / "config.json").exists())


def scores(run: Run) -> list[float]:
    """Returns the mean share solved over the evaluations after the first, for each seed."""
    return [
        statistics.fmean(record["metrics"]["episode/solved"] for record in records if record["iteration"] > 0)
        for records in run.evaluations.values()
    ]


def summarise(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the scores of all trials, and the chosen one of each algorithm."""
    algorithms = {}
    for algorithm, of_algorithm in TRIALS.items():
        runs = {name: load_run(folder / f"{algorithm}, {name}") for name in of_algorithm}
        found = {
            name: {
                "settings": settings,
                "mean_interval": mean_interval(scores(runs[name])),
                "per_seed": scores(runs[name]),
                "final_per_seed": [final["metrics"]["episode/solved"] for final in runs[name].finals.values()],
            }
            for name, settings in of_algorithm.items()
        }
        chosen = max(found, key=lambda name: statistics.fmean(found[name]["per_seed"]))
        algorithms[algorithm] = {"chosen": chosen, "trials": found}
    origin = origin_of(folder / name for name in planned())
    return {
        "command": "python experiments/trials.py --run all --write",
        "task": TASK,
        "task_options": TASK_OPTIONS,
        "steps": STEPS,
        "num_seeds": NUM_SEEDS,
        "score": "share of solved cubes, drawn actions, mean over the evaluations after the first",
        "commit": git_commit(),
        "commit_of_runs": origin.commit,
        "hardware": origin.hardware,
        "algorithms": algorithms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = planned()
    parser.add_argument("--run", nargs="+", choices=[*runs, "all"], default=[], metavar="NAME", help="train these")
    parser.add_argument("--write", action="store_true", help=f"write {OUT.relative_to(ROOT)}")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "runs" / "trials", help="folder of the runs")
    options = parser.parse_args()
    for name in runs if "all" in options.run else options.run:
        train(name, runs[name], options.folder)
    for name in runs:
        print("trained" if read_summary(options.folder / name) is not None else "missing", name)
    if options.write:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(summarise(options.folder), indent=1) + "\n", encoding="utf-8")
        print(f"Wrote {OUT}.")


if __name__ == "__main__":
    main()
