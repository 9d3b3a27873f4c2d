"""Tests of the Monte-Carlo oracle of the experiments against enumeration."""

import math
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("matplotlib")

import _oracle

from oracles import enumeration
from spo import distributions

GAMMA = 0.9


def policy_values(mdp: enumeration.TabularMDP, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns V [S] and Q [S, A] of the prior. A truncated episode ends with the value of the critic."""
    live = ~mdp.ended
    at_end = np.where(mdp.truncated, mdp.value, 0.0)
    moves = np.einsum("sa,sat->st", mdp.prior, mdp.transition) * live[:, None]
    rewards = np.sum(mdp.prior * mdp.reward, axis=1) * live
    system = np.eye(len(live)) - gamma * moves * live[None, :]
    values = np.linalg.solve(system, rewards + gamma * moves @ (at_end * ~live))
    return values, mdp.reward + gamma * mdp.transition @ np.where(live, values, at_end)


def soft_q(mdp: enumeration.TabularMDP, state: int, action: int, temperature: float) -> float:
    """Returns η log E[exp(return / η)] by enumeration: the normaliser of trajectories that start with the action."""
    first = np.eye(mdp.reward.shape[1])[action]
    exact = enumeration.enumerate_trajectories(
        mdp, state, horizon=7, temperature=temperature, gamma=1.0, root_proposal=first
    )
    return temperature * math.log(exact.normaliser) + mdp.value[state]


@pytest.fixture(scope="module")
def rolled_out() -> tuple[enumeration.TabularMDP, np.ndarray, np.ndarray]:
    """Returns the MDP, the states and Q [S, A, parts, readings] from 8192 rollouts each."""
    mdp = enumeration.lopsided_mdp()
    states = np.arange(4)
    parts = _oracle.rollout_parts(
        jax.random.key(0),
        enumeration.root_of(mdp, states),
        enumeration.model_fn_of(mdp),
        distributions.categorical,
        num_actions=3,
        num_rollouts=8192,
        temperature=2.0,
        gammas=(1.0, GAMMA),
        max_steps=1000,
    )
    return mdp, states, np.asarray(parts, np.float64)


@pytest.mark.parametrize(("reading", "gamma"), [(0, 1.0), (1, GAMMA)])
def test_the_oracle_agrees_with_exact_values(rolled_out: Any, reading: int, gamma: float):
    """The MDP has terminations and truncations.

    12 means of 8 parts exceed 6 standard errors of 7 degrees of freedom with a chance of 1 in 150.
    """
    mdp, states, parts = rolled_out
    exact = policy_values(mdp, gamma)[1][states]
    found, error = parts[..., reading].mean(axis=2), parts[..., reading].std(axis=2, ddof=1) / math.sqrt(8)
    assert np.all(np.abs(found - exact) < 6 * error)
    assert np.all(error < 0.03), "so the bound above is tight"


def test_the_soft_oracle_agrees_with_enumeration(rolled_out: Any):
    mdp, states, parts = rolled_out
    soft = parts[..., 2]
    found = 2.0 * (np.log(np.exp(soft / 2.0).mean(axis=2)))
    for state in states:
        for action in np.flatnonzero(mdp.prior[state] > 0):
            # Enumeration ends after seven steps: 5 % of trajectories are longer and end with the value of the critic.
            assert found[state, action] == pytest.approx(soft_q(mdp, state, action, 2.0), abs=0.08)
    assert np.abs(found - parts[..., 0].mean(axis=2)).max() > 0.1, "soft and mean should differ"


def test_targets_are_the_policy_times_exponentials(rolled_out: Any):
    mdp, states, parts = rolled_out
    with np.errstate(divide="ignore"):
        logits = np.log(mdp.prior[states])
    oracle = _oracle.oracle_from_parts(logits, parts, temperature=2.0)
    by_hand = mdp.prior[states] * np.exp(parts[..., 0].mean(axis=2) / 2.0)
    np.testing.assert_allclose(oracle.targets["mean"], by_hand / by_hand.sum(axis=1, keepdims=True))
    assert np.all(oracle.targets["soft"][mdp.prior[states] == 0] == 0), "a masked action has no weight"
    assert np.all(oracle.noise["mean"] < 0.01)


def test_kl_by_hand():
    """Estimate (1, 0, ·) with the third action invalid, smoothed: (0.975, 0.025)."""
    valid = np.array([True, True, False])
    found = _oracle.kl_to_oracle(np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 0.0]), valid)
    assert found == pytest.approx(0.5 * math.log(0.5 / 0.975) + 0.5 * math.log(0.5 / 0.025))
    same = np.array([0.5, 0.5, 0.0])
    assert _oracle.kl_to_oracle(same, same, valid) == pytest.approx(0.0)
