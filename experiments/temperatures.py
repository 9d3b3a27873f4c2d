"""Claim 5: the adaptive temperature is among the best of all temperatures, without a search for it.

The paper compares it with fixed ones over orders of magnitude. Held if the adaptive one is not much worse than the best
fixed one (the interval of its probability of improvement over that one ends at 0.25 or above: the mirror of the 0.75
from which the paper calls a difference meaningful), no fixed one is better, and it is better than at least one of them
(or the comparison would say nothing). Not held if a fixed one is better.
"""

from _claims import (
    HELD,
    Claim,
    Finding,
    Setup,
    against_each,
    compare_runs,
    estimates,
    main,
    train_all,
    trained_on,
    with_settings,
)
from _tasks import continuous, cube

from spo.reports import figures
from spo.reports.statistics import MEANINGFUL

CLAIM = Claim(
    5,
    "temperatures",
    "Adaptive against fixed temperatures",
    "SPO with an adaptive temperature is among the top performing settings in all environments.",
)
FIXED = {"smoke": [0.1], "cpu": [0.01, 0.1, 1.0, 10.0], "paper": [0.01, 0.1, 1.0, 10.0, 100.0]}


def find(setup: Setup) -> Finding:
    start = continuous("paper", "paper/ant") if setup.scale == "paper" else cube(setup.scale)
    runs = {"adaptive": start}
    runs |= {
        f"fixed {value:g}": with_settings(start, initial_temperature=value, fixed_temperature=True)
        for value in FIXED[setup.scale]
    }
    folders = train_all(setup, runs)
    comparison, judgement = compare_runs(folders)
    family = against_each(comparison, "adaptive", [name for name in runs if name != "adaptive"])
    best = max(family.verdicts, key=lambda name: judgement.aggregates[name]["IQM"].value)
    probability = family.verdicts[best].probability
    keeps_up = probability.low >= 1 - MEANINGFUL
    held: HELD = "undecided"
    if family.better:
        held = "not held"
    elif keeps_up and family.worse and not family.better_uncorrected:
        held = "held"
    return Finding(
        verdict=held,
        sentence=(
            f"Better than the adaptive one: {family.better_in_words}. Worse: {', '.join(family.worse) or 'none'}. "
            f"The best fixed one here: {best}, "
            f"{'with which the adaptive one keeps up' if keeps_up else 'which may be much better'} (the interval of "
            f"P(adaptive > {best}) {'ends at 0.25 or above' if keeps_up else 'reaches below 0.25'}). "
            f"{family.verdicts[best].sentence}"
        ),
        number=probability.value,
        number_name=f"P(adaptive > {best})",
        interval=(probability.low, probability.high),
        details=estimates(judgement) | {"against": family.record()},
        figure=figures.learning_curves(comparison, judgement),
        hardware=trained_on(folders.values()),
    )


if __name__ == "__main__":
    main(CLAIM, find)
