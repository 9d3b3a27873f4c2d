"""Memory: a first-in first-out buffer of trajectories on flashbax, from which sequences are drawn uniformly."""

import dataclasses
from typing import Any

import flashbax
import jax


def make_replay(
    *, num_envs: int, capacity: int, rollout_length: int, batch_size: int, sequence_length: int, warmup_length: int = 0
) -> flashbax.trajectory_buffer.TrajectoryBuffer:
    """A buffer of `capacity` transitions, spread evenly over environments; data has leading axes [num_envs, time].

    Each environment keeps capacity // num_envs steps. Samples have leading axes [batch_size, sequence_length] and may
    reach over the end of an episode, which is why every transition carries its own ends. `warmup_length` is how many
    steps of each environment the caller adds before the first rollout, so that a sequence may be longer than one.
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
        sample_batch_size=batch_size,
        sample_sequence_length=sequence_length,
        period=1,
        min_length_time_axis=sequence_length,
        max_length_time_axis=steps_per_env,
    )

    def sample(state: Any, key: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):  # flashbax promotes ranks, which the rest of the program may forbid
            return buffer.sample(state, key)

    return dataclasses.replace(buffer, sample=sample)
