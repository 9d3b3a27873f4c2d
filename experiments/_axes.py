"""Comparison of learning curves at equal environment steps and at equal seconds.

Seconds are environment steps over the speed of one seed that has the device for itself. So runs that shared a GPU, or
that trained several seeds in one program, are compared as if each had run alone.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from _claims import Finding, Outcome
from _rivals import Family, make_family
from _runs import commits_of_speeds, origin_of, stored_speeds
from matplotlib.figure import Figure

from spo.reports import figures, stats
from spo.reports.comparison import Comparison, Result

Axis = Literal["step", "second"]
BUDGET_SPENT = 0.85
"""Share of the KL bound from which on SPO's temperature is taken to have settled."""

#: (task, group) -> environment steps per second of one seed alone.
Speeds = Mapping[tuple[str, str], float]


class Compared(NamedTuple):
    """One rival at one axis: the points of comparison and the scores there."""

    points: dict[str, float]
    """Task -> the last point that both have reached."""
    scores: dict[str, dict[str, list[float]]]
    """Task -> group -> score of every seed at that point."""
    leads: dict[str, list[stats.Lead]]
    """Task -> parts of the axis in which one of them is better."""


def own_speeds(comparison: Comparison) -> dict[tuple[str, str], float]:
    """Returns the speeds of the runs themselves: environment steps of all seeds over the seconds of training.

    They are those of one seed alone where a program with several seeds takes as many times longer, as on a CPU.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for result in comparison.results:
        times = [record["time"].get("env_steps_per_second") for record in result.run.records]
        key = (result.run.config["task"], result.group)
        found.setdefault(key, []).extend(time for time in times if time is not None)
    return {key: statistics.median(times) for key, times in found.items()}


def curve(result: Result, axis: Axis, speeds: Speeds) -> tuple[np.ndarray, np.ndarray]:
    """Returns the points and the scores of the evaluations of one seed."""
    speed = 1.0 if axis == "step" else speeds[result.run.config["task"], result.group]
    return result.steps / speed, result.values


def compare_at(comparison: Comparison, champion: str, rival: str, axis: Axis, speeds: Speeds) -> Compared:
    """Compares two groups on every common task at the last point that all their seeds have reached.

    A score there is the evaluation of the current parameters, interpolated linearly between two evaluations.
    """
    points, scores, leads = {}, {}, {}
    for task in comparison.common_tasks(champion, rival):
        runs = {
            name: [curve(result, axis, speeds) for result in comparison.results_of(name, task)]
            for name in (champion, rival)
        }
        points[task] = float(min(x[-1] for curves in runs.values() for x, _ in curves))
        scores[task] = {
            name: [float(np.interp(points[task], x, y)) for x, y in curves] for name, curves in runs.items()
        }
        leads[task] = stats.leads(runs[champion], runs[rival], (champion, rival))
    return Compared(points, scores, leads)


def judge_axes(comparison: Comparison, champion: str, rivals: Sequence[str], speeds: Speeds) -> list[Finding]:
    """Compares the champion with its rivals per step and per second. SMC-ENT has a verdict of its own."""
    groups = {"": [name for name in rivals if name != "smc_ent"], "SMC-ENT ": [r for r in rivals if r == "smc_ent"]}
    return [
        judge_at(comparison, champion, names, axis, speeds, f"{prefix}per {axis}")
        for prefix, names in groups.items()
        if names
        for axis in get_args(Axis)
    ]


def judge_at_stored_speeds(comparison: Comparison, champion: str, rivals: Sequence[str]) -> list[Finding]:
    """Compares as `judge_axes`, at the stored speeds. A finding per second has the commits of its speeds."""
    findings, commits = judge_axes(comparison, champion, rivals, stored_speeds()), commits_of_speeds()
    for index, finding in enumerate(findings):
        if finding.part.endswith("per second"):
            groups = (champion, *finding.details["against"])
            runs = [result for result in comparison.results if result.group in groups]
            used = {commits[result.run.config["task"], result.group] for result in runs}
            findings[index] = with_commits(finding, sorted(used))
    return findings


def with_commits(finding: Finding, commits: Sequence[str]) -> Finding:
    """Returns the finding with the commits of its speeds. The sentence names them if they are not that of the runs."""
    note = f" Speeds were measured at {', '.join(commits)}, which is not the commit of the runs."
    same = finding.origin is not None and all(finding.origin.commit.startswith(commit) for commit in commits)
    return finding._replace(
        sentence=finding.sentence if same else finding.sentence + note,
        details=finding.details | {"commits of the speeds": list(commits)},
    )


def judge_at(
    comparison: Comparison, champion: str, rivals: Sequence[str], axis: Axis, speeds: Speeds, part: str
) -> Finding:
    """Tests if the champion is better than each rival at the last common point, over all tasks together.

    Held if it is. Not held if a rival is better than it, with Holm's correction. Undecided otherwise. A rival whose old
    policy was not renewed on any task says nothing: with it, the verdict can't be held.
    """
    compared = {rival: compare_at(comparison, champion, rival, axis, speeds) for rival in rivals}
    family = make_family(
        champion, {rival: _verdict(comparison, champion, rival, found) for rival, found in compared.items()}
    )
    closest = family.closest
    early = before_the_budget(comparison, champion, compared) if axis == "step" else {}
    marks = "".join(
        f" Early on {task}: {', '.join(names)} ended before {champion}'s temperature had spent {BUDGET_SPENT:.0%} of "
        "its KL bound."
        for task, names in early.items()
    )
    unchanged = before_renewal(comparison, compared, axis, speeds)
    marks += "".join(
        f" Says nothing about {', '.join(names)} on {task}: the run ended before its old policy was renewed."
        for task, names in unchanged.items()
    )
    return Finding(
        verdict=decide(family, compared, unchanged),
        sentence=f"At equal {axis}s, with {comparison.actions} actions: {family.describe()}{marks}",
        part=part,
        number=closest.probability.value,
        number_name=f"P({champion} > {closest.names[1]})",
        interval=(closest.probability.low, closest.probability.high),
        details=_details(comparison, family, compared, early, unchanged),
        figure=draw_curves(comparison, (champion, *rivals), axis, speeds),
        origin=origin_of(result.run.folder for result in comparison.results),
    )


def before_the_budget(comparison: Comparison, champion: str, compared: Mapping[str, Compared]) -> dict[str, list[str]]:
    """Returns task -> rivals that are compared before the champion's temperature has settled."""
    settled = {
        task: max(settling_step(result) for result in comparison.results_of(champion, task))
        for task in comparison.tasks
        if comparison.results_of(champion, task)
    }
    early: dict[str, list[str]] = {}
    for rival, found in compared.items():
        for task, point in found.points.items():
            if point < settled[task]:
                early.setdefault(task, []).append(rival)
    return early


def decide(family: Family, compared: Mapping[str, Compared], unchanged: Mapping[str, Sequence[str]]) -> Outcome:
    """Returns the outcome, which is not held because of rivals that were compared too early on all their tasks."""
    silent = [
        rival for rival, found in compared.items() if all(rival in unchanged.get(task, ()) for task in found.points)
    ]
    return "undecided" if silent and family.outcome == "held" else family.outcome


def before_renewal(
    comparison: Comparison, compared: Mapping[str, Compared], axis: Axis, speeds: Speeds
) -> dict[str, list[str]]:
    """Returns task -> rivals that are compared before they renew their old policy for the first time."""
    found: dict[str, list[str]] = {}
    for rival, one in compared.items():
        for task, point in one.points.items():
            result = comparison.results_of(rival, task)[0]
            speed = 1.0 if axis == "step" else speeds[result.run.config["task"], rival]
            if point * speed < renewal_step(result):
                found.setdefault(task, []).append(rival)
    return found


def renewal_step(result: Result) -> int:
    """Returns the environment step at which the old policy is first renewed, after `target_period` updates.

    It is 0 for an algorithm without such a period. Until then, the trust region keeps V-MPO near its first policy.
    """
    config = result.run.config["config"]
    if "target_period" not in config:
        return 0
    updates = config["num_epochs"] * config["num_minibatches"]
    return math.ceil(config["target_period"] / updates) * config["num_envs"] * config["rollout_length"]


def settling_step(result: Result) -> float:
    """Returns the step at which the search's KL first reaches 85 % of its bound; infinity if it never does.

    It is 0 for an algorithm without a bound.
    """
    bound = result.run.config["config"].get("temperature_kl_bound")
    if bound is None:
        return 0.0
    records = result.run.training.get(result.seed, ())
    steps = [r["env_steps"] for r in records if r["metrics"].get("search/kl", 0.0) >= BUDGET_SPENT * bound]
    return float(min(steps, default=math.inf))


def draw_curves(comparison: Comparison, groups: Sequence[str], axis: Axis, speeds: Speeds) -> Figure:
    """Draws the IQM of every group over steps or seconds, one panel per task."""
    palette = figures.colours(list(comparison.groups))
    with figures.style():
        figure = figures.new_figure(3.4 * max(2, len(comparison.tasks)), 3.4)
        all_axes = figure.subplots(1, len(comparison.tasks), squeeze=False)[0]
        for axes, task in zip(all_axes, comparison.tasks, strict=True):
            for group in groups:
                runs = [curve(result, axis, speeds) for result in comparison.results_of(group, task)]
                if runs:
                    figures.draw_curve(axes, stats.aggregate_curve([runs]), palette[group], label=group)
            axes.set(title=task, xlabel="environment steps" if axis == "step" else "seconds on one device, alone")
            axes.set_ylabel(figures.METRIC_LABELS[comparison.metrics[task]])
            if axis == "step":
                figures.format_steps(axes)
        lines = {line.get_label(): line for axes in all_axes for line in axes.get_legend_handles_labels()[0]}
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4)
    return figure


def _verdict(comparison: Comparison, champion: str, rival: str, compared: Compared) -> stats.Verdict:
    """Compares normalised scores over all tasks."""
    scores = [
        [stats.normalise(np.array(of_task[name]), comparison.limits(task)) for task, of_task in compared.scores.items()]
        for name in (champion, rival)
    ]
    return stats.verdict(*scores, names=(champion, rival))


def _details(
    comparison: Comparison,
    family: Family,
    compared: Mapping[str, Compared],
    early: Mapping[str, Sequence[str]],
    unchanged: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    return {
        "actions": comparison.actions,
        "against": family.to_json(),
        "compared at": {rival: found.points for rival, found in compared.items()},
        "scores per seed": {rival: found.scores for rival, found in compared.items()},
        "leads": {
            rival: {task: [lead._asdict() for lead in leads] for task, leads in found.leads.items()}
            for rival, found in compared.items()
        },
        "before the KL bound is spent": dict(early),
        "before the old policy is renewed": dict(unchanged),
    }
