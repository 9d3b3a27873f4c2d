"""Tests of the experiment on long training: its counts, with curves written by hand, and a tiny run."""

import json
import math

import long_training
import pytest


def curve(*solved: float) -> long_training.Curve:
    count = len(solved)
    return long_training.Curve(list(range(count)), list(solved), [0.5, 0.25][: count - 1], [0.01, 0.02][: count - 1])


def test_only_evaluations_after_the_first_of_99_percent_count():
    row = long_training.summarise([curve(0.1, 0.99, 0.96), curve(0.1, 0.98, 0.5), curve(1.0, 0.97, 0.99)])
    assert (row["evaluations"], row["evaluations_below_97"]) == (3, 1)
    assert row["minimum_per_seed"] == [0.96, 0.97]
    assert row["mean_per_seed"] == pytest.approx([0.96, 0.98])
    assert row["last_temperature_per_seed"] == [0.25, 0.25, 0.25]
    assert (row["least_value_loss_per_seed"][0], row["last_value_loss_per_seed"][0]) == (0.01, 0.02)


def test_a_seed_that_never_settles_has_no_row():
    row = long_training.summarise([curve(0.1, 0.2)])
    assert (row["evaluations"], row["mean"], row["minimum_per_seed"]) == (0, None, [])
    assert "0 of 0 evaluations" in long_training.row_text("preset", row)
    assert math.isclose(row["last_temperature_per_seed"][0], 0.5)


@pytest.mark.program
def test_a_tiny_run_writes_rows_and_a_figure(tmp_path):
    out = tmp_path / "long_training.json"
    options = long_training.Options(
        steps=4096, num_seeds=2, num_evaluations=2, episodes=4, folder=tmp_path / "runs", out=out
    )
    long_training.main(options)
    result = json.loads(out.read_text("utf-8"))
    assert set(result["rows"]) == set(result["curves"]) == set(long_training.CHANGES)
    for curves in result["curves"].values():
        for found in curves:
            assert len(found["solved"]) == len(found["temperatures"]) + 1 == 3
    assert out.with_suffix(".png").stat().st_size > 10_000
