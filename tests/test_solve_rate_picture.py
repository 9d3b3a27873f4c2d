"""Tests of the README's picture: its curves, its milestones and its file."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def picture():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")  # as if the program were run
        yield importlib.import_module("solve_rate_picture")


def write_run(folder, algorithm, evaluations):
    """Writes a run of two seeds: (steps per seed, steps per second of both, seconds since the start, shares solved)."""
    folder.mkdir()
    config = {"spo_version": "0", "task": "rubiks_cube", "algorithm": algorithm, "seed": 0, "config": {}}
    (folder / "config.json").write_text(json.dumps(config))
    records = [
        {
            "kind": "evaluation",
            "seed": seed,
            "env_steps": steps,
            "metrics": {"episode/solved": share, "episode/return": share, "episode/count": 128.0},
            "time": {"wall_seconds": seconds, "env_steps_per_second": rate},
        }
        for steps, rate, seconds, shares in evaluations
        for seed, share in enumerate(shares)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


#: 2 x 1000 steps at 100 a second are 20 s of training, and 50 s since the start; 2 x 3000 at 150 are 40 s.
EVALUATIONS = [
    (0, 0.0, 25.0, (0.0, 0.0)),
    (1000, 100.0, 50.0, (0.90, 0.96)),
    (3000, 150.0, 75.0, (0.94, 0.98)),
]


def test_curve_is_the_mean_over_seeds_at_seconds_of_training(picture, tmp_path):
    curves, num_seeds = picture.curves_of(write_run(tmp_path / "run", "spo", EVALUATIONS))
    assert num_seeds == 2
    np.testing.assert_allclose(curves.steps.x, [0, 1000, 3000])
    np.testing.assert_allclose(curves.wall.x, [25.0, 50.0, 75.0])
    curve = curves.training
    np.testing.assert_allclose(curve.x, [0.0, 20.0, 40.0])
    np.testing.assert_allclose(curve.estimate.value, [0.0, 0.93, 0.96])
    assert np.all(curve.estimate.low <= curve.estimate.value)
    assert np.all(curve.estimate.value <= curve.estimate.high)
    assert [picture.first_time(curve, share) for share in (0.92, 0.95, 0.99)] == [20.0, 40.0, None]


def test_a_run_that_shared_its_gpu_has_the_speed_of_its_settings_alone(picture, tmp_path):
    run = write_run(tmp_path / "run", "spo", EVALUATIONS)
    curves, _ = picture.curves_of(run, steps_per_second=400.0)
    np.testing.assert_allclose(curves.training.x, [0.0, 5.0, 15.0])  # 400 steps per second of both seeds together
    assert curves.wall is None

    config = json.loads((run / "config.json").read_text()) | {"num_seeds": 2, "network": {"dtype": "bfloat16"}}
    (run / "config.json").write_text(json.dumps(config))
    same = {"algorithm": "spo", "task": "rubiks_cube", "settings": "paper", "dtype": "bfloat16", "num_seeds": 2}
    same |= {"task_options": {}}
    rows = [
        same | {"date": "2026-01-02", "env_steps_per_second": 2.0},
        same | {"date": "2026-01-01", "env_steps_per_second": 1.0},
        same | {"date": "2026-01-03", "env_steps_per_second": 3.0, "num_seeds": 1},
        same | {"date": "2026-01-03", "env_steps_per_second": 4.0, "deterministic": True},
        same | {"date": "2026-01-03", "env_steps_per_second": 5.0, "algorithm": "ppo"},
    ]
    newest = picture.performance_tables.newest
    assert picture.speed_alone(run, newest(rows)) == 2.0
    with pytest.raises(SystemExit, match="has no speed of its settings"):
        picture.speed_alone(run, newest(rows[2:]))


def test_milestones_are_printed_and_every_run_is_drawn(picture, tmp_path, capsys):
    runs = [
        write_run(tmp_path / "spo", "spo", EVALUATIONS),
        write_run(tmp_path / "alphazero", "alphazero", [(0, 0.0, 9.0, (0.0, 0.0)), (500, 5.0, 240.0, (0.3, 0.5))]),
    ]
    picture.main(picture.Options(runs=tuple(runs), out=tmp_path / "images" / "solve_rate.svg"))
    printed = capsys.readouterr().out
    assert (
        "spo (2 seeds): 92% after 20 s (50 s since the start), 95% after 40 s (75 s since the start), 99% not reached"
        in printed
    )
    assert "alphazero (2 seeds): 92% not reached" in printed
    assert "reference (1 seed): 92% after 177 s" in printed
    svg = (tmp_path / "images" / "solve_rate.svg").read_text()
    assert all(word in svg for word in ("spo", "alphazero", "reference"))


def test_runs_of_different_tasks_raise(picture, tmp_path):
    runs = [write_run(tmp_path / name, "spo", EVALUATIONS) for name in ("seven", "four")]
    config = json.loads((runs[1] / "config.json").read_text())
    (runs[1] / "config.json").write_text(json.dumps(config | {"task_options": {"eval_scrambles": 4}}))
    with pytest.raises(SystemExit, match="evaluated on rubiks_cube, rubiks_cube with 4 scrambles"):
        picture.main(picture.Options(runs=tuple(runs), out=tmp_path / "solve_rate.png"))


def test_the_picture_in_the_readme_shows_the_stored_runs(picture, tmp_path):
    """At most 0.1 % of the pixels differ. One curve has 0.3 % of them."""
    stored = ROOT / "docs" / "images" / "solve_rate.png"
    picture.main(picture.Options(out=tmp_path / "solve_rate.png"))
    now, before = (image.imread(path)[..., :3] for path in (tmp_path / "solve_rate.png", stored))
    assert now.shape == before.shape
    assert np.mean(np.abs(now - before).max(axis=-1) > 0.1) < 0.001
    assert stored.stat().st_size < 100_000
