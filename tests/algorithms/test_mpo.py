"""MPO: its E-step, one update by hand, and environments with known answers."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from algorithms.probes import GAMMA, Probe, check
from oracles.tiny_answers import tiny_mdp
from spo import losses
from spo.algorithms.base import Setting
from spo.algorithms.mpo import MPOConfig, ScoredActions, make_mpo, sequence_states
from spo.environments.tiny import tabular, tiny
from spo.networks import make_network, make_q_network, mlp_architecture
from spo.replay import make_replay
from spo.training.trainer import jit_init, jit_run, make_mesh
from spo.types import Task

ARCHITECTURE = mlp_architecture(depth=1, width=16)


# --- E-step -----------------------------------------------------------------------------------------------------------
def test_e_step_over_all_actions_equals_that_over_samples_in_their_proportion():
    """Eight samples in the proportions of the policy. A fourth action is invalid and has the largest Q value."""
    counts, q_values = np.array([1, 5, 2, 0]), np.array([0.3, -1.0, 2.0, 50.0], np.float32)
    with np.errstate(divide="ignore"):
        every = ScoredActions(jnp.arange(4), jnp.asarray(np.log(counts / 8), jnp.float32), jnp.asarray(q_values))
    draws = jnp.asarray(np.repeat(q_values, counts))
    for temperature in (0.05, 0.7, 20.0):
        both = [
            jax.value_and_grad(lambda t: losses.temperature_loss(t, every.q_values, 0.1, every.log_prior))(temperature),
            jax.value_and_grad(lambda t: losses.temperature_loss(t, draws, 0.1))(temperature),
        ]
        np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-6)
        of_draws = np.asarray(losses.target_weights(draws, temperature))
        np.testing.assert_allclose(
            losses.target_weights(every.q_values, temperature, every.log_prior),
            [of_draws[0], of_draws[1:6].sum(), of_draws[6:].sum(), 0.0],
            atol=1e-6,
        )
    np.testing.assert_allclose(every.value, np.mean(draws), rtol=1e-6)


def test_states_of_a_sequence():
    """Steps: continues, terminates, is truncated, continues. Starts are 10, 20, 30; episodes count up from them."""
    seen, after = jnp.array([10, 11, 20, 30]), jnp.array([11, 12, 21, 31])
    states = sequence_states(seen, after, jnp.array([False, True, False, False]))
    assert states.tolist() == [10, 11, 20, 21, 31]


# --- One update by hand -----------------------------------------------------------------------------------------------
HAND = MPOConfig(
    num_envs=1,
    rollout_length=24,
    sequence_length=24,
    replay_size=24,
    batch_size=1,
    num_updates=1,
    gamma=0.8,
    retrace_lambda=0.7,
    gae_lambda=0.6,
    initial_temperature=0.4,
    temperature_kl_bound=0.2,
    initial_multiplier=2.0,
    kl_bound=0.01,
)
TASKS = {
    # Traces over several steps, with ends of both kinds among them.
    "slippery": tiny("slippery", length=2, time_limit=3),
    # Cut after the first step: the second state is only bootstrapped from, with its own mask.
    "masked": tabular(tiny_mdp("masked"), "masked", time_limit=1),
}


def retrace_by_hand(q, next_v, rho, reward, terminated, truncated, gamma, lambda_):
    targets = np.zeros(len(q))
    for t in reversed(range(len(q))):
        targets[t] = reward[t]
        if not terminated[t]:
            targets[t] += gamma * next_v[t]
            if not truncated[t] and t + 1 < len(q):
                targets[t] += gamma * lambda_ * min(1.0, rho[t + 1]) * (targets[t + 1] - q[t + 1])
    return targets


def gae_by_hand(next_v, reward, terminated, truncated, gamma, lambda_):
    targets = np.zeros(len(reward))
    for t in reversed(range(len(reward))):
        targets[t] = reward[t]
        if not terminated[t]:
            last = truncated[t] or t + 1 == len(reward)
            following = next_v[t] if last else (1 - lambda_) * next_v[t] + lambda_ * targets[t + 1]
            targets[t] += gamma * following
    return targets


@pytest.mark.parametrize(
    ("task_name", "q_targets"), [("slippery", "retrace"), ("masked", "retrace"), ("slippery", "gae")]
)
def test_one_update_by_hand(task_name: str, q_targets: Literal["retrace", "gae"]):
    task: Task = TASKS[task_name]
    config = dataclasses.replace(HAND, q_targets=q_targets)
    algorithm = make_mpo(Setting(task, ARCHITECTURE, total_env_steps=1e6), config)
    init, run = jit_init(algorithm, make_mesh(1), num_seeds=1), jit_run(algorithm, make_mesh(1))
    start = init(jax.random.key(3))
    # Online and target networks differ from each other and from the initial ones.
    target = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape), start.learner.params)
    online = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(2), x.shape), start.learner.params)
    start = start._replace(learner=start.learner._replace(params=online, target_params=target))
    end, metrics = run(start, 1)

    # Policy and Q values of all states of the tabular environment.
    spec = (task.train.observation_spec, task.train.action_spec, ARCHITECTURE)
    rows = np.eye(task.train.observation_spec.shape[0], dtype=np.float32)
    mask = tiny_mdp("masked").mask if task_name == "masked" else np.ones((len(rows), 2), bool)
    network, q_network = make_network(*spec), make_q_network(*spec)

    def tables(params):
        params = jax.tree.map(lambda x: x[0], params)
        logits = jax.vmap(network.actor, (None, 0, 0))(params.actor, rows, jnp.asarray(mask))
        return log_softmax(np.float64(logits), axis=1), np.float64(
            jax.vmap(q_network.all_values, (None, 0))(params.q, rows)
        )

    (new_log_pi, new_q), (old_log_pi, old_q) = tables(online), tables(target)
    old_pi = np.exp(old_log_pi)
    v = np.sum(old_pi * old_q, axis=1)

    steps = jax.tree.map(lambda x: np.asarray(x)[0, 0, 0], end.worker.replay.experience)
    assert steps.truncated[:-1].any()
    assert steps.terminated[:-1].any()
    s, after = steps.observation.observation.argmax(1), steps.next_observation.observation.argmax(1)
    a, terminated, truncated = steps.extras.action, steps.terminated, steps.truncated
    np.testing.assert_allclose(steps.extras.log_prob, new_log_pi[s, a], rtol=1e-4, atol=1e-5)
    rho = np.exp(old_log_pi[s, a] - new_log_pi[s, a])
    if q_targets == "gae":
        targets = gae_by_hand(v[after], steps.reward, terminated, truncated, 0.8, 0.6)
    else:
        targets = retrace_by_hand(old_q[s, a], v[after], rho, steps.reward, terminated, truncated, 0.8, 0.7)

    improve_at = np.concatenate([s[:1], np.where(terminated[:-1], s[1:], after[:-1])])
    eta, epsilon = 0.4, 0.2
    log_prior, q = old_log_pi[improve_at], old_q[improve_at]
    weights = softmax(log_prior + q / eta, axis=1)
    possible = weights > 0
    terms = lambda x: np.sum(np.where(possible, weights * np.where(possible, x, 0.0), 0.0), axis=1)  # noqa: E731
    kl = np.sum(np.where(mask, old_pi * (np.where(mask, old_log_pi, 0) - np.where(mask, new_log_pi, 0)), 0), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = {
            "loss/value": np.mean((new_q[s, a] - targets) ** 2),
            "loss/policy": -np.mean(terms(new_log_pi[improve_at])),
            "loss/temperature": np.mean(eta * (epsilon + logsumexp(log_prior + q / eta, axis=1))),
            "loss/kl_penalty": 2.0 * np.mean(kl[improve_at]),
            "trust_region/kl_policy": np.mean(kl[improve_at]),
            "trust_region/multiplier_policy": 2.0,
            "temperature": eta,
            "e_step/kl": np.mean(terms(np.log(weights) - log_prior)),
            "value/mean": np.mean(new_q[s, a]),
            "value/target": np.mean(targets),
        }
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name][0], number, rtol=2e-4, atol=2e-5, err_msg=name)
    # Each dual moves against its slope: ε − KL for the temperature, ε_α − KL for the multiplier.
    moved = jax.tree.map(lambda new, old: float(new[0] - old[0]), end.learner.duals, start.learner.duals)
    assert np.sign(moved.raw_temperature) == np.sign(expected["e_step/kl"] - epsilon)
    assert np.sign(moved.raw_multipliers["policy"]) == np.sign(expected["trust_region/kl_policy"] - 0.01)
    # The target follows the new parameters by τ = 0.005.
    jax.tree.map(
        lambda new, old, params: np.testing.assert_allclose(new, 0.995 * old + 0.005 * params, rtol=1e-4, atol=1e-6),
        end.learner.target_params,
        start.learner.target_params,
        end.learner.params,
    )


# --- Replay and learning rates ----------------------------------------------------------------------------------------
def test_sequences_longer_than_a_rollout_and_decaying_rates():
    """The buffer starts with the steps that the first rollout lacks. At the end of the run, networks do not change."""
    task = tiny("continuous_credit")
    config = MPOConfig(
        num_envs=4, rollout_length=2, sequence_length=5, replay_size=40, batch_size=2, num_updates=2, num_samples=3
    )
    algorithm = make_mpo(Setting(task, ARCHITECTURE, total_env_steps=2 * 4 * 2), config)
    init, run = jit_init(algorithm, make_mesh(1), num_seeds=1), jit_run(algorithm, make_mesh(1))
    start = init(jax.random.key(0))
    replay = jax.tree.map(lambda x: np.asarray(x)[0, 0], start.worker.replay)
    assert replay.current_index == 3
    phase = replay.experience.observation.observation[:, :4, 0]  # episodes of two steps
    np.testing.assert_array_equal(phase[:, :3], np.tile([0.0, 0.5, 0.0], (4, 1)))
    middle, _ = run(run(start, 1)[0], 1)
    end, metrics = run(middle, 1)
    assert all(np.isfinite(value).all() for value in metrics.values())
    moved = [
        [not np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, pair), strict=True)]
        for pair in (
            (start.learner.params, middle.learner.params),
            (middle.learner.params, end.learner.params),
            (middle.learner.duals, end.learner.duals),
        )
    ]
    assert all(moved[0])
    assert not any(moved[1])
    assert all(moved[2])


def test_replay_refuses_sizes_from_which_it_could_not_sample():
    sizes = {"num_envs": 2, "rollout_length": 4, "num_batches": 1, "batch_size": 1, "sequence_length": 6}
    with pytest.raises(ValueError, match="no sequence to draw"):
        make_replay(capacity=100, **sizes)
    with pytest.raises(ValueError, match="raise the capacity to at least 12"):
        make_replay(capacity=10, warmup_length=2, **sizes)


# --- Environments with known answers ----------------------------------------------------------------------------------
CONFIG = MPOConfig(
    num_envs=32,
    rollout_length=8,
    sequence_length=10,
    num_updates=16,
    batch_size=32,
    replay_size=32 * 64,
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    dual_learning_rate=1e-2,
    gamma=GAMMA,
    target_smoothing=0.05,
    num_samples=16,
    initial_temperature=0.5,
    temperature_kl_bound=0.1,
    initial_multiplier=0.1,
    kl_bound=0.05,
    initial_mean_multiplier=1.0,
    initial_scale_multiplier=10.0,
    scale_kl_bound=0.01,
)
# MPO explores by its policy only. If early falls teach it to avoid the cliff before it has reached the goal often
# enough, it needs a slower policy and a larger replay buffer.
SLOWER = dataclasses.replace(CONFIG, kl_bound=0.003, replay_size=32 * 1024)
PROBES = {
    "chain": Probe(),
    "masked": Probe(),
    "gamble": Probe(),
    "continuous_bandit": Probe(),
    "bandit": Probe(),
    "credit": Probe(),
    "constant_reward": Probe(),
    "observation_reward": Probe(),
    "delayed_reward": Probe(),
    "context": Probe(),
    "tree": Probe(150),
    "cliff": Probe(450, value_error=0.3),
    "slippery": Probe(150),
    "continuous_context": Probe(150, value_error=0.1),
    "continuous_credit": Probe(150, value_error=0.1),
    # Values reach -5.8, at corners that are rarely seen. Q belongs to a policy that still explores.
    "lqr": Probe(500, value_error=0.9, action_error=0.25),
}


@pytest.mark.learns
@pytest.mark.parametrize("name", PROBES)
def test_learns(name: str):
    check("mpo", SLOWER if name == "cliff" else CONFIG, name, PROBES[name])
