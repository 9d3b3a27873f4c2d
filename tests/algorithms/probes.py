"""Environments with known answers, for all algorithms: does it learn the values and the best actions?

Values and actions are those of the policy, without search, for every seed. Seeds are fixed: only different rounding can
change a result.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oracles.tiny_answers import known_answer, solve, tiny_mdp
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import Array, TimeStep

GAMMA = 0.9


class Probe(NamedTuple):
    """Number of iterations, and the largest errors of values and of continuous actions after them."""

    iterations: int = 60
    value_error: float = 0.05
    action_error: float = 0.1


NETWORK = NetworkConfig(width=32, depth=2)


@functools.cache
def learnt(
    algorithm: str, config: Any, name: str, iterations: int, network: NetworkConfig = NETWORK
) -> tuple[np.ndarray, np.ndarray]:
    """Returns values [seed, K] and greedy actions [seed, K, ...] at the known observations, after training."""
    trainer = Trainer(
        Experiment(
            task=f"tiny/{name}",
            algorithm=algorithm,
            config=config,
            network=network,
            num_seeds=2,
            num_devices=1,
        )
    )
    made = trainer.algorithm
    state, _ = trainer.run_fn(trainer.init(jax.random.key(0)), iterations)
    observations = jnp.asarray(known_answer(name, GAMMA).observations)
    count = len(observations)
    mask = None
    if not is_continuous(name):
        mdp = tiny_mdp(name)
        mask = jnp.asarray(mdp.mask[~mdp.terminal])
    timesteps = TimeStep(
        observation=observations,
        reward=jnp.zeros(count),
        terminated=jnp.zeros(count, bool),
        truncated=jnp.zeros(count, bool),
        action_mask=mask,
    )

    def look(learner: Any) -> tuple[Array, Array]:
        key = jax.random.key(1)
        # Without search, the state of the environment is not used.
        actions = made.act(learner, key, None, timesteps, use_search=False, greedy=True)
        return made.value(learner, key, timesteps), actions

    values, actions = jax.jit(jax.vmap(look))(state.learner)
    return np.asarray(values), np.asarray(actions)


def is_continuous(name: str) -> bool:
    return name.startswith("continuous") or name == "lqr"


def on_the_way(name: str) -> np.ndarray:
    """Returns a mask [K] of the known observations that optimal behaviour reaches. Others are not tested."""
    if is_continuous(name):
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


def check(algorithm: str, config: Any, name: str, probe: Probe, network: NetworkConfig = NETWORK) -> None:
    """Trains and compares with the known answers. The discount factor of `config` must be GAMMA."""
    answer, seen = known_answer(name, GAMMA), on_the_way(name)
    values, actions = learnt(algorithm, config, name, probe.iterations, network)
    np.testing.assert_allclose(values[:, seen], np.tile(answer.values[seen], (2, 1)), atol=probe.value_error)
    if is_continuous(name):
        np.testing.assert_allclose(actions[:, seen], np.tile(answer.actions[seen], (2, 1, 1)), atol=probe.action_error)
    else:
        optimal = answer.actions[np.arange(len(seen)), actions]
        assert optimal[:, seen].all(), actions
