"""SPO learns the value and the action of worlds whose answers are known, each in seconds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.algorithms.spo import SearchConfig, SPOConfig
from spo.environments.tiny import KnownAnswer, known_answer, tiny, tiny_mdp
from spo.training.experiment import Built, Experiment, NetworkConfig, build
from spo.types import DiscreteActions

GAMMA = 0.9
NUM_SEEDS = 2
CONFIG = SPOConfig(
    num_envs=32,
    rollout_length=8,
    sequence_length=8,
    num_updates=16,
    batch_size=32,
    replay_size=32 * 32,
    learning_rate=3e-3,
    dual_learning_rate=1e-2,
    gamma=GAMMA,
    target_smoothing=0.05,
    kl_bound=0.05,
    initial_multiplier=0.1,
    initial_mean_multiplier=1.0,
    initial_scale_multiplier=10.0,
    scale_kl_bound=0.01,
    search=SearchConfig(num_particles=16, horizon=2, resample_period=2, gamma=GAMMA, unroll=1),
)

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
# "gamble" is left out: the weights of a search are exponential in what happened to its particles, chance included, so
# that SPO likes a gamble, the more the lower its temperature. It is made for worlds in which chance decides little.
DISCRETE = [
    "bandit",
    "credit",
    "chain",
    *map(slow, ["constant_reward", "observation_reward", "delayed_reward", "context", "masked"]),
    *map(slow, ["tree", "cliff", "slippery"]),
]
CONTINUOUS = ["continuous_bandit", *map(slow, ["continuous_context", "continuous_credit", "lqr"])]
#: Largest error of a value, and of a continuous action.
TOLERANCE = {"lqr": (0.2, 0.15), "continuous_context": (0.1, 0.1), "continuous_credit": (0.15, 0.15)}
USUAL_TOLERANCE = (0.05, 0.1)
NUM_ITERATIONS = {"cliff": 200, "tree": 150, "lqr": 200, "continuous_credit": 150, "continuous_context": 150}


@functools.cache
def train(name: str) -> tuple[Built, np.ndarray, np.ndarray]:
    """Values [seed, K] and greedy actions [seed, K] or [seed, K, D], without search, at the known observations."""
    world = f"tiny/{name}"
    experiment = Experiment(
        task=world, config=CONFIG, network=NetworkConfig(width=32, depth=2), num_seeds=NUM_SEEDS, num_devices=1
    )
    built = build(experiment)
    state, _ = built.program.run(built.program.init(jax.random.key(0)), NUM_ITERATIONS.get(name, 60))
    network = built.network
    observations = jnp.asarray(known_answer(name, GAMMA).observations)
    discrete = isinstance(built.task.train.action_spec, DiscreteActions)
    mask = jnp.asarray(mdp.mask[~mdp.terminal]) if discrete and (mdp := tiny_mdp(name)) else None

    def look(params, observation, mask):
        policy, value = network.both(params, observation, mask)
        return value, network.distribution.to_environment(network.distribution.mode(policy))

    over_observations = jax.vmap(look, in_axes=(None, 0, 0))
    values, actions = jax.vmap(over_observations, in_axes=(0, None, None))(state.learner.params, observations, mask)
    return built, np.asarray(values), np.asarray(actions)
