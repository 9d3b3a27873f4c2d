"""Chooses settings that the paper leaves open, by trials on a task that no claim is judged on: a cube of size 2.

    python experiments/trials.py                           what is trained, and what is missing
    python experiments/trials.py --run dirichlet_alpha     train the trials of this question, then write the answer

The score of a seed is the share of solved cubes with drawn actions, as the mean over the evaluations after the first.
The option with the highest mean over five seeds is chosen, and the first one if several have it. The answers are in
results/trials/QUESTION.json.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
from typing import Any, NamedTuple

from _claims import ROOT
from _runs import origin_of, train_or_resume, with_settings
from _tasks import ALIKE, alike

from spo import presets
from spo.networks.config import NetworkConfig
from spo.provenance import git_commit
from spo.reports.run_files import read_summary
from spo.reports.runs import Run, load_run
from spo.reports.stats import mean_interval
from spo.training.experiment import EvaluationConfig

TASK = "rubiks_cube"
TASK_OPTIONS = {"size": 2, "min_scrambles": 1, "max_scrambles": 5, "eval_scrambles": 5}
NUM_SEEDS = 5
STEPS = 2.5e4
OUT = ROOT / "results" / "trials"


class Question(NamedTuple):
    """A setting with several options."""

    algorithm: str
    options: dict[str, dict[str, Any]]
    """Option -> settings that differ from the small preset."""


QUESTIONS = {
    "dirichlet_alpha": Question(
        "alphazero",
        {f"{alpha:g}": {"dirichlet_alpha": alpha, "root_exploration_weight": 0.25} for alpha in (0.03, 0.3)},
    ),
    "mpo_targets": Question("mpo", {name: {"q_targets": name} for name in ("gae", "retrace")}),
    "small_spo": Question("spo", {"as all": dict(ALIKE), "preset default": {}}),
}


def runs_of(question: Question) -> dict[str, Any]:
    """Returns the runs of a question by option."""
    return {option: trial(question.algorithm, settings) for option, settings in question.options.items()}


def trial(algorithm: str, settings: dict[str, Any]) -> Any:
    """Returns the small preset on the cube of size 2, with other settings."""
    start = presets.get("default", algorithm)
    changed = {name: value for name, value in settings.items() if hasattr(start.config, name)}
    return dataclasses.replace(
        with_settings(start if algorithm == "spo" else alike(start), **changed),
        task=TASK,
        task_options=TASK_OPTIONS,
        network=NetworkConfig(width=64),
        steps=STEPS,
        num_seeds=NUM_SEEDS,
        evaluation=EvaluationConfig(num_evaluations=5, episodes=128, final_episodes=128),
        logs_per_evaluation=1,
    )


def scores(run: Run) -> list[float]:
    """Returns the mean share solved over the evaluations after the first, for each seed."""
    return [
        statistics.fmean(record["metrics"]["episode/solved"] for record in records if record["iteration"] > 0)
        for records in run.evaluations.values()
    ]


def answer(name: str, question: Question, folder: pathlib.Path) -> dict[str, Any]:
    """Returns the scores of all options, and the chosen one."""
    runs = {option: load_run(folder / name / option) for option in question.options}
    found = {
        option: {
            "settings": question.options[option],
            "mean": mean_interval(scores(run))._asdict(),
            "per_seed": scores(run),
            "final_per_seed": [final["metrics"]["episode/solved"] for final in run.finals.values()],
        }
        for option, run in runs.items()
    }
    origin = origin_of(run.folder for run in runs.values())
    return {
        "question": name,
        "algorithm": question.algorithm,
        "chosen": max(found, key=lambda option: statistics.fmean(found[option]["per_seed"])),
        "options": found,
        "task": TASK,
        "task_options": TASK_OPTIONS,
        "steps": STEPS,
        "num_seeds": NUM_SEEDS,
        "score": "share of solved cubes, drawn actions, mean over the evaluations after the first",
        "command": f"python experiments/trials.py --run {name}",
        "commit": git_commit(),
        "commit_of_runs": origin.commit,
        "hardware": origin.hardware,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="+", choices=QUESTIONS, default=[], help="train the trials of these questions")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "runs" / "trials", help="folder of the runs")
    parser.add_argument("--out", type=pathlib.Path, default=OUT, help="folder of the answers")
    options = parser.parse_args()
    for name in options.run:
        for option, experiment in runs_of(QUESTIONS[name]).items():
            train_or_resume(experiment, options.folder / name / option)
        options.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(answer(name, QUESTIONS[name], options.folder), indent=1)
        (options.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for name, question in QUESTIONS.items():
        for option in question.options:
            done = read_summary(options.folder / name / option) is not None
            print("trained" if done else "missing", name, option)


if __name__ == "__main__":
    main()
