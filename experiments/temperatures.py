"""Claim 5: the adaptive temperature is among the best of all temperatures, without a search for it.

The paper compares it with fixed ones over orders of magnitude. Held if no fixed temperature is better than the adaptive
one, and the adaptive one is better than at least one of them (or the comparison would say nothing).
"""

from _claims import HELD, Claim, Finding, Setup, compare_runs, estimates, main, train_all, with_settings
from _tasks import continuous, cube

from spo.evaluation import figures
from spo.evaluation.comparison import verdict

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
    comparison, judgement = compare_runs(train_all(setup, runs))
    verdicts = {name: verdict(comparison, "adaptive", name) for name in runs if name != "adaptive"}
    worse = [name for name, against in verdicts.items() if against.better == "adaptive"]
    better = [name for name, against in verdicts.items() if against.better == name]
    held: HELD = "not held" if better else "held" if worse else "undecided"
    best = max(verdicts, key=lambda name: judgement.aggregates[name]["IQM"].value)
    probability = verdicts[best].probability
    return Finding(
        verdict=held,
        sentence=(
            f"Better than the adaptive one: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}. "
            f"The best fixed one here: {best}. {verdicts[best].sentence}"
        ),
        number=probability.value,
        number_name=f"P(adaptive > {best})",
        interval=(probability.low, probability.high),
        details=estimates(judgement),
        figure=figures.learning_curves(comparison, judgement),
    )


if __name__ == "__main__":
    main(CLAIM, find)
