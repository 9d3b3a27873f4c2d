"""Scores of a step. The log-weight of a particle grows by score / temperature.

A score is a function of a `Step`, which also holds states, action, depth, temperature and weight. Twisting functions
and look-ahead are scores as well.
"""

import jax.numpy as jnp

from spo.search.base import ScoreFn, Step
from spo.types import Array, Float


def advantage(step: Step) -> Float[Array, ""]:
    """Â = r + γ·V(s') − V(s): the score of SPO (paper, equation 10; departure 3: the paper has no γ)."""
    return q_value(step) - step.value


def q_value(step: Step) -> Float[Array, ""]:
    """Q̂ = r + γ·V(s'), without a baseline: the paper's ablation (appendix "E-step Q-value Optimisation").

    Where the model estimates the mean of Q̂ over chance (`spo.search.chance`), it is mean − variance / 2η instead. The
    weight exp(Q̂/η) of a noisy mean is too large on average, by the factor exp(variance / 2η²) if the noise is normal.
    """
    if step.expected is not None:
        return step.expected.mean - step.expected.variance / (2.0 * step.temperature)
    return step.reward + bootstrap(step.discount, step.next_value)


def soft_advantage(entropy_temperature: Float[Array, ""] | float) -> ScoreFn:
    """r + γ·V(s') − V(s) − τ·log π(a|s) with a soft V: the score of SMC-ENT (Piché et al., 2019).

    In maximum-entropy control the target weighs actions by exp(reward), not by π · exp(reward). Actions are drawn
    from π, so the importance weight contributes −log π.
    """

    def score(step: Step) -> Float[Array, ""]:
        return advantage(step) - entropy_temperature * step.log_prob

    return score


def bootstrap(discount: Float[Array, "*shape"], value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """discount · V(s'), and exactly 0 after termination, even if V(s') is NaN or infinite."""
    return jnp.where(discount == 0, 0.0, discount * value)
