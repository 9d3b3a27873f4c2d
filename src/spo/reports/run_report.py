"""The report of one run: its results as text and its learning curve as a picture.

Both are made from the files of the run alone, so they can be made again on any machine.
"""

import math
import shlex
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spo.reports.formatting import HEADLINES, format_duration, format_metric
from spo.reports.run_files import Record, read_records
from spo.reports.runs import Run, headline, latest_per_seed, load_run
from spo.reports.stats import (
    Curve,
    Estimate,
    Interval,
    clip_to_share,
    mean_interval,
    plain_curve,
    share_interval,
    widen_to_seeds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def report(folder: Path, can_render: bool = True) -> str:
    """Returns a text about a run: task, length, results, location and the commands that use it.

    Args:
        folder: the run.
        can_render: the environment draws pictures, so that the text names `spo render`.
    """
    run = load_run(folder)
    options = "".join(f", {name} {value}" for name, value in run.config["task_options"].items())
    lines = [f"Trained {run.config['algorithm']} on {run.config['task']}{options}."]
    if run.records:
        num_seeds = run.config["num_seeds"]
        each = f" for each of {num_seeds} seeds" if num_seeds > 1 else ""
        lines.append(f"{run.env_steps:,} steps{each} in {_duration(run)}.")
    if run.summary is not None:
        lines += _results(run.summary, searches=_searches(run))
    elif result := latest_result(run):
        lines.append(f"Not finished; so far: {result}")
    name = shlex.quote(str(folder))
    lines += [
        f"The run is stored in {folder}: metrics.jsonl, learning_curve.png, checkpoints.",
        f"  spo evaluate {name}    evaluate it again{', with any search budget' if _searches(run) else ''}",
    ]
    if can_render:
        lines.append(f"  spo render {name}    watch an episode")
    if run.finished:
        lines.append(f"  spo export {name} learner.npz    write one file, to start from: spo train --from learner.npz")
    else:
        lines.append(f"  spo train --resume {name}    finish it")
    return "\n".join(lines)


def short_report(folder: Path) -> str:
    """Returns one line about a run: its folder and its result."""
    run = load_run(folder)
    state = "" if run.finished else " so far"
    return f"{folder}: {latest_result(run)}{state}, {run.env_steps:,} steps"


def latest_result(run: Run) -> str:
    """Formats the headline of the final evaluation, or of the latest one, averaged over seeds. Empty before any."""
    latest = latest_per_seed(run.records, "final") or latest_per_seed(run.records, "evaluation")
    if not latest:
        return ""
    name = headline(latest)
    return f"{HEADLINES[name]} {format_metric(name, statistics.fmean(record['metrics'][name] for record in latest))}"


def episodes_interval(name: str, per_seed: Sequence[Sequence[float]]) -> Interval:
    """Returns the mean of a metric over the episodes of all seeds and its 95 % interval.

    The interval is between all episodes, widened to contain the interval between seeds.
    """
    pooled = [value for episodes in per_seed for value in episodes]
    interval = share_interval(statistics.fmean(pooled), len(pooled)) if name == "solved" else mean_interval(pooled)
    interval = widen_to_seeds(interval, [statistics.fmean(episodes) for episodes in per_seed])
    return clip_to_share(interval) if name == "solved" else interval


def draw_learning_curve(metrics_path: Path, picture_path: Path, title: str) -> None:
    """Draws the evaluations of a run over environment steps: a thin line per seed, their mean and its interval."""
    from spo.reports import figures

    records = read_records(metrics_path)
    name = headline(record for record in records if record["kind"] == "evaluation")
    with figures.style():
        figure = figures.new_figure(7, 4.2)
        axes = figure.add_subplot()
        _draw_training(axes, records, name)
        _draw_evaluations(axes, records, name)
        final = latest_per_seed(records, "final")
        if final:
            best = statistics.fmean(record["metrics"][name] for record in final)
            label = f"best parameters, final: {format_metric(name, best)}"
            axes.axhline(best, color=figures.PALETTE[1], lw=1, label=label)
        axes.set(title=title, xlabel="environment steps", ylabel=figures.METRIC_LABELS[name])
        axes.set_xlim(left=0)
        figures.format_steps(axes)
        figures.format_values(axes.yaxis, name)
        if name == "episode/solved":
            axes.set_ylim(*figures.SHARE_LIMITS)
        axes.legend(fontsize="small", loc="best")
    figures.save(figure, picture_path)


def _draw_training(axes: "Axes", records: Iterable[Record], name: str) -> None:
    from spo.reports import figures

    episodes = _points(records, "train", name)
    if episodes:
        mean = _mean_curve(episodes)
        line = plain_curve(mean.x, mean.estimate.value)
        figures.draw_curve(axes, line, figures.MUTED, label="training episodes", lw=1, ls="--")


def _draw_evaluations(axes: "Axes", records: Iterable[Record], name: str) -> None:
    from spo.reports import figures

    colour, evaluations = figures.PALETTE[0], _points(records, "evaluation", name)
    curve, label = _mean_curve(evaluations), "evaluation"
    if len(evaluations) > 1:
        label = f"evaluation, mean of {len(evaluations)} seeds"
        for points in evaluations.values():
            axes.plot(list(points), list(points.values()), color=colour, lw=0.8, alpha=0.35)
    if len(evaluations) > 2:
        label += " with 95 % interval"
    else:  # the interval of two seeds would fill the picture
        curve = plain_curve(curve.x, curve.estimate.value)
    figures.draw_curve(axes, curve, colour, label=label, marker="o")


def _points(records: Iterable[Record], kind: str, name: str) -> dict[int, dict[int, float]]:
    """Returns seed -> environment steps -> value, without NaN, the value of a period in which no episode ended."""
    curves: dict[int, dict[int, float]] = {}
    for record in records:
        value = record["metrics"].get(name)
        if record["kind"] == kind and value is not None and math.isfinite(value):
            curves.setdefault(record["seed"], {})[record["env_steps"]] = value
    return curves


def _mean_curve(curves: dict[int, dict[int, float]]) -> Curve:
    """Returns the mean over seeds at every step that any seed has, with Student's interval."""
    steps = sorted({step for points in curves.values() for step in points})
    intervals = [mean_interval([points[step] for points in curves.values() if step in points]) for step in steps]
    return Curve(np.array(steps, float), Estimate(*np.array(intervals, float).reshape(-1, 3).T))


def _duration(run: Run) -> str:
    """Returns the time of a run, with the part of compilation if that is known and not short."""
    summary = run.summary or {}
    compiling = summary.get("compile_seconds", 0.0)
    words = format_duration(summary.get("wall_seconds", run.records[-1]["time"]["wall_seconds"]))
    return words + (f", of which {format_duration(compiling)} compiling" if compiling >= 1 else "")


def _searches(run: Run) -> bool:
    """Returns True if the evaluations of a run choose actions by a search, as far as its files say so."""
    in_evaluations = run.config.get("evaluation", {}).get("use_search", True)
    return in_evaluations and (not run.records or run.records[-1].get("model_steps", 1) > 0)


def _results(summary: dict[str, Any], searches: bool) -> list[str]:
    """Returns one line per result: by search, by the policy alone, and before training.

    Without a search, the result is that of the policy, which is not repeated.
    """
    lines = []
    stages = {
        "final_{}": f"Result{_untrained(summary)}",
        "final_{}_policy_only": "Without search",
        "final_{}_last": "Last parameters",
        "final_{}_greedy": "Greedy actions",
        "final_{}_drawn": "Drawn actions",
        "initial_{}": "Untrained",
    }
    if not searches:
        del stages["final_{}_policy_only"]
    for stage, words in stages.items():
        parts: list[str] = []
        for key, metric in (("solve_rate", "episode/solved"), ("return", "episode/return")):
            name = stage.format(key)
            # If solving is the only reward, the return equals the solve rate and is not repeated.
            if name in summary and not (parts and summary[name] == summary[stage.format("solve_rate")]):
                low, high = (format_metric(metric, bound) for bound in summary[f"{name}_interval"])
                parts.append(f"{HEADLINES[metric]} {format_metric(metric, summary[name])} ({low} to {high})")
        if parts:
            lines.append(f"{words}: {', '.join(parts)}.")
    episodes = summary["final_return_episodes"]
    lines.append(f"Brackets contain 95 % intervals. The result is of {episodes:,} episodes per seed, best parameters.")
    return lines


def _untrained(summary: dict[str, Any]) -> str:
    """Returns a remark if the best parameters of a seed are those before training."""
    best = summary.get("best_env_steps_per_seed", ())
    seeds = [str(seed) for seed, env_steps in enumerate(best) if env_steps == 0]
    if not seeds:
        return ""
    return f" (parameters before training{'' if len(seeds) == len(best) else ' for seed ' + ', '.join(seeds)})"


__all__ = ["draw_learning_curve", "episodes_interval", "latest_result", "report", "short_report"]
