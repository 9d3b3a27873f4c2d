"""The figures of a comparison. Each function takes a comparison and its judgement and returns a Matplotlib figure.

    save(learning_curves(comparison, judgement), Path("figures/learning_curves"))

A group has the same colour in every figure; the colours (after Okabe and Ito) are told apart by colour-blind readers.
Nothing here imports JAX.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from spo.reports.comparison import Comparison, Judgement
from spo.reports.runs import in_words
from spo.reports.statistics import AGGREGATES, Curve, Estimate

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D46", "#7F7F7F")
INK, MUTED, GRID = "#24292F", "#6E7781", "#D8DEE4"
#: Algorithms with a colour of their own, the same in every comparison.
_KNOWN = ("spo", "ppo", "mpo", "vmpo", "alphazero", "sampled_alphazero", "smc_ent", "gumbel_alphazero")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.wspace": 0.06,
    "figure.constrained_layout.hspace": 0.08,
    "svg.fonttype": "none",  # text stays text: it can be searched, and takes the colour of the page
}
_ROUND = [1, 2, 2.5, 5, 10]
_PER_CENT = FuncFormatter(lambda value, _: f"{100 * value:.4g} %")
_METRIC_LABELS = {"episode/solved": "episodes solved", "episode/return": "return per episode"}


def colours(groups: Sequence[str]) -> dict[str, str]:
    """A colour for each group: known algorithms have theirs, others take what is left."""
    taken = {group: PALETTE[_KNOWN.index(group)] for group in groups if group in _KNOWN}
    free = [colour for colour in PALETTE if colour not in taken.values()] or list(PALETTE)
    others = [group for group in groups if group not in taken]
    return taken | {group: free[index % len(free)] for index, group in enumerate(others)}


def learning_curves(comparison: Comparison, judgement: Judgement) -> Figure:
    """Per task, the IQM of the runs over environment steps, with the interval between seeds."""
    return _curves_per_task(comparison, judgement.ranking, judgement.learning_curves, "environment steps", _steps_axis)


def wall_clock(comparison: Comparison, judgement: Judgement) -> Figure:
    """Per task, the IQM of the runs over the time they took, evaluations and compiling included."""
    return _curves_per_task(comparison, judgement.ranking, judgement.time_curves, "wall-clock time", _time_axis)


def sample_efficiency(comparison: Comparison, judgement: Judgement) -> Figure:
    """The IQM of normalised scores over all tasks and runs, over environment steps."""
    with matplotlib.rc_context(STYLE):
        figure = _new_figure(6.4, 3.9)
        axes = figure.add_subplot()
        for group, colour in colours(comparison.groups).items():
            draw_curve(axes, judgement.sample_efficiency[group], colour)
        axes.set_ylabel("IQM of normalised scores")
        _normalised_axis(axes.yaxis)
        if judgement.relative_steps:
            axes.set_xlabel("environment steps, as a share of the task's longest run")
            axes.xaxis.set_major_formatter(_PER_CENT)
        else:
            axes.set_xlabel("environment steps")
            _steps_axis(axes)
        axes.set_xlim(left=0)
        axes.set_ylim(-0.02, 1.03)
        _legend(figure, judgement.ranking, colours(comparison.groups))
    return figure


def final_scores(comparison: Comparison, judgement: Judgement) -> Figure:
    """Per task, the final score of every run, their IQM and its interval. A ring is a run that is not finished."""
    groups, palette = judgement.ranking, colours(comparison.groups)
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels(len(comparison.tasks), 1.1 + 0.36 * len(groups), same_rows=True)
        for axes, task in zip(panels, comparison.tasks, strict=True):
            metric = comparison.metrics[task]
            for row, group in enumerate(groups):
                results = comparison.of(group, task)
                if not results:
                    continue
                _draw_interval(axes, row, judgement.finals[group, task], palette[group])
                heights = row + 0.22 * _spread(len(results))
                for result, height in zip(results, heights, strict=True):
                    face = palette[group] if result.finished else "none"
                    axes.plot(result.score, height, "o", ms=4, mfc=face, mec=palette[group], mew=1, alpha=0.8)
            axes.set(title=task, xlabel=_METRIC_LABELS[metric])
            _group_rows(axes, groups)
            _value_axis(axes.xaxis, metric)
    return figure


def aggregate_metrics(comparison: Comparison, judgement: Judgement) -> Figure:
    """IQM, mean, median and optimality gap of normalised scores, with their intervals."""
    groups, palette = judgement.ranking, colours(comparison.groups)
    with matplotlib.rc_context(STYLE):
        figure = _new_figure(9.6, 1.15 + 0.36 * len(groups))
        panels = figure.subplots(1, len(AGGREGATES), sharey=True)
        for axes, name in zip(panels, AGGREGATES, strict=True):
            for row, group in enumerate(groups):
                estimate = judgement.aggregates[group][name]
                _draw_interval(axes, row, estimate, palette[group], ink=palette[group])
                axes.annotate(
                    f"{estimate.value:.2f}", (estimate.value, row - 0.34), ha="center", va="center", fontsize=7.5
                )
            better = "lower is better" if name == "optimality gap" else "higher is better"
            axes.set_title(name)
            axes.set_xlabel(better, color=MUTED)
            axes.xaxis.set_major_locator(_round_numbers(4))
            axes.margins(x=0.15)
            _group_rows(axes, groups)
    return figure


def performance_profiles(comparison: Comparison, judgement: Judgement) -> Figure:
    """The share of runs, over all tasks, that score more than each threshold. Higher is better, at every threshold."""
    with matplotlib.rc_context(STYLE):
        figure = _new_figure(6.4, 3.9)
        axes = figure.add_subplot()
        for group, colour in colours(comparison.groups).items():
            profile = judgement.profiles[group]
            axes.fill_between(
                judgement.thresholds, profile.low, profile.high, color=colour, alpha=0.15, lw=0, step="post"
            )
            axes.step(judgement.thresholds, profile.value, where="post", color=colour, lw=1.8)
        axes.set(xlabel="normalised score τ", ylabel="share of runs with a score over τ")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.02, 1.03)
        _normalised_axis(axes.xaxis)
        axes.yaxis.set_major_formatter(_PER_CENT)
        _legend(figure, judgement.ranking, colours(comparison.groups))
    return figure


def probability_of_improvement(comparison: Comparison, judgement: Judgement) -> Figure:
    """For every pair, how likely a run of the first is to beat one of the second on a task drawn at random."""
    if not judgement.verdicts:
        raise ValueError("A probability of improvement needs two groups: there is one.")
    palette = colours(comparison.groups)
    with matplotlib.rc_context(STYLE):
        figure = _new_figure(6.4, 1.15 + 0.32 * len(judgement.verdicts))
        axes = figure.add_subplot()
        for x, style in ((0.5, "-"), (0.75, (0, (3, 3)))):
            axes.axvline(x, color=MUTED, lw=1, ls=style, zorder=1)
        for row, verdict in enumerate(judgement.verdicts):
            colour = MUTED if verdict.better is None else palette[verdict.better]
            _draw_interval(axes, row, verdict.probability, colour, ink=colour)
            axes.annotate(
                f"{verdict.probability.value:.2f}",
                (1.02, row),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
                annotation_clip=False,
            )
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5\nequal", "0.75\nmeaningful", "1"])
        axes.set_xlabel("probability of improvement P(X > Y)")
        _group_rows(axes, ["{}  over  {}".format(*verdict.names) for verdict in judgement.verdicts])
    return figure


FIGURES: dict[str, tuple[str, Callable[[Comparison, Judgement], Figure]]] = {
    "learning_curves": ("Learning curves", learning_curves),
    "final_scores": ("Final scores", final_scores),
    "aggregate_metrics": ("Aggregate metrics", aggregate_metrics),
    "probability_of_improvement": ("Probability of improvement", probability_of_improvement),
    "performance_profiles": ("Performance profiles", performance_profiles),
    "sample_efficiency": ("Sample efficiency", sample_efficiency),
    "wall_clock": ("Wall-clock time", wall_clock),
}


def draw_all(comparison: Comparison, judgement: Judgement) -> dict[str, Figure]:
    """All figures by name; where there is one group only, there is no probability of improvement."""
    return {
        name: draw(comparison, judgement)
        for name, (_, draw) in FIGURES.items()
        if judgement.verdicts or name != "probability_of_improvement"
    }


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes path.png and path.svg. The same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg")]
    # The salt is what the names inside the SVG are made from: another one for each figure, the same every time.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name}):
        figure.savefig(paths[0], dpi=200)
        figure.savefig(paths[1], transparent=True, metadata={"Date": None})
    return paths


def _new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _panels(count: int, height: float, *, same_rows: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in rows of up to three."""
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = _new_figure({1: 6.4, 2: 8.4, 3: 10.8}[columns], rows * height)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=same_rows).ravel().tolist()
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


def _curves_per_task(
    comparison: Comparison,
    ranking: Sequence[str],
    curves: Mapping[tuple[str, str], Curve],
    xlabel: str,
    format_x: Callable[[Axes], None],
) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels(len(comparison.tasks), 3.1)
        for axes, task in zip(panels, comparison.tasks, strict=True):
            for group, colour in colours(comparison.groups).items():
                if (group, task) in curves:
                    draw_curve(axes, curves[group, task], colour)
            axes.set(title=task, xlabel=xlabel, ylabel=_METRIC_LABELS[comparison.metrics[task]])
            axes.set_xlim(left=0)
            _value_axis(axes.yaxis, comparison.metrics[task])
            if comparison.metrics[task] == "episode/solved":
                axes.set_ylim(-0.02, 1.03)
            format_x(axes)
        _legend(figure, ranking, colours(comparison.groups))
    return figure


def draw_curve(axes: Axes, curve: Curve, colour: str, label: str | None = None) -> None:
    """A line with its interval, where it has one."""
    marker = "o" if len(curve.x) == 1 else None
    axes.plot(curve.x, curve.estimate.value, color=colour, lw=1.8, marker=marker, solid_capstyle="round", label=label)
    if not np.isnan(curve.estimate.low).any():
        axes.fill_between(curve.x, curve.estimate.low, curve.estimate.high, color=colour, alpha=0.15, lw=0)


def _draw_interval(axes: Axes, row: float, estimate: Estimate, colour: str, ink: str = INK) -> None:
    """A bar from the lower to the upper bound with a tick at the value."""
    axes.use_sticky_edges = False  # a bar that ends at the edge would cut markers in half
    if not math.isnan(estimate.low):
        axes.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.3, color=colour, alpha=0.3, lw=0)
    axes.plot([estimate.value] * 2, [row - 0.2, row + 0.2], color=ink, lw=2, solid_capstyle="butt")


def _spread(count: int) -> np.ndarray:
    """`count` heights between -1 and 1, so that runs with the same score are seen apart."""
    return np.zeros(1) if count == 1 else np.linspace(-1.0, 1.0, count)


def _group_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _legend(figure: Figure, ranking: Sequence[str], palette: Mapping[str, str]) -> None:
    handles = [Line2D([], [], color=palette[group], lw=2.5, label=group) for group in ranking]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 6))


def _round_numbers(count: int) -> MaxNLocator:
    """Up to `count` intervals between ticks at 1, 2, 2.5 or 5 times a power of ten."""
    return MaxNLocator(count, steps=_ROUND)


def _steps_axis(axes: Axes) -> None:
    axes.xaxis.set_major_locator(_round_numbers(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _time_axis(axes: Axes) -> None:
    longest = axes.get_xlim()[1]
    unit, seconds = next((u, s) for u, s in (("h", 3600), ("min", 60), ("s", 1)) if longest >= 2 * s or s == 1)
    axes.set_xlabel(f"{axes.get_xlabel()} ({unit})")
    axes.xaxis.set_major_locator(_Multiples(seconds))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / seconds:g}"))


class _Multiples(MaxNLocator):
    """Round numbers of a unit."""

    def __init__(self, unit: float):
        super().__init__(5, steps=_ROUND)
        self._unit = unit

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return np.asarray(super().tick_values(vmin / self._unit, vmax / self._unit)) * self._unit


def _value_axis(axis: Any, metric: str) -> None:
    if metric == "episode/solved":
        axis.set_major_formatter(_PER_CENT)
    else:
        axis.set_major_formatter(FuncFormatter(lambda value, _: in_words(metric, value)))
    axis.set_major_locator(_round_numbers(5))


def _normalised_axis(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


__all__ = [
    "FIGURES",
    "GRID",
    "INK",
    "MUTED",
    "PALETTE",
    "aggregate_metrics",
    "colours",
    "draw_all",
    "final_scores",
    "learning_curves",
    "performance_profiles",
    "probability_of_improvement",
    "sample_efficiency",
    "save",
    "wall_clock",
]
