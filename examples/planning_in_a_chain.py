"""Search in a chain whose answer is known, compared with that answer for several numbers of particles.

    python examples/planning_in_a_chain.py

The chain has five positions. One step to the left of the start is a small reward, three steps to the right a large one.
Both end the episode. A sum over all sequences of actions gives the exact target of the search: the improved policy q
over first actions, and its normaliser Z. The search estimates both from N particles:

    E[Ẑ] = Z               for every N
    error of q ~ 1/√N      for large N
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.search import ModelOutput, Resampling, Root, search

SMALL_REWARD, LARGE_REWARD = 1.0, 3.0
START, LEFT_END, RIGHT_END = 1, 0, 4
HORIZON, TEMPERATURE = 5, 1.0
PRIOR = np.array([0.6, 0.4])  # left, right: the policy to improve prefers the small reward
NUM_SEARCHES = 1000


def step(position, action):
    """Returns the next position, the reward, and True if the episode has ended, for NumPy and JAX."""
    position = position + 2 * action - 1
    at_left, at_right = position == LEFT_END, position == RIGHT_END
    return position, SMALL_REWARD * at_left + LARGE_REWARD * at_right, at_left | at_right


def exact_answer() -> tuple[np.ndarray, float]:
    """Returns q and Z by a sum over all sequences of HORIZON actions."""
    mass = np.zeros(2)
    for actions in itertools.product((0, 1), repeat=HORIZON):
        position, total_reward, ended = START, 0.0, False
        for action in actions:
            if not ended:
                position, reward, ended = step(position, action)
                total_reward += reward
        mass[actions[0]] += math.prod(PRIOR[list(actions)]) * math.exp(total_reward / TEMPERATURE)
    return mass / mass.sum(), mass.sum()


def model_fn(_key, position, action) -> ModelOutput:
    """Returns one step of the chain. The value is 0 everywhere, as from an untrained critic."""
    position, reward, ended = step(position, action)
    return ModelOutput(
        state=position,
        prior=jnp.log(jnp.asarray(PRIOR, jnp.float32)),
        value=jnp.zeros(()),
        reward=reward,
        discount=1.0 - ended,
        ended=ended,
    )


class Row(NamedTuple):
    """Statistics of NUM_SEARCHES independent searches with N particles."""

    num_particles: int
    normaliser: float  # mean of Ẑ
    standard_error: float  # of that mean
    rms_error: float  # of the probability of going right


def measure(num_particles: int, exact_q: np.ndarray) -> Row:
    root = Root(
        prior=jnp.tile(jnp.log(jnp.asarray(PRIOR, jnp.float32)), (NUM_SEARCHES, 1)),
        value=jnp.zeros(NUM_SEARCHES),
        state=jnp.full(NUM_SEARCHES, START),
    )
    run = functools.partial(
        search,
        num_particles=num_particles,
        horizon=HORIZON,
        temperature=TEMPERATURE,
        resampling=Resampling(2),
        unroll=1,
    )
    output = jax.jit(lambda key, root: run(key, root, model_fn))(jax.random.key(num_particles), root)
    normalisers = np.exp(np.asarray(output.log_normaliser, np.float64))
    errors = np.asarray(output.action_weights)[:, 1] - exact_q[1]
    return Row(
        num_particles=num_particles,
        normaliser=float(normalisers.mean()),
        standard_error=float(normalisers.std() / math.sqrt(NUM_SEARCHES)),
        rms_error=float(np.sqrt(np.mean(errors**2))),
    )


def main() -> tuple[np.ndarray, float, list[Row]]:
    exact_q, exact_z = exact_answer()
    print(f"The policy goes right with probability {PRIOR[1]:.2f}; the improved policy with {exact_q[1]:.3f} (exact).")
    print(f"Z = {exact_z:.3f} (exact). Each line below is {NUM_SEARCHES} searches, {HORIZON} steps deep.\n")
    print("    N   mean of Ẑ ± s.e.    rms error of q   times √N")
    rows = [measure(num_particles, exact_q) for num_particles in (1, 4, 16, 64, 256)]
    for row in rows:
        scaled = row.rms_error * math.sqrt(row.num_particles)
        print(
            f"{row.num_particles:5d}   {row.normaliser:7.3f} ± {row.standard_error:.3f}"
            f"   {row.rms_error:14.4f}   {scaled:8.2f}"
        )
    print("\nE[Ẑ] = Z: the second column is Z for every N, up to its standard error.")
    print("1/√N: the last column becomes constant, so four times the particles halve the error.")
    return exact_q, exact_z, rows


if __name__ == "__main__":
    main()
