"""Claim 7: weighing particles by advantages is better than by Q values.

The paper's ablation on Brax, all else equal. Held if the advantage is better.
"""

from _claims import Claim, Finding, Setup, better_than_each, main, with_settings
from _tasks import continuous, cube

CLAIM = Claim(
    7,
    "advantages",
    "Advantage against Q-value weights",
    "Q-value weights reduce performance, relatively constantly throughout training.",
)


def find(setup: Setup) -> Finding:
    start = continuous("paper", "paper/ant") if setup.scale == "paper" else cube(setup.scale)
    runs = {name: with_settings(start, search={"weighting": name}) for name in ("advantage", "q_value")}
    return better_than_each(setup, runs, "advantage", ["q_value"])


if __name__ == "__main__":
    main(CLAIM, find)
