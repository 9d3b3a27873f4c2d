"""Running mean and standard deviation of observations, by which PPO can normalise them."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.types import DEVICE_AXIS, Array, Float, Observation, PyTree


class RunningStatistics(NamedTuple):
    """Number, mean and summed squared deviation from the mean of all observations so far, entry by entry.

    They belong to the learner, not to the environment, and are stored with its parameters: acting and learning must
    normalise by the same numbers.
    """

    #: A float, which can't overflow. Beyond 2^24 it is exact only for batches that are not too small.
    num_observations: Float[Array, ""]
    mean: PyTree[Float[Array, "..."]]
    sum_of_squared_deviations: PyTree[Float[Array, "..."]]


def init_statistics(observation_spec: PyTree[jax.ShapeDtypeStruct]) -> RunningStatistics:
    """Returns the statistics of no observations: `normalise` then changes nothing, except that it clips."""
    for path, leaf in jax.tree.leaves_with_path(observation_spec):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"Only floating-point observations can be normalised, and observation{jax.tree_util.keystr(path)} is "
                f"{leaf.dtype}: leave normalisation off, or turn it into floats in the environment."
            )
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), observation_spec)
    return RunningStatistics(jnp.zeros((), jnp.float32), zeros, zeros)


def include_rollout(statistics: RunningStatistics, observations: Observation) -> RunningStatistics:
    """Adds the observations of all devices, with any number of leading axes. Runs inside the axis `DEVICE_AXIS`."""
    num_observations, mean, squares = _batch_statistics(statistics, observations)
    common_mean = jax.lax.pmean(mean, DEVICE_AXIS)
    # Deviations from the common mean: those from the device's own mean, and the distance between the two means.
    squares = jax.tree.map(
        lambda own, mean, common: own + num_observations * jnp.square(mean - common), squares, mean, common_mean
    )
    of_rollout = RunningStatistics(
        jax.lax.psum(num_observations, DEVICE_AXIS), common_mean, jax.lax.psum(squares, DEVICE_AXIS)
    )
    return merge_statistics(statistics, of_rollout)


def _batch_statistics(statistics: RunningStatistics, observations: Observation) -> RunningStatistics:
    num_leading = {
        batch.ndim - mean.ndim
        for batch, mean in zip(jax.tree.leaves(observations), jax.tree.leaves(statistics.mean), strict=True)
    }
    if len(num_leading) != 1 or min(num_leading) < 0:
        raise ValueError(
            f"Every part of the observations needs the same number of leading axes, got {sorted(num_leading)} of them."
        )
    axes = tuple(range(num_leading.pop()))

    mean = jax.tree.map(lambda batch: jnp.mean(batch, axes), observations)
    squares = jax.tree.map(
        # Two passes: E[x²] - E[x]² would lose every digit where the mean is much larger than the deviation.
        lambda batch, mean: jnp.sum(jnp.square(batch - jnp.expand_dims(mean, axes)), axes),
        observations,
        mean,
    )
    leading_shape = jax.tree.leaves(observations)[0].shape[: len(axes)]
    return RunningStatistics(jnp.float32(math.prod(leading_shape)), mean, squares)


def merge_statistics(first: RunningStatistics, second: RunningStatistics) -> RunningStatistics:
    """Returns the statistics of two sets of observations together (Chan, Golub & LeVeque 1979). One may be empty."""
    num_observations = first.num_observations + second.num_observations
    share = second.num_observations / num_observations
    difference = jax.tree.map(jnp.subtract, second.mean, first.mean)
    return RunningStatistics(
        num_observations,
        jax.tree.map(lambda mean, delta: mean + delta * share, first.mean, difference),
        jax.tree.map(
            lambda a, b, delta: a + b + jnp.square(delta) * (first.num_observations * share),
            first.sum_of_squared_deviations,
            second.sum_of_squared_deviations,
            difference,
        ),
    )


def normalise(
    statistics: RunningStatistics, observation: Observation, clip: float = 10.0, *, cautious: bool = False
) -> Observation:
    """Returns (observation - mean) / standard deviation, clipped to [-clip, clip]. Any number of leading axes.

    The divisor is at least 1e-6 (1 + |mean|): a deviation below the rounding error of the mean carries no information.
    With `cautious`, size = min(1, √mean(mean² + variance)). The divisor is at least size, and only the part of the mean
    beyond ±size is subtracted. So numbers of size 1 stay nearly as they are while they have hardly varied. Otherwise,
    where the first states are nearly alike, small differences between them are enlarged. Later states would then lie
    far outside of what a network has seen.
    """

    def normalise_leaf(
        entry: Float[Array, "*batch_and_shape"], mean: Float[Array, "*shape"], squares: Float[Array, "*shape"]
    ) -> Float[Array, "*batch_and_shape"]:
        count = statistics.num_observations
        variance = jnp.where(count > 0, squares / jnp.maximum(count, 1.0), 1.0)
        divisor, shift = jnp.maximum(jnp.sqrt(variance), 1e-6 * (1.0 + jnp.abs(mean))), mean
        if cautious:
            size = jnp.minimum(jnp.sqrt(jnp.mean(jnp.square(mean) + variance)), 1.0)
            divisor, shift = jnp.maximum(divisor, size), mean - jnp.clip(mean, -size, size)
        leading = tuple(range(entry.ndim - mean.ndim))
        return jnp.clip((entry - jnp.expand_dims(shift, leading)) / jnp.expand_dims(divisor, leading), -clip, clip)

    return jax.tree.map(normalise_leaf, observation, statistics.mean, statistics.sum_of_squared_deviations)
