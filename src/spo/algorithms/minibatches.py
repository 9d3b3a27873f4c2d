"""Learning from a rollout that was gathered a moment ago and is forgotten afterwards: PPO and V-MPO."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from spo.algorithms.base import DEVICE_AXIS, Metrics, run_updates
from spo.types import Array, Float, Integer, PRNGKey, PyTree, Shaped

Learner = TypeVar("Learner")


def check_minibatches(num_envs: int, rollout_length: int, num_minibatches: int) -> None:
    """`num_envs` are one device's. Every step of a rollout belongs to one minibatch, and all are of one size."""
    num_steps = num_envs * rollout_length
    if num_minibatches < 1 or num_steps % num_minibatches:
        raise ValueError(
            f"num_minibatches ({num_minibatches}) must divide a device's steps of a rollout, "
            f"{num_envs} environments x {rollout_length} steps = {num_steps}."
        )


def critic_over_time(critic: Callable[[Any], Float[Array, ""]], observations: PyTree[Array]) -> Float[Array, "T E"]:
    """Values of a whole rollout, leaves [T, E, ...], one time after the other: a rollout of images would not fit."""
    return jax.lax.map(jax.vmap(critic), observations)


def learn_in_minibatches(
    update: Callable[[Learner, PyTree[Array], PRNGKey], tuple[Learner, Metrics]],
    learner: Learner,
    rollout: PyTree[Array],
    key: PRNGKey,
    *,
    num_epochs: int,
    num_minibatches: int,
    skip_nonfinite: bool,
) -> tuple[Learner, Metrics]:
    """`num_epochs` passes over a rollout, leaves [T, E, ...], with one update for each of `num_minibatches` parts.

    Each pass shuffles all steps anew, over environments and time alike. `update(learner, minibatch, key)` returns the
    learner and metrics; see `run_updates` for the rest.
    """
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)
    num_steps = jax.tree.leaves(steps)[0].shape[0]
    key_shuffle, key_updates = jax.random.split(key)
    update_keys = jax.random.split(key_updates, num_epochs * num_minibatches)
    run = functools.partial(run_updates, skip_nonfinite=skip_nonfinite)
    if num_minibatches == 1:  # the order inside one batch of everything says nothing
        return run(lambda learner, key: update(learner, steps, key), learner, update_keys)

    orders = jax.vmap(lambda key: jax.random.permutation(key, num_steps))(jax.random.split(key_shuffle, num_epochs))
    members = orders.reshape(num_epochs * num_minibatches, -1)

    def update_by(learner: Learner, inputs: tuple[Integer[Array, " B"], PRNGKey]) -> tuple[Learner, Metrics]:
        indices, key = inputs
        return update(learner, jax.tree.map(lambda x: x[indices], steps), key)

    return run(update_by, learner, (members, update_keys))


# --- A batch is that of all devices -----------------------------------------------------------------------------------
# Where an equation compares the states of a batch with each other, it must not matter on which device they are.


def of_all_devices(values: Shaped[Array, " B"]) -> Shaped[Array, " devices*B"]:
    return jax.lax.all_gather(values, DEVICE_AXIS, tiled=True)


def of_this_device(values: Shaped[Array, " devices*B"], size: int) -> Shaped[Array, " B"]:
    return jax.lax.dynamic_slice_in_dim(values, jax.lax.axis_index(DEVICE_AXIS) * size, size)
