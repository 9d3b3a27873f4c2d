"""Tiny environments with known answers: probes for algorithms, small enough to enumerate.

An incorrect algorithm fails on the environment that probes its fault:

    constant_reward     is the value learnt at all?             masked    are invalid actions, which pay best, avoided?
    observation_reward  does it depend on the observation?      gamble    is the search unable to see the real future?
    delayed_reward      is it discounted, once per step?        slippery  is chance in the transitions averaged?
    bandit              is the best action found?               chain     is a distant reward preferred to a near one?
    context             for each observation?                   cliff     is the best path next to a bad end found?
    credit              does a reward reach an earlier action?  tree      (for enumeration: ends at every depth)
    lottery             is a mean preferred to a lucky draw?

`continuous_bandit`, `continuous_context` and `continuous_credit` test the same with continuous actions. `lqr` is a
linear-quadratic regulator.

    tabular      an environment from tables of transition probabilities and rewards
    tables       the tabular environments
    continuous   the environments with continuous actions
"""

import functools
from collections.abc import Callable
from typing import Any

from spo.environments.tiny.continuous import CONTINUOUS, ContinuousEnvironment, continuous
from spo.environments.tiny.tables import TABLES
from spo.environments.tiny.tabular import Table, TabularMDP, TabularState, tabular
from spo.types import Task

TINY_NAMES = (*TABLES, *CONTINUOUS)


def tiny(name: str, **options: Any) -> Task:
    """Makes the tiny task `name`: the same environment for training, evaluation and search.

    Args:
        name: one of `TINY_NAMES`.
        **options: arguments of the function of this name in `tables` or `continuous`.
    """
    return tiny_maker(name)(**options)


def tiny_maker(name: str) -> Callable[..., Task]:
    """Returns the function that makes the tiny task `name`, with the signature and docstring of its options."""
    if name not in TINY_NAMES:
        raise ValueError(f"There is no tiny task {name!r}: choose one of {', '.join(TINY_NAMES)}.")
    build: Callable[..., Table | ContinuousEnvironment] = (TABLES | CONTINUOUS)[name]

    @functools.wraps(build)
    def make(**options: Any) -> Task:
        built = build(**options)
        if isinstance(built, Table):
            return tabular(built.mdp, f"tiny/{name}", built.time_limit, built.num_columns)
        return continuous(built, f"tiny/{name}")

    return make


__all__ = ["TINY_NAMES", "TabularMDP", "TabularState", "tabular", "tiny", "tiny_maker"]
