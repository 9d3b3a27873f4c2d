"""Words and pictures from metrics files that were written by hand."""

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

from rich.console import Console
from scipy import stats

from spo.reports import run_report
from spo.training.progress import LiveReporter, PlainReporter


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


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (10, 10), (3, 17), (1200, 1280)])
def test_share_interval_is_wilsons(successes: int, count: int):
    expected = stats.binomtest(successes, count).proportion_ci(method="wilson")
    assert run_report.share_interval(successes / count, count) == pytest.approx(
        (successes / count, expected.low, expected.high), abs=1e-6
    )


def test_mean_interval_is_students():
    values = [1.0, 2.0, 4.0, 8.0]
    expected = stats.t.interval(0.95, 3, loc=3.75, scale=stats.sem(values))
    assert run_report.mean_interval(values) == pytest.approx((3.75, *expected))
    alone = run_report.mean_interval([2.0])
    assert alone.mean == 2.0
    assert math.isnan(alone.low)


def test_episodes_interval_takes_the_wider_one():
    agreeing = [[0.0, 1.0] * 50, [1.0, 0.0] * 50]
    assert run_report.episodes_interval("solved", agreeing) == run_report.share_interval(0.5, 200)
    disagreeing = [[0.0] * 99 + [1.0], [1.0] * 100]
    between_seeds = run_report.mean_interval([0.01, 1.0])
    assert run_report.episodes_interval("return", disagreeing) == pytest.approx(tuple(between_seeds))
    assert run_report.episodes_interval("solved", disagreeing) == (pytest.approx(0.505), 0.0, 1.0)


def test_a_half_written_last_line_is_skipped_and_another_is_not(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert run_report.read_records(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n{"a"\n{"a": 3}\n')
    with pytest.raises(ValueError, match="Line 2"):
        run_report.read_records(path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("episode/solved", 0.9344, "93.4 %"),
        ("episode/return", 0.03125, "0.0312"),
        ("episode/return", 12345.6, "12,346"),
        ("episode/return", math.nan, "none"),
    ],
)
def test_numbers_in_words(name: str, value: float, words: str):
    assert run_report.in_words(name, value) == words


@pytest.mark.parametrize(("seconds", "words"), [(59.6, "1 min 00 s"), (7, "7 s"), (3660, "1 h 01 min")])
def test_durations(seconds: float, words: str):
    assert run_report.duration(seconds) == words


def test_report_of_a_finished_run(tmp_path: Path):
    folder = write_run(tmp_path / "run", [record("final", 0, 1000, solved=0.25)], finished=True, num_seeds=2)
    text = run_report.report(folder)
    assert "Trained spo on rubiks_cube, size 2." in text
    assert "1,000 steps for each of 2 seeds in 1 min 40 s." in text
    assert "Result: solved 25.0 % (20.0 % to 30.0 %), return 0.5 (0.4 to 0.6)." in text
    # The return that only repeats the solve rate is not repeated.
    assert "Without search: solved 12.5 % (10.0 % to 20.0 %)." in text
    assert "1,280 episodes" in text
    for command in ("evaluate", "render", "export"):
        assert f"spo {command} {folder}" in text
    assert "--resume" not in text


def test_report_of_an_unfinished_run(tmp_path: Path):
    records = [record("evaluation", 0, 100, solved=0.1), record("evaluation", 0, 200, solved=0.75)]
    folder = write_run(tmp_path / "run", records, finished=False)
    text = run_report.report(folder)
    assert "so far: solved 75.0 %" in text
    assert f"spo train --resume {folder}" in text
    (folder / "metrics.jsonl").write_text("")
    assert "Trained spo" in run_report.report(folder)


def test_the_picture_shows_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    records = [
        record("evaluation", seed, step, solved=(seed + 1) * step / 1000) for step in (0, 100, 200) for seed in range(3)
    ]
    records += [record("train", seed, 100, solved=0.5, temperature=1.0) for seed in range(3)]
    records += [record("train", seed, 200, temperature=1.0) for seed in range(3)]  # no episode ended: no value
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
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("a title", "environment steps", "solved")
    assert len(axes.lines) == 3 + 3  # three seeds; training, mean, final
    assert len(axes.collections) == 1  # the band


def test_the_picture_of_a_run_without_evaluations_is_a_sentence(tmp_path: Path):
    write_run(tmp_path, [record("train", 0, 10, temperature=1.0)], finished=False)
    with pytest.raises(ValueError, match="train until the first evaluation"):
        run_report.draw_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "x.png", "")


def test_reports_need_no_jax(tmp_path: Path):
    folder = write_run(tmp_path, [record("evaluation", 0, 100, solved=0.1)], finished=False)
    script = (
        "import sys; from pathlib import Path; from spo.reports import run_report; folder = Path(sys.argv[1]);"
        "run_report.report(folder);"
        "run_report.draw_learning_curve(folder / 'metrics.jsonl', folder / 'x.png', '');"
        "assert 'jax' not in sys.modules, 'jax'"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    assert (folder / "x.png").exists()


# --- Progress ---------------------------------------------------------------------------------------------------------
EXPERIMENT = SimpleNamespace(num_seeds=2, algorithm="spo", task="rubiks_cube")
FOLDER = SimpleNamespace(path="runs/x")


def test_plain_lines_average_seeds_and_are_few():
    lines: list[str] = []
    now = [0.0]
    reporter = PlainReporter(lines.append, seconds_between_lines=10.0, clock=lambda: now[0])
    reporter.start(EXPERIMENT, FOLDER, total_env_steps=1000, resumed_at=0)
    assert lines == ["spo on rubiks_cube, 2 seeds: 1,000 steps, into runs/x"]
    for step in range(100, 600, 100):  # five logs, two seconds apart
        now[0] += 2.0
        reporter.log(record("train", 0, step, **{"return": 1.0, "temperature": 0.5, "search/kl": 0.25}))
        reporter.log(record("train", 1, step, **{"return": 3.0, "temperature": 0.5, "search/kl": 0.25}))
    assert lines[1:] == [" 10%  100 steps  return 2  temperature 0.5  KL 0.25"]
    reporter.log(record("evaluation", 0, 500, solved=0.2))
    assert len(lines) == 2  # the other seed is missing
    reporter.log(record("evaluation", 1, 500, solved=0.4))
    # 400 steps in 8 seconds, so 500 more in 10.
    assert lines[2:] == [" 50%  500 steps  evaluation: solved 30.0 %  100 steps/s  10 s left"]
    reporter.message("hello")
    reporter.stop()
    assert lines[3:] == ["hello"]


def test_a_metric_that_a_seed_lacks_is_not_shown():
    lines: list[str] = []
    reporter = PlainReporter(lines.append)
    reporter.start(EXPERIMENT, FOLDER, total_env_steps=1000, resumed_at=500)
    assert lines == ["spo on rubiks_cube, 2 seeds: 1,000 steps, going on at 500, into runs/x"]
    reporter.log(record("train", 0, 600, temperature=0.5, **{"return": 1.0}))
    reporter.log(record("train", 1, 600, temperature=0.5))
    assert lines[1:] == [" 60%  600 steps  temperature 0.5"]


def test_the_live_display_shows_training_and_the_last_evaluation():
    screen = io.StringIO()
    reporter = LiveReporter(Console(file=screen, force_terminal=True, width=100))
    reporter.start(SimpleNamespace(num_seeds=1, algorithm="spo", task="[x]"), FOLDER, 1000, 0)
    reporter.log(record("evaluation", 0, 100, solved=0.125))
    reporter.log(record("train", 0, 200, temperature=0.5, **{"search/ess": 7.5}))
    reporter.message("a [word] between")
    reporter.stop()
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())  # without colours
    for words in ("spo on [x]", "200 / 1,000 steps", "temperature 0.5", "ESS 7.5", "solved 12.5 %", "a [word] between"):
        assert words in shown
