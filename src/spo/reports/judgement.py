"""Statistics of a comparison: final scores, aggregates, profiles, curves and verdicts."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from spo.reports import stats
from spo.reports.comparison import Comparison, Result
from spo.reports.run_files import Record
from spo.reports.stats import CURVE_RESAMPLES, NUM_RESAMPLES, Curve, Estimate, Verdict

NUM_THRESHOLDS = 101
Key = TypeVar("Key")


class Judgement(NamedTuple):
    """All statistics of a comparison. Normalised scores are of the tasks that all groups share."""

    tasks: tuple[str, ...]
    """Tasks that all groups share."""
    ranking: tuple[str, ...]
    """Groups, the highest IQM first."""
    finals: dict[tuple[str, str], Estimate]
    """(group, task) -> IQM of the final scores, not normalised."""
    aggregates: dict[str, dict[str, Estimate]]
    """Group -> name of the aggregate -> value of the normalised scores."""
    thresholds: np.ndarray
    """Normalised scores at which the profiles are computed."""
    profiles: dict[str, Estimate]
    """Group -> share of runs over each threshold."""
    verdicts: tuple[Verdict, ...]
    """Every pair of groups, in the order of the ranking."""
    learning_curves: dict[tuple[str, str], Curve]
    """(group, task) -> IQM over environment steps. Absent where the runs have no steps in common."""
    time_curves: dict[tuple[str, str], Curve]
    """(group, task) -> IQM over seconds of training. Absent where the runs have no time in common."""
    sample_efficiency: dict[str, Curve]
    """Group -> IQM of normalised scores over all tasks. Absent where the runs have no steps in common."""
    relative_steps: bool
    """True if the x-axis of the sample efficiency is the share of each task's longest run.

    That is so where tasks were run for different numbers of steps.
    """
    notes: tuple[str, ...] = ()
    """Curves that are left out, and why."""


def judge(comparison: Comparison, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Judgement:
    """Computes everything that tables, figures and the report show. The same seed gives the same intervals."""
    tasks = comparison.common_tasks(*comparison.groups)
    pairs = [
        (group, task) for task in comparison.tasks for group in comparison.groups if comparison.results_of(group, task)
    ]
    normalised = {group: comparison.normalised_scores(group, tasks) for group in comparison.groups}
    aggregates = {
        group: stats.aggregate(scores, num_resamples=num_resamples, seed=seed) for group, scores in normalised.items()
    }
    ranking = sorted(comparison.groups, key=lambda group: -aggregates[group]["IQM"].value)
    thresholds = np.linspace(0.0, 1.0, NUM_THRESHOLDS)
    curve_resamples = min(num_resamples, CURVE_RESAMPLES)
    longest = {task: max(r.steps[-1] for r in comparison.results if r.task == task) for task in tasks}
    relative_steps = max(longest.values()) > 1.05 * min(longest.values())
    units = longest if relative_steps else dict.fromkeys(tasks, 1.0)
    learning_curves = {p: _task_curve(comparison.results_of(*p), "steps", curve_resamples, seed) for p in pairs}
    time_curves = {p: _task_curve(comparison.results_of(*p), "seconds", curve_resamples, seed) for p in pairs}
    efficiency = {g: _sample_efficiency(comparison, g, units, curve_resamples, seed) for g in comparison.groups}
    return Judgement(
        tasks=tuple(tasks),
        ranking=tuple(ranking),
        finals={
            (group, task): stats.bootstrap(
                stats.interquartile_mean, comparison.scores(group, [task]), num_resamples=num_resamples, seed=seed
            )
            for group, task in pairs
        },
        aggregates=aggregates,
        thresholds=thresholds,
        profiles={
            group: stats.bootstrap(
                lambda scores: stats.performance_profile(scores, thresholds),
                scores,
                num_resamples=curve_resamples,
                seed=seed,
            )
            for group, scores in normalised.items()
        },
        verdicts=tuple(
            verdict(comparison, a, b, num_resamples=num_resamples, seed=seed)
            for a, b in itertools.combinations(ranking, 2)
        ),
        learning_curves=_present(learning_curves),
        time_curves=_present(time_curves),
        sample_efficiency=_present(efficiency),
        relative_steps=relative_steps,
        notes=tuple(_missing_curves(learning_curves, time_curves, efficiency)),
    )


def verdict(comparison: Comparison, a: str, b: str, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Verdict:
    """Compares group a with group b over all tasks that both were run on."""
    tasks = comparison.common_tasks(a, b)
    scores_a, scores_b = (comparison.normalised_scores(group, tasks) for group in (a, b))
    return stats.verdict(scores_a, scores_b, (a, b), num_resamples=num_resamples, seed=seed)


def to_json(comparison: Comparison, judgement: Judgement) -> Record:
    """Returns the numbers in tables and figures as plain data."""
    return {
        "by": comparison.by,
        "actions": comparison.actions,
        "groups": list(judgement.ranking),
        "tasks": [_task_json(comparison, judgement, task) for task in comparison.tasks],
        "aggregates": {
            group: {name: _estimate_json(value) for name, value in judgement.aggregates[group].items()}
            for group in judgement.ranking
        },
        "verdicts": [
            {
                "a": v.names[0],
                "b": v.names[1],
                "probability_of_improvement": _estimate_json(v.probability),
                "better": v.better,
                "meaningful": v.meaningful,
                "p_value": v.p_value,
                "least_probability": v.least_probability,
                "runs_needed": v.runs_needed,
                "dominance": v.dominance.words,
                "dominance_least_lead": _estimate_json(v.dominance.least_lead),
                "sentence": v.sentence,
            }
            for v in judgement.verdicts
        ],
        "notes": [*comparison.notes, *judgement.notes],
    }


def write_json(path: Path, comparison: Comparison, judgement: Judgement) -> None:
    """Writes the numbers in tables and figures to a file."""
    path.write_text(json.dumps(to_json(comparison, judgement), indent=2) + "\n", "utf-8")


def _task_curve(results: Sequence[Result], x: str, num_resamples: int, seed: int) -> Curve | None:
    """Returns the IQM of one group on one task over `steps` or `seconds`."""
    return _common_curve([[(getattr(result, x), result.values) for result in results]], num_resamples, seed)


def _sample_efficiency(
    comparison: Comparison, group: str, units: dict[str, float], num_resamples: int, seed: int
) -> Curve | None:
    """Returns the IQM of one group over all tasks, with the steps of each task divided by its unit."""
    curves = [
        [
            (result.steps / unit, stats.normalise(result.values, comparison.limits(task)))
            for result in comparison.results_of(group, task)
        ]
        for task, unit in units.items()
    ]
    return _common_curve(curves, num_resamples, seed)


def _common_curve(
    curves: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]], num_resamples: int, seed: int
) -> Curve | None:
    """Returns the IQM over the part of the x-axis that all runs share. None: there is no such part."""
    if not stats.share_axis([x for task in curves for x, _ in task]):
        return None
    return stats.aggregate_curve(curves, num_resamples=num_resamples, seed=seed)


def _present(curves: Mapping[Key, Curve | None]) -> dict[Key, Curve]:
    return {key: curve for key, curve in curves.items() if curve is not None}


def _missing_curves(
    learning_curves: Mapping[tuple[str, str], Curve | None],
    time_curves: Mapping[tuple[str, str], Curve | None],
    efficiency: Mapping[str, Curve | None],
) -> Iterator[str]:
    """Yields a sentence for each curve that is left out because its runs share no part of the x-axis."""
    for axis, curves in (("environment steps", learning_curves), ("training time", time_curves)):
        for group, task in (key for key, curve in curves.items() if curve is None):
            yield f"{group} on {task} has no curve over {axis}: one of its runs ends before another starts."
    for group in (key for key, curve in efficiency.items() if curve is None):
        yield f"{group} has no curve of sample efficiency: one of its runs ends before another starts."


def _task_json(comparison: Comparison, judgement: Judgement, task: str) -> Record:
    scores = {}
    for group in judgement.ranking:
        results = comparison.results_of(group, task)
        if results:
            scores[group] = {
                "iqm": _estimate_json(judgement.finals[group, task]),
                "per_run": [result.score for result in results],
                "finished": [result.finished for result in results],
                "runs": [f"{result.run.folder}#{result.seed}" for result in results],
            }
    return {"task": task, "metric": comparison.metrics[task], "limits": comparison.limits(task), "scores": scores}


def _estimate_json(estimate: Estimate) -> Record:
    """Returns an estimate as plain data, with None for NaN."""
    return {name: None if math.isnan(number) else number for name, number in estimate._asdict().items()}


__all__ = ["Judgement", "judge", "to_json", "verdict", "write_json"]
