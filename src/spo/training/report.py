"""What a run says at its end, in words and as a picture: from its metrics file alone, so that a laptop can redraw it.

Nothing here imports JAX.
"""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]

#: What a task is judged by, in order of preference, with its name for people. Shares are shown in per cent.
HEADLINES = {"episode/solved": "solved", "episode/return": "return"}
_NORMAL_95 = 1.959964


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def share_interval(share: float, count: int) -> Interval:
    """Wilson's interval for a share seen in `count` independent tries: it stays inside [0, 1], at its ends too."""
    z2 = _NORMAL_95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _NORMAL_95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's interval for the mean of a few independent values, such as one per seed. One value has no interval."""
    from scipy.stats import t

    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def read_records(path: Path) -> list[Record]:
    """The records of a metrics file. A last line that a killed run left half written is skipped."""
    lines = path.read_text("utf-8").splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise ValueError(
                    f"Line {number} of {path} is no JSON: the file was changed or is no metrics file."
                ) from None
    return records


def headline(records: Iterable[Record]) -> str:
    """The metric these records are judged by."""
    records = list(records)
    for name in HEADLINES:
        if any(name in record["metrics"] for record in records):
            return name
    raise ValueError("There is no episode in these records: train until the first evaluation.")


def in_words(name: str, value: float) -> str:
    """A metric's value for people: shares in per cent, others with three or four digits."""
    if not math.isfinite(value):
        return "none"
    if name == "episode/solved":
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def episodes_interval(name: str, per_seed: Sequence[Sequence[float]]) -> Interval:
    """The interval of a metric from its episodes: that between all episodes, or that between seeds if it is wider."""
    pooled = [value for episodes in per_seed for value in episodes]
    interval = share_interval(statistics.fmean(pooled), len(pooled)) if name == "solved" else mean_interval(pooled)
    if len(per_seed) == 1:
        return interval
    between_seeds = mean_interval([statistics.fmean(episodes) for episodes in per_seed])
    low, high = min(interval.low, between_seeds.low), max(interval.high, between_seeds.high)
    return Interval(interval.mean, *((max(0.0, low), min(1.0, high)) if name == "solved" else (low, high)))


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


def latest_per_seed(records: Iterable[Record], kind: str) -> list[Record]:
    """The last record of each seed, in order of seeds."""
    by_seed = {record["seed"]: record for record in records if record["kind"] == kind}
    return [by_seed[seed] for seed in sorted(by_seed)]


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


__all__ = [
    "Interval",
    "draw_learning_curve",
    "duration",
    "episodes_interval",
    "headline",
    "in_words",
    "latest_per_seed",
    "mean_interval",
    "read_records",
    "report",
    "result_so_far",
    "share_interval",
]
