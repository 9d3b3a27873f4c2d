"""Runs sorted into groups and tasks, with the score of every seed.

comparison = compare(load_runs(["runs"]))
judgement = judge(comparison)
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from spo.reports.formatting import HEADLINES, format_list
from spo.reports.grouping import AUTO, Groups, group_by_setting, group_by_settings, mixing_notes
from spo.reports.run_files import Record
from spo.reports.runs import Run
from spo.reports.stats import min_max, normalise

Metric = Literal["auto", "solve_rate", "return"]
Actions = Literal["auto", "drawn", "greedy"]
_METRICS = {"solve_rate": "episode/solved", "return": "episode/return"}

FEW_SEEDS = 5
"""Number of seeds below which the comparison adds a note that bootstrap intervals are too narrow."""


class Result(NamedTuple):
    """Result of one seed of one run."""

    group: str
    """Group of the run, such as its algorithm."""
    task: str
    """Task of the run."""
    run: Run
    """The run that the seed belongs to."""
    seed: int
    """Index of the seed within its run."""
    score: float
    """Score of the final evaluation, or of the latest one during training if the run is not finished."""
    episodes: int
    """Number of episodes that the score is the mean of."""
    finished: bool
    """True if the run is finished."""
    steps: np.ndarray
    """Environment steps of the evaluations during training, [T]."""
    seconds: np.ndarray
    """Time of training until these evaluations, without compilation and evaluations, [T]."""
    values: np.ndarray
    """Scores of these evaluations, [T]."""


class Comparison(NamedTuple):
    """All results, by group (such as the algorithm) and task."""

    by: str
    """Setting in which groups differ, or "settings" for several."""
    groups: tuple[str, ...]
    """Names of the groups."""
    tasks: tuple[str, ...]
    """Names of the tasks."""
    metrics: dict[str, str]
    """Task -> metric that scores it."""
    results: tuple[Result, ...]
    """One result per seed."""
    notes: tuple[str, ...]
    """Reasons why the results are weaker than they look."""
    actions: str = "drawn"
    """Kind of actions in all evaluations: drawn from the policy or the search, or greedy, the best ones."""

    def results_of(self, group: str, task: str) -> list[Result]:
        """Returns the results of one group on one task, one per seed."""
        return [result for result in self.results if (result.group, result.task) == (group, task)]

    def common_tasks(self, *groups: str) -> list[str]:
        """Returns the tasks that all these groups were run on."""
        return [task for task in self.tasks if all(self.results_of(group, task) for group in groups)]

    def scores(self, group: str, tasks: Sequence[str]) -> list[np.ndarray]:
        """Returns final scores, one array of seeds per task."""
        return [np.array([result.score for result in self.results_of(group, task)]) for task in tasks]

    def limits(self, task: str) -> tuple[float, float]:
        """Returns the lowest and the highest score of any evaluation of the task. They are normalised to 0 and 1."""
        results = [result for result in self.results if result.task == task]
        return min_max([value for result in results for value in (*result.values, result.score)])

    def normalised_scores(self, group: str, tasks: Sequence[str]) -> list[np.ndarray]:
        """Returns final scores between 0 and 1, one array of seeds per task."""
        scores = zip(self.scores(group, tasks), tasks, strict=True)
        return [normalise(score, self.limits(task)) for score, task in scores]


def compare(runs: Sequence[Run], by: str = AUTO, metric: Metric = "auto", actions: Actions = "auto") -> Comparison:
    """Sorts runs into groups that differ in the setting `by`.

    If no task was run by all groups, the largest set of runs is compared in which every group was run on every task.

    Args:
        runs: runs as `load_runs` returns them.
        by: setting of config.json by its dotted name, such as algorithm or search.num_particles. "auto": the algorithm
            and, where its runs on one task differ, the settings of learning in which they differ.
        metric: metric that scores all tasks. "auto": the share of solved episodes if a task has one, else the return.
        actions: kind of actions whose evaluations are compared. "auto": the one that the runs have chosen
            (`evaluation.greedy`), and drawn ones if they differ.
    """
    if not runs:
        raise ValueError("There is nothing to compare: name at least one run.")
    runs, left_out = _comparable(runs, by)
    kinds = {configured_actions(run) for run in runs}
    common = kinds.pop() if len(kinds) == 1 else "drawn"
    kind = common if actions == "auto" else actions
    runs = [run if configured_actions(run) == kind else with_actions(run, kind) for run in runs]
    task_names, groups = _sort(runs, by)
    metrics = {
        task: _task_metric(task, [run for run, name in zip(runs, task_names, strict=True) if name == task], metric)
        for task in sorted(set(task_names))
    }
    results = [
        _result(group, task, run, seed, metrics[task])
        for group, run, task in zip(groups.of_runs, runs, task_names, strict=True)
        for seed in run.evaluations
    ]
    comparison = Comparison(groups.by, groups.names, tuple(metrics), metrics, tuple(results), (), kind)
    return comparison._replace(notes=(*left_out, *_notes(comparison)))


def _sort(runs: Sequence[Run], by: str) -> tuple[list[str], Groups]:
    """Returns the name of the task of each run, and the groups."""
    task_names = _task_names(runs, by)
    return task_names, group_by_settings(runs, task_names) if by == AUTO else group_by_setting(runs, by)


def _comparable(runs: Sequence[Run], by: str) -> tuple[list[Run], list[str]]:
    """Returns runs of groups that have a task in common, and a note about those that are left out, if any.

    If all groups have a task in common, these are all runs. Otherwise it is a set in which every group was run on every
    task: all groups of one task, or all tasks that two groups share, whichever has the most runs. The choice depends on
    numbers of runs only, not on scores. Raises ValueError if there is none.
    """
    task_names, groups = _sort(runs, by)
    pairs = list(zip(groups.of_runs, task_names, strict=True))
    tasks_of = {group: {task for name, task in pairs if name == group} for group in groups.names}
    if set.intersection(*tasks_of.values()):
        return list(runs), []
    candidates: list[tuple[list[str], set[str]]] = []
    for task in sorted(set(task_names)):
        members = [group for group in groups.names if task in tasks_of[group]]
        candidates.append((members, set.intersection(*(tasks_of[group] for group in members))))
    for first, second in itertools.combinations(groups.names, 2):
        common = tasks_of[first] & tasks_of[second]
        candidates.append(([group for group in groups.names if common <= tasks_of[group]], common))
    candidates = [(members, tasks) for members, tasks in candidates if len(members) > 1 and tasks]
    if not candidates:
        raise ValueError(
            f"No task was run by two of {', '.join(groups.names)}: compare runs of the same task, or group them by "
            "another setting."
        )

    def count(candidate: tuple[list[str], set[str]]) -> int:
        members, tasks = candidate
        return sum(group in members and task in tasks for group, task in pairs)

    members, tasks = max(candidates, key=count)
    kept = [run for run, (group, task) in zip(runs, pairs, strict=True) if group in members and task in tasks]
    return kept, [_describe_left_out(members, tasks, pairs)]


def _describe_left_out(members: Sequence[str], tasks: set[str], pairs: Sequence[tuple[str, str]]) -> str:
    """Returns the sentence about the runs, as pairs of group and task, that are not compared."""
    others = sorted({group for group, _ in pairs} - set(members))
    named = [f"{group} (not run on {format_list(sorted(tasks))})" for group in others]
    if other_tasks := sorted({task for group, task in pairs if group in members} - tasks):
        named.append(f"runs on {format_list(other_tasks)}")
    return (
        f"No task was run by all groups, so the largest comparable set of runs is compared, {format_list(members)} on "
        f"{format_list(sorted(tasks))}. Left out: {', '.join(named)}."
    )


def configured_actions(run: Run) -> str:
    """Returns the kind of actions of "episode/..." in a run's evaluations."""
    return "greedy" if run.config.get("evaluation", {}).get("greedy") else "drawn"


def with_actions(run: Run, kind: str) -> Run:
    """Returns the run with "episode/..." of the other kind of actions in all evaluations."""

    def replace(record: Record) -> Record:
        if record["kind"] not in ("evaluation", "final"):
            return record
        if f"{kind}/return" not in record["metrics"]:
            raise ValueError(
                f"{run.folder} has no evaluations with {kind} actions: leave it out, or compare "
                f"{configured_actions(run)} actions (--actions {configured_actions(run)})."
            )
        others = {name: value for name, value in record["metrics"].items() if not name.startswith("episode/")}
        chosen = {f"episode/{name[len(kind) + 1 :]}": v for name, v in others.items() if name.startswith(f"{kind}/")}
        return {**record, "metrics": others | chosen}

    return dataclasses.replace(run, records=tuple(map(replace, run.records)))


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
        seconds=training_seconds(run, seed),
        values=np.array([record["metrics"][metric] for record in evaluations], float),
    )
    if not np.isfinite([*result.values, result.score]).all():
        raise ValueError(f"An evaluation of {run.folder} is not a finite number: leave the run out.")
    return result


def training_seconds(run: Run, seed: int) -> np.ndarray:
    """Returns the seconds of training until each evaluation: the steps of all seeds divided by their mean speed.

    Compilation is not part of it: a run that finds its programs in the cache has the same times as one that compiles.
    """
    evaluations = run.evaluations[seed]
    steps = np.array([record["env_steps"] for record in evaluations], float)
    rates = np.array([record["time"]["env_steps_per_second"] for record in evaluations], float)
    return steps * len(run.evaluations) / np.where(steps > 0, rates, 1.0)


def _task_metric(task: str, runs: Sequence[Run], metric: Metric) -> str:
    """Returns the metric that scores a task. Every evaluation of every run must have it."""
    records = [record for run in runs for seed in run.evaluations.values() for record in seed]
    records += [record for run in runs for record in run.finals.values()]
    if metric != "auto":
        name = _METRICS[metric]
        if not all(name in record["metrics"] for record in records):
            raise ValueError(f"Not every run of {task} has a {metric}: choose another metric, or leave those runs out.")
        return name
    counts = [sum(name in record["metrics"] for record in records) for name in HEADLINES]
    for name, count in zip(HEADLINES, counts, strict=True):
        if count == len(records):
            return name
        if count:
            raise ValueError(
                f"Some evaluations of {task} have a {HEADLINES[name]} and others don't: choose the metric with "
                "`--metric return`, or leave those runs out."
            )
    raise ValueError(f"The evaluations of {task} have neither {' nor '.join(HEADLINES.values())}.")


def _task_names(runs: Sequence[Run], by: str) -> list[str]:
    """Returns a name for the task of each run, with the options that distinguish tasks of the same name."""

    def options(run: Run) -> Record:
        return {k: v for k, v in run.config.get("task_options", {}).items() if by not in (f"task_options.{k}", "task")}

    names = []
    for run in runs:
        others = [options(other) for other in runs if other.config["task"] == run.config["task"]]
        different = sorted(
            name
            for name in {name for other in others for name in other}
            if len({json.dumps(other.get(name, "default")) for other in others}) > 1
        )
        words = ", ".join(f"{name} {options(run).get(name, 'default')}" for name in different)
        names.append(run.config["task"] + (f" ({words})" if words else ""))
    return names


def _notes(comparison: Comparison) -> Iterator[str]:
    """Yields the reasons why the results are weaker than they look."""
    unfinished = {str(r.run.folder): r for r in comparison.results if not r.finished}
    if unfinished:
        named = ", ".join(
            f"{folder} ({result.steps[-1]:,.0f} of {result.run.config.get('steps', math.nan):,.0f} steps)"
            for folder, result in unfinished.items()
        )
        yield f"Not finished, so scored by the latest evaluation instead of the best parameters: {named}."
    for group, task in itertools.product(comparison.groups, comparison.tasks):
        results = comparison.results_of(group, task)
        if results:
            yield from _group_notes(f"{group} on {task}", results, comparison.by)
        else:
            yield f"{group} was not run on {task}: aggregates leave {task} out."


def _group_notes(name: str, results: Sequence[Result], by: str) -> Iterator[str]:
    """Yields the notes about the runs of one group on one task."""
    if len(results) == 1:
        yield f"{name} is a single seed: it has no interval."
    elif len(results) < FEW_SEEDS:
        yield f"{name} has {len(results)} seeds: with fewer than {FEW_SEEDS}, bootstrap intervals are too narrow."
    runs = {id(result.run): result.run for result in results}
    yield from mixing_notes(name, list(runs.values()), by)
    seeds = [(result.run.config.get("seed"), result.seed) for result in results]
    if len(set(seeds)) < len(seeds):
        yield f"{name} has the same seed more than once: intervals assume independent seeds."
    lengths = sorted({float(result.steps[-1]) for result in results})
    if len(lengths) > 1:
        yield (
            f"{name} has runs of {lengths[0]:,.0f} to {lengths[-1]:,.0f} steps: their common curve ends with the "
            "shortest."
        )


__all__ = [
    "FEW_SEEDS",
    "Actions",
    "Comparison",
    "Metric",
    "Result",
    "compare",
    "configured_actions",
    "training_seconds",
    "with_actions",
]
