"""How a step scores a particle. The log-weight grows by score / temperature; which score is a choice of function."""

import jax.numpy as jnp

from spo.search.base import Step, WeightFn
from spo.types import Array, Float


def bootstrap(discount: Float[Array, "*shape"], value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """What lies behind a step. Nothing does behind an end, whatever a critic says of it, NaN and -inf included."""
    return jnp.where(discount == 0, 0.0, discount * value)


def advantage(step: Step) -> Float[Array, ""]:
    """Â = r + γ·V(s') − V(s): the weighting of SPO (paper, equation 10 and the line under Algorithm 1; departure 3)."""
    return step.reward + bootstrap(step.discount, step.next_value) - step.value


def q_value(step: Step) -> Float[Array, ""]:
    """Q̂ = r + γ·V(s'), no baseline subtracted: the paper's ablation (appendix "E-step Q-value Optimisation")."""
    return step.reward + bootstrap(step.discount, step.next_value)


def soft_advantage(entropy_temperature: Float[Array, ""] | float) -> WeightFn:
    """r + γ·V(s') − V(s) − τ·log π(a|s), with V soft: the weighting of SMC-ENT (Piché et al., 2019).

    Under maximum-entropy control the target holds actions by exp(reward) alone, not by π · exp(reward); drawing them
    from π therefore costs −log π in the weight, which is the last term.
    """

    def score(step: Step) -> Float[Array, ""]:
        return advantage(step) - entropy_temperature * step.log_prob

    return score
