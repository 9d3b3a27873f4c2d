"""Targets and advantages against explicit sums, stored numbers of rlax, and results by hand."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from spo.returns import gae, munchausen_bonus, retrace, sampled_soft_value, soft_value, td_target

RLAX = json.loads((Path(__file__).parent / "oracles" / "learning_numbers.json").read_text())
T = 8
jitted_gae = jax.jit(gae)
jitted_retrace = jax.jit(retrace)


def arrays(numbers, *names):
    return {name: jnp.asarray(numbers[name]) for name in names}


@st.composite
def trajectories(draw):
    """Returns a random trajectory of T steps with ends anywhere."""

    def numbers():
        return np.asarray(draw(st.lists(st.floats(-5, 5, width=32), min_size=T, max_size=T)), np.float32)

    end = draw(st.lists(st.sampled_from(["no", "no", "terminated", "truncated", "both"]), min_size=T, max_size=T))
    return {
        "rewards": numbers(),
        "values": numbers(),
        "next_values": numbers(),
        "terminated": np.asarray([e in ("terminated", "both") for e in end]),
        "truncated": np.asarray([e in ("truncated", "both") for e in end]),
    }


def steps_until_end(ended, t):
    """Returns t, t + 1, ... up to the step that ends the episode, or the last of the trajectory."""
    for k in range(t, len(ended)):
        yield k
        if ended[k]:
            return


def forward_lambda_return(x, t, gamma, lambda_):
    """Returns the lambda-return by its definition: a mixture of n-step returns."""
    steps = list(steps_until_end(x["terminated"] | x["truncated"], t))
    discounted_rewards, n_step_returns = 0.0, []
    for n, k in enumerate(steps):
        discounted_rewards += gamma**n * x["rewards"][k]
        bootstrap = 0.0 if x["terminated"][k] else gamma ** (n + 1) * x["next_values"][k]
        n_step_returns.append(discounted_rewards + bootstrap)
    total = lambda_ ** (len(steps) - 1) * n_step_returns[-1]
    for n, n_step_return in enumerate(n_step_returns[:-1]):
        total += (1 - lambda_) * lambda_**n * n_step_return
    return total


def contiguous(x):
    """Sets the next value inside an episode to the value of the next step, as in a real rollout."""
    ended = x["terminated"] | x["truncated"]
    return x | {"next_values": np.where(ended, x["next_values"], np.append(x["values"][1:], x["next_values"][-1]))}


@settings(max_examples=100)
@given(trajectories(), st.floats(0, 1, width=32), st.floats(0, 1, width=32))
def test_gae_targets_are_the_mixture_of_n_step_returns(x, gamma, lambda_):
    x = contiguous(x)
    advantages, targets = jitted_gae(**x, gamma=gamma, gae_lambda=lambda_)
    expected = [forward_lambda_return(x, t, gamma, lambda_) for t in range(T)]
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(advantages, expected - x["values"], rtol=1e-4, atol=1e-4)


def test_gae_agrees_with_rlax():
    numbers = RLAX["gae"]
    x = arrays(numbers, "rewards", "values", "next_values", "terminated", "truncated")
    advantages, targets = gae(**x, gamma=numbers["gamma"], gae_lambda=numbers["gae_lambda"])
    np.testing.assert_allclose(advantages, numbers["advantages"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(targets, np.add(numbers["advantages"], numbers["values"]), rtol=1e-5, atol=1e-6)


def test_gae_by_hand():
    # Two steps to a time limit with a last observation of value 8, then two steps to a termination.
    advantages, targets = gae(
        rewards=jnp.asarray([1.0, 2.0, 3.0, 4.0]),
        values=jnp.asarray([10.0, 20.0, 30.0, 40.0]),
        next_values=jnp.asarray([20.0, 8.0, 40.0, 99.0]),
        terminated=jnp.asarray([False, False, False, True]),
        truncated=jnp.asarray([False, True, False, False]),
        gamma=0.5,
        gae_lambda=0.5,
    )
    # δ = [1 + 10 − 10, 2 + 4 − 20, 3 + 20 − 30, 4 − 40] = [1, −14, −7, −36], and γλ = 1/4 inside an episode.
    np.testing.assert_allclose(advantages, [1 - 14 / 4, -14, -7 - 36 / 4, -36])
    np.testing.assert_allclose(targets, [7.5, 6, 14, 4])


@settings(max_examples=25)
@given(trajectories(), st.floats(0, 1, width=32))
def test_lambda_zero_is_the_one_step_error(x, gamma):
    targets = jitted_gae(**x, gamma=gamma, gae_lambda=0.0).targets
    one_step = jax.jit(td_target)(x["rewards"], x["next_values"], x["terminated"], gamma=gamma)
    np.testing.assert_allclose(targets, one_step, rtol=1e-5, atol=1e-5)


@settings(max_examples=25)
@given(trajectories(), st.floats(0, 1, width=32))
def test_lambda_one_is_the_discounted_return_with_a_bootstrap_at_its_end(x, gamma):
    x = contiguous(x)
    targets = jitted_gae(**x, gamma=gamma, gae_lambda=1.0).targets
    for t in range(T):
        steps = list(steps_until_end(x["terminated"] | x["truncated"], t))
        bootstrap = 0.0 if x["terminated"][steps[-1]] else x["next_values"][steps[-1]]
        expected = sum(gamma ** (k - t) * x["rewards"][k] for k in steps) + gamma ** len(steps) * bootstrap
        np.testing.assert_allclose(targets[t], expected, rtol=1e-4, atol=1e-4)


def forward_retrace(x, t, gamma, lambda_):
    """Returns Q + Σ_k γ^k (Π c) δ_k (Munos et al., 2016), with the product over the actions after the first."""
    total, coefficient = x["q_values"][t], 1.0
    for k in steps_until_end(x["terminated"] | x["truncated"], t):
        if k > t:
            coefficient *= gamma * lambda_ * min(1.0, np.exp(x["log_ratios"][k]))
        bootstrap = 0.0 if x["terminated"][k] else gamma * x["next_values"][k]
        total += coefficient * (x["rewards"][k] + bootstrap - x["q_values"][k])
    return total


@settings(max_examples=100)
@given(trajectories(), trajectories(), st.floats(0, 1, width=32), st.floats(0, 1, width=32))
def test_retrace_is_the_sum_of_traced_errors(x, other, gamma, lambda_):
    x = x | {"q_values": x["values"], "log_ratios": other["values"]}
    del x["values"]
    targets = jitted_retrace(**x, gamma=gamma, retrace_lambda=lambda_)
    expected = [forward_retrace(x, t, gamma, lambda_) for t in range(T)]
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-4)


def test_retrace_agrees_with_rlax():
    numbers = RLAX["retrace"]
    x = arrays(numbers, "q_values", "next_values", "log_ratios", "rewards", "terminated", "truncated")
    targets = retrace(**x, gamma=numbers["gamma"], retrace_lambda=numbers["retrace_lambda"])
    np.testing.assert_allclose(targets, numbers["targets"], rtol=1e-5, atol=1e-6)


def test_retrace_by_hand():
    targets = retrace(
        q_values=jnp.asarray([10.0, 20.0, 30.0]),
        next_values=jnp.asarray([4.0, 6.0, 8.0]),
        # The first ratio belongs to the action whose Q value is the target: it must not matter.
        log_ratios=jnp.asarray([-50.0, np.log(0.5), 3.0]),
        rewards=jnp.asarray([1.0, 2.0, 3.0]),
        terminated=jnp.zeros(3, bool),
        truncated=jnp.zeros(3, bool),
        gamma=0.5,
        retrace_lambda=0.8,
    )
    last = 3 + 0.5 * 8
    middle = 2 + 0.5 * (6 + 0.8 * 1.0 * (last - 30))
    first = 1 + 0.5 * (4 + 0.8 * 0.5 * (middle - 20))
    np.testing.assert_allclose(targets, [first, middle, last], rtol=1e-6)


def test_retrace_survives_ratios_of_any_size():
    x = {name: jnp.ones(3) for name in ("q_values", "next_values", "rewards")}
    ends = {"terminated": jnp.zeros(3, bool), "truncated": jnp.zeros(3, bool)}
    targets = retrace(**x, **ends, log_ratios=jnp.asarray([1e4, 1e4, -jnp.inf]), gamma=0.9, retrace_lambda=1.0)
    assert np.all(np.isfinite(targets))


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_an_end_of_either_kind_keeps_the_next_episode_out_and_only_truncation_bootstraps(end):
    at, gamma = 3, 0.9
    base = {name: jnp.asarray(RLAX["gae"][name])[:T] for name in ("rewards", "values", "next_values")}
    none = jnp.zeros(T, bool)
    x = base | {"terminated": none, "truncated": none} | {end: none.at[at].set(True)}
    after = x | {"rewards": x["rewards"].at[at + 1 :].add(100.0), "values": x["values"].at[at + 1 :].add(100.0)}
    bootstrapped = x | {"next_values": x["next_values"].at[at].add(1.0)}

    def through_gae(x):
        return gae(**x, gamma=gamma, gae_lambda=0.8).targets[: at + 1]

    def through_retrace(x):
        x = dict(x)
        q_values = x.pop("values")
        return retrace(q_values, log_ratios=jnp.zeros(T), **x, gamma=gamma, retrace_lambda=0.8)[: at + 1]

    for targets in (through_gae, through_retrace):
        np.testing.assert_array_equal(targets(after), targets(x))
        change = targets(bootstrapped)[at] - targets(x)[at]
        np.testing.assert_allclose(change, gamma if end == "truncated" else 0.0, atol=1e-5)


def test_the_value_of_a_terminal_observation_never_counts():
    x = arrays(RLAX["gae"], "rewards", "values", "next_values", "terminated", "truncated")
    poisoned = x | {"next_values": jnp.where(x["terminated"], jnp.nan, x["next_values"])}
    for one, other in zip(*(gae(**y, gamma=0.9, gae_lambda=0.8) for y in (x, poisoned)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_td_target_by_hand():
    target = td_target(jnp.asarray([1.0, 1.0]), jnp.asarray([10.0, 10.0]), jnp.asarray([False, True]), gamma=0.9)
    np.testing.assert_allclose(target, [10.0, 1.0])


Q_VALUES = np.asarray([1.0, -2.0, 0.5, 3.0], np.float32)


@pytest.mark.parametrize("temperature", [0.03, 0.5, 20.0])
def test_soft_value_is_the_entropy_regularised_mean_of_its_own_policy(temperature):
    policy = special.softmax(Q_VALUES.astype(np.float64) / temperature)
    expected = np.sum(policy * Q_VALUES - temperature * special.xlogy(policy, policy))
    np.testing.assert_allclose(soft_value(jnp.asarray(Q_VALUES), temperature), expected, rtol=1e-5)


def test_every_action_of_the_soft_optimal_policy_has_the_same_soft_value():
    temperature = 0.7
    log_probs = jax.nn.log_softmax(jnp.asarray(Q_VALUES) / temperature)
    expected = soft_value(jnp.asarray(Q_VALUES), temperature)
    for n in range(4):
        one = sampled_soft_value(jnp.asarray(Q_VALUES)[n : n + 1], log_probs[n : n + 1], temperature)
        np.testing.assert_allclose(one, expected, rtol=1e-5)
    by_hand = sampled_soft_value(jnp.asarray([1.0, 5.0]), jnp.asarray([-1.0, -3.0]), 0.5)
    np.testing.assert_allclose(by_hand, (1.5 + 6.5) / 2)


def test_an_invalid_action_does_not_count_in_the_soft_value():
    masked = jnp.append(jnp.asarray(Q_VALUES), -jnp.inf)
    np.testing.assert_allclose(soft_value(masked, 0.5), soft_value(jnp.asarray(Q_VALUES), 0.5), rtol=1e-6)
    gradient = jax.grad(soft_value)(masked, 0.5)
    np.testing.assert_allclose(gradient, np.append(special.softmax(Q_VALUES / 0.5), 0.0), rtol=1e-5)


def test_munchausen_target_by_its_published_form():
    temperature, coefficient, clip_min, gamma, reward = 0.3, 0.9, -1.0, 0.97, 2.0
    next_q_values = np.asarray([0.2, 0.1, -0.4, 0.9])
    policy, next_policy = special.softmax(Q_VALUES / temperature), special.softmax(next_q_values / temperature)
    for action in range(4):
        bonus = munchausen_bonus(
            jnp.asarray(Q_VALUES),
            jnp.asarray(action),
            temperature=temperature,
            coefficient=coefficient,
            clip_min=clip_min,
        )
        target = td_target(
            reward + bonus, soft_value(jnp.asarray(next_q_values), temperature), jnp.asarray(False), gamma=gamma
        )
        log_policy = np.clip(temperature * np.log(policy[action]), clip_min, 0.0)
        next_value = np.sum(next_policy * (next_q_values - temperature * np.log(next_policy)))
        np.testing.assert_allclose(target, reward + coefficient * log_policy + gamma * next_value, rtol=1e-5)


def test_munchausen_bonus_is_clipped_from_below_and_never_positive():
    q_values = jnp.asarray([0.0, 1e4, -jnp.inf])
    settings = {"temperature": 0.03, "coefficient": 0.9, "clip_min": -1e3}
    np.testing.assert_allclose(munchausen_bonus(q_values, jnp.asarray(0), **settings), -900.0)
    np.testing.assert_allclose(munchausen_bonus(q_values, jnp.asarray(1), **settings), 0.0, atol=1e-6)
