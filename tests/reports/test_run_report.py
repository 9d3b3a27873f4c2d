"""Tests of the report of one run, with metrics files written by hand."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

from spo.reports import run_report, stats


def record(kind: str, seed: int, env_steps: int, rate: float = 100.0, **metrics: float) -> dict[str, Any]:
    named = {("episode/" if name in ("solved", "return", "count") else "") + name: v for name, v in metrics.items()}
    return {
        "kind": kind,
        "seed": seed,
        "env_steps": env_steps,
        "iteration": env_steps // 10,
        "metrics": named,
        "time": {"wall_seconds": env_steps / 10, "env_steps_per_second": rate},
    }


def write_run(folder: Path, records: list[dict[str, Any]], *, finished: bool, num_seeds: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"spo_version": "0", "task": "rubiks_cube", "task_options": {"size": 2}, "algorithm": "spo"}
    (folder / "config.json").write_text(json.dumps(config | {"steps": 1e3, "num_seeds": num_seeds}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if finished:
        summary = {
            "final_return": 0.5,
            "final_return_interval": [0.4, 0.6],
            "final_return_episodes": 1280,
            "final_solve_rate": 0.25,
            "final_solve_rate_interval": [0.2, 0.3],
            "final_return_policy_only": 0.125,
            "final_return_policy_only_interval": [0.1, 0.2],
            "final_solve_rate_policy_only": 0.125,
            "final_solve_rate_policy_only_interval": [0.1, 0.2],
        }
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_episodes_interval_is_the_wider_one():
    agreeing = [[0.0, 1.0] * 50, [1.0, 0.0] * 50]
    assert run_report.episodes_interval("solved", agreeing) == stats.share_interval(0.5, 200)
    disagreeing = [[0.0] * 99 + [1.0], [1.0] * 100]
    between_seeds = stats.mean_interval([0.01, 1.0])
    assert run_report.episodes_interval("return", disagreeing) == pytest.approx(tuple(between_seeds))
    assert run_report.episodes_interval("solved", disagreeing) == (pytest.approx(0.505), 0.0, 1.0)


@pytest.mark.parametrize(("model_steps", "searches"), [(0, False), (4000, True)])
def test_the_report_names_a_search_budget_only_after_a_search(tmp_path: Path, model_steps: int, searches: bool):
    final = record("final", 0, 1000, solved=0.25) | {"model_steps": model_steps}
    folder = write_run(tmp_path / "run", [final], finished=True)
    assert ("evaluate it again, with any search budget" in run_report.report(folder)) is searches
    assert f"spo evaluate {folder}    evaluate it again" in run_report.report(folder)
    assert run_report.short_report(folder) == f"{folder}: solved 25.0 %, 1,000 steps"


def test_report_of_a_finished_run(tmp_path: Path):
    folder = write_run(tmp_path / "run", [record("final", 0, 1000, solved=0.25)], finished=True, num_seeds=2)
    text = run_report.report(folder)
    assert "Trained spo on rubiks_cube, size 2." in text
    assert "1,000 steps for each of 2 seeds in 1 min 40 s." in text
    assert "Result: solved 25.0 % (20.0 % to 30.0 %), return 0.5 (0.4 to 0.6)." in text
    # A return that equals the solve rate is not printed.
    assert "Without search: solved 12.5 % (10.0 % to 20.0 %)." in text
    assert "1,280 episodes" in text
    for command in ("evaluate", "render", "export"):
        assert f"spo {command} {folder}" in text
    assert "--resume" not in text


def test_the_time_of_compilation_is_named_apart(tmp_path: Path):
    folder = write_run(tmp_path / "run", [record("final", 0, 2048, solved=0.25)], finished=True)
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) | {"wall_seconds": 77.0, "compile_seconds": 62.0}
    path.write_text(json.dumps(summary))
    assert "2,048 steps in 1 min 17 s, of which 1 min 02 s compiling." in run_report.report(folder)
    path.write_text(json.dumps(summary | {"compile_seconds": 0.2}))
    assert "2,048 steps in 1 min 17 s.\n" in run_report.report(folder)


def test_an_algorithm_without_a_search_has_one_result(tmp_path: Path):
    final = record("final", 0, 1000, solved=0.25)
    assert "Without search" in run_report.report(
        write_run(tmp_path / "search", [final | {"model_steps": 9}], finished=True)
    )
    plain = run_report.report(write_run(tmp_path / "plain", [final | {"model_steps": 0}], finished=True))
    assert "Without search" not in plain
    assert "Result: solved 25.0 %" in plain


def test_render_is_named_only_for_an_environment_that_draws(tmp_path: Path):
    folder = write_run(tmp_path / "run", [record("final", 0, 1000, solved=0.25)], finished=True)
    assert "spo render" in run_report.report(folder)
    assert "spo render" not in run_report.report(folder, can_render=False)


@pytest.mark.parametrize(
    ("best", "remark"),
    [([0, 0], " (parameters before training)"), ([8, 0], " (parameters before training for seed 1)"), ([8, 8], "")],
    ids=["all", "one", "none"],
)
def test_a_result_of_the_untrained_network_is_called_so(tmp_path: Path, best: list[int], remark: str):
    folder = write_run(tmp_path / "run", [record("final", 0, 1000, solved=0.25)], finished=True, num_seeds=2)
    summary = json.loads((folder / "summary.json").read_text())
    last = {"final_solve_rate_last": 0.5, "final_solve_rate_last_interval": [0.4, 0.6]}
    (folder / "summary.json").write_text(json.dumps(summary | last | {"best_env_steps_per_seed": best}))
    lines = run_report.report(folder).splitlines()
    assert f"Result{remark}: solved 25.0 % (20.0 % to 30.0 %), return 0.5 (0.4 to 0.6)." in lines
    assert "Last parameters: solved 50.0 % (40.0 % to 60.0 %)." in lines


def test_report_of_an_unfinished_run(tmp_path: Path):
    records = [record("evaluation", 0, 100, solved=0.1), record("evaluation", 0, 200, solved=0.75)]
    folder = write_run(tmp_path / "run", records, finished=False)
    text = run_report.report(folder)
    assert "so far: solved 75.0 %" in text
    assert f"spo train --resume {folder}" in text
    (folder / "metrics.jsonl").write_text("")
    assert "Trained spo" in run_report.report(folder)


def test_the_picture_shows_the_records_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    records = [
        record("evaluation", seed, step, solved=(seed + 1) * step / 1000) for step in (0, 100, 200) for seed in range(3)
    ]
    records += [record("train", seed, 100, solved=0.5, temperature=1.0) for seed in range(3)]
    # No episode ended, so there is no value.
    records += [record("train", seed, 200, temperature=1.0) for seed in range(3)]
    records += [record("final", seed, 200, solved=0.4) for seed in range(3)]
    folder = write_run(tmp_path, records, finished=True, num_seeds=3)
    run_report.draw_learning_curve(folder / "metrics.jsonl", folder / "learning_curve.png", "a title")
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    by_label = {line.get_label(): line for line in axes.lines}
    mean = by_label["evaluation, mean of 3 seeds with 95 % interval"]
    assert list(mean.get_xdata()) == [0, 100, 200]
    assert list(mean.get_ydata()) == pytest.approx([0.0, 0.2, 0.4])
    assert list(by_label["training episodes"].get_xdata()) == [100]
    assert "best parameters, final: 40.0 %" in by_label
    assert axes.get_title(loc="left") == "a title"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "episodes solved")
    assert len(axes.lines) == 3 + 3  # one line for each of three seeds, then training, mean, final
    assert len(axes.collections) == 1  # the interval


def test_the_picture_of_a_run_without_evaluations_raises(tmp_path: Path):
    write_run(tmp_path, [record("train", 0, 10, temperature=1.0)], finished=False)
    with pytest.raises(ValueError, match="train until the first evaluation"):
        run_report.draw_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "x.png", "")


def test_a_report_needs_no_jax(tmp_path: Path):
    folder = write_run(tmp_path, [record("evaluation", 0, 100, solved=0.1)], finished=False)
    script = (
        "import sys; from pathlib import Path; from spo.reports import run_report; folder = Path(sys.argv[1]);"
        "run_report.report(folder);"
        "run_report.draw_learning_curve(folder / 'metrics.jsonl', folder / 'x.png', '');"
        "assert 'jax' not in sys.modules, 'jax'"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    assert (folder / "x.png").exists()
