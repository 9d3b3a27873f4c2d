"""Draws how soon cubes seven moves from the goal are solved, of ours and of the reference: the picture in the README.

    python tools/solve_rate_picture.py               # the runs under results/runs/h200 that are there
    python tools/solve_rate_picture.py RUN RUN --out picture

A curve is the mean over seeds with its 95 % interval; a run of one seed has none. Time is what training took, without
compiling and evaluating, on either side: of the reference we know its steps and its speed. Seeds of one program share
its time, so that of five seeds is longer than one alone would take. Also says when each run first solved 92, 95 and
99 % of its episodes, and how long after its start that was with everything included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib
import numpy as np
import tyro
from matplotlib.figure import Figure

from spo.evaluation import comparison, figures, statistics
from spo.evaluation.comparison import Comparison, Result
from spo.evaluation.runs import load_runs
from spo.evaluation.statistics import Curve

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "runs" / "h200"
ALGORITHMS = ("spo", "alphazero", "gumbel_alphazero")
#: Stoix's SPO with the paper's settings on an H200, one seed: environment steps -> share of episodes solved
REFERENCE = {
    2e6: 0.01,
    4e6: 0.19,
    6e6: 0.49,
    8e6: 0.65,
    10e6: 0.76,
    14e6: 0.86,
    20e6: 0.91,
    28e6: 0.92,
}
REFERENCE_STEPS_PER_SECOND = 158_000
MILESTONES = (0.92, 0.95, 0.99)


@dataclass(frozen=True)
class Options:
    """Draws the share of solved cubes over minutes of training."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Run folders; without any, those on the cube under results/runs/h200, as far as they are there."""
    out: Path = ROOT / "docs" / "images" / "solve_rate"
    """Where to write: with .png and with .svg after it."""
    minutes: float | None = None
    """Where the time axis ends; without it, with the longest run."""


def training_seconds(result: Result) -> np.ndarray:
    """Of each evaluation: steps of all seeds over their average speed until then, which counts training alone."""
    rates = np.array([record["time"]["env_steps_per_second"] for record in result.run.evaluations[result.seed]])
    return result.steps * len(result.run.evaluations) / np.where(result.steps > 0, rates, 1.0)


def mean_over_seeds(results: Sequence[Result]) -> Curve:
    """The share of solved episodes over the seconds of the results."""
    seconds, values, interpolated = statistics.on_common_grid(
        [result.seconds for result in results], [result.values for result in results]
    )
    return Curve(seconds, statistics.bootstrap(statistics.mean, [values], num_resamples=2_000), interpolated)


def first_time(curve: Curve, share: float) -> float | None:
    """The second of the first evaluation with at least this share solved."""
    reached = np.flatnonzero(curve.estimate.value >= share)
    return float(curve.x[reached[0]]) if reached.size else None


def milestones(name: str, training: Curve, wall: Curve | None = None) -> str:
    """When a run first solved so many of its episodes, in words."""

    def when(share: float) -> str:
        seconds = first_time(training, share)
        if seconds is None:
            return "not reached"
        included = None if wall is None else first_time(wall, share)
        return f"after {seconds:.0f} s" + ("" if included is None else f" ({included:.0f} s with everything)")

    said = ", ".join(f"{share:.0%} {when(share)}" for share in MILESTONES)
    return f"{name}: {said}; {training.x[-1]:.0f} s of training in all"


def reference_curve() -> Curve:
    steps, shares = np.array(list(REFERENCE)), np.array(list(REFERENCE.values()))
    no_interval = np.full_like(shares, math.nan)
    seconds = steps / REFERENCE_STEPS_PER_SECOND
    return Curve(seconds, statistics.Estimate(shares, no_interval, no_interval), False)


def draw(compared: Comparison, curves: dict[str, Curve], minutes: float | None = None) -> Figure:
    """The evaluation module's figure over time, of means instead of IQMs, with the reference in it."""
    (task,) = compared.tasks
    judgement = comparison.judge(compared, num_resamples=100)  # for its ranking: the curves are ours
    time_curves = {(group, task): curve for group, curve in curves.items()}
    figure = figures.wall_clock(compared, judgement._replace(time_curves=time_curves))
    (axes,) = figure.axes
    reference = reference_curve()
    with matplotlib.rc_context(figures.STYLE):
        points = axes.plot(reference.x, reference.estimate.value, "D", color=figures.INK, ms=4, mfc="white", zorder=3)
        axes.legend(points, ["reference (Stoix's SPO), one seed"], loc="lower right")
        axes.set_title("Rubik's cube, 7 scrambles, one H200")
        axes.set_xlabel(axes.get_xlabel().replace("time", "time of training"))
    longest = max(curve.x[-1] for curve in [*curves.values(), reference])
    axes.set_xlim(0, 60 * minutes if minutes else 1.02 * longest)
    return figure


def main(options: Options) -> None:
    folders = options.runs or tuple(filter(Path.exists, (RUNS / f"{name}_rubiks_cube" for name in ALGORITHMS)))
    compared = comparison.compare(load_runs(folders), metric="solve_rate")
    if len(compared.tasks) > 1:
        raise SystemExit(f"One picture shows one task, and these runs are of {', '.join(compared.tasks)}.")
    curves = {}
    for group in compared.groups:
        results = compared.of(group, compared.tasks[0])
        curves[group] = mean_over_seeds([result._replace(seconds=training_seconds(result)) for result in results])
        seeds = f"{len(results)} seed{'s' if len(results) > 1 else ''}"
        print(milestones(f"{group}, {seeds}", curves[group], mean_over_seeds(results)))
    print(milestones("reference, 1 seed", reference_curve()))
    for path in figures.save(draw(compared, curves, options.minutes), options.out):
        print(path)


if __name__ == "__main__":
    main(tyro.cli(Options))
