"""Trains the small cube long after it is solved: why does the share of solved cubes dip late in training?

    python experiments/long_training.py --out results/trials/long_training.json    also draws long_training.png

The temperature falls while the KL divergence of the search's weights from the policy is below its bound. Once a policy
can hardly be improved, only errors of the critic can supply that divergence. Two changes are compared with the preset:

    lowest temperature    the temperature stays above a limit (`min_temperature`)
    discount              every step of the search costs value (`search.gamma`, see `cold_search.py`)

A seed settles at its first evaluation of at least 99 %. The later evaluations are counted: their mean, their minimum,
and the share of them below 97 %.
"""

import dataclasses
import json
import pathlib
import statistics
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import tyro
from _claims import ROOT
from _runs import origin_of, run_name, train_or_resume, with_settings
from matplotlib.figure import Figure

from spo import presets
from spo.provenance import command_line, git_commit
from spo.reports import figures
from spo.reports.runs import Run, load_run
from spo.reports.stats import clip_to_share, mean_interval
from spo.training.experiment import EvaluationConfig

#: Change -> settings that differ from the preset.
CHANGES: dict[str, dict[str, Any]] = {
    "preset": {"min_temperature": 0.0},
    "lowest temperature 0.01": {"min_temperature": 0.01},
    "discount 0.9": {"min_temperature": 0.0, "search": {"gamma": 0.9}},
}
SETTLED, DIP = 0.99, 0.97


@dataclass(frozen=True)
class Options:
    """Trains the small cube for long, with and without a lowest temperature and a discount in the search."""

    steps: float = 1.2e6
    """Environment steps of each seed."""
    num_seeds: int = 3
    """Number of seeds."""
    num_evaluations: int = 40
    """Number of evaluations during training."""
    episodes: int = 512
    """Episodes of each evaluation."""
    changes: tuple[str, ...] = tuple(CHANGES)
    """Names of the changes to compare."""
    folder: pathlib.Path = ROOT / "runs" / "long_training"
    """Folder of the runs. Finished ones are not trained again."""
    out: pathlib.Path | None = None
    """File for the result, as JSON. The figure is stored beside it."""


class Curve(NamedTuple):
    """The course of one seed."""

    env_steps: list[float]
    solved: list[float]
    temperatures: list[float]  # of the intervals between the evaluations
    value_losses: list[float]

    def after_settling(self) -> list[float]:
        """Returns the evaluations after the first one of at least 99 %."""
        first = next((i for i, share in enumerate(self.solved) if share >= SETTLED), len(self.solved))
        return self.solved[first + 1 :]


def main(options: Options) -> None:
    """Runs the command."""
    if unknown := set(options.changes) - set(CHANGES):
        raise SystemExit(f"Unknown changes: {', '.join(unknown)}. There are: {', '.join(CHANGES)}.")
    curves, folders = {}, []
    for name in options.changes:
        folders.append(train(options, CHANGES[name]))
        curves[name] = read_curves(load_run(folders[-1]))
        print(row_text(name, summarise(curves[name])), flush=True)
    if options.out is not None:
        write(options, curves, folders)


def train(options: Options, settings: dict[str, Any]) -> pathlib.Path:
    """Trains the small cube with these settings, or resumes or reads its run. Returns the folder."""
    experiment = dataclasses.replace(
        with_settings(presets.get("default"), **settings),
        steps=options.steps,
        num_seeds=options.num_seeds,
        logs_per_evaluation=1,
        evaluation=EvaluationConfig(options.num_evaluations, options.episodes, options.episodes),
    )
    folder = options.folder / run_name(experiment)
    train_or_resume(experiment, folder)
    return folder


def read_curves(run: Run) -> list[Curve]:
    """Reads the course of each seed."""

    def metric(records: list[dict[str, Any]], name: str) -> list[float]:
        return [record["metrics"][name] for record in records]

    return [
        Curve(
            env_steps=[record["env_steps"] for record in evaluations],
            solved=metric(evaluations, "episode/solved"),
            temperatures=metric(run.training[seed], "temperature"),
            value_losses=metric(run.training[seed], "loss/value"),
        )
        for seed, evaluations in run.evaluations.items()
    ]


def summarise(curves: list[Curve]) -> dict[str, Any]:
    """Returns the numbers of one row: per seed, and the mean over seeds with its 95 % interval."""
    later = [curve.after_settling() for curve in curves]
    means = [statistics.fmean(shares) for shares in later if shares]
    return {
        "mean": clip_to_share(mean_interval(means))._asdict() if len(means) > 1 else None,
        "mean_per_seed": means,
        "minimum_per_seed": [min(shares) for shares in later if shares],
        "evaluations": sum(map(len, later)),
        "evaluations_below_97": sum(share < DIP for shares in later for share in shares),
        "last_temperature_per_seed": [curve.temperatures[-1] for curve in curves],
        "least_value_loss_per_seed": [min(curve.value_losses) for curve in curves],
        "last_value_loss_per_seed": [curve.value_losses[-1] for curve in curves],
    }


def row_text(name: str, row: dict[str, Any]) -> str:
    """Returns a row as a line for people."""
    minimum = min(row["minimum_per_seed"], default=float("nan"))
    return (
        f"{name}: {row['evaluations_below_97']} of {row['evaluations']} evaluations below 97 %, lowest {minimum:.1%}, "
        f"last temperature {statistics.fmean(row['last_temperature_per_seed']):.2g}"
    )


def write(options: Options, curves: dict[str, list[Curve]], folders: list[pathlib.Path]) -> None:
    """Writes the result and its figure."""
    assert options.out is not None
    origin = origin_of(folders)
    result = {
        "rows": {name: {"settings": CHANGES[name]} | summarise(found) for name, found in curves.items()},
        "curves": {name: [curve._asdict() for curve in found] for name, found in curves.items()},
        "steps": options.steps,
        "num_seeds": options.num_seeds,
        "episodes": options.episodes,
        "command": command_line(),
        "commit": git_commit(),
        "commit_of_runs": origin.commit,
        "hardware": origin.hardware,
        "date": time.strftime("%Y-%m-%d"),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result) + "\n", "utf-8")
    figures.save(draw(curves), options.out.with_suffix(".png"))


def draw(curves: dict[str, list[Curve]]) -> Figure:
    """Draws the share of solved cubes, the temperature and the critic's loss of every seed."""
    palette = figures.colours(list(curves))
    with figures.style():
        figure = figures.new_figure(6.4, 7.2)
        panels = figure.subplots(3, sharex=True)
        for name, found in curves.items():
            for curve in found:
                panels[0].plot(curve.env_steps, curve.solved, color=palette[name], lw=1)
                panels[1].plot(curve.env_steps[1:], curve.temperatures, color=palette[name], lw=1)
                panels[2].plot(curve.env_steps[1:], curve.value_losses, color=palette[name], lw=1)
        panels[0].set(ylim=(0.7, 1.01), ylabel="solved")
        panels[0].yaxis.set_major_formatter(figures.PER_CENT)
        panels[1].set(yscale="log", ylabel="temperature")
        panels[2].set(yscale="log", ylabel="loss of the critic", xlabel="environment steps")
        figures.format_steps(panels[2])
        figures.add_legend(figure, list(curves), palette)
    return figure


if __name__ == "__main__":
    main(tyro.cli(Options))
