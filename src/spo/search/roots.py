"""Which first actions the particles take, where N independent draws from the proposal are not what is wanted.

A `RootFn` draws them for one root and says what each weighs at the start, so that the weighted actions still stand for
the proposal: E[mean_n w_n f(a_n)] = Σ_a π̃(a) f(a) for every f, which keeps the estimate of Z unbiased.
"""

import jax
import jax.numpy as jnp
import numpy as np

from spo.search.base import RootFn, RootSamples
from spo.types import Array, Float, PRNGKey


def without_replacement(num_candidates: int) -> RootFn:
    """The proposal's Gumbel top-k: `num_candidates` different actions, each with a group of the particles.

    For discrete actions. Perturbed by Gumbel noise, the k largest logits are k draws without replacement (Kool et al.,
    arXiv:1903.06059). Given the (k+1)-th of them, κ, action a is among them with probability
    1 − exp(−exp(log π̃(a) − κ)), by which its weight is divided. With k = A every action is there, and weighs what its
    probability says. There are no more of them than particles.
    """
    if num_candidates < 1:
        raise ValueError(f"num_candidates must be at least 1, got {num_candidates}.")

    def root_fn(key: PRNGKey, logits: Float[Array, " A"], num_particles: int) -> RootSamples:
        num_chosen = min(num_candidates, logits.shape[0], num_particles)
        log_probs = jax.nn.log_softmax(logits)
        perturbed, order = jax.lax.top_k(
            log_probs + jax.random.gumbel(key, logits.shape, logits.dtype), min(num_chosen + 1, logits.shape[0])
        )
        # With all actions chosen there is no (k+1)-th, and each of them was certain to be.
        threshold = perturbed[num_chosen] if num_chosen < logits.shape[0] else -jnp.inf
        order = order[:num_chosen]
        chosen = log_probs[order]
        log_inclusion = jnp.log(-jnp.expm1(-jnp.exp(chosen - threshold)))
        # Each particle's candidate; where N is no multiple of k, the first groups have one more, each of less weight.
        candidate = np.sort(np.arange(num_particles) % num_chosen)
        group_sizes = np.bincount(candidate, minlength=num_chosen)
        log_weights = chosen - log_inclusion + jnp.log(jnp.asarray(num_particles / group_sizes, chosen.dtype))
        # Where fewer actions are valid than were asked for, the first of them is stepped in their place, for nothing.
        valid = jnp.isfinite(chosen)
        actions = jnp.where(valid, order, order[0])
        log_weights = jnp.where(valid, log_weights, -jnp.inf)
        return RootSamples(actions[candidate], log_weights[candidate])

    return root_fn
