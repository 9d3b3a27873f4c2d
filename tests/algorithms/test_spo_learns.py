"""SPO learns the value and the action of worlds whose answers are known, each in seconds.

Values and actions are the bare network's, without search, and of every seed. Seeds are fixed: there is no false alarm
short of other rounding.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.algorithms.spo import SearchConfig, SPOConfig
from spo.environments.tiny import known_answer, solve, tiny_mdp
from spo.training.experiment import Experiment, NetworkConfig, build
from spo.types import Array

GAMMA = 0.9
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


class Probe(NamedTuple):
    """What is asked in a world: after so many iterations, values and continuous actions no further off than this."""

    iterations: int = 60
    value_error: float = 0.05
    action_error: float = 0.1


# "gamble" is left out: the weights of a search are exponential in what happened to its particles, chance included, so
# that SPO likes a gamble, the more the lower its temperature. It is made for worlds in which chance decides little.
DISCRETE = {"bandit": Probe(), "credit": Probe(), "chain": Probe()}
SLOW_DISCRETE = {
    "constant_reward": Probe(),
    "observation_reward": Probe(),
    "delayed_reward": Probe(),
    "context": Probe(),
    "masked": Probe(),
    "tree": Probe(150),
    "cliff": Probe(200, value_error=0.3),
    "slippery": Probe(150),
}
CONTINUOUS = {"continuous_bandit": Probe()}
SLOW_CONTINUOUS = {
    "continuous_context": Probe(150, value_error=0.1),
    "continuous_credit": Probe(150, value_error=0.1),
    "lqr": Probe(200, value_error=0.2, action_error=0.2),  # actions reach 0.6, values -5.8
}
PROBES = DISCRETE | SLOW_DISCRETE | CONTINUOUS | SLOW_CONTINUOUS


def names(fast: dict[str, Probe], slow: dict[str, Probe]) -> list[Any]:
    return [*fast, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@functools.cache
def learnt(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values [seed, K] and most likely actions [seed, K, ...] at the known observations, after training."""
    network_config = NetworkConfig(width=32, depth=2)
    experiment = Experiment(task=f"tiny/{name}", config=CONFIG, network=network_config, num_seeds=2, num_devices=1)
    _, network, _, program = build(experiment)
    state, _ = program.run(program.init(jax.random.key(0)), PROBES[name].iterations)
    observations = jnp.asarray(known_answer(name, GAMMA).observations)
    mask = None
    if name in DISCRETE | SLOW_DISCRETE:
        mdp = tiny_mdp(name)
        mask = jnp.asarray(mdp.mask[~mdp.terminal])

    def look(params: Any, observation: Array, mask: Array | None) -> tuple[Array, Array]:
        policy, value = network.both(params, observation, mask)
        return value, network.distribution.to_environment(network.distribution.mode(policy))

    at_all = jax.vmap(look, in_axes=(None, 0, 0))
    values, actions = jax.vmap(at_all, in_axes=(0, None, None))(state.learner.params, observations, mask)
    return np.asarray(values), np.asarray(actions)


def on_the_way(name: str) -> np.ndarray:
    """The known observations that optimal play comes by [K]. What it never sees it need not know."""
    if name in CONTINUOUS | SLOW_CONTINUOUS:
        answer = known_answer(name, GAMMA)
        if name != "continuous_credit":
            return np.ones(len(answer.values), bool)
        phase, first_action = answer.observations.T
        return (phase == 0.0) | (first_action == answer.actions[0, 0])
    mdp = tiny_mdp(name)
    values, q_values = solve(mdp, GAMMA)
    leads_to = np.max(np.isclose(q_values, values[:, None])[:, :, None] * mdp.transition_probabilities, axis=1) > 0
    seen = mdp.start_probabilities > 0
    for _ in range(len(seen)):
        seen = seen | (seen @ leads_to)
    return seen[~mdp.terminal]


@pytest.mark.parametrize("name", names(DISCRETE, SLOW_DISCRETE))
def test_discrete(name: str):
    answer, seen = known_answer(name, GAMMA), on_the_way(name)
    values, actions = learnt(name)
    np.testing.assert_allclose(values[:, seen], np.tile(answer.values[seen], (2, 1)), atol=PROBES[name].value_error)
    optimal = answer.actions[np.arange(len(seen)), actions]
    assert optimal[:, seen].all(), actions


@pytest.mark.parametrize("name", names(CONTINUOUS, SLOW_CONTINUOUS))
def test_continuous(name: str):
    answer, seen, probe = known_answer(name, GAMMA), on_the_way(name), PROBES[name]
    values, actions = learnt(name)
    np.testing.assert_allclose(values[:, seen], np.tile(answer.values[seen], (2, 1)), atol=probe.value_error)
    np.testing.assert_allclose(actions[:, seen], np.tile(answer.actions[seen], (2, 1, 1)), atol=probe.action_error)


@pytest.mark.parametrize("other_gamma", [0.8, 1.0])
def test_values_of_another_discount_would_be_told_apart(other_gamma: float):
    """The probe has power: were γ applied once too often or not at all, every state but the last would be off."""
    values, _ = learnt("chain")
    error = np.abs(values - known_answer("chain", other_gamma).values)[:, :-1]
    assert error.min() > DISCRETE["chain"].value_error
