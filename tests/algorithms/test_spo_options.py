"""Effects of SPO's options on the state after a step."""

import jax
import numpy as np
import pytest

from spo.algorithms.base import Setting
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig, make_spo
from spo.environments import make
from spo.networks import mlp_architecture
from spo.training.trainer import jit_init, jit_run, make_mesh

TASK = make("tiny/bandit")
ARCHITECTURE = mlp_architecture(depth=1, width=8)
SIZES = {"rollout_length": 2, "sequence_length": 2, "num_updates": 2, "batch_size": 4}


def make_bandit_functions(config: SPOConfig, total_env_steps: float = 1e6):
    algorithm = make_spo(Setting(TASK, ARCHITECTURE, total_env_steps), config)
    return jit_init(algorithm, make_mesh(1), num_seeds=1), jit_run(algorithm, make_mesh(1))


def test_model_steps_count_every_outcome():
    search = SearchConfig(num_particles=5, horizon=3, num_outcomes=2)
    algorithm = make_spo(Setting(TASK, ARCHITECTURE, 1e6), SPOConfig(**SIZES, search=search))
    assert algorithm.model_steps_per_env_step == 5 * 3 * 2
    assert algorithm.network_evaluations_per_env_step == 1 + 5 * 3 * 2


@pytest.mark.parametrize("corrected", [False, True])
def test_corrected_noise_is_not_learned(corrected: bool):
    """Learns the prior, because the temperature is so high that advantages have no effect.

    With the correction, the prior is the initial policy, which is uniform. Without it, the noise, which has a weight of
    .8, puts nearly all of it on one action.
    """
    num_envs, num_actions = 256, TASK.train.action_spec.num_actions
    config = SPOConfig(
        **SIZES,
        num_envs=num_envs,
        replay_size=2 * num_envs,
        initial_temperature=1e6,
        fixed_temperature=True,
        root_exploration_weight=0.8,
        correct_root_exploration=corrected,
        search=SearchConfig(num_particles=256, horizon=1, resample_period=None, resample_last=False, unroll=1),
    )
    init, run = make_bandit_functions(config)
    state, _ = run(init(jax.random.key(0)), 1)
    plans = jax.tree.map(lambda x: np.asarray(x)[0, 0].reshape(2 * num_envs, -1), state.worker.replay.experience.extras)
    learned = np.stack([np.bincount(a, w, num_actions) for a, w in zip(plans.root_actions, plans.weights, strict=True)])
    heaviest = learned.max(axis=1).mean()
    if corrected:
        # 256 samples. The correction divides a weight by 1 / (1 - .8) at most.
        assert heaviest < 1 / num_actions + 0.15
        np.testing.assert_allclose(np.exp(plans.log_prior).sum(axis=1), 1.0, rtol=1e-5)
    else:
        assert heaviest > 0.8


def test_learning_rates_decay_to_0_over_the_run():
    config = SPOConfig(
        **SIZES,
        num_envs=4,
        replay_size=16,
        decay_learning_rates=True,
        search=SearchConfig(num_particles=4, horizon=1, resample_period=1, unroll=1),
    )
    init, run = make_bandit_functions(config, total_env_steps=2 * 4 * 2)
    start = init(jax.random.key(0))
    middle, _ = run(run(start, 1)[0], 1)
    end, _ = run(middle, 1)

    def moved(before, after):
        return [not np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (before, after)), strict=True)]

    assert any(moved(start.learner.params, middle.learner.params))
    assert not any(moved(middle.learner.params, end.learner.params))
    assert any(moved(middle.learner.duals, end.learner.duals)), "the duals have their own learning rate"
