"""What a run says at its end, in words and as a picture: from its metrics file alone, so that a laptop can redraw it.

Nothing here imports JAX.
"""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spo.reports.runs import HEADLINES, Record, duration, headline, in_words, latest_per_seed, read_records
from spo.reports.statistics import Interval, at_least_between_seeds, mean_interval, share_interval, within_0_and_1


def episodes_interval(name: str, per_seed: Sequence[Sequence[float]]) -> Interval:
    """The interval of a metric from its episodes: that between all episodes, or that between seeds if it is wider."""
    pooled = [value for episodes in per_seed for value in episodes]
    interval = share_interval(statistics.fmean(pooled), len(pooled)) if name == "solved" else mean_interval(pooled)
    interval = at_least_between_seeds(interval, [statistics.fmean(episodes) for episodes in per_seed])
    return within_0_and_1(interval) if name == "solved" else interval


def report(folder: Path) -> str:
    """What was trained, for how long, how well it does, where it lies and what can be done with it."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    records = read_records(folder / "metrics.jsonl")
    summary_path = folder / "summary.json"
    task = config["task"] + "".join(f", {name} {value}" for name, value in config["task_options"].items())
    each = f" for each of {config['num_seeds']} seeds" if config["num_seeds"] > 1 else ""
    lines = [f"Trained {config['algorithm']} on {task}."]
    if records:
        last = records[-1]
        lines.append(f"{last['env_steps']:,} steps{each} in {duration(last['time']['wall_seconds'])}.")
    if summary_path.exists():
        lines += _results(json.loads(summary_path.read_text("utf-8")))
    else:
        lines += [f"Not finished; so far: {result}" for result in [result_so_far(records)] if result]
    lines += [
        f"The run lies in {folder}: metrics.jsonl, learning_curve.png, checkpoints.",
        f"  spo evaluate {folder}    play it again, with any search budget",
        f"  spo render {folder}    watch an episode",
    ]
    if summary_path.exists():
        lines.append(f"  spo export {folder} learner.npz    one file to begin from: spo train --from learner.npz")
    else:
        lines.append(f"  spo train --resume {folder}    finish it")
    return "\n".join(lines)


def _results(summary: dict[str, Any]) -> list[str]:
    """The final evaluation, by search and by the policy alone."""
    lines = []
    stages = {"final_{}": "Result", "final_{}_policy_only": "Without search", "initial_{}": "Untrained"}
    for stage, words in stages.items():
        parts: list[str] = []
        for key, metric in (("solve_rate", "episode/solved"), ("return", "episode/return")):
            name = stage.format(key)
            # Where all that pays is solving, the return is the solve rate: once is enough.
            if name in summary and not (parts and summary[name] == summary[stage.format("solve_rate")]):
                low, high = (in_words(metric, bound) for bound in summary[f"{name}_interval"])
                parts.append(f"{HEADLINES[metric]} {in_words(metric, summary[name])} ({low} to {high})")
        if parts:
            lines.append(f"{words}: {', '.join(parts)}.")
    episodes = summary["final_return_episodes"]
    lines.append(
        f"In brackets 95 % intervals; the result is of {episodes:,} episodes per seed with its best parameters."
    )
    return lines


def result_so_far(records: Sequence[Record]) -> str:
    """The headline of the final evaluation, or of the last one there is, averaged over seeds; "" before any."""
    latest = latest_per_seed(records, "final") or latest_per_seed(records, "evaluation")
    if not latest:
        return ""
    name = headline(latest)
    return f"{HEADLINES[name]} {in_words(name, statistics.fmean(record['metrics'][name] for record in latest))}"


def draw_learning_curve(metrics_path: Path, picture_path: Path, title: str) -> None:
    """Evaluations over environment steps: a thin line per seed, their mean thick, a band between seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    records = read_records(metrics_path)
    name = headline(record for record in records if record["kind"] == "evaluation")
    evaluations = _curves(records, "evaluation", name)
    training = _mean_curve(_curves(records, "train", name))
    curve = _mean_curve(evaluations)

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if training:
        means = [interval.mean for interval in training.values()]
        axes.plot(list(training), means, color="0.6", lw=1, ls="--", label="training episodes")
    label = "evaluation"
    if len(evaluations) > 1:
        label = f"evaluation, mean of {len(evaluations)} seeds"
        for points in evaluations.values():
            axes.plot(list(points), list(points.values()), color="C0", lw=0.8, alpha=0.35)
    if len(evaluations) > 2:  # two seeds say next to nothing about others: the band would fill the picture
        label += " with 95 % interval"
        low, high = ([getattr(interval, bound) for interval in curve.values()] for bound in ("low", "high"))
        axes.fill_between(list(curve), low, high, color="C0", alpha=0.15, lw=0)
    axes.plot(list(curve), [i.mean for i in curve.values()], color="C0", lw=2.2, marker="o", ms=4, label=label)
    final = latest_per_seed(records, "final")
    if final:
        best = statistics.fmean(record["metrics"][name] for record in final)
        axes.axhline(best, color="C3", lw=1, label=f"best parameters, final: {in_words(name, best)}")
    axes.set(title=title, xlabel="environment steps", ylabel=HEADLINES[name])
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if name == "episode/solved":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="best")
    figure.savefig(picture_path, dpi=150)


def _curves(records: Iterable[Record], kind: str, name: str) -> dict[int, dict[int, float]]:
    """seed -> environment steps -> value; a number that isn't one (no episode ended) is left out."""
    curves: dict[int, dict[int, float]] = {}
    for record in records:
        value = record["metrics"].get(name)
        if record["kind"] == kind and value is not None and math.isfinite(value):
            curves.setdefault(record["seed"], {})[record["env_steps"]] = value
    return curves


def _mean_curve(curves: dict[int, dict[int, float]]) -> dict[int, Interval]:
    steps = sorted({step for points in curves.values() for step in points})
    return {step: mean_interval([points[step] for points in curves.values() if step in points]) for step in steps}


__all__ = ["draw_learning_curve", "episodes_interval", "report", "result_so_far"]
