"""Replay: a first-in first-out buffer of trajectories on flashbax, from which sequences are sampled uniformly."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp

from spo.types import PRNGKey, PyTree


class Replay(NamedTuple):
    """The buffer as three functions of its state."""

    #: (experience of one step) -> state of an empty buffer for steps of that shape
    init: Callable[[PyTree], Any]
    #: (state, experience [time, num_envs, ...] of a rollout) -> state
    add: Callable[[Any, PyTree], Any]
    #: (state, key) -> experience [num_batches, batch_size, sequence_length, ...]
    sample: Callable[[Any, PRNGKey], PyTree]


def make_replay(
    *,
    num_envs: int,
    capacity: int,
    rollout_length: int,
    num_batches: int,
    batch_size: int,
    sequence_length: int,
    warmup_length: int = 0,
) -> Replay:
    """Returns a buffer of `capacity` transitions: the latest capacity // num_envs steps of each environment.

    A sample holds the batches of all updates after a rollout: one gather of many sequences costs little more than one
    of few. Sequences may reach over the end of an episode; every transition stores its own ends. The caller adds
    `warmup_length` steps of each environment before the first rollout, so that a sequence may be longer than a rollout.
    """
    steps_per_env = capacity // num_envs
    first_steps = warmup_length + rollout_length
    if sequence_length > first_steps:
        raise ValueError(
            f"sequence_length ({sequence_length}) can't exceed rollout_length ({rollout_length}): after the first "
            "rollout there would be no sequence to draw."
        )
    if steps_per_env < first_steps:
        raise ValueError(
            f"replay capacity {capacity} holds {steps_per_env} steps for each of {num_envs} environments, less than "
            f"the first {first_steps} they take: raise the capacity to at least {num_envs * first_steps}."
        )
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=num_envs,
        sample_batch_size=num_batches * batch_size,
        sample_sequence_length=sequence_length,
        period=1,
        min_length_time_axis=sequence_length,
        max_length_time_axis=steps_per_env,
    )

    def add(state: Any, experience: PyTree) -> Any:
        with jax.named_scope("replay"):
            return buffer.add(state, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), experience))

    def sample(state: Any, key: PRNGKey) -> PyTree:
        # flashbax promotes ranks. A program that forbids this elsewhere must allow it here.
        with jax.named_scope("replay"), jax.numpy_rank_promotion("allow"):
            sequences = buffer.sample(state, key).experience
        return jax.tree.map(lambda x: x.reshape(num_batches, batch_size, *x.shape[1:]), sequences)

    return Replay(buffer.init, add, sample)
