"""Runs side by side: which belong together, what each scored, and what that says.

    comparison = compare(load_runs(["runs"]))
    judgement = judge(comparison)

Nothing here imports JAX.
"""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from spo.reports import statistics
from spo.reports.runs import HEADLINES, Record, Run, find_setting, flatten, in_words
from spo.reports.statistics import Curve, Estimate, Verdict

Metric = Literal["auto", "solve_rate", "return"]
_METRICS = {"solve_rate": "episode/solved", "return": "episode/return"}

#: Settings that may differ between runs that are repetitions of each other.
_NOT_PART_OF_THE_EXPERIMENT = {"seed", "num_seeds", "num_devices", "steps", "logs_per_evaluation", "spo_version"}
FEW_SEEDS = 5
NUM_THRESHOLDS = 101


class Result(NamedTuple):
    """What one seed of one run came to."""

    group: str
    task: str
    run: Run
    seed: int  # which of the run's seeds
    score: float  # of the final evaluation; of the last one during training where the run is not finished
    episodes: int  # that the score is the mean of
    finished: bool
    steps: np.ndarray  # [T] where it was evaluated during training
    seconds: np.ndarray  # [T] of wall-clock time until then
    values: np.ndarray  # [T]


class Comparison(NamedTuple):
    """All results, by group (such as the algorithm) and task."""

    by: str  # the setting that groups differ in
    groups: tuple[str, ...]
    tasks: tuple[str, ...]
    metrics: dict[str, str]  # task -> what it is judged by
    results: tuple[Result, ...]
    notes: tuple[str, ...]  # what a reader must know

    def of(self, group: str, task: str) -> list[Result]:
        return [result for result in self.results if (result.group, result.task) == (group, task)]

    def tasks_of(self, *groups: str) -> list[str]:
        """The tasks that all these groups have been run on."""
        return [task for task in self.tasks if all(self.of(group, task) for group in groups)]

    def scores(self, group: str, tasks: Sequence[str]) -> list[np.ndarray]:
        """Final scores, one array of runs per task."""
        return [np.array([result.score for result in self.of(group, task)]) for task in tasks]

    def limits(self, task: str) -> tuple[float, float]:
        """The worst and the best that any run of the task was ever seen to score: what 0 and 1 stand for."""
        results = [result for result in self.results if result.task == task]
        return statistics.min_max([value for result in results for value in (*result.values, result.score)])

    def normalised_scores(self, group: str, tasks: Sequence[str]) -> list[np.ndarray]:
        scores = zip(self.scores(group, tasks), tasks, strict=True)
        return [statistics.normalise(score, self.limits(task)) for score, task in scores]


class Judgement(NamedTuple):
    """All the statistics of a comparison. Normalised scores are of the tasks that all groups share."""

    tasks: tuple[str, ...]  # those that all groups share
    ranking: tuple[str, ...]  # groups, the highest IQM first
    finals: dict[tuple[str, str], Estimate]  # (group, task) -> IQM of the final scores, not normalised
    aggregates: dict[str, dict[str, Estimate]]  # group -> metric -> of normalised scores
    thresholds: np.ndarray
    profiles: dict[str, Estimate]  # group -> share of runs over each threshold
    verdicts: tuple[Verdict, ...]  # every pair, in the order of the ranking
    learning_curves: dict[tuple[str, str], Curve]  # (group, task) -> IQM over environment steps
    time_curves: dict[tuple[str, str], Curve]  # (group, task) -> IQM over wall-clock seconds
    sample_efficiency: dict[str, Curve]  # group -> IQM of normalised scores over all tasks
    #: the sample efficiency is over the share of each task's longest run, because tasks were run for different steps
    relative_steps: bool


def compare(runs: Sequence[Run], by: str = "algorithm", metric: Metric = "auto") -> Comparison:
    """Sorts runs into groups that differ in the setting `by`.

    Args:
        runs: as `load_runs` reads them.
        by: a setting of config.json by its dotted name, such as algorithm or search.num_particles.
        metric: what tasks are judged by; "auto": the share of solved episodes where the task has one, else the return.
    """
    if not runs:
        raise ValueError("There is nothing to compare: name at least one run.")
    task_names = _task_names(runs, by)
    values = {id(run): find_setting(run.config, by) for run in runs}
    groups = {json.dumps(value): _group_name(by, value) for value in sorted(values.values(), key=_sort_key)}
    metrics = {
        task: _task_metric(task, [run for run, name in zip(runs, task_names, strict=True) if name == task], metric)
        for task in sorted(set(task_names))
    }
    results = [
        _result(groups[json.dumps(values[id(run)])], task, run, seed, metrics[task])
        for run, task in zip(runs, task_names, strict=True)
        for seed in run.evaluations
    ]
    comparison = Comparison(by, tuple(dict.fromkeys(groups.values())), tuple(metrics), metrics, tuple(results), ())
    if not comparison.tasks_of(*comparison.groups):
        raise ValueError(
            f"No task was run by all of {', '.join(comparison.groups)}: compare runs of the same task, or group them "
            "by another setting."
        )
    return comparison._replace(notes=tuple(_notes(comparison)))


def judge(comparison: Comparison, *, num_resamples: int = statistics.NUM_RESAMPLES, seed: int = 0) -> Judgement:
    """Everything that tables, figures and the report show. The same seed gives the same intervals."""
    tasks = comparison.tasks_of(*comparison.groups)
    normalised = {group: comparison.normalised_scores(group, tasks) for group in comparison.groups}
    aggregates = {
        group: statistics.aggregate(scores, num_resamples=num_resamples, seed=seed)
        for group, scores in normalised.items()
    }
    ranking = sorted(comparison.groups, key=lambda group: -aggregates[group]["IQM"].value)
    thresholds = np.linspace(0.0, 1.0, NUM_THRESHOLDS)
    few = min(num_resamples, 2_000)  # for whole curves: as many intervals as they have points
    profiles = {
        group: statistics.bootstrap(
            lambda scores: statistics.performance_profile(scores, thresholds), scores, num_resamples=few, seed=seed
        )
        for group, scores in normalised.items()
    }
    longest = {task: max(r.steps[-1] for r in comparison.results if r.task == task) for task in tasks}
    relative_steps = max(longest.values()) > 1.05 * min(longest.values())

    def curve(results: Sequence[Result], x: str) -> Curve:
        return statistics.sample_efficiency(
            [[(getattr(result, x), result.values) for result in results]], num_resamples=few, seed=seed
        )

    pairs = [(group, task) for task in comparison.tasks for group in comparison.groups if comparison.of(group, task)]
    return Judgement(
        tasks=tuple(tasks),
        ranking=tuple(ranking),
        finals={
            (group, task): statistics.bootstrap(
                statistics.interquartile_mean, comparison.scores(group, [task]), num_resamples=num_resamples, seed=seed
            )
            for group, task in pairs
        },
        aggregates=aggregates,
        thresholds=thresholds,
        profiles=profiles,
        verdicts=tuple(
            verdict(comparison, a, b, num_resamples=num_resamples, seed=seed)
            for a, b in itertools.combinations(ranking, 2)
        ),
        learning_curves={pair: curve(comparison.of(*pair), "steps") for pair in pairs},
        time_curves={pair: curve(comparison.of(*pair), "seconds") for pair in pairs},
        sample_efficiency={
            group: statistics.sample_efficiency(
                [
                    [
                        (
                            result.steps / (longest[task] if relative_steps else 1),
                            statistics.normalise(result.values, comparison.limits(task)),
                        )
                        for result in comparison.of(group, task)
                    ]
                    for task in tasks
                ],
                num_resamples=few,
                seed=seed,
            )
            for group in comparison.groups
        },
        relative_steps=relative_steps,
    )


def verdict(
    comparison: Comparison, a: str, b: str, *, num_resamples: int = statistics.NUM_RESAMPLES, seed: int = 0
) -> Verdict:
    """Group a against group b, over all tasks that both were run on."""
    tasks = comparison.tasks_of(a, b)
    scores_a, scores_b = (comparison.normalised_scores(group, tasks) for group in (a, b))
    return statistics.verdict(scores_a, scores_b, (a, b), num_resamples=num_resamples, seed=seed)


def to_json(comparison: Comparison, judgement: Judgement) -> Record:
    """The numbers behind tables and figures, as plain data."""

    def estimate(numbers: Estimate) -> Record:
        return {name: None if math.isnan(number) else number for name, number in numbers._asdict().items()}

    return {
        "by": comparison.by,
        "groups": list(judgement.ranking),
        "tasks": [
            {
                "task": task,
                "metric": comparison.metrics[task],
                "limits": comparison.limits(task),
                "scores": {
                    group: {
                        "iqm": estimate(judgement.finals[group, task]),
                        "per_run": [result.score for result in comparison.of(group, task)],
                        "finished": [result.finished for result in comparison.of(group, task)],
                        "runs": [f"{r.run.folder}#{r.seed}" for r in comparison.of(group, task)],
                    }
                    for group in judgement.ranking
                    if (group, task) in judgement.finals
                },
            }
            for task in comparison.tasks
        ],
        "aggregates": {
            group: {name: estimate(value) for name, value in judgement.aggregates[group].items()}
            for group in judgement.ranking
        },
        "verdicts": [
            {
                "a": v.names[0],
                "b": v.names[1],
                "probability_of_improvement": estimate(v.probability),
                "better": v.better,
                "meaningful": v.meaningful,
                "p_value": v.p_value,
                "runs_needed": v.runs_needed,
                "dominance": v.dominance.words,
                "dominance_least_lead": estimate(v.dominance.least_lead),
                "sentence": v.sentence,
            }
            for v in judgement.verdicts
        ],
        "notes": list(comparison.notes),
    }


def write_json(path: Path, comparison: Comparison, judgement: Judgement) -> None:
    path.write_text(json.dumps(to_json(comparison, judgement), indent=2) + "\n", "utf-8")


def estimate_in_words(metric: str, estimate: Estimate) -> str:
    """A value with its interval in brackets, if it has one: as its metric asks for, or as a normalised score."""
    value, low, high = (in_words(metric, x) if metric in HEADLINES else f"{x:.3f}" for x in estimate)
    return value if math.isnan(estimate.low) else f"{value} ({low} to {high})"


def _result(group: str, task: str, run: Run, seed: int, metric: str) -> Result:
    evaluations = run.evaluations[seed]
    scored = run.finals.get(seed, evaluations[-1])
    result = Result(
        group,
        task,
        run,
        seed,
        score=scored["metrics"][metric],
        episodes=int(scored["metrics"]["episode/count"]),
        finished=seed in run.finals,
        steps=np.array([record["env_steps"] for record in evaluations], float),
        seconds=np.array([record["time"]["wall_seconds"] for record in evaluations], float),
        values=np.array([record["metrics"][metric] for record in evaluations], float),
    )
    if not np.isfinite([*result.values, result.score]).all():
        raise ValueError(f"An evaluation of {run.folder} is not a finite number: leave the run out.")
    return result


def _task_metric(task: str, runs: Sequence[Run], metric: Metric) -> str:
    """What a task is judged by: something that every evaluation of every run has."""
    records = [record for run in runs for seed in run.evaluations.values() for record in seed]
    records += [record for run in runs for record in run.finals.values()]
    if metric != "auto":
        name = _METRICS[metric]
        if not all(name in record["metrics"] for record in records):
            raise ValueError(f"Not every run of {task} has a {metric}: choose another metric, or leave those runs out.")
        return name
    having = [sum(name in record["metrics"] for record in records) for name in HEADLINES]
    for name, count in zip(HEADLINES, having, strict=True):
        if count == len(records):
            return name
        if count:
            raise ValueError(
                f"Some evaluations of {task} have a {HEADLINES[name]} and others don't: choose what to compare with "
                "`--metric return`, or leave those runs out."
            )
    raise ValueError(f"The evaluations of {task} have neither {' nor '.join(HEADLINES.values())}.")


def _task_names(runs: Sequence[Run], by: str) -> list[str]:
    """A name for each run's task, with the options that tell it from others of the same name."""

    def options(run: Run) -> Record:
        return {k: v for k, v in run.config.get("task_options", {}).items() if by not in (f"task_options.{k}", "task")}

    names = []
    for run in runs:
        others = [options(other) for other in runs if other.config["task"] == run.config["task"]]
        telling = sorted(
            name
            for name in {name for other in others for name in other}
            if len({json.dumps(other.get(name, "default")) for other in others}) > 1
        )
        words = ", ".join(f"{name} {options(run).get(name, 'default')}" for name in telling)
        names.append(run.config["task"] + (f" ({words})" if words else ""))
    return names


def _group_name(by: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{by.rsplit('.', 1)[-1]} {value}"


def _sort_key(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, value if number else 0.0, str(value))


def _notes(comparison: Comparison) -> list[str]:
    """What makes these figures weaker than they look."""
    notes = []
    unfinished = {str(r.run.folder): r for r in comparison.results if not r.finished}
    if unfinished:
        named = ", ".join(
            f"{folder} ({result.steps[-1]:,.0f} of {result.run.config.get('steps', math.nan):,.0f} steps)"
            for folder, result in unfinished.items()
        )
        notes.append(f"Not finished, so judged by the last evaluation instead of the best parameters: {named}.")
    for group, task in itertools.product(comparison.groups, comparison.tasks):
        results = comparison.of(group, task)
        if not results:
            notes.append(f"{group} was not run on {task}: aggregates leave {task} out.")
            continue
        runs = list({id(result.run): result.run for result in results}.values())
        if len(results) == 1:
            notes.append(f"{group} on {task} is a single seed: it has no interval.")
        elif len(results) < FEW_SEEDS:
            notes.append(
                f"{group} on {task} has {len(results)} seeds: with fewer than {FEW_SEEDS}, bootstrap intervals are too "
                "narrow."
            )
        settings = [_comparable(run.config, comparison.by) for run in runs]
        mixed = sorted(name for name in {n for s in settings for n in s} if len({s.get(name) for s in settings}) > 1)
        if mixed:
            notes.append(
                f"{group} on {task} puts runs together that differ in {', '.join(mixed)}: --by {mixed[0]} tells them "
                "apart."
            )
        seeds = [(result.run.config.get("seed"), result.seed) for result in results]
        if len(set(seeds)) < len(seeds):
            notes.append(f"{group} on {task} has the same seed more than once: intervals take them for independent.")
        lengths = sorted({float(result.steps[-1]) for result in results})
        if len(lengths) > 1:
            notes.append(
                f"Runs of {group} on {task} are {lengths[0]:,.0f} to {lengths[-1]:,.0f} steps long: their common curve "
                "ends with the shortest."
            )
    return notes


def _comparable(config: Record, by: str) -> dict[str, str]:
    """The settings that repetitions of one experiment share, in a form that can be compared."""
    flat = flatten({name: value for name, value in config.items() if name not in _NOT_PART_OF_THE_EXPERIMENT})
    return {name: json.dumps(value) for name, value in flat.items() if name not in (by, f"config.{by}")}


__all__ = [
    "Comparison",
    "Judgement",
    "Metric",
    "Result",
    "compare",
    "estimate_in_words",
    "judge",
    "to_json",
    "verdict",
    "write_json",
]
