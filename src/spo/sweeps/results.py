"""Table and figure of a sweep."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from spo.reports import figures
from spo.reports.formatting import HEADLINES, format_count, format_metric
from spo.sweeps.folder import Trial
from spo.sweeps.space import Choices, Range, Space


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials that have begun: the finished ones first, best first, then the others by their score."""
    begun = [trial for trial in trials if trial.state != "waiting"]

    def order(trial: Trial) -> tuple[bool, float, int]:
        score = trial.score
        return trial.state != "finished", math.inf if score is None or math.isnan(score) else -score, trial.number

    return sorted(begun, key=order)


def table_rows(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of the table for people, best trial first."""
    ordered = ranked(trials)
    names = list(ordered[0].point) if ordered else []
    metrics = {trial.run.metric for trial in ordered if trial.run is not None and trial.run.metric}
    header = ["trial", *names, HEADLINES[metrics.pop()] if metrics else "score", "steps", "state"]
    rows = [
        [
            str(trial.number),
            *(trial.point[name] for name in names),
            format_score(trial),
            "" if trial.run is None else format_count(trial.run.env_steps),
            f"{trial.state}: {trial.note}" if trial.note else trial.state,
        ]
        for trial in ordered
    ]
    return header, rows


def format_score(trial: Trial) -> str:
    """Returns the score of a trial as text. It names the untrained network, if no later evaluation was better."""
    if trial.run is None or trial.score is None:
        return ""
    text = format_metric(trial.run.metric, trial.score)
    return f"{text} (untrained)" if trial.run.untrained else text


def draw(trials: Sequence[Trial], space: Space) -> Figure | None:
    """Draws the score of every trial over each setting. None if no trial has a score."""
    scores = {trial.number: trial.score for trial in trials if trial.score is not None and math.isfinite(trial.score)}
    scored = [trial for trial in trials if trial.number in scores]
    if not scored:
        return None
    best = ranked(scored)[0]
    assert best.run is not None
    metric = best.run.metric
    with figures.style():
        figure, panels = figures.new_panels(len(space), 2.6, same_rows=True)
        for index, (axes, (name, values)) in enumerate(zip(panels, space.items(), strict=True)):
            positions = _positions(axes, values, [trial.point[name] for trial in scored])
            for trial, x in zip(scored, positions, strict=True):
                colour = figures.PALETTE[1] if trial is best else figures.PALETTE[0]
                marker = "o" if trial.state == "finished" else "x"
                axes.plot(
                    x,
                    scores[trial.number],
                    marker,
                    color=colour,
                    ms=6 if trial is best else 5,
                    zorder=2 + (trial is best),
                )
            axes.set_xlabel(name)
            figures.format_values(axes.yaxis, metric)
            if index % 3 == 0:
                axes.set_ylabel(figures.METRIC_LABELS[metric])
        figure.supxlabel("orange: best trial; crosses: not finished", fontsize=8, color=figures.MUTED)
    return figure


def _positions(axes: Any, values: Choices | Range, found: Sequence[str]) -> list[float]:
    """Returns the place of each value on the x-axis: its number, or its position in a list of texts."""
    numbers = [_as_number(value) for value in (values.values if isinstance(values, Choices) else found)]
    if all(number is not None for number in numbers):
        real = np.asarray(numbers, float)
        if real.min() > 0 and real.max() >= 8 * real.min():
            axes.set_xscale("log")
        return [float(value) for value in found]
    assert isinstance(values, Choices)
    axes.set_xticks(range(len(values.values)), values.values)
    axes.set_xlim(-0.5, len(values.values) - 0.5)
    return [float(values.values.index(value)) for value in found]


def _as_number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
