"""Targets and advantages of value functions, from observed rewards.

Functions over time are written for one trajectory of T steps: use `jax.vmap` for a batch. `next_values[t]` is the value
of the observation that step t led to. At the end of an episode, this is its last observation, never the first one of
the next episode.

All algorithms have the same rule for ends. Termination is worth nothing: the target is the reward. Truncation (a time
limit) is worth `next_values[t]`, because the episode could have continued. Neither lets a later episode contribute.

No gradient is stopped here: the losses stop the gradients of their targets.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.types import Array, Bool, Float, Integer

_MAX_UNROLL = 32


class AdvantagesAndTargets(NamedTuple):
    """Advantages, and the critic's targets: advantages + values, which is the lambda-return."""

    advantages: Float[Array, " T"]  # one per step
    targets: Float[Array, " T"]  # one per step


def gae(
    rewards: Float[Array, " T"],
    values: Float[Array, " T"],
    next_values: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    truncated: Bool[Array, " T"],
    *,
    gamma: Float[Array, ""] | float,
    gae_lambda: Float[Array, ""] | float,
) -> AdvantagesAndTargets:
    """A_t = δ_t + γλ(1 − ended_t) A_{t+1}, with δ_t = r_t + γ(1 − terminated_t) V(s_{t+1}) − V(s_t).

    Schulman et al. (arXiv:1506.02438), equation 16, cut at the ends of episodes and at the end of the trajectory.
    """
    errors = td_target(rewards, next_values, terminated, gamma=gamma) - values
    advantages = _accumulate_backwards(errors, jnp.where(terminated | truncated, 0.0, gamma * gae_lambda))
    return AdvantagesAndTargets(advantages, advantages + values)


def retrace(
    q_values: Float[Array, " T"],
    next_values: Float[Array, " T"],
    log_ratios: Float[Array, " T"],
    rewards: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    truncated: Bool[Array, " T"],
    *,
    gamma: Float[Array, ""] | float,
    retrace_lambda: Float[Array, ""] | float,
) -> Float[Array, " T"]:
    """G_t = r_t + γ(1 − terminated_t) [V(s_{t+1}) + (1 − truncated_t) c_{t+1} (G_{t+1} − Q(s_{t+1}, a_{t+1}))].

    Retrace(λ) of Munos et al. (arXiv:1606.02647), c_t = λ min(1, π(a_t|s_t) / μ(a_t|s_t)). `q_values[t]` is Q(s_t, a_t)
    of the action that the behaviour policy μ took, `log_ratios[t]` is log π(a_t|s_t) − log μ(a_t|s_t) of that action,
    and `next_values[t]` is V(s_{t+1}), the mean of Q(s_{t+1}, ·) under the target policy π. The targets are for
    `q_values`.
    """
    errors = td_target(rewards, next_values, terminated, gamma=gamma) - q_values
    traces = retrace_lambda * jnp.exp(jnp.minimum(log_ratios, 0.0))
    # No step follows the last one: its next trace is never used.
    next_traces = jnp.append(traces[1:], jnp.zeros_like(traces[:1]))
    return q_values + _accumulate_backwards(errors, jnp.where(terminated | truncated, 0.0, gamma * next_traces))


def td_target(
    reward: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    gamma: Float[Array, ""] | float,
) -> Float[Array, "*batch"]:
    """r + γ(1 − terminated) V(s'). A truncated step bootstraps like every other step.

    With a soft V it is the target of SAC (`sampled_soft_value`) and, with `munchausen_bonus` added to the reward, of
    Munchausen-DQN (`soft_value`).
    """
    # `where`, not a product: the value of a terminal observation, even NaN, must not count.
    return reward + gamma * jnp.where(terminated, 0.0, next_value)


def soft_value(q_values: Float[Array, " A"], temperature: Float[Array, ""] | float) -> Float[Array, ""]:
    """τ log Σ_a exp(Q(s, a)/τ), which is Σ_a π(a|s) (Q(s, a) − τ log π(a|s)) for π = softmax(Q/τ).

    An invalid action has Q = −inf.
    """
    return temperature * jax.nn.logsumexp(q_values / temperature)


def sampled_soft_value(
    q_values: Float[Array, " K"], log_probs: Float[Array, " K"], temperature: Float[Array, ""] | float
) -> Float[Array, ""]:
    """mean_k [Q(s, a_k) − τ log π(a_k|s)] over actions drawn from π (Haarnoja et al., arXiv:1812.05905, equation 3).

    Under twin critics, `q_values` is the smaller of the two.
    """
    return jnp.mean(q_values - temperature * log_probs)


def munchausen_bonus(
    q_values: Float[Array, " A"],
    action: Integer[Array, ""],
    *,
    temperature: Float[Array, ""] | float,
    coefficient: Float[Array, ""] | float,
    clip_min: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """m · clip(τ log π(a|s), clip_min, 0) for π = softmax(Q/τ): the term that Munchausen-DQN adds to the reward.

    Vieillard et al. (arXiv:2007.14430).
    """
    scaled_log_prob = temperature * jax.nn.log_softmax(q_values / temperature)[action]
    return coefficient * jnp.clip(scaled_log_prob, clip_min, 0.0)


def _accumulate_backwards(terms: Float[Array, " T"], decays: Float[Array, " T"]) -> Float[Array, " T"]:
    """x_t = terms_t + decays_t · x_{t+1}, from x_T = 0."""

    def step(following: Float[Array, ""], now: tuple[Array, Array]) -> tuple[Array, Array]:
        term, decay = now
        current = term + decay * following
        return current, current

    # Unrolled, up to a length: on a GPU, one iteration of a loop costs a hundred times as much as its multiplication.
    unroll = min(terms.shape[0], _MAX_UNROLL)
    _, sums = jax.lax.scan(step, jnp.zeros((), terms.dtype), (terms, decays), reverse=True, unroll=unroll)
    return sums
