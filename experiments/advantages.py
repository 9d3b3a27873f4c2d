"""Claim 7: weighting particles by advantages is better than weighting them by Q-values.

The paper's ablation on Brax: only the weighting differs. Held if advantages are better.
"""

from _claims import Claim, Finding, Setup, main
from _rivals import better_than_each
from _runs import with_settings
from _tasks import continuous, cube

CLAIM = Claim(
    7,
    "advantages",
    "Advantage against Q-value weights",
    "Q-value weights reduce performance, relatively constantly throughout training.",
)


def find(setup: Setup) -> Finding:
    """Trains with both weightings and compares them."""
    start = continuous("paper", "paper/ant") if setup.scale == "paper" else cube(setup.scale)
    runs = {name: with_settings(start, search={"weighting": name}) for name in ("advantage", "q_value")}
    return better_than_each(setup, runs, "advantage", ["q_value"])


if __name__ == "__main__":
    main(CLAIM, find)
