"""Models with chance, without gambling.

The search weighs a trajectory by exp(Σ score / η). If the outcome of an action is random, the weight of the action is
the mean of exp(score / η) over its outcomes. That is larger than exp(mean score / η): a rare large gain counts more
than it is worth, and the search gambles. The functions here score a step by its mean over chance instead,

    E[r + γ·V(s')] − V(s),

so that the search is risk-neutral:

    sampled      draws several outcomes of every step and continues with one of them
    enumerated   for a model that lists its outcomes with their probabilities

Both rely on V: it must price what chance decides now and pays later. With a V that can't be trusted, use
`readouts.mean_returns`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.search.base import Expected, ModelFn, ModelOutput
from spo.search.weighting import bootstrap
from spo.types import Action, Array, Float, PRNGKey, State


def sampled(model_fn: ModelFn, num_outcomes: int) -> ModelFn:
    """Returns a model that draws M outcomes of each step, continues with one of them and scores all.

    The mean of M outcomes is an estimate. The score is corrected for its variance (`weighting.q_value`), which is
    estimated from the same outcomes. The cost of a search grows M times.

    Args:
      model_fn: the model.
      num_outcomes: M. 1 returns the model unchanged.
    """
    if num_outcomes < 1:
        raise ValueError(f"num_outcomes must be at least 1, got {num_outcomes}.")
    if num_outcomes == 1:
        return model_fn

    def draw_outcomes(key: PRNGKey, state: State, action: Action) -> ModelOutput:
        keys = jax.random.split(key, num_outcomes)
        outcomes = jax.vmap(model_fn, in_axes=(0, None, None))(keys, state, action)
        targets = _targets(outcomes)
        expected = Expected(jnp.mean(targets, axis=0), jnp.var(targets, axis=0, ddof=1) / num_outcomes)
        # Outcomes are independent, so the first one is as random as any other.
        return jax.tree.map(lambda x: x[0], outcomes)._replace(expected=expected)

    return draw_outcomes


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
