"""Tests of the trainer: its schedule, and programs that are compiled ahead."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spo.algorithms.base import TrainState
from spo.training.experiment import EvaluationConfig
from spo.training.schedule import Schedule, make_schedule
from spo.training.trainer import Trainer, jit_init
from spo.types import PRNGKey
from training.tiny_run import tiny_experiment


@given(
    steps=st.integers(1, 10**9),
    per_iteration=st.integers(1, 10**5),
    evaluations=st.integers(1, 40),
    logs=st.integers(1, 10),
)
def test_schedule(steps: int, per_iteration: int, evaluations: int, logs: int):
    evaluation = EvaluationConfig(num_evaluations=evaluations)
    experiment = tiny_experiment(steps=float(steps), evaluation=evaluation, logs_per_evaluation=logs)
    schedule = make_schedule(experiment, per_iteration)
    env_steps = schedule.num_iterations * per_iteration
    assert steps <= env_steps < steps + schedule.iterations_per_interval * per_iteration
    assert schedule.num_intervals <= evaluations * logs
    evaluated = [i for i in range(1, schedule.num_intervals + 1) if schedule.evaluates_after(i)]
    assert len(evaluated) == min(evaluations, schedule.num_intervals)
    assert evaluated[-1] == schedule.num_intervals
    gaps = np.diff([0, *evaluated])
    assert gaps.max() - gaps.min() <= 1


def test_the_papers_schedule():
    """1e8 steps of the cube in iterations of 768 x 21: twenty evaluations, and less than 1 % excess steps."""
    experiment = tiny_experiment(steps=1e8, logs_per_evaluation=5, evaluation=EvaluationConfig())
    schedule = make_schedule(experiment, 768 * 21)
    assert (schedule.num_evaluations, schedule.num_intervals, schedule.iterations_per_interval) == (20, 99, 63)
    assert schedule.num_iterations * 768 * 21 < 1.01e8


def test_more_iterations_than_32_bits_count_are_refused():
    with pytest.raises(ValueError, match=r"steps=1e\+15 are 1,000,000,000,000 iterations .* choose fewer steps"):
        make_schedule(tiny_experiment(steps=1e15), 1000)
    assert make_schedule(tiny_experiment(steps=2e12), 1000).num_iterations >= 2e9


def test_a_resumed_run_has_the_remaining_intervals():
    schedule = Schedule(iterations_per_interval=3, num_intervals=4, num_evaluations=2)
    assert list(schedule.intervals_after(0)) == [1, 2, 3, 4]
    assert list(schedule.intervals_after(6)) == [3, 4]
    assert list(schedule.intervals_after(12)) == []


def test_initialisation_is_traced_once():
    """For the shapes of the state, for the program compiled ahead, and for the state itself."""
    trainer, traced = Trainer(tiny_experiment()), []

    def counted(*keys: PRNGKey) -> TrainState:
        traced.append(keys)
        return trainer.algorithm.init(*keys)

    trainer.init_fn = jit_init(trainer.algorithm._replace(init=counted), trainer.mesh, trainer.experiment.num_seeds)
    expected = trainer.abstract_state
    state = trainer.init(jax.random.key(0))
    assert len(traced) == 1
    assert jax.tree.map(lambda leaf: leaf.shape, state) == jax.tree.map(lambda leaf: leaf.shape, expected)


def test_a_program_compiled_ahead_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch):
    trainer = Trainer(tiny_experiment())
    trainer.compile_ahead()
    state = trainer.init(jax.random.key(0))
    ahead = trainer._compiling["run"].result()
    monkeypatch.setattr(trainer, "run_fn", None)  # nothing is left to compile
    _, metrics, _ = trainer.run(state)
    assert trainer._executables["run"] is ahead
    assert all(np.all(np.isfinite(value)) for value in metrics.values())
    trainer.compile_ahead()
    assert not trainer._compiling, "a compiled program is not compiled again"
