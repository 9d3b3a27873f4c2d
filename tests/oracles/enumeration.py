"""Exact values of what a search estimates: a sum over every trajectory of a tiny MDP, in NumPy.

Slow and obvious on purpose. It shares nothing with the library. The functions at the end turn the same MDP into a model
for `spo.search.search` and for `spo.search.smc_policy`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.search import ModelOutput, Root


class TabularMDP(NamedTuple):
    """S states, A actions, all of it written down."""

    transition: np.ndarray  # [S, A, S] probabilities
    reward: np.ndarray  # [S, A]
    prior: np.ndarray  # [S, A] probabilities; 0 = masked
    value: np.ndarray  # [S] any critic, not the true value
    terminated: np.ndarray  # [S] entering it ends the episode, and V there does not count
    truncated: np.ndarray  # [S] entering it ends the episode, and V there counts

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated


class Exact(NamedTuple):
    """The limit of the search as N grows."""

    normaliser: float  # Z
    action_posterior: np.ndarray  # [A]
    value: float  # mean return under the posterior, V at the end included
    num_ends: np.ndarray  # [H + 1] how many trajectories ended at each depth


class Transition(NamedTuple):
    """One step of a trajectory: the input of a score."""

    state: int
    action: int
    next_state: int
    reward: float
    discount: float
    value: float
    next_value: float
    log_prob: float
    depth: int
    temperature: float


Score = Callable[[Transition], float]


def advantage(step: Transition) -> float:
    return step.reward + step.discount * step.next_value - step.value


def q_value(step: Transition) -> float:
    return step.reward + step.discount * step.next_value


def soft_advantage(entropy_temperature: float) -> Score:
    return lambda step: advantage(step) - entropy_temperature * step.log_prob


def enumerate_trajectories(
    mdp: TabularMDP,
    root_state: int,
    *,
    horizon: int,
    temperature: float | Callable[[int], float],
    gamma: float,
    score: Score = advantage,
    root_proposal: np.ndarray | None = None,
    correct_root_proposal: bool = False,
) -> Exact:
    """Sums P(τ)·exp(Σ score / temperature) over every τ that stops at its end or after `horizon` steps.

    `temperature` may be a function of the depth. `root_proposal` [A] takes the prior's place at the root. Corrected, it
    only changes which actions can be reached.
    """
    temperature_at = temperature if callable(temperature) else lambda _depth: temperature
    num_states, num_actions = mdp.reward.shape
    total, by_action, weighted_returns = 0.0, np.zeros(num_actions), 0.0
    num_ends = np.zeros(horizon + 1, int)

    def walk(state: int, depth: int, first_action: int, mass: float, discount: float, rewards: float) -> None:
        nonlocal total, weighted_returns
        if depth == horizon or mdp.ended[state]:
            num_ends[depth] += bool(mdp.ended[state])
            total += mass
            by_action[first_action] += mass
            weighted_returns += mass * (rewards + discount * mdp.value[state])
            return
        for action in range(num_actions):
            probability = mdp.prior[state, action]
            if depth == 0 and root_proposal is not None:
                probability = root_proposal[action]
                if correct_root_proposal and probability > 0:
                    probability = mdp.prior[state, action]
            if probability == 0:
                continue
            for next_state in range(num_states):
                reached = mdp.transition[state, action, next_state]
                if reached == 0:
                    continue
                reward = mdp.reward[state, action]
                step_discount = gamma * (0.0 if mdp.terminated[next_state] else 1.0)
                with np.errstate(divide="ignore"):
                    log_prob = np.log(mdp.prior[state, action])
                step = Transition(
                    state=state,
                    action=action,
                    next_state=next_state,
                    reward=reward,
                    discount=step_discount,
                    value=mdp.value[state],
                    next_value=mdp.value[next_state],
                    log_prob=log_prob,
                    depth=depth,
                    temperature=temperature_at(depth),
                )
                walk(
                    next_state,
                    depth + 1,
                    action if depth == 0 else first_action,
                    mass * probability * reached * np.exp(score(step) / step.temperature),
                    discount * step_discount,
                    rewards + discount * reward,
                )

    walk(root_state, 0, -1, 1.0, 1.0, 0.0)
    return Exact(total, by_action / total, weighted_returns / total, num_ends)


def lopsided_mdp(*, with_truncation: bool = True) -> TabularMDP:
    """Four states to wander in, one that terminates and one that truncates, all reachable at every depth.

    Nothing is symmetric: rewards, values, priors and transitions all differ by state and action, some actions are
    masked, and V is not 0 where it must not count (terminated) nor where it must (truncated).
    """
    rng = np.random.default_rng(20)
    num_states, num_actions = 6, 3
    transition = np.zeros((num_states, num_actions, num_states))
    for state in range(4):
        for action in range(num_actions):
            # Two live successors and the two ends, with lopsided probabilities.
            transition[state, action, (state + 1) % 4] += 0.45
            transition[state, action, (state + action + 1) % 4] += 0.2
            transition[state, action, 4] += 0.1 + 0.05 * action
            transition[state, action, 5] += 0.25 - 0.05 * action
    transition[4:, :, 0] = 1.0  # the reset of a new episode, which a search must not take
    np.testing.assert_allclose(transition.sum(-1), 1.0)
    prior = rng.dirichlet(np.full(num_actions, 2.0), num_states)
    for state, masked in ((1, 2), (2, 0), (3, 1)):
        prior[state, masked] = 0.0
    prior /= prior.sum(1, keepdims=True)
    prior[4:] = 0.0  # nothing can be done after the end
    terminated, truncated = np.arange(num_states) == 4, np.arange(num_states) == 5
    return TabularMDP(
        transition=transition,
        reward=rng.normal(0.0, 0.6, (num_states, num_actions)),
        prior=prior,
        value=np.array([1.0, -0.2, 1.4, 0.7, 2.0, 1.6]),
        terminated=terminated if with_truncation else terminated | truncated,
        truncated=truncated if with_truncation else np.zeros_like(truncated),
    )


def root_of(mdp: TabularMDP, states: np.ndarray) -> Root:
    return Root(
        prior=jnp.log(jnp.asarray(mdp.prior[states], jnp.float32)),
        value=jnp.asarray(mdp.value[states], jnp.float32),
        state=jnp.asarray(states, jnp.int32),
    )


def model_fn_of(mdp: TabularMDP, gamma: float = 1.0) -> Callable[..., ModelOutput]:
    """The MDP as a model. A step from an ended state returns NaN, as a careless simulator may."""
    log_transition, log_prior = jnp.log(_float32(mdp.transition)), jnp.log(_float32(mdp.prior))
    reward, value = _float32(mdp.reward), _float32(mdp.value)
    terminated, ended = jnp.asarray(mdp.terminated), jnp.asarray(mdp.ended)

    def model_fn(key: jax.Array, state: jax.Array, action: jax.Array) -> ModelOutput:
        next_state = jax.random.categorical(key, log_transition[state, action]).astype(state.dtype)
        garbage = jnp.where(ended[state], jnp.nan, 0.0)
        return ModelOutput(
            state=next_state,
            prior=log_prior[next_state],
            value=value[next_state] + garbage,
            reward=reward[state, action] + garbage,
            discount=gamma * (1.0 - terminated[next_state]),
            ended=ended[next_state],
        )

    return model_fn


def recurrent_fn_of(mdp: TabularMDP, gamma: float) -> Callable:
    """The MDP with mctx's interface. mctx has no truncation: discount 0 is the only end."""
    import mctx

    assert not mdp.truncated.any()
    model_fn = model_fn_of(mdp, gamma)

    def recurrent_fn(params: None, rng_key: jax.Array, action: jax.Array, embedding: jax.Array) -> tuple:
        keys = jax.random.split(rng_key, action.shape[0])
        output = jax.vmap(model_fn)(keys, embedding, action)
        return (
            mctx.RecurrentFnOutput(
                reward=output.reward,
                discount=output.discount,
                prior_logits=output.prior,
                value=output.value,
            ),
            output.state,
        )

    return recurrent_fn


def _float32(x: np.ndarray) -> jax.Array:
    return jnp.asarray(x, jnp.float32)
