"""The README's picture: what its curves are made of, and what it says when a run first got so far."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def picture():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")  # as if it were run
        yield importlib.import_module("solve_rate_picture")


def write_run(folder, algorithm, evaluations):
    """A run of two seeds: (steps of a seed, steps per second of both, seconds since the start, shares solved)."""
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


def test_a_run_that_shared_its_gpu_is_shown_at_the_speed_it_has_alone(picture, tmp_path):
    run = write_run(tmp_path / "run", "spo", EVALUATIONS)
    curves, _ = picture.curves_of(run, steps_per_second=400.0)
    np.testing.assert_allclose(curves.training.x, [0.0, 5.0, 15.0])  # of two seeds together
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
    with pytest.raises(SystemExit, match="no speed is known of it alone"):
        picture.speed_alone(run, newest(rows[2:]))


def test_says_when_and_draws_every_run_that_is_there(picture, tmp_path, capsys):
    runs = [
        write_run(tmp_path / "spo", "spo", EVALUATIONS),
        write_run(tmp_path / "alphazero", "alphazero", [(0, 0.0, 9.0, (0.0, 0.0)), (500, 5.0, 240.0, (0.3, 0.5))]),
    ]
    picture.main(picture.Options(runs=tuple(runs), out=tmp_path / "images" / "solve_rate"))
    said = capsys.readouterr().out
    assert (
        "spo (2 seeds): 92% after 20 s (50 s with everything), 95% after 40 s (75 s with everything), 99% not reached"
        in said
    )
    assert "alphazero (2 seeds): 92% not reached" in said
    assert "reference (1 seed): 92% after 177 s" in said
    svg = (tmp_path / "images" / "solve_rate.svg").read_text()
    assert all(word in svg for word in ("spo", "alphazero", "reference"))
    assert (tmp_path / "images" / "solve_rate.png").stat().st_size > 10_000


def test_one_picture_is_of_one_task(picture, tmp_path):
    runs = [write_run(tmp_path / name, "spo", EVALUATIONS) for name in ("seven", "four")]
    config = json.loads((runs[1] / "config.json").read_text())
    (runs[1] / "config.json").write_text(json.dumps(config | {"task_options": {"eval_scrambles": 4}}))
    with pytest.raises(SystemExit, match="judged on rubiks_cube, rubiks_cube with 4 scrambles"):
        picture.main(picture.Options(runs=tuple(runs), out=tmp_path / "solve_rate"))


def test_the_picture_in_the_readme_is_of_the_runs_in_the_results(picture, tmp_path):
    def lines(path):
        """All coordinates, path by path. The names inside an SVG are left out: they follow from the last digit."""
        paths = re.findall(r' d="([^"]+)"', path.read_text())
        return [np.array(re.findall(r"-?\d+\.?\d*", one), float) for one in paths]

    picture.main(picture.Options(out=tmp_path / "solve_rate"))
    drawn, stored = lines(tmp_path / "solve_rate.svg"), lines(ROOT / "docs" / "images" / "solve_rate.svg")
    assert len(drawn) == len(stored)
    for now, before in zip(drawn, stored, strict=True):
        np.testing.assert_allclose(now, before, atol=0.1)  # of a seventieth of an inch
