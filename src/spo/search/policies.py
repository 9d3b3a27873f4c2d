"""The search with mctx's interface, exploration noise, and a variant with run-time checks."""

import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from spo import distributions
from spo.checks import PositiveFloat, UnitInterval, check_value
from spo.search import chance, validation
from spo.search.base import BatchedModel, ModelOutput, PolicyOutput, Root, SearchOutput, TemperatureFn
from spo.search.resampling import Resampling
from spo.search.smc import search
from spo.types import Action, Array, Float, PRNGKey, PyTree, State


@runtime_checkable  # for the checks of annotations in tests
class RootFnOutput(Protocol):
    """The fields of `mctx.RootFnOutput`. Any object with these attributes is accepted."""

    prior_logits: Any  # [B, A]
    value: Any  # [B]
    embedding: Any  # [B, ...]


@runtime_checkable
class RecurrentFnOutput(Protocol):
    """The fields of `mctx.RecurrentFnOutput`. Any object with these attributes is accepted."""

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
    temperature: Float[Array, "..."] | float | TemperatureFn,
    resampling: Resampling,
    num_outcomes: int = 1,
    invalid_actions: Array | None = None,
    dirichlet_fraction: float = 0.0,
    dirichlet_alpha: float = 0.3,
    **search_options: Any,
) -> PolicyOutput:
    """SMC search with mctx's interface: takes `mctx.RootFnOutput` and a `recurrent_fn` unchanged.

    Args:
      params: first argument of `recurrent_fn`.
      rng_key: random key.
      root: `prior_logits` [B, A], `value` [B], `embedding` [B, ...].
      recurrent_fn: `(params, rng_key, action [B], embedding [B, ...]) -> (RecurrentFnOutput, embedding)`. It is called
        `horizon` times, vmapped over particles, each with its own key. The axis B is always in the order of the roots.
        A negative discount, as in games of two players, makes its root invalid: particles have no opponent.
      num_particles: N. Compare N · horizon with mctx's `num_simulations`.
      horizon: number of steps that each particle looks ahead.
      temperature: positive, a scalar or [B]; may be traced. Or a function, as in `spo.search.search`.
      resampling: when and how particles are redrawn: `Resampling(period=4)`.
      num_outcomes: number of outcomes of each step that are drawn and scored by their mean (`spo.search.chance`).
        Use 16 for a model with chance: with 1 the search gambles.
      invalid_actions: [B, A], 1 where an action is invalid at the root. Deeper, the model masks an action by a prior
        logit of -inf.
      dirichlet_fraction: weight of the exploration noise at the root, mixed as probabilities. 0: none.
      dirichlet_alpha: concentration of that noise.
      **search_options: `score_fn`, `proposal`, `readout`, `unroll` and `with_ancestry` of `spo.search.search`.

    Returns:
      `.action` [B], drawn from `.action_weights` [B, A], and `.search`, the output of `spo.search.search`. The discount
      is the model's and contains γ. A particle whose discount is 0 has ended: that step counts, later ones do not.
    """
    logits = _root_logits(root, invalid_actions)
    check_dirichlet(dirichlet_fraction, dirichlet_alpha)
    validation.check_key("rng_key", rng_key)
    key_noise, key_search = jax.random.split(rng_key)
    proposal = None
    if dirichlet_fraction > 0.0:
        proposal = add_dirichlet_noise(key_noise, logits, fraction=dirichlet_fraction, alpha=dirichlet_alpha)

    def step(key: PRNGKey, embedding: State, action: Action) -> ModelOutput:
        keys = jax.random.split(key, num_particles)
        output, embedding = jax.vmap(recurrent_fn, in_axes=(None, 0, 1, 1), out_axes=1)(params, keys, action, embedding)
        return ModelOutput(
            state=embedding,
            prior=output.prior_logits.astype(logits.dtype),
            value=output.value,
            reward=output.reward,
            # In mctx's games of two players it is -1, the values being those of the player to move.
            discount=jnp.where(output.discount < 0, jnp.nan, output.discount),
            ended=output.discount == 0,
        )

    output = search(
        key_search,
        Root(prior=logits, value=jnp.asarray(root.value), state=root.embedding, proposal=proposal),
        BatchedModel(chance.sampled(step, num_outcomes)),
        num_particles=num_particles,
        horizon=horizon,
        temperature=temperature,
        resampling=resampling,
        **search_options,
    )
    assert output.action_weights is not None  # categorical actions always have them
    return PolicyOutput(action=output.action, action_weights=output.action_weights, search=output)


def _root_logits(root: RootFnOutput, invalid_actions: Array | None) -> Float[Array, "B A"]:
    """Returns the root's logits in float32 or wider, with invalid actions at -inf."""
    if not hasattr(root, "prior_logits"):
        raise ValueError(f"root must be an mctx.RootFnOutput, got {type(root).__name__}.")
    logits = jnp.asarray(root.prior_logits)
    if logits.ndim != 2 or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(
            f"root.prior_logits must be floating point of shape [B, A]; got {logits.dtype} of shape {logits.shape}."
        )
    # Weights are computed in float32 even if the network computes in a narrower type.
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if invalid_actions is None:
        return logits
    validation.check_invalid_actions(invalid_actions, logits.shape)
    return distributions.masked_logits(logits, jnp.asarray(invalid_actions) == 0)


def add_dirichlet_noise(
    key: PRNGKey, logits: Float[Array, "B A"], *, fraction: float, alpha: float
) -> Float[Array, "B A"]:
    """Returns log((1 − fraction)·π + fraction·Dirichlet(alpha)): noise mixed as probabilities (departures 1 and 2).

    Only valid actions (logits above -inf) get noise. It is drawn through logarithms of gamma variables: for a small
    alpha the variables themselves all underflow to 0.
    """
    check_dirichlet(fraction, alpha)
    return mix_in_dirichlet(logits, jax.random.loggamma(key, alpha, logits.shape, logits.dtype), fraction=fraction)


def mix_in_dirichlet(
    logits: Float[Array, "B A"], log_gamma: Float[Array, "B A"], *, fraction: float
) -> Float[Array, "B A"]:
    """`add_dirichlet_noise` from logarithms of Gamma(alpha) variables that the caller has drawn.

    Gamma variables are drawn by rejection, a loop of small kernels. Drawing them once for many searches is cheaper.
    """
    noise = jax.nn.softmax(jnp.where(logits > -jnp.inf, log_gamma, -jnp.inf), axis=-1)
    return distributions.mix_log_probabilities(logits, noise, fraction)


def check_dirichlet(fraction: float, alpha: float) -> None:
    check_value("dirichlet_fraction", fraction, UnitInterval)
    check_value("dirichlet_alpha", alpha, PositiveFloat)


def checked(search_fn: Callable[..., Any]) -> Callable[..., tuple[checkify.Error, Any]]:
    """Adds checks of array values to `search`, `smc_policy`, or a function that returns the output of one of them.

    The checks are those of `jax.experimental.checkify`, which work under `jit`. The returned function takes the same
    arguments and returns `(error, output)`. `error.throw()` raises the error.

        error, output = jax.jit(spo.search.checked(policy))(...)
        error.throw()
    """

    @functools.wraps(search_fn)
    def with_checks(*args: Any, **kwargs: Any) -> Any:
        # Arguments may also be bound by functools.partial.
        bound = getattr(search_fn, "keywords", {}) | kwargs
        # Values that are not positive make roots invalid, which is checked below. So a temperature function needs no
        # check here, nor a temperature that `search_fn` does not take as an argument.
        if "temperature" in bound and not callable(bound["temperature"]):
            temperature = jnp.asarray(bound["temperature"])
            smallest = jnp.min(temperature)
            checkify.check(jnp.all(temperature > 0), "temperature must be positive, got {smallest}.", smallest=smallest)
        if bound.get("invalid_actions") is not None:
            masked = jnp.all(jnp.asarray(bound["invalid_actions"]) != 0, axis=-1)
            checkify.check(~jnp.any(masked), "invalid_actions masks every action of root {i}.", i=jnp.argmax(masked))
        output = search_fn(*args, **kwargs)
        search: SearchOutput = getattr(output, "search", output)
        invalid = ~search.diagnostics.valid
        checkify.check(
            ~jnp.any(invalid),
            "the search of root {i} met a NaN, or a state without a valid action: check what the model returns there.",
            i=jnp.argmax(invalid),
        )
        return output

    return checkify.checkify(with_checks, errors=checkify.user_checks)
