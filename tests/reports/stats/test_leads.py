"""Tests of the comparison of two learning curves at every point."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from spo.reports import stats

STEPS = np.arange(11.0)


def seeds(values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns five runs around a curve."""
    return [(STEPS, values + 0.1 * seed) for seed in range(5)]


def test_curves_that_cross_have_a_lead_on_each_side():
    # B is ahead by 5 at the start, A at the end. Around 5 the seeds overlap.
    found = stats.leads(seeds(STEPS), seeds(10 - STEPS), ("A", "B"))
    assert found == [stats.Lead(0, 4, "B"), stats.Lead(5, 5, None), stats.Lead(6, 10, "A")]


def test_equal_curves_have_no_lead():
    assert stats.leads(seeds(STEPS), seeds(STEPS), ("A", "B")) == [stats.Lead(0, 10, None)]


def test_leads_end_with_the_shorter_curve():
    short = [(x[:5], y[:5] + 20) for x, y in seeds(STEPS)]
    assert stats.leads(seeds(STEPS), short, ("A", "B")) == [stats.Lead(0, 4, "B")]
