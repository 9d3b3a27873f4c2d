"""Models with chance, without gambling.

The search weighs a trajectory by exp(Σ score / η). If the outcome of an action is random, the weight of the action is
the mean of exp(score / η) over its outcomes. That is larger than exp(mean score / η): a rare large gain counts more
than it is worth, and the search gambles. The functions here score a step by its mean over chance instead,

    E[r + γ·V(s')] − V(s),

so that the search is risk-neutral:

    sampled      draws several outcomes of every step and continues with one of them
    shared       lets particles with the same action in the same state share their outcomes, at no further model step
    enumerated   for a model that lists its outcomes with their probabilities

All need a V that is right in the states after a random event, if its reward comes later. With a V that can't be
trusted, use `readouts.mean_returns`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.keys import numbered_keys
from spo.search.base import BatchedModel, Expected, ModelFn, ModelOutput
from spo.search.batches import mean_over_equal, over_particles
from spo.search.weighting import bootstrap
from spo.types import Action, Array, Float, PRNGKey, State


def sampled(model_fn: ModelFn, num_outcomes: int) -> ModelFn:
    """Returns a model that draws M outcomes of each step, continues with one of them and scores all.

    The mean of M outcomes is an estimate. The score is corrected for its variance (`weighting.q_value`), which is
    estimated from the same outcomes. The correction is right as long as the standard error of the mean, s/√M, is at
    most η. Beyond that, rare draws decide: choose M ≥ (s/η)², or `shared`. The cost of a search grows M times.

    Args:
      model_fn: the model.
      num_outcomes: M. 1 returns the model unchanged.
    """
    _check_num_outcomes(num_outcomes)
    if num_outcomes == 1:
        return model_fn

    def draw_outcomes(key: PRNGKey, state: State, action: Action) -> ModelOutput:
        output, targets = _draw(model_fn, num_outcomes, key, state, action)
        mean, variance = jnp.mean(targets, axis=0), jnp.var(targets, axis=0, ddof=1) / num_outcomes
        # An infinite outcome has no variance: it would be NaN, and make the whole root invalid.
        return output._replace(expected=Expected(mean, jnp.where(jnp.isfinite(mean), variance, 0.0)))

    return draw_outcomes


def shared(model_fn: ModelFn, num_outcomes: int = 1) -> BatchedModel:
    """Returns a model that scores each step by the mean over all particles with the same action in the same state.

    At the root, all particles are in the same state: with N particles and A actions, a first action is scored by about
    N·M/A outcomes. Deeper, those share that have reached the same state. Each particle continues with its own outcome.
    The states of all pairs are compared, which costs N² comparisons of a state. Continuous actions share nothing.

    The mean is not corrected for its variance. The noise is common to all particles of an action, so it is not averaged
    over them, and the correction would only punish actions with chance (as in `readouts.mean_returns`).

    Args:
      model_fn: the model, for one particle.
      num_outcomes: M, the outcomes that each particle draws. With 1, the search takes no more model steps.
    """
    _check_num_outcomes(num_outcomes)
    draw = functools.partial(_draw, model_fn, num_outcomes)

    def step(key: PRNGKey, state: State, action: Action) -> ModelOutput:
        shape = jax.tree.leaves(action)[0].shape[:2]
        output, targets = over_particles(draw)(numbered_keys(key, shape), state, action)
        means = jax.vmap(mean_over_equal)((state, action), jnp.mean(targets, axis=2))
        return output._replace(expected=Expected(means, jnp.zeros_like(means)))

    return BatchedModel(step)


def _check_num_outcomes(num_outcomes: int) -> None:
    if num_outcomes < 1:
        raise ValueError(f"num_outcomes must be at least 1, got {num_outcomes}.")


def _draw(
    model_fn: ModelFn, num_outcomes: int, key: PRNGKey, state: State, action: Action
) -> tuple[ModelOutput, Float[Array, "M *shape"]]:
    """Returns one outcome of a step, and the targets of all M.

    Outcomes are independent, so the first one is as random as any other.
    """
    keys = key[None] if num_outcomes == 1 else jax.random.split(key, num_outcomes)
    outcomes = jax.vmap(model_fn, in_axes=(0, None, None))(keys, state, action)
    return jax.tree.map(lambda x: x[0], outcomes), _targets(outcomes)


class Outcomes(NamedTuple):
    """All outcomes of one step."""

    probabilities: Float[Array, " K"]  # sum to 1
    outputs: ModelOutput  # [K, ...]


def enumerated(outcomes_fn: Callable[[State, Action], Outcomes]) -> ModelFn:
    """Returns a model that draws one of the listed outcomes and scores the mean over all of them, exactly.

    Args:
      outcomes_fn: `(state, action) -> Outcomes` for one particle.
    """

    def draw_outcome(key: PRNGKey, state: State, action: Action) -> ModelOutput:
        probabilities, outputs = outcomes_fn(state, action)
        possible = probabilities > 0
        targets = jnp.where(possible, _targets(outputs), 0.0)  # 0 · inf would be NaN
        mean = jnp.sum(probabilities * targets)
        chosen = jax.random.categorical(key, jnp.log(probabilities))
        output = jax.tree.map(lambda x: x[chosen], outputs)
        return output._replace(expected=Expected(mean, jnp.zeros_like(mean)))

    return draw_outcome


def _targets(outputs: ModelOutput) -> Float[Array, "K *shape"]:
    """Returns r + γ·V(s') of each outcome."""
    return outputs.reward + bootstrap(outputs.discount, outputs.value)
