"""Claim 7: weighting particles by advantages is better than weighting them by Q-values.

The paper's ablation on Brax: only the weighting differs. Held if advantages are better.
"""

from typing import Any

from _claims import SCALES, Claim, Finding, Setup, main
from _rivals import better_than_each, compare_runs
from _runs import train_all, with_settings
from _tasks import ablated

CLAIM = Claim(
    7,
    "advantages",
    "Advantage against Q-value weights",
    "Q-value weights reduce performance, relatively constantly throughout training.",
    {"": SCALES},
)


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale by name."""
    return {name: with_settings(ablated(setup.scale), search={"weighting": name}) for name in ("advantage", "q_value")}


def find(setup: Setup) -> Finding:
    """Trains with both weightings and compares them."""
    comparison, judgement = compare_runs(train_all(setup, runs(setup)))
    return better_than_each(comparison, judgement, "advantage", ["q_value"])


if __name__ == "__main__":
    main(CLAIM, find)
