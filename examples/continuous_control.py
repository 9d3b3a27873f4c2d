"""Search with a random continuous policy, compared with the optimal controller of a linear-quadratic problem.

    python examples/continuous_control.py

The task is to bring a mass on a line to rest at 0 by pushing it. The policy pushes at random. Before every push, a
search with this policy selects the first action with the largest weight. Its cost comes close to that of the optimal
controller, which solves the Riccati equation.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from spo import distributions
from spo.search import ModelOutput, Resampling, Root, search

TIME_STEP = 0.3
DYNAMICS = np.array([[1.0, TIME_STEP], [0.0, 1.0]])  # from (position, speed) to the next (position, speed)
INPUT = np.array([[0.0], [TIME_STEP]])
STATE_COST, ACTION_COST = np.diag([1.0, 0.1]), np.array([[0.1]])
NUM_STEPS, NUM_EPISODES = 25, 32
HORIZON, TEMPERATURE = 8, 0.3


def step(state, action):
    """Returns the next state and the reward, which is the negative cost."""
    next_state = jnp.asarray(DYNAMICS, state.dtype) @ state + jnp.asarray(INPUT, state.dtype) @ action
    cost = (
        state @ jnp.asarray(STATE_COST, state.dtype) @ state + action @ jnp.asarray(ACTION_COST, state.dtype) @ action
    )
    return next_state, -cost


def poor_policy(_state) -> distributions.Gaussian:
    return distributions.Gaussian(mean=jnp.zeros(1), scale=jnp.full(1, 1.5))


def crude_value(state) -> jax.Array:
    """Returns a rough value estimate: a large distance or speed is costly."""
    return -3.0 * jnp.sum(state**2)


def model_fn(_key, state, action) -> ModelOutput:
    state, reward = step(state, action)
    return ModelOutput(
        state=state,
        prior=poor_policy(state),
        value=crude_value(state),
        reward=reward,
        discount=jnp.ones(()),
        ended=jnp.zeros((), bool),
    )


def act_at_random(key, states):
    keys = jax.random.split(key, NUM_EPISODES)
    return jax.vmap(distributions.gaussian.sample)(keys, jax.vmap(poor_policy)(states))


def act_by_search(key, states, *, num_particles: int):
    root = Root(prior=jax.vmap(poor_policy)(states), value=jax.vmap(crude_value)(states), state=states)
    output = search(
        key,
        root,
        model_fn,
        num_particles=num_particles,
        horizon=HORIZON,
        temperature=TEMPERATURE,
        resampling=Resampling(2),
        distribution=distributions.gaussian,
        unroll=1,
    )
    return output.best_action


def optimal_gain() -> np.ndarray:
    """Returns the gain K of the optimal controller, action = -K state, by iterating the Riccati equation."""
    cost_to_go = STATE_COST
    for _ in range(500):
        gain = np.linalg.solve(ACTION_COST + INPUT.T @ cost_to_go @ INPUT, INPUT.T @ cost_to_go @ DYNAMICS)
        cost_to_go = STATE_COST + DYNAMICS.T @ cost_to_go @ (DYNAMICS - INPUT @ gain)
    return gain


def act_optimally(_key, states):
    return -states @ jnp.asarray(optimal_gain().T, states.dtype)


@functools.partial(jax.jit, static_argnames="act")
def mean_cost(act) -> jax.Array:
    """Returns the mean cost of NUM_EPISODES episodes. The random start states are the same for every controller."""

    def advance(states, key):
        states, rewards = jax.vmap(step)(states, act(key, states))
        return states, -rewards

    starts = jax.random.uniform(jax.random.key(1), (NUM_EPISODES, 2), minval=-2.0, maxval=2.0)
    _, costs = jax.lax.scan(advance, starts, jax.random.split(jax.random.key(2), NUM_STEPS))
    return jnp.mean(jnp.sum(costs, axis=0))


def main() -> dict[str, float]:
    controllers = {
        "policy alone": act_at_random,
        "search, 8 particles": functools.partial(act_by_search, num_particles=8),
        "search, 64 particles": functools.partial(act_by_search, num_particles=64),
        "search, 512 particles": functools.partial(act_by_search, num_particles=512),
        "optimal controller": act_optimally,
    }
    costs = {name: float(mean_cost(act)) for name, act in controllers.items()}
    print(f"Mean cost of {NUM_EPISODES} episodes of {NUM_STEPS} steps (lower is better):")
    for name, cost in costs.items():
        print(f"  {name:22s} {cost:8.1f}")
    return costs


if __name__ == "__main__":
    main()
