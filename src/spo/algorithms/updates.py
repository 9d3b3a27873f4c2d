"""Gradient updates: optimisers, one step down a loss over all devices, and the loop over an iteration's updates."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from spo.algorithms.base import Setting
from spo.algorithms.packing import in_one_array, pack, unpack, uses_vectors
from spo.networks import ActorCriticParams
from spo.types import DEVICE_AXIS, Array, Float, Metrics, PyTree

Learner = TypeVar("Learner", bound=Any)


def total_updates(setting: Setting, env_steps_per_iteration: int, updates_per_iteration: int) -> int:
    """Returns the number of gradient updates in the run: the length of learning-rate decay.

    A run may end with a few more iterations, to finish a logging interval; its learning rate is then 0.
    """
    return math.ceil(setting.total_env_steps / env_steps_per_iteration) * updates_per_iteration


def adam(
    learning_rate: float, max_grad_norm: float | None, *, decay_updates: int | None = None
) -> optax.GradientTransformation:
    """Returns Adam on gradients clipped to a norm. The rate decays linearly to 0 over `decay_updates`, if given."""
    rate = learning_rate if decay_updates is None else optax.linear_schedule(learning_rate, 0.0, decay_updates)
    clip = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
    return optax.chain(clip, optax.adam(rate))


def actor_critic_optimiser(
    actor_learning_rate: float, critic_learning_rate: float, max_grad_norm: float, *, decay_updates: int | None = None
) -> optax.GradientTransformation:
    """Returns one `adam` for the actor and one for the critic. A shared torso is trained with the actor's."""
    optimisers = {
        "actor": adam(actor_learning_rate, None, decay_updates=decay_updates),
        "critic": adam(critic_learning_rate, None, decay_updates=decay_updates),
    }
    inner = optax.multi_transform(optimisers, ActorCriticParams(torso="actor", actor="actor", critic="critic"))

    def update(gradients: ActorCriticParams, *state_and_params: Any) -> tuple[ActorCriticParams, optax.OptState]:
        return inner.update(clip_actor_and_critic(gradients, max_grad_norm), *state_and_params)

    return optax.GradientTransformation(inner.init, update)


def clip_actor_and_critic(gradients: ActorCriticParams, max_norm: float) -> ActorCriticParams:
    """Scales the gradients of actor and critic down to a norm, each if its own is larger. A torso is the actor's."""
    norms = norms_of(_groups(gradients))

    def clip(group: PyTree[Array], norm: Float[Array, ""]) -> PyTree[Array]:
        return jax.tree.map(lambda x: jnp.where(norm < max_norm, x, x / norm.astype(x.dtype) * max_norm), group)

    (torso, actor), critic = map(clip, _groups(gradients), norms)
    return ActorCriticParams(torso, actor, critic)


def _groups(gradients: PyTree[Array]) -> tuple[PyTree[Array], ...]:
    """Returns the parts of a gradient that are clipped separately."""
    if not isinstance(gradients, ActorCriticParams):
        return (gradients,)
    return (gradients.torso, gradients.actor), gradients.critic


def norms_of(groups: tuple[PyTree[Array], ...]) -> Float[Array, " G"]:
    """Returns the L2 norm of each group. A GPU computes one sum over the numbers of all groups faster than several."""
    if not uses_vectors():
        return jnp.stack([optax.tree.norm(group) for group in groups])
    numbers = ravel_pytree(groups)[0][None, :]
    bounds = np.cumsum([0] + [sum(leaf.size for leaf in jax.tree.leaves(group)) for group in groups])[:, None]
    index = jnp.arange(numbers.size)[None, :]
    in_group = (bounds[:-1] <= index) & (index < bounds[1:])
    return jnp.sqrt(jnp.sum(jnp.where(in_group, numbers**2, 0.0), axis=1))


def gradient_step(
    learner: Learner,
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    dual_optimiser: optax.GradientTransformation | None = None,
) -> tuple[Learner, Metrics]:
    """Returns the learner after one step down the mean of a loss over all devices, and the loss's metrics.

    A learner is a named tuple with the fields `params` and `optimiser`, and the loss is `loss_fn(params)`. With
    `dual_optimiser` it also has the fields `duals` and `dual_optimiser`, and the loss is `loss_fn(params, duals)`.
    """
    variables = (learner.params,) if dual_optimiser is None else (learner.params, learner.duals)
    argnums = tuple(range(len(variables)))
    gradients, metrics = jax.grad(loss_fn, argnums, has_aux=True)(*variables)
    gradients, metrics = jax.lax.pmean((pack(gradients), metrics), DEVICE_AXIS)
    gradient = in_one_array(gradients[0])
    metrics["gradient_norm"] = jnp.linalg.norm(norms_of(_groups(gradient)))
    params, optimiser_state = _apply(optimiser, gradient, learner.optimiser, learner.params)
    learner = learner._replace(params=params, optimiser=optimiser_state)
    if dual_optimiser is not None:
        duals, dual_state = _apply(dual_optimiser, gradients[1], learner.dual_optimiser, learner.duals)
        learner = learner._replace(duals=duals, dual_optimiser=dual_state)
    return learner, metrics


def _apply(
    optimiser: optax.GradientTransformation, gradients: PyTree, state: optax.OptState, variables: PyTree
) -> tuple[PyTree, optax.OptState]:
    """Returns variables and state after one step along packed gradients. The optimiser runs on packed networks."""
    packed = pack(variables)
    changes, packed_state = optimiser.update(gradients, pack(state), packed)
    return unpack(optax.apply_updates(packed, changes), like=variables), unpack(packed_state, like=state)


def run_updates(
    update: Callable[[Learner, Any], tuple[Learner, Metrics]], learner: Learner, inputs: Any, *, skip_nonfinite: bool
) -> tuple[Learner, Metrics]:
    """Runs `update(learner, input)` for each of the inputs [U, ...]; metrics are means over the updates.

    With `skip_nonfinite`, an update with a result that is not finite leaves the learner unchanged. The means leave it
    out, and "skipped_updates" counts it. If all updates are skipped, the means are NaN and training stops.
    """
    names: list[str] = []  # of the metrics, known once an update is traced

    # The state of the loop is packed. XLA cancels the unpacking and packing of what an update computes on vectors.
    def packed_update(packed: Learner, one: Any) -> tuple[Learner, Float[Array, " M"]]:
        updated, metrics = update(unpack(packed, like=learner), one)
        names[:] = sorted(metrics)
        # One row instead of many numbers: the loop stores it in one operation.
        updated, row = pack(updated), jnp.stack([jnp.asarray(metrics[name], jnp.float32) for name in names])
        if not skip_nonfinite:
            return updated, row
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((updated, row))]))
        updated = jax.tree.map(lambda new, old: jnp.where(finite, new, old), updated, packed)
        return updated, jnp.append(jnp.where(finite, row, jnp.nan), 1.0 - finite)

    with jax.named_scope("update"):
        packed, rows = jax.lax.scan(packed_update, pack(learner), inputs)
    learner = unpack(packed, like=learner)
    if not skip_nonfinite:
        return learner, dict(zip(names, jnp.mean(rows, axis=0), strict=True))
    means = dict(zip(names, jnp.nanmean(rows[:, :-1], axis=0), strict=True))
    return learner, means | {"skipped_updates": jnp.sum(rows[:, -1])}
