"""Tests of evaluations with both kinds of actions."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from spo.training.trainer import Counts, act_with_both_kinds


def make_act(*, per_state: bool) -> tuple[Any, list[Any]]:
    """Returns an algorithm whose actions are 1 where it is greedy, plus 10 times the state; and its calls."""
    calls: list[Any] = []

    def act(learner: Any, key: Any, state: Any, timestep: Any, *, use_search: bool, greedy: Any) -> Any:
        del learner, key, timestep
        calls.append((use_search, greedy if isinstance(greedy, bool) else "array", len(state)))
        return 10 * state + jnp.where(greedy, 1, 0)

    return SimpleNamespace(act=act, greedy_per_state=per_state), calls


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("per_state", [False, True])
def test_the_last_episodes_have_the_other_kind_of_actions(per_state: bool, greedy: bool):
    algorithm, calls = make_act(per_state=per_state)
    act = act_with_both_kinds(algorithm, None, Counts(4, 2), use_search=True, greedy=greedy)
    actions = act(jax.random.key(0), jnp.arange(6), jnp.arange(6))
    assert (actions % 10).tolist() == [int(greedy)] * 4 + [int(not greedy)] * 2
    assert (actions // 10).tolist() == list(range(6))
    # An algorithm that can't mix both kinds acts once for each.
    assert calls == ([(True, "array", 6)] if per_state else [(True, greedy, 4), (True, not greedy, 2)])


def test_without_others_the_choice_is_no_array():
    algorithm, calls = make_act(per_state=True)
    act_with_both_kinds(algorithm, None, Counts(4, 0), use_search=False, greedy=True)(
        None, jnp.arange(4), jnp.arange(4)
    )
    assert calls == [(False, True, 4)]
