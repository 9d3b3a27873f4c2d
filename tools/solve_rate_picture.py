"""Draws the README's picture: the share of cubes with seven scrambles that ours and the reference solve.

    python tools/solve_rate_picture.py               # the runs under results/runs/h200
    python tools/solve_rate_picture.py RUN RUN --out picture.png

The left panel is over environment steps, the right one over minutes of training. A curve is the mean over the seeds of
a run with its 95 % interval. A run of one seed has no interval.

The time is that of training, without compilation and evaluation, because only the steps and the speed of the reference
are known. Runs that shared a GPU are drawn at the measured speed of their settings alone (results/benchmarks/h200). For
a tree search that speed is of an untrained network, with which it is fastest.

The program also prints when each run first solved 92, 95 and 99 % of its episodes: in seconds of training, and in
seconds since its start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import performance_tables
import tyro
from matplotlib.figure import Figure

from spo.reports import figures, stats
from spo.reports.comparison import Result, compare
from spo.reports.runs import Run, load_run, load_runs
from spo.reports.stats import Curve

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "runs" / "h200"


class Shown(NamedTuple):
    """A run in the picture."""

    label: str
    folder: Path
    alone: bool = True
    """True if the run did not share its GPU, so that its times are valid."""


SHOWN = (
    Shown("SPO, the paper's settings, 5 seeds", RUNS / "spo_rubiks_cube_5_seeds", alone=False),
    Shown("SPO, tuned", RUNS / "spo_rubiks_cube_tuned"),
    Shown("AlphaZero", RUNS / "alphazero_rubiks_cube", alone=False),
    Shown("Gumbel AlphaZero", RUNS / "gumbel_alphazero_rubiks_cube", alone=False),
)
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
"""Stoix's SPO with the paper's settings on an H200, one seed: environment steps -> share of episodes solved."""
REFERENCE_STEPS_PER_SECOND = 158_000
MILESTONES = (0.92, 0.95, 0.99)


@dataclass(frozen=True)
class Options:
    """Draws the share of solved cubes over steps and over minutes of training."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of runs, each alone on its GPU. Without any: the runs under results/runs/h200."""
    out: Path = ROOT / "docs" / "images" / "solve_rate.png"
    """File to write, .png or .svg."""
    millions: float | None = None
    """End of the axis of steps, in millions. None: the end of the longest run."""
    minutes: float | None = None
    """End of the axis of time, in minutes. None: the end of the longest run."""


class Curves(NamedTuple):
    """Share of episodes solved, mean over seeds."""

    steps: Curve
    training: Curve
    """Over seconds of training."""
    wall: Curve | None
    """Over seconds since the start."""


def curves_of(folder: Path, steps_per_second: float | None = None) -> tuple[Curves, int]:
    """Returns the curves of a run and its number of seeds.

    With `steps_per_second`, the speed of all seeds together, the times of the run itself are not used.
    """
    results = compare(load_runs([folder]), metric="solve_rate").results
    over = {"steps": [result.steps for result in results]}
    if steps_per_second is None:
        over["training"] = [result.seconds for result in results]
        over["wall"] = [wall_seconds(result) for result in results]
    else:
        over["training"] = [steps * len(results) / steps_per_second for steps in over["steps"]]
    values = [result.values for result in results]
    curves = {
        name: stats.aggregate_curve([list(zip(xs, values, strict=True))], stats.mean) for name, xs in over.items()
    }
    return Curves(curves["steps"], curves["training"], curves.get("wall")), len(results)


def evaluated_on(run: Run) -> str:
    """Returns the task that a run was evaluated on, which may differ from that of its training."""
    scrambles = run.config.get("task_options", {}).get("eval_scrambles")
    return run.config["task"] + ("" if scrambles is None else f" with {scrambles} scrambles")


def speed_alone(folder: Path, measured: Sequence[dict[str, Any]]) -> float:
    """Returns the environment steps per second of a run's settings from rows of benchmarks."""
    config = load_run(folder).config
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
    raise SystemExit(f"{folder} shared its GPU, and results/benchmarks has no speed of its settings: {wanted}.")


def wall_seconds(result: Result) -> np.ndarray:
    """Returns the seconds from the start of the run to each evaluation, compilation and evaluations included."""
    return np.array([record["time"]["wall_seconds"] for record in result.run.evaluations[result.seed]])


def reference_curves() -> Curves:
    """Returns the curves of the reference."""
    steps, shares = np.array(list(REFERENCE)), np.array(list(REFERENCE.values()))
    return Curves(stats.plain_curve(steps, shares), stats.plain_curve(steps / REFERENCE_STEPS_PER_SECOND, shares), None)


# --- Milestones -------------------------------------------------------------------------------------------------------
def first_time(curve: Curve, share: float) -> float | None:
    """Returns the position of the first evaluation with at least this share solved. None: there is none."""
    reached = np.flatnonzero(curve.estimate.value >= share)
    return float(curve.x[reached[0]]) if reached.size else None


def describe_milestones(name: str, curves: Curves) -> str:
    """Returns a sentence about the first evaluations that reach the milestones."""

    def when(share: float) -> str:
        seconds = first_time(curves.training, share)
        if seconds is None:
            return "not reached"
        total = None if curves.wall is None else first_time(curves.wall, share)
        return f"after {seconds:.0f} s" + ("" if total is None else f" ({total:.0f} s since the start)")

    milestones = ", ".join(f"{share:.0%} {when(share)}" for share in MILESTONES)
    return f"{name}: {milestones}; {curves.training.x[-1]:.0f} s of training in total"


# --- Picture ----------------------------------------------------------------------------------------------------------
def draw(shown: Sequence[Shown], curves: dict[str, Curves], options: Options) -> Figure:
    """Draws the curves of the runs and the points of the reference."""
    reference = reference_curves()
    with figures.style():
        figure = figures.new_figure(9.6, 3.9)
        by_steps, by_time = figure.subplots(1, 2, sharey=True)
        for run, colour in zip(shown, figures.PALETTE, strict=False):
            figures.draw_curve(by_steps, in_units(curves[run.label].steps, 1e6), colour, label=run.label)
            figures.draw_curve(by_time, in_units(curves[run.label].training, 60.0), colour)
        for axes, curve, unit in ((by_steps, reference.steps, 1e6), (by_time, reference.training, 60.0)):
            label = "reference (Stoix's SPO), one seed" if axes is by_steps else None
            points = {"color": figures.INK, "ms": 4, "mfc": "white", "zorder": 3, "label": label}
            axes.plot(curve.x / unit, curve.estimate.value, "D", **points)
        by_steps.set(xlabel="environment steps, millions", ylabel="episodes solved", ylim=figures.SHARE_LIMITS)
        by_steps.set_title("Rubik's cube, 7 scrambles")
        by_time.set_xlabel("minutes of training on one H200")
        by_steps.yaxis.set_major_formatter(figures.PER_CENT)
        by_steps.set_xlim(0, options.millions)
        by_time.set_xlim(0, options.minutes)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def in_units(curve: Curve, unit: float) -> Curve:
    """Returns the curve with its x-axis divided by a unit."""
    return curve._replace(x=curve.x / unit)


def main(options: Options) -> None:
    shown = [Shown(folder.name, folder) for folder in options.runs] or list(SHOWN)
    tasks = {evaluated_on(run) for run in load_runs([run.folder for run in shown])}
    if len(tasks) > 1:
        raise SystemExit(f"One picture shows one task. These runs were evaluated on {', '.join(sorted(tasks))}.")
    measured = performance_tables.training("h200")
    curves = {}
    for run in shown:
        curves[run.label], num_seeds = curves_of(run.folder, None if run.alone else speed_alone(run.folder, measured))
        seeds = "1 seed" if num_seeds == 1 else f"{num_seeds} seeds"
        speed = "" if run.alone else ", at its speed alone"
        print(describe_milestones(f"{run.label} ({seeds}{speed})", curves[run.label]))
    print(describe_milestones("reference (1 seed)", reference_curves()))
    print(figures.save(draw(shown, curves, options), options.out))


if __name__ == "__main__":
    main(tyro.cli(Options))
