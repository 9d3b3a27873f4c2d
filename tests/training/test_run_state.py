"""Tests of the state of a run: the best learner of each seed, and the speed."""

import jax.numpy as jnp
import numpy as np

from spo.algorithms.base import TrainState
from spo.training.run_state import Progress, RunState, keep_best


def test_best_is_chosen_per_seed():
    progress = Progress(5, 1, best_scores=(0.5, 0.5, 0.5), best_iterations=(1, 2, 3))
    state = RunState(TrainState({"w": jnp.ones((3, 2))}, None), {"w": jnp.zeros((3, 2))}, progress)
    kept = keep_best(state, np.array([0.4, 0.5, 0.6]))
    np.testing.assert_array_equal(kept.best_learner["w"][:, 0], [0, 1, 1])
    assert kept.progress.best_scores == (0.5, 0.5, 0.6)
    assert kept.progress.best_iterations == (1, 5, 5)
    all_better = keep_best(state, np.array([0.5, 0.6, 0.7]))
    np.testing.assert_array_equal(all_better.best_learner["w"], 1)
    assert all_better.progress.best_iterations == (5, 5, 5)


def test_the_speed_counts_the_steps_of_all_seeds():
    progress = Progress(3, 10, best_scores=(0.0, 0.0), best_iterations=(0, 0), training_seconds=4.0)
    assert progress.env_steps == 30
    assert progress.env_steps_per_second == 15.0
    assert progress._replace(training_seconds=0.0).env_steps_per_second == 0.0
