"""Tests of numbers and pictures on their way to the page: rounded exactly, and cheap for thousands of states."""

import gc
import math
from typing import Any

import jax
import numpy as np
import pytest

from inspection.subjects import make_subject
from spo.inspection import pictures
from spo.inspection.pictures import Budget, Pictures
from spo.inspection.records import DIGITS, NUM_BINS, _densities, plain
from spo.types import ContinuousActions


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_rounded_as_python_formats_them(dtype: type):
    random = np.random.default_rng(0)
    numbers = random.normal(size=5000) * 10.0 ** random.integers(-12, 12, 5000)
    numbers = np.append(numbers, [0.0, 1.0, -0.1, 1000.0, 999.95, 99_995.0, np.nan, np.inf, -np.inf]).astype(dtype)
    expected = [float(f"{float(x):.{DIGITS}g}") if math.isfinite(x) else None for x in numbers]
    assert plain(numbers) == expected


def test_arrays_keep_their_shapes_and_kinds():
    assert plain(np.array([[0.5, np.nan], [1.0, 2.0]])) == [[0.5, None], [1.0, 2.0]]
    assert plain(np.float32(np.inf)) is plain(None) is None
    assert plain(np.arange(2)) == [0, 1]
    assert plain(np.array([True])) == [True]


def test_states_that_are_not_drawn_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch):
    subject = make_subject(task="tiny/chain")
    state, _ = subject.reset(0)
    assert pictures.sketch(state) is None
    states = jax.tree.map(lambda x: np.broadcast_to(x, (1000, *np.shape(x))), state)
    calls: list[Any] = []
    whole = jax.tree.map
    monkeypatch.setattr(pictures.jax.tree, "map", lambda *arguments: calls.append(0) or whole(*arguments))
    assert Pictures(subject.environment, Budget(seconds=0.0, characters=0)).add_simulated(states, (1000,)) is None
    assert len(calls) < 5


def test_collections_leave_out_what_was_compiled():
    subject = make_subject()
    gc.unfreeze()
    state, timestep = subject.reset(0)
    settings = subject.own_settings | {"num_particles": 2, "horizon": 1}
    subject.decide(0, 0, state, timestep, settings)
    assert gc.get_freeze_count() > 1000


def test_densities_lie_between_the_bounds_of_each_dimension():
    bounds = ContinuousActions(2, (-2.0, 0.0), (2.0, 0.5))
    samples = np.random.default_rng(0).uniform((-2.0, 0.0), (2.0, 0.5), (4000, 2))
    densities = np.asarray(_densities(samples, bounds))
    np.testing.assert_allclose(densities.sum(axis=1), NUM_BINS / np.asarray([4.0, 0.5]), rtol=1e-2)
    np.testing.assert_allclose(densities, densities.mean(axis=1, keepdims=True) * np.ones(NUM_BINS), rtol=0.5)
