"""Claim 5: the adaptive temperature is among the best temperatures, without tuning.

The paper compares it with fixed temperatures over orders of magnitude. Held if all of these are true:

    - The interval of P(adaptive > best fixed) ends at 0.25 or above, which mirrors the 0.75 of a meaningful difference.
    - No fixed temperature is better.
    - The adaptive one is better than at least one fixed temperature. Otherwise the temperature may have no effect.

Not held if a fixed temperature is better.
"""

from typing import Any

from _claims import SCALES, Claim, Finding, Outcome, Setup, main
from _rivals import Family, against_each, compare_runs, scores_json
from _runs import origin_of, train_all, with_settings
from _tasks import ablated

from spo.reports import comparison_figures
from spo.reports.stats import MEANINGFUL

CLAIM = Claim(
    5,
    "temperatures",
    "Adaptive against fixed temperatures",
    "SPO with an adaptive temperature is among the top performing settings in all environments.",
    {"": SCALES},
)
_PAPER = [0.01, 0.1, 1.0, 10.0, 100.0]
FIXED = {"smoke": [0.1], "cpu": [0.01, 0.1, 1.0, 10.0], "core": _PAPER, "paper": _PAPER}


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale by name."""
    start = ablated(setup.scale)
    fixed = {
        f"fixed {value:g}": with_settings(start, initial_temperature=value, fixed_temperature=True)
        for value in FIXED[setup.scale]
    }
    return {"adaptive": start} | fixed


def find(setup: Setup) -> Finding:
    """Trains with the adaptive temperature and with fixed ones, and compares the adaptive one with each of them."""
    folders = train_all(setup, runs(setup))
    comparison, judgement = compare_runs(folders)
    family = against_each(comparison, "adaptive", [name for name in folders if name != "adaptive"])
    best = max(family.verdicts, key=lambda name: judgement.aggregates[name]["IQM"].value)
    probability = family.verdicts[best].probability
    return Finding(
        verdict=decide(family, best),
        sentence=describe(family, best),
        number=probability.value,
        number_name=f"P(adaptive > {best})",
        interval=(probability.low, probability.high),
        details=scores_json(comparison, judgement) | {"against": family.to_json()},
        figure=comparison_figures.learning_curves(comparison, judgement),
        origin=origin_of(folders.values()),
    )


def keeps_up(family: Family, best: str) -> bool:
    """Returns True if the adaptive temperature is not much worse than the best fixed one."""
    return family.verdicts[best].probability.low >= 1 - MEANINGFUL


def decide(family: Family, best: str) -> Outcome:
    """Applies the rule at the top of this file."""
    if family.better:
        return "not held"
    return "held" if keeps_up(family, best) and family.worse and not family.better_uncorrected else "undecided"


def describe(family: Family, best: str) -> str:
    """Returns the finding in words."""
    if keeps_up(family, best):
        relation, bound = "and the adaptive one keeps up with it", "ends at 0.25 or above"
    else:
        relation, bound = "which may be much better", "reaches below 0.25"
    return (
        f"Better than the adaptive one: {family.format_better()}. Worse: {', '.join(family.worse) or 'none'}. "
        f"The best fixed one is {best}, {relation} (the interval of P(adaptive > {best}) {bound}). "
        f"{family.verdicts[best].sentence}"
    )


if __name__ == "__main__":
    main(CLAIM, find)
