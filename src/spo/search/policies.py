"""Finished policies: the search behind mctx's interface, exploration noise, and a checked variant."""

import functools
from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from spo import distributions
from spo.search import resampling, validation, weighting
from spo.search.base import ModelOutput, PolicyOutput, ResampleFn, Root, RootFn, SearchOutput, WeightFn
from spo.search.smc import search
from spo.types import Action, Array, Float, PRNGKey, PyTree, State


@runtime_checkable
class RootFnOutput(Protocol):
    """The shape of `mctx.RootFnOutput`; anything with these attributes will do."""

    prior_logits: Any  # [B, A]
    value: Any  # [B]
    embedding: Any  # [B, ...]


@runtime_checkable
class RecurrentFnOutput(Protocol):
    """The shape of `mctx.RecurrentFnOutput`."""

    reward: Any  # [B]
    discount: Any  # [B]
    prior_logits: Any  # [B, A]
    value: Any  # [B]


RecurrentFn = Callable[[Any, Any, Any, Any], tuple[RecurrentFnOutput, Any]]


def smc_policy(
    params: PyTree,
    rng_key: PRNGKey,
    root: RootFnOutput,
    recurrent_fn: RecurrentFn,
    *,
    num_particles: int,
    horizon: int,
    temperature: Float[Array, "..."] | float,
    resample_period: int | None,
    invalid_actions: Array | None = None,
    dirichlet_fraction: float = 0.0,
    dirichlet_alpha: float = 0.3,
    weight_fn: WeightFn = weighting.advantage,
    resample_fn: ResampleFn = resampling.systematic,
    ess_threshold: float | None = None,
    resample_last: bool = False,
    readout: Literal["last", "all_depths"] = "last",
    root_fn: RootFn | None = None,
    unroll: int = 4,
    with_ancestry: bool = False,
) -> PolicyOutput:
    """SMC search for those who have an mctx model: takes `mctx.RootFnOutput` and a `recurrent_fn` as they are.

    Args:
      params: handed to `recurrent_fn`.
      rng_key: used once.
      root: `prior_logits` [B, A], `value` [B], `embedding` [B, ...].
      recurrent_fn: `(params, rng_key, action [B], embedding [B, ...]) -> (RecurrentFnOutput, embedding)`. It always
        sees the leading axis B in root order: particles are a vmapped axis, each with a key of its own. It runs
        `horizon` times.
      num_particles: N; N · horizon is the budget to compare with `num_simulations`.
      horizon: how many steps each particle looks ahead.
      temperature: positive, a scalar or [B]; may be traced.
      resample_period: resample after every so many steps except after the last; None: never.
      invalid_actions: [B, A], 1 where an action is invalid; masks the root only. Deeper, the model masks an action by a
        prior logit of -inf.
      dirichlet_fraction: weight of the exploration noise at the root, mixed in as probabilities. 0: none.
      dirichlet_alpha: concentration of that noise.
      weight_fn, resample_fn, ess_threshold, resample_last, readout, root_fn, unroll, with_ancestry: as in
        `spo.search.search`.

    The discount, gamma included, comes from the model; a particle whose discount was 0 has ended: that step counts and
    nothing after it does. Returns an object with `.action` [B], drawn from `.action_weights` [B, A], and `.search`.
    """
    check_dirichlet(dirichlet_fraction, dirichlet_alpha)
    logits = jnp.asarray(root.prior_logits)
    if logits.ndim != 2 or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(
            f"root.prior_logits must be floating point of shape [B, A]; got {logits.dtype} of shape {logits.shape}."
        )
    # Weights are counted in float32 even when the network computes in less.
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if invalid_actions is not None:
        validation.check_invalid_actions(invalid_actions, logits.shape)
        logits = distributions.masked_logits(logits, jnp.asarray(invalid_actions) == 0)
    key_noise, key_search = jax.random.split(rng_key)
    proposal = None
    if dirichlet_fraction > 0.0:
        proposal = add_dirichlet_noise(key_noise, logits, fraction=dirichlet_fraction, alpha=dirichlet_alpha)

    def model_fn(key: PRNGKey, embedding: State, action: Action) -> ModelOutput:
        keys = jax.random.split(key, num_particles)
        output, embedding = jax.vmap(recurrent_fn, in_axes=(None, 0, 1, 1), out_axes=1)(params, keys, action, embedding)
        return ModelOutput(
            state=embedding,
            prior=output.prior_logits.astype(logits.dtype),
            value=output.value,
            reward=output.reward,
            discount=output.discount,
            ended=output.discount == 0,
        )

    output = search(
        key_search,
        Root(prior=logits, value=jnp.asarray(root.value), state=root.embedding),
        model_fn,
        num_particles=num_particles,
        horizon=horizon,
        temperature=temperature,
        resample_period=resample_period,
        weight_fn=weight_fn,
        resample_fn=resample_fn,
        ess_threshold=ess_threshold,
        resample_last=resample_last,
        readout=readout,
        root_proposal=proposal,
        root_fn=root_fn,
        vmap_model=False,
        unroll=unroll,
        with_ancestry=with_ancestry,
    )
    assert output.action_weights is not None  # categorical actions always have them
    return PolicyOutput(action=output.action, action_weights=output.action_weights, search=output)


def add_dirichlet_noise(
    key: PRNGKey, logits: Float[Array, "B A"], *, fraction: float, alpha: float
) -> Float[Array, "B A"]:
    """log((1 − fraction)·π + fraction·Dirichlet(alpha)): root noise, mixed as probabilities (departures 1 and 2).

    The noise falls on valid actions (logits above -inf) only. It is drawn through the logarithm of gamma variables,
    since with a small alpha the variables themselves underflow to 0 all together.
    """
    check_dirichlet(fraction, alpha)
    return mix_in_dirichlet(logits, jax.random.loggamma(key, alpha, logits.shape, logits.dtype), fraction=fraction)


def mix_in_dirichlet(
    logits: Float[Array, "B A"], log_gamma: Float[Array, "B A"], *, fraction: float
) -> Float[Array, "B A"]:
    """`add_dirichlet_noise` from the logarithms of Gamma(alpha) variables drawn beforehand.

    They are drawn by rejection, a loop of small kernels. Drawn once for many searches, that costs next to nothing.
    """
    noise = jax.nn.softmax(jnp.where(logits > -jnp.inf, log_gamma, -jnp.inf), axis=-1)
    return distributions.mix_log_probabilities(logits, noise, fraction)


def check_dirichlet(fraction: float, alpha: float) -> None:
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"dirichlet_fraction must lie in [0, 1], got {fraction}.")
    if not alpha > 0.0:
        raise ValueError(f"dirichlet_alpha must be positive, got {alpha}.")


def checked(search_fn: Callable[..., Any]) -> Callable[..., tuple[checkify.Error, Any]]:
    """`search` or `smc_policy` with checks on array values that survive `jit` (through `jax.experimental.checkify`).

    The function returned takes the same arguments and gives `(error, output)`; `error.throw()` raises the sentence.

        error, output = jax.jit(spo.search.checked(policy))(...)
        error.throw()
    """

    @functools.wraps(search_fn)
    def with_checks(*args: Any, **kwargs: Any) -> Any:
        # Arguments may also have been bound beforehand, by functools.partial.
        bound = getattr(search_fn, "keywords", {}) | kwargs
        temperature = jnp.asarray(bound["temperature"])
        checkify.check(
            jnp.all(temperature > 0), "temperature must be positive, got {smallest}.", smallest=jnp.min(temperature)
        )
        if bound.get("invalid_actions") is not None:
            masked = jnp.all(jnp.asarray(bound["invalid_actions"]) != 0, axis=-1)
            checkify.check(~jnp.any(masked), "invalid_actions masks every action of root {i}.", i=jnp.argmax(masked))
        output = search_fn(*args, **kwargs)
        search: SearchOutput = getattr(output, "search", output)
        invalid = ~search.diagnostics.valid
        checkify.check(
            ~jnp.any(invalid),
            "the search of root {i} met a NaN, or a state with no valid action: look at what the model returns there.",
            i=jnp.argmax(invalid),
        )
        return output

    return checkify.checkify(with_checks, errors=checkify.user_checks)
