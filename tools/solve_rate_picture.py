"""Draws how soon cubes seven moves from the goal are solved, by ours and by the reference: the picture in the README.

    python tools/solve_rate_picture.py               # the runs under results/runs/h200 that are there
    python tools/solve_rate_picture.py RUN RUN --out picture

Left over environment steps, right over minutes. A curve is the mean over a run's seeds with its 95 % interval; a run of
one seed has none. Time is what training took, without compiling and evaluating, on either side: of the reference we
know its steps and its speed. The clock of a run that shared its GPU says nothing: its steps are shown at the speed that
was measured for its settings alone (results/benchmarks/h200), a tree search's with an untrained network, which is when
it is fastest. Also says when each run first solved 92, 95 and 99 % of its episodes, and how long after its start that
was with everything included.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import matplotlib
import numpy as np
import performance_tables
import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from spo.reports import comparison, figures, statistics
from spo.reports.comparison import Result
from spo.reports.runs import Run, load_runs
from spo.reports.statistics import Curve

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "runs" / "h200"


class Shown(NamedTuple):
    """A run in the picture."""

    label: str
    folder: Path
    alone: bool = True  # on its GPU, so that its clock says something


SHOWN = (
    Shown("SPO, the paper's settings, 5 seeds", RUNS / "spo_rubiks_cube_5_seeds", alone=False),
    Shown("SPO, the paper's settings", RUNS / "spo_rubiks_cube"),
    Shown("SPO, tuned", RUNS / "spo_rubiks_cube_tuned"),
    Shown("AlphaZero", RUNS / "alphazero_rubiks_cube", alone=False),
    Shown("Gumbel AlphaZero", RUNS / "gumbel_alphazero_rubiks_cube", alone=False),
)
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
    """Draws the share of solved cubes over steps and over minutes of training."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Run folders, each alone on its GPU; without any, those under results/runs/h200, as far as they are there."""
    out: Path = ROOT / "docs" / "images" / "solve_rate"
    """Where to write: with .png and with .svg after it."""
    millions: float | None = None
    """Where the axis of steps ends; without it, with the longest run."""
    minutes: float | None = None
    """Where the axis of time ends; without it, with the longest run."""


class Curves(NamedTuple):
    """The share of episodes solved, the mean over seeds."""

    steps: Curve
    training: Curve  # over seconds of training
    wall: Curve | None  # over seconds since the start


def curves_of(folder: Path, steps_per_second: float | None = None) -> tuple[Curves, int]:
    """And the number of seeds. With `steps_per_second`, of all seeds together, the run's own clock is not looked at."""
    compared = comparison.compare(load_runs([folder]), metric="solve_rate")
    results = compared.results
    over = {"steps": [result.steps for result in results]}
    if steps_per_second is None:
        over["training"] = [training_seconds(result) for result in results]
        over["wall"] = [result.seconds for result in results]
    else:
        over["training"] = [steps * len(results) / steps_per_second for steps in over["steps"]]
    values = [result.values for result in results]
    curves = {name: mean_over_seeds(xs, values) for name, xs in over.items()}
    return Curves(curves["steps"], curves["training"], curves.get("wall")), len(results)


def judged(run: Run) -> str:
    """What a run was judged on: it may have learned from other cubes."""
    scrambles = run.config.get("task_options", {}).get("eval_scrambles")
    return run.config["task"] + ("" if scrambles is None else f" with {scrambles} scrambles")


def speed_alone(folder: Path, measured: Sequence[dict[str, Any]]) -> float:
    """Environment steps per second of a run's algorithm, task, precision and number of seeds, by rows of benchmarks."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    wanted = {
        "algorithm": config["algorithm"],
        "task": config["task"],
        "settings": "paper",
        "dtype": config["network"]["dtype"],
        "num_seeds": config["num_seeds"],
        "deterministic": False,
    }
    for row in measured:
        if {"deterministic": False, **row}.items() >= wanted.items():
            return row["env_steps_per_second"]
    raise SystemExit(f"{folder} shared its GPU, and no speed is known of it alone: {wanted}.")


def training_seconds(result: Result) -> np.ndarray:
    """Of each evaluation: steps of all seeds over their average speed until then, which counts training alone."""
    rates = np.array([record["time"]["env_steps_per_second"] for record in result.run.evaluations[result.seed]])
    return result.steps * len(result.run.evaluations) / np.where(result.steps > 0, rates, 1.0)


def mean_over_seeds(xs: Sequence[np.ndarray], values: Sequence[np.ndarray]) -> Curve:
    grid, on_grid, interpolated = statistics.on_common_grid(xs, values)
    return Curve(grid, statistics.bootstrap(statistics.mean, [on_grid], num_resamples=2_000), interpolated)


def reference_curves() -> Curves:
    steps, shares = np.array(list(REFERENCE)), np.array(list(REFERENCE.values()))
    no_interval = np.full_like(shares, math.nan)
    estimate = statistics.Estimate(shares, no_interval, no_interval)
    return Curves(Curve(steps, estimate, False), Curve(steps / REFERENCE_STEPS_PER_SECOND, estimate, False), None)


# --- In words ---------------------------------------------------------------------------------------------------------
def first_time(curve: Curve, share: float) -> float | None:
    """Where the first evaluation with at least this share solved lies."""
    reached = np.flatnonzero(curve.estimate.value >= share)
    return float(curve.x[reached[0]]) if reached.size else None


def milestones(name: str, curves: Curves) -> str:
    """When a run first solved so many of its episodes, in words."""

    def when(share: float) -> str:
        seconds = first_time(curves.training, share)
        if seconds is None:
            return "not reached"
        included = None if curves.wall is None else first_time(curves.wall, share)
        return f"after {seconds:.0f} s" + ("" if included is None else f" ({included:.0f} s with everything)")

    said = ", ".join(f"{share:.0%} {when(share)}" for share in MILESTONES)
    return f"{name}: {said}; {curves.training.x[-1]:.0f} s of training in all"


# --- In a picture -----------------------------------------------------------------------------------------------------
def draw(shown: Sequence[Shown], curves: dict[str, Curves], options: Options) -> Figure:
    reference = reference_curves()
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(9.6, 3.9))
        by_steps, by_time = figure.subplots(1, 2, sharey=True)
        for one, colour in zip(shown, figures.PALETTE, strict=False):
            figures.draw_curve(by_steps, in_units(curves[one.label].steps, 1e6), colour, one.label)
            figures.draw_curve(by_time, in_units(curves[one.label].training, 60.0), colour)
        for axes, curve, unit in ((by_steps, reference.steps, 1e6), (by_time, reference.training, 60.0)):
            label = "reference (Stoix's SPO), one seed" if axes is by_steps else None
            points = {"color": figures.INK, "ms": 4, "mfc": "white", "zorder": 3, "label": label}
            axes.plot(curve.x / unit, curve.estimate.value, "D", **points)
            axes.set_xlim(0)
        by_steps.set(xlabel="environment steps, millions", ylabel="episodes solved", ylim=(-0.02, 1.03))
        by_steps.set_title("Rubik's cube, 7 scrambles")
        by_time.set(xlabel="minutes of training on one H200")
        by_steps.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        if options.millions is not None:
            by_steps.set_xlim(0, options.millions)
        if options.minutes is not None:
            by_time.set_xlim(0, options.minutes)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def in_units(curve: Curve, unit: float) -> Curve:
    return curve._replace(x=curve.x / unit)


def main(options: Options) -> None:
    shown = [Shown(folder.name, folder) for folder in options.runs] or [one for one in SHOWN if one.folder.exists()]
    judged_on = {judged(run) for run in load_runs([one.folder for one in shown])}
    if len(judged_on) > 1:
        raise SystemExit(f"One picture shows one task, and these runs were judged on {', '.join(sorted(judged_on))}.")
    measured = performance_tables.training("h200")
    curves = {}
    for one in shown:
        curves[one.label], num_seeds = curves_of(one.folder, None if one.alone else speed_alone(one.folder, measured))
        beside = "" if one.alone else ", at its speed alone"
        print(milestones(f"{one.label} ({num_seeds} seed{'s'[: num_seeds > 1]}{beside})", curves[one.label]))
    print(milestones("reference (1 seed)", reference_curves()))
    for path in figures.save(draw(shown, curves, options), options.out):
        print(path)


if __name__ == "__main__":
    main(tyro.cli(Options))
