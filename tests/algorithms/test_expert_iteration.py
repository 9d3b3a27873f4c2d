"""The update of AlphaZero and Sampled AlphaZero by hand: one gradient step recomputed in NumPy. See `tables`."""

import functools
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from algorithms.tables import Adam, gae_targets, gaussian_table_network, make_on_batches, run, table_network
from spo.acting import Experience
from spo.algorithms import alphazero, expert_iteration, sampled_alphazero
from spo.algorithms.alphazero import AlphaZeroConfig, make_alphazero
from spo.algorithms.expert_iteration import Plan
from spo.algorithms.sampled_alphazero import SampledAlphaZeroConfig, make_sampled_alphazero

NUM_SEQUENCES, LENGTH, NUM_STATES, NUM_ACTIONS, NUM_DIMENSIONS = 2, 6, 4, 3, 2
SHAPE = (NUM_SEQUENCES, LENGTH)
RNG = np.random.default_rng(1)
LOGITS = RNG.normal(size=(NUM_STATES, NUM_ACTIONS))
MEANS, LOG_SCALES = 0.5 * RNG.normal(size=(2, NUM_STATES, NUM_DIMENSIONS))
VALUES = RNG.normal(size=NUM_STATES)
STATES, NEXT_STATES = RNG.integers(NUM_STATES, size=(2, *SHAPE))
REWARDS = RNG.normal(size=SHAPE)
TERMINATED, TRUNCATED = np.zeros((2, *SHAPE), bool)
TERMINATED[0, 2] = TRUNCATED[0, 4] = TRUNCATED[1, 1] = TERMINATED[1, 3] = True
MASKS = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)  # valid actions of each state
OPTIONS: dict[str, Any] = {
    "num_updates": 1,
    "learning_rate": 0.1,
    "max_grad_norm": 0.2,
    "gamma": 0.8,
    "gae_lambda": 0.6,
    "entropy_coefficient": 0.7,
}


def plans(kind: str) -> Plan:
    """Actions [B, T, K, ...] and weights [B, T, K] of the searches."""
    if kind == "all_actions":
        weights = MASKS[STATES] * RNG.uniform(size=(*SHAPE, NUM_ACTIONS))
        return Plan(None, weights / weights.sum(axis=-1, keepdims=True))
    weights = RNG.dirichlet(np.ones(5), SHAPE)
    if kind == "samples":
        actions = [RNG.choice(np.flatnonzero(MASKS[state]), 5) for state in STATES.ravel()]
        return Plan(np.array(actions).reshape(*SHAPE, 5), weights)
    return Plan(RNG.normal(size=(*SHAPE, 5, NUM_DIMENSIONS)), weights)


def state_terms(kind: str, state: int, actions: Any, weights: Any, bonus: float) -> Any:
    """Cross-entropy, entropy, and the gradient of cross-entropy − bonus · entropy, in one state."""
    if kind == "continuous":
        mean, scale = MEANS[state], np.exp(LOG_SCALES[state])
        z = (actions - mean) / scale
        log_slope = np.log(1 - np.tanh(actions) ** 2)
        log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(scale) - log_slope
        # Of the squashed Gaussian, estimated at its mean.
        # u ~ N(mean, scale²) on a fine grid: the entropy of tanh(u) is that of u plus E log(1 - tanh(u)²).
        grid = np.linspace(-8, 8, 4001)[:, None]
        density = np.exp(-(grid**2) / 2) / np.exp(-(grid**2) / 2).sum()
        u = mean + scale * grid
        log_slopes = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
        entropy = np.sum(0.5 * np.log(2 * np.pi * np.e) + np.log(scale) + np.sum(density * log_slopes, axis=0))
        slope_of_log_slope = density * -2 * np.tanh(u)
        gradient = {
            "mean": -weights @ (z / scale) - bonus * slope_of_log_slope.sum(axis=0),
            "log_scale": -weights @ (z**2 - 1) - bonus * (1 + np.sum(slope_of_log_slope * grid * scale, axis=0)),
        }
        return -np.sum(weights * log_density.sum(axis=1)), entropy, gradient
    actions = np.arange(NUM_ACTIONS) if actions is None else actions
    p = np.where(MASKS[state], np.exp(LOGITS[state]), 0.0)
    p /= p.sum()
    log_p = np.log(np.where(p > 0, p, 1.0))
    entropy = -np.sum(p * log_p)
    gradient = p - np.bincount(actions, weights, NUM_ACTIONS) + bonus * p * (log_p + entropy)
    return -np.sum(weights * log_p[actions]), entropy, {"logits": gradient}


def by_hand(
    kind: str, config: Any, plan: Plan, tables: dict[str, np.ndarray]
) -> tuple[Any, np.ndarray, dict[str, float]]:
    """Returns tables, values and metrics after one update, step by step."""
    count = NUM_SEQUENCES * LENGTH
    actor_gradient = {name: np.zeros_like(table) for name, table in tables.items()}
    critic_gradient = np.zeros(NUM_STATES)
    metrics = {"loss/policy": 0.0, "loss/value": 0.0, "policy/entropy": 0.0, "value/mean": 0.0, "value/target": 0.0}
    for b in range(NUM_SEQUENCES):
        targets = gae_targets(
            REWARDS[b],
            VALUES[STATES[b]],
            VALUES[NEXT_STATES[b]],
            TERMINATED[b],
            TRUNCATED[b],
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
        )
        for t in range(LENGTH):
            s = STATES[b, t]
            actions = None if plan.actions is None else plan.actions[b, t]
            loss, entropy, gradient = state_terms(kind, s, actions, plan.weights[b, t], config.entropy_coefficient)
            for name, change in gradient.items():
                actor_gradient[name][s] += change / count
            error = VALUES[s] - targets[t]
            critic_gradient[s] += 2 * error / count
            terms = (loss, error**2, entropy, VALUES[s], targets[t])
            metrics = {name: metrics[name] + term / count for name, term in zip(metrics, terms, strict=True)}
    gradients = [*actor_gradient.values(), critic_gradient]
    metrics["gradient_norm"] = float(np.sqrt(sum(np.sum(g**2) for g in gradients)))
    actor_adam, critic_adam = (Adam(config.learning_rate, config.max_grad_norm) for _ in range(2))
    changes = actor_adam.step(actor_gradient)
    actor = {name: table + changes[name] for name, table in tables.items()}
    return actor, VALUES + critic_adam.step({"critic": critic_gradient})["critic"], metrics


@pytest.mark.parametrize("kind", ["all_actions", "samples", "continuous"])
def test_one_update_by_hand(kind: str, monkeypatch: pytest.MonkeyPatch):
    module: ModuleType
    if kind == "all_actions":
        module, make, config = alphazero, make_alphazero, AlphaZeroConfig(**OPTIONS)
    else:
        module, make, config = sampled_alphazero, make_sampled_alphazero, SampledAlphaZeroConfig(**OPTIONS)
    if kind == "continuous":
        tables = {"mean": MEANS, "log_scale": LOG_SCALES}
        network = gaussian_table_network(MEANS, LOG_SCALES, VALUES)
    else:
        tables, network = {"logits": LOGITS}, table_network(LOGITS, VALUES)
    plan = plans(kind)

    def as_batch(x: np.ndarray) -> Any:
        return (x.astype(np.float32) if np.issubdtype(x.dtype, np.floating) else x)[None]

    one_hot = np.eye(NUM_STATES, dtype=np.float32)
    batch = Experience(
        observation=one_hot[STATES],
        action_mask=None if kind == "continuous" else MASKS[STATES],
        next_observation=one_hot[NEXT_STATES],
        reward=REWARDS,
        terminated=TERMINATED,
        truncated=TRUNCATED,
        extras=plan,
    )
    monkeypatch.setattr(module, "make_network", lambda *_, **__: network)
    batches = jax.tree.map(as_batch, batch)
    algorithm = make_on_batches(monkeypatch, expert_iteration, make, config, network, batches)
    _, (state, metrics) = run(algorithm, 1)

    actor, critic, expected = by_hand(kind, config, plan, tables)
    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5)
    assert set(metrics) == set(expected)
    for name, value in expected.items():
        close(metrics[name][0], value, err_msg=name)
    params = jax.tree.map(lambda x: x[0], state.learner.params)
    jax.tree.map(close, params.actor, actor if kind == "continuous" else actor["logits"])
    close(params.critic, critic)
