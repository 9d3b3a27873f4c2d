"""Optimal values and actions of the tiny environments: value iteration on the tables, closed forms elsewhere."""

from typing import Any, NamedTuple

import numpy as np

from spo.environments.tiny import TINY_NAMES, TabularMDP
from spo.environments.tiny.continuous import LQR_FORCE_COST, LQR_SECONDS, LQR_VELOCITY_COST
from spo.environments.tiny.tables import TABLES
from spo.types import Float


class KnownAnswer(NamedTuple):
    """Optimal values and actions for K observations."""

    observations: Float[np.ndarray, "K ..."]
    values: Float[np.ndarray, " K"]
    #: Discrete actions: `bool[K, A]`, True for each optimal one. Continuous ones: `float[K, D]`, the optimal one.
    actions: np.ndarray


def known_answer(name: str, gamma: float, **options: Any) -> KnownAnswer:
    """Optimal values and actions of a tiny task, with the options given to `tiny`."""
    _check_name(name)
    if name in TABLES:
        return _tabular_answer(tiny_mdp(name, **options), gamma)
    return _CONTINUOUS_ANSWERS[name](gamma, **options)


def tiny_mdp(name: str, **options: Any) -> TabularMDP:
    """The tables of a tabular tiny task."""
    _check_name(name)
    if name not in TABLES:
        raise ValueError(f"{name!r} has continuous actions and no tables: choose one of {', '.join(TABLES)}.")
    return TABLES[name](**options).mdp


def solve(mdp: TabularMDP, gamma: float) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S A"]]:
    """Optimal values V[S] and Q[S, A] by value iteration (64 bit). Q is -inf outside the mask.

    A time limit does not affect them: the value of a truncated episode is that of its continuation.
    """
    values, rewards = np.zeros(len(mdp.terminal)), expected_rewards(mdp)
    for _ in range(100_000):
        q_values = np.where(mdp.mask, rewards + gamma * mdp.transition_probabilities @ values, -np.inf)
        new_values = np.where(mdp.terminal, 0.0, q_values.max(axis=1))
        if np.max(np.abs(new_values - values)) <= 1e-13 * max(1.0, np.max(np.abs(new_values))):
            return new_values, q_values
        values = new_values
    raise ValueError(f"Value iteration did not converge with gamma={gamma}: use a smaller gamma.")


def expected_rewards(mdp: TabularMDP) -> Float[np.ndarray, "S A"]:
    """Mean reward of each action, over the states that it leads to."""
    if mdp.entry_rewards is None:
        return mdp.rewards
    return mdp.rewards + np.where(mdp.terminal[:, None], 0.0, mdp.transition_probabilities @ mdp.entry_rewards)


def _check_name(name: str) -> None:
    if name not in TINY_NAMES:
        raise ValueError(f"There is no tiny task {name!r}: choose one of {', '.join(TINY_NAMES)}.")


def _tabular_answer(mdp: TabularMDP, gamma: float) -> KnownAnswer:
    values, q_values = solve(mdp, gamma)
    live = ~mdp.terminal
    return KnownAnswer(
        observations=np.eye(len(values), dtype=np.float32)[live],
        values=values[live],
        actions=np.isclose(q_values, values[:, None], rtol=0.0, atol=1e-9)[live],
    )


def _bandit_answer(_gamma: float, target: float = 0.3, num_action_dimensions: int = 1) -> KnownAnswer:
    return KnownAnswer(np.ones((1, 1), np.float32), np.ones(1), np.full((1, num_action_dimensions), target))


def _context_answer(_gamma: float) -> KnownAnswer:
    targets = np.linspace(-0.8, 0.8, 9)
    observations = np.stack([np.ones(9), targets], axis=1).astype(np.float32)
    return KnownAnswer(observations, np.ones(9), targets[:, None])


def _credit_answer(gamma: float, target: float = 0.5) -> KnownAnswer:
    firsts = np.linspace(-1.0, 1.0, 9)
    observations = np.concatenate([np.zeros((1, 2)), np.stack([np.full(9, 0.5), firsts], axis=1)])
    values = np.concatenate([[gamma], 1.0 - (firsts - target) ** 2])
    actions = np.concatenate([[target], firsts])[:, None]
    return KnownAnswer(observations.astype(np.float32), values, actions)


def _lqr_answer(gamma: float, noise: float = 0.0, time_limit: int = 50) -> KnownAnswer:
    del time_limit  # values are those of the endless task
    if noise > 0 and gamma >= 1:
        raise ValueError("With noise the total cost is infinite: use gamma < 1.")
    cost_to_go, gain = _riccati(gamma)
    grid = np.linspace(-0.5, 0.5, 5)
    states = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    noise_cost = gamma / (1.0 - gamma) * noise**2 * np.trace(cost_to_go) if noise > 0 else 0.0
    values = -np.einsum("ki,ij,kj->k", states, cost_to_go, states) - noise_cost
    return KnownAnswer(states.astype(np.float32), values, -states @ gain.T)


def _riccati(gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Cost-to-go matrix P and gain K of the discounted regulator: the cost is x·P x, the optimal action -K x."""
    dynamics = np.array([[1.0, LQR_SECONDS], [0.0, 1.0]])
    push = np.array([[0.5 * LQR_SECONDS**2], [LQR_SECONDS]])
    state_cost, action_cost = np.diag([1.0, LQR_VELOCITY_COST]), np.diag([LQR_FORCE_COST])
    cost_to_go = state_cost
    for _ in range(100_000):
        gain = np.linalg.solve(action_cost + gamma * push.T @ cost_to_go @ push, gamma * push.T @ cost_to_go @ dynamics)
        new = state_cost + gamma * dynamics.T @ cost_to_go @ (dynamics - push @ gain)
        if np.max(np.abs(new - cost_to_go)) <= 1e-12 * np.max(np.abs(new)):
            return new, gain
        cost_to_go = new
    raise ValueError(f"The Riccati iteration did not converge with gamma={gamma}: use 0 < gamma <= 1.")


_CONTINUOUS_ANSWERS = {
    "continuous_bandit": _bandit_answer,
    "continuous_context": _context_answer,
    "continuous_credit": _credit_answer,
    "lqr": _lqr_answer,
}
