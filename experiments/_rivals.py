"""One setting against several rivals: the statistics and rules that the training experiments share."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from _claims import Finding, Outcome
from _runs import origin_of

from spo.reports import comparison_figures, stats
from spo.reports.comparison import Comparison, compare
from spo.reports.judgement import Judgement, judge, verdict
from spo.reports.runs import load_runs
from spo.reports.stats import Verdict


def compare_runs(folders: Mapping[str, pathlib.Path], by: str | None = None) -> tuple[Comparison, Judgement]:
    """Compares runs in groups: by the setting `by`, or, if it is None, by their names.

    The name of a run may be "GROUP on TASK", so that one group has runs on several tasks.
    """
    groups = {folder.resolve(): name.partition(" on ")[0] for name, folder in folders.items()}
    comparison = compare(load_runs([str(folder) for folder in folders.values()]), by=by or "algorithm")
    if by is None:
        results = tuple(result._replace(group=groups[result.run.folder.resolve()]) for result in comparison.results)
        named = tuple(dict.fromkeys(groups.values()))
        comparison = comparison._replace(by="setting", groups=named, results=results, notes=())
    return comparison, judge(comparison)


class Family(NamedTuple):
    """Comparisons of one setting, the champion, with each of its rivals.

    That the champion is better than all of them needs no correction, because every comparison must agree. That some
    rival is better, so that a claim is not held, needs one: chance has as many tries as there are rivals. It is Holm's
    correction of one-sided p-values. It happens to at most 5 % of champions that equal their rivals. A rival that is
    better only without the correction leaves a claim undecided.
    """

    champion: str
    verdicts: dict[str, Verdict]
    """Rival -> verdict of the champion against it."""
    holm: dict[str, float]
    """Rival -> adjusted p-value of the rival being better."""

    @property
    def worse(self) -> list[str]:
        """Rivals that the champion is better than."""
        return [name for name, against in self.verdicts.items() if against.better == self.champion]

    @property
    def better(self) -> list[str]:
        """Rivals that are better than the champion, with Holm's correction."""
        return [name for name in self.better_uncorrected if self.holm[name] <= stats.LEVEL]

    @property
    def better_uncorrected(self) -> list[str]:
        """Rivals that are better than the champion, without a correction."""
        return [name for name, against in self.verdicts.items() if against.better == name]

    @property
    def closest(self) -> Verdict:
        """The verdict of the rival that the champion beats least."""
        return min(self.verdicts.values(), key=lambda verdict: verdict.probability.value)

    @property
    def outcome(self) -> Outcome:
        """Held if the champion is better than every rival, not held if one is better than it."""
        if self.better:
            return "not held"
        return "held" if len(self.worse) == len(self.verdicts) else "undecided"

    def describe(self) -> str:
        """Returns the sentence of the closest rival, and the rivals that are better."""
        if len(self.verdicts) == 1:
            return self.closest.sentence
        return (
            f"{self.closest.sentence} That is the closest of {len(self.verdicts)}. Better than {self.champion}: "
            f"{self.format_better()}."
        )

    def format_better(self) -> str:
        """Lists the rivals that are better than the champion, first those with the correction."""
        doubtful = [name for name in self.better_uncorrected if name not in self.better]
        words = ", ".join(self.better) or "none"
        if doubtful:
            adjusted = (f"{name} ({stats.format_p_value(self.holm[name])} with it)" for name in doubtful)
            words += f"; before Holm's correction for {len(self.verdicts)} rivals also {', '.join(adjusted)}"
        return words

    def to_json(self) -> dict[str, Any]:
        """Returns plain numbers, with None for NaN."""
        return {
            name: {
                "probability": [None if math.isnan(x) else x for x in against.probability],
                "p": against.p_value,
                "p_holm": self.holm[name],
                "better": against.better,
            }
            for name, against in self.verdicts.items()
        }


def against_each(comparison: Comparison, champion: str, rivals: Sequence[str]) -> Family:
    """Compares the champion with each rival by their final scores."""
    return make_family(champion, {rival: verdict(comparison, champion, rival) for rival in rivals})


def make_family(champion: str, verdicts: dict[str, Verdict]) -> Family:
    """Returns the family of these verdicts, with Holm's correction of the rivals' side."""
    # With equal numbers of seeds the test is symmetric, so half of the two-sided p-value is that of the rival's side.
    # Where the champion is ahead, there is no evidence for the rival.
    p_values = [v.p_value / 2 if v.probability.value < 0.5 else 1.0 for v in verdicts.values()]
    return Family(champion, verdicts, dict(zip(verdicts, stats.holm(p_values), strict=True)))


def better_than_each(
    comparison: Comparison,
    judgement: Judgement,
    champion: str,
    others: Sequence[str],
    reported: Sequence[str] = (),
) -> Finding:
    """Tests by final scores if one group is better than each of the others.

    Held if it is. Not held if one of the others is better than it. Undecided otherwise. The number of the finding is
    that of the closest rival. Groups in `reported` are compared too, but do not change the verdict.
    """
    family = against_each(comparison, champion, others)
    further = against_each(comparison, champion, reported)
    closest = family.closest
    sentence = family.describe() + "".join(
        f" Not part of the claim: {against.sentence}" for against in further.verdicts.values()
    )
    return Finding(
        verdict=family.outcome,
        sentence=sentence,
        number=closest.probability.value,
        number_name=f"P({champion} > {closest.names[1]})",
        interval=(closest.probability.low, closest.probability.high),
        details=scores_json(comparison, judgement) | {"against": family.to_json() | further.to_json()},
        figure=comparison_figures.learning_curves(comparison, judgement),
        origin=origin_of(result.run.folder for result in comparison.results),
    )


def greedy_scores(comparison: Comparison) -> dict[str, list[float]]:
    """Returns the final scores with greedy actions of the runs that have them, by group and task."""
    found: dict[str, list[float]] = {}
    for result in comparison.results:
        final = result.run.finals.get(result.seed, {"metrics": {}})["metrics"]
        name = comparison.metrics[result.task].replace("episode/", "greedy/")
        if name in final:
            found.setdefault(f"{result.group} on {result.task}", []).append(final[name])
    return found


def scores_json(comparison: Comparison, judgement: Judgement) -> dict[str, Any]:
    """Returns final scores, aggregates and verdicts as plain data."""
    return {
        "actions": comparison.actions,
        "final per seed with greedy actions": greedy_scores(comparison),
        "final per seed": {
            f"{group} on {task}": [result.score for result in comparison.results_of(group, task)]
            for group, task in judgement.finals
        },
        "final": {
            f"{group} on {task}": [value.value, value.low, value.high]
            for (group, task), value in judgement.finals.items()
        },
        "aggregates": {
            group: {name: [value.value, value.low, value.high] for name, value in metrics.items()}
            for group, metrics in judgement.aggregates.items()
        },
        "verdicts": [verdict.sentence for verdict in judgement.verdicts],
    }
