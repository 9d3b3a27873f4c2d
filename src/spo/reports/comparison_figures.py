"""The figures of a comparison. Each function returns a Matplotlib figure.

figures.save(learning_curves(comparison, judgement), Path("figures/learning_curves.svg"))
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from spo.reports import figures
from spo.reports.comparison import Comparison
from spo.reports.judgement import Judgement
from spo.reports.stats import AGGREGATES, MEANINGFUL, Curve


def learning_curves(comparison: Comparison, judgement: Judgement) -> Figure:
    """IQM of the runs over environment steps, with its interval between seeds. One panel per task."""
    return _curves_per_task(comparison, judgement, judgement.learning_curves, "environment steps", figures.format_steps)


def training_time(comparison: Comparison, judgement: Judgement) -> Figure:
    """IQM of the runs over the time of training, without evaluations and compilation. One panel per task."""
    return _curves_per_task(comparison, judgement, judgement.time_curves, "training time", figures.format_time)


def sample_efficiency(comparison: Comparison, judgement: Judgement) -> Figure:
    """IQM of normalised scores over all tasks and runs, over environment steps."""
    palette = figures.colours(comparison.groups)
    with figures.style():
        figure = figures.new_figure(6.4, 3.9)
        axes = figure.add_subplot()
        for group, colour in palette.items():
            if group in judgement.sample_efficiency:
                figures.draw_curve(axes, judgement.sample_efficiency[group], colour)
        axes.set_ylabel("IQM of normalised scores")
        _format_normalised(axes.yaxis)
        if judgement.relative_steps:
            axes.set_xlabel("environment steps, as a share of the task's longest run")
            axes.xaxis.set_major_formatter(figures.PER_CENT)
        else:
            axes.set_xlabel("environment steps")
            figures.format_steps(axes)
        axes.set_title("Sample efficiency")
        axes.set_xlim(left=0)
        axes.set_ylim(*figures.SHARE_LIMITS)
        figures.add_legend(figure, judgement.ranking, palette)
    return figure


def final_scores(comparison: Comparison, judgement: Judgement) -> Figure:
    """Final score of every run, their IQM and its interval. One panel per task. A ring is an unfinished run."""
    groups, palette = judgement.ranking, figures.colours(comparison.groups)
    with figures.style():
        figure, panels = figures.new_panels(len(comparison.tasks), 1.1 + 0.36 * len(groups), same_rows=True)
        for axes, task in zip(panels, comparison.tasks, strict=True):
            metric = comparison.metrics[task]
            for row, group in enumerate(groups):
                results = comparison.results_of(group, task)
                if not results:
                    continue
                figures.draw_interval(axes, row, judgement.finals[group, task], palette[group])
                heights = row + 0.22 * _spread(len(results))
                for result, height in zip(results, heights, strict=True):
                    face = palette[group] if result.finished else "none"
                    axes.plot(result.score, height, "o", ms=4, mfc=face, mec=palette[group], mew=1, alpha=0.8)
            axes.set(title=task, xlabel=figures.METRIC_LABELS[metric])
            figures.label_rows(axes, groups)
            figures.format_values(axes.xaxis, metric)
    return figure


def aggregate_metrics(comparison: Comparison, judgement: Judgement) -> Figure:
    """IQM, mean, median and optimality gap of normalised scores, with their intervals."""
    groups, palette = judgement.ranking, figures.colours(comparison.groups)
    with figures.style():
        figure = figures.new_figure(9.6, 1.15 + 0.36 * len(groups))
        panels = figure.subplots(1, len(AGGREGATES), sharey=True)
        for axes, name in zip(panels, AGGREGATES, strict=True):
            for row, group in enumerate(groups):
                estimate = judgement.aggregates[group][name]
                figures.draw_interval(axes, row, estimate, palette[group], ink=palette[group])
                position = (estimate.value, row - 0.34)
                axes.annotate(f"{estimate.value:.2f}", position, ha="center", va="center", fontsize=7.5)
            better = "lower is better" if name == "optimality gap" else "higher is better"
            axes.set_title(name)
            axes.set_xlabel(better, color=figures.MUTED)
            axes.xaxis.set_major_locator(figures.round_ticks(4))
            axes.margins(x=0.15)
            figures.label_rows(axes, groups)
    return figure


def performance_profiles(comparison: Comparison, judgement: Judgement) -> Figure:
    """Share of runs, over all tasks, that score more than each threshold. Higher is better at every threshold."""
    palette = figures.colours(comparison.groups)
    with figures.style():
        figure = figures.new_figure(6.4, 3.9)
        axes = figure.add_subplot()
        for group, colour in palette.items():
            profile = judgement.profiles[group]
            band: dict[str, Any] = {"color": colour, "alpha": 0.15, "lw": 0, "step": "post"}
            axes.fill_between(judgement.thresholds, profile.low, profile.high, **band)
            axes.step(judgement.thresholds, profile.value, where="post", color=colour, lw=1.8)
        axes.set(title="Performance profiles", xlabel="normalised score τ", ylabel="share of runs with a score over τ")
        axes.set_xlim(0, 1)
        axes.set_ylim(*figures.SHARE_LIMITS)
        _format_normalised(axes.xaxis)
        axes.yaxis.set_major_formatter(figures.PER_CENT)
        figures.add_legend(figure, judgement.ranking, palette)
    return figure


def probability_of_improvement(comparison: Comparison, judgement: Judgement) -> Figure:
    """Probability that a run of the first group scores more than one of the second, for every pair of groups."""
    if not judgement.verdicts:
        raise ValueError("A probability of improvement needs two groups: there is one.")
    palette = figures.colours(comparison.groups)
    with figures.style():
        figure = figures.new_figure(6.4, 1.15 + 0.32 * len(judgement.verdicts))
        axes = figure.add_subplot()
        for x, style in ((0.5, "-"), (MEANINGFUL, (0, (3, 3)))):
            axes.axvline(x, color=figures.MUTED, lw=1, ls=style, zorder=1)
        for row, verdict in enumerate(judgement.verdicts):
            colour = figures.MUTED if verdict.better is None else palette[verdict.better]
            figures.draw_interval(axes, row, verdict.probability, colour, ink=colour)
            axes.annotate(
                f"{verdict.probability.value:.2f}",
                (1.02, row),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
                annotation_clip=False,
            )
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([0, 0.25, 0.5, MEANINGFUL, 1], ["0", "0.25", "0.5\nequal", "0.75\nmeaningful", "1"])
        axes.set(title="Probability of improvement", xlabel="P(a run of the first scores more than one of the second)")
        figures.label_rows(axes, ["{}  over  {}".format(*verdict.names) for verdict in judgement.verdicts])
    return figure


FIGURES: dict[str, tuple[str, Callable[[Comparison, Judgement], Figure]]] = {
    "learning_curves": ("Learning curves", learning_curves),
    "final_scores": ("Final scores", final_scores),
    "aggregate_metrics": ("Aggregate metrics", aggregate_metrics),
    "probability_of_improvement": ("Probability of improvement", probability_of_improvement),
    "performance_profiles": ("Performance profiles", performance_profiles),
    "sample_efficiency": ("Sample efficiency", sample_efficiency),
    "training_time": ("Training time", training_time),
}
"""Name of the file -> heading and function."""


def draw_all(comparison: Comparison, judgement: Judgement) -> dict[str, Figure]:
    """Returns all figures by name. With a single group there is no probability of improvement.

    A figure without any curve is left out. `Judgement.notes` has the reason.
    """
    content = {
        "learning_curves": judgement.learning_curves,
        "probability_of_improvement": judgement.verdicts,
        "sample_efficiency": judgement.sample_efficiency,
        "training_time": judgement.time_curves,
    }
    return {name: draw(comparison, judgement) for name, (_, draw) in FIGURES.items() if content.get(name, True)}


def _curves_per_task(
    comparison: Comparison,
    judgement: Judgement,
    curves: Mapping[tuple[str, str], Curve],
    xlabel: str,
    format_x: Callable[[Axes], None],
) -> Figure:
    palette = figures.colours(comparison.groups)
    with figures.style():
        figure, panels = figures.new_panels(len(comparison.tasks), 3.1)
        for axes, task in zip(panels, comparison.tasks, strict=True):
            for group, colour in palette.items():
                if (group, task) in curves:
                    figures.draw_curve(axes, curves[group, task], colour)
            metric = comparison.metrics[task]
            axes.set(title=task, xlabel=xlabel, ylabel=figures.METRIC_LABELS[metric])
            axes.set_xlim(left=0)
            figures.format_values(axes.yaxis, metric)
            if metric == "episode/solved":
                axes.set_ylim(*figures.SHARE_LIMITS)
            format_x(axes)
        figures.add_legend(figure, judgement.ranking, palette)
    return figure


def _spread(count: int) -> np.ndarray:
    """Returns `count` heights between -1 and 1, which separate runs with the same score."""
    return np.zeros(1) if count == 1 else np.linspace(-1.0, 1.0, count)


def _format_normalised(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


__all__ = [
    "FIGURES",
    "aggregate_metrics",
    "draw_all",
    "final_scores",
    "learning_curves",
    "performance_profiles",
    "probability_of_improvement",
    "sample_efficiency",
    "training_time",
]
