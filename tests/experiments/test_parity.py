"""Tests of the comparison with the reference's learning curves."""

import json

import numpy as np
import parity
import pytest


def records(seeds, window=4 * parity.WINDOW, episodes=(10, 30)):
    """Two records in the window for each seed, whose mean over episodes is the given return, and one before it."""
    for seed, value in enumerate(seeds):
        for env_steps, count, value_of_record in (
            (window - parity.WINDOW, 1000, -1e6),
            (window - parity.WINDOW // 2, episodes[0], value - 30.0),
            (window, episodes[1], value + 10.0),
        ):
            metrics = {"episode/count": count, "episode/return": value_of_record}
            yield {"kind": "train", "seed": seed, "env_steps": env_steps, "metrics": metrics}


def test_a_window_is_a_mean_over_episodes_that_leaves_the_window_before_out():
    np.testing.assert_allclose(parity.window_returns(list(records([100.0, 200.0])), 4 * parity.WINDOW), [100.0, 200.0])


def test_the_prediction_interval_is_that_of_one_more_seed():
    """By hand: t of 4 degrees of freedom is 2.776, the standard deviation √2.5."""
    low, high = parity.prediction_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half_width = 2.776445 * np.sqrt(2.5) * np.sqrt(1.2)
    np.testing.assert_allclose([low, high], [3.0 - half_width, 3.0 + half_width], rtol=1e-5)
    with pytest.raises(ValueError, match="at least two seeds"):
        parity.prediction_interval([1.0])


@pytest.mark.parametrize(("seeds", "holds"), [([2000.0, 2100.0, 2050.0], True), ([1000.0, 1010.0, 990.0], False)])
def test_parity_fails_only_if_the_reference_is_above(tmp_path, seeds, holds):
    config = {"spo_version": "0", "task": "brax/ant", "task_options": {}, "num_seeds": 3, "algorithm": "spo", "seed": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records(seeds)))
    result = parity.main(parity.Options(tmp_path, commit="abc", out=tmp_path / "parity.json"))
    assert result["holds"] is holds
    assert json.loads((tmp_path / "parity.json").read_text())["marks"][0]["reference"] == 2083.95
    assert len(result["marks"]) == 1, "marks that the run has not reached are left out"
