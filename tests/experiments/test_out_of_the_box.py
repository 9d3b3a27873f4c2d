"""Tests of the table of learning: its tasks, its marks, and the page that shows it."""

import json
from pathlib import Path
from types import SimpleNamespace

import out_of_the_box
import pytest

from spo.environments.registry import names
from spo.known_environments import stored_facts

TASKS = out_of_the_box.CPU.read_tasks()
ROW = {"score": 12.0, "reached": True, "env_steps": 100_096, "seconds": 61.4, "untrained": 3.0, "curve": [[9, 5.0]]}


def test_a_third_of_the_tasks_or_more_are_held_out():
    assert 3 * sum(not task["developed"] for task in TASKS) >= len(TASKS) == 14
    assert all(task["source"] for task in TASKS)


@pytest.mark.parametrize("task", [task for task in TASKS if "best" in task], ids=lambda task: task["name"])
def test_a_mark_is_half_way_from_random_to_the_best_figure(task: dict):
    assert task["mark"] == pytest.approx((task["random"] + task["best"]) / 2, rel=0.01)


def test_the_page_shows_the_stored_results():
    out_of_the_box.write_page(check=True)


def test_the_page_has_a_place_for_results_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "results" / "out_of_the_box_gpu").mkdir(parents=True)
    row = ROW | {"env_steps_per_second": 9.0, "hardware": "a new GPU"}
    (tmp_path / "results" / "out_of_the_box_gpu" / "craftax-classic-spo.json").write_text(json.dumps(row))
    for folder in ("experiments", "results/out_of_the_box"):
        (tmp_path / folder).symlink_to(out_of_the_box.ROOT / folder)
    (tmp_path / "page.md").write_text(out_of_the_box.PAGE.read_text("utf-8"))
    monkeypatch.setattr(out_of_the_box, "ROOT", tmp_path)
    monkeypatch.setattr(out_of_the_box, "PAGE", tmp_path / "page.md")
    with pytest.raises(SystemExit, match="the results differ"):
        out_of_the_box.write_page(check=True)
    out_of_the_box.write_page(check=False)
    assert "| a new GPU |" in (tmp_path / "page.md").read_text()
    out_of_the_box.write_page(check=True)


def test_only_the_table_of_that_name_is_replaced():
    page = "a\n<!-- table: one -->\n1\n<!-- end of table -->\nb\n<!-- table: two -->\n2\n<!-- end of table -->\n"
    assert out_of_the_box.replace_table(page, "two", "| \\d |") == page.replace("\n2\n", "\n\n| \\d |\n\n")
    with pytest.raises(SystemExit, match="no place for the table three"):
        out_of_the_box.replace_table(page, "three", "")


def test_a_row_shows_score_steps_and_seconds(tmp_path: Path):
    (tmp_path / "jumanji-snake-spo.json").write_text(json.dumps(ROW))
    line = next(line for line in out_of_the_box.make_cpu_table(tmp_path).splitlines() if "jumanji/snake" in line)
    assert "| **12** (100k steps, 61 s) | not run |" in line
    assert "untrained network" in out_of_the_box.format_score(ROW | {"untrained": 5.0})


def test_a_row_of_the_gpu_shows_its_speed(tmp_path: Path):
    row = ROW | {"env_steps_per_second": 123_456.7, "hardware": "NVIDIA H200"}
    del row["reached"]
    (tmp_path / "craftax-classic-ppo.json").write_text(json.dumps(row))
    line = next(line for line in out_of_the_box.make_gpu_table(tmp_path).splitlines() if "craftax/classic" in line)
    assert line == "| craftax/classic | not run | - | 12 (100k steps, 61 s) | 123,457 | NVIDIA H200 |"


@pytest.mark.parametrize("gpu", [False, True])
def test_an_unknown_task_is_refused(gpu: bool):
    with pytest.raises(SystemExit, match=rf"snake is not in out_of_the_box{'_gpu' if gpu else ''}\.toml"):
        out_of_the_box.main(out_of_the_box.Options(gpu=gpu, tasks=("snake",)))


def test_tasks_of_the_gpu_have_steps_and_are_known():
    tasks, installed = out_of_the_box.GPU.read_tasks(), names()
    families = {name.partition("/")[0] for name in installed}
    for task in tasks:
        assert task["steps"] >= 1e6
        assert task["name"] in stored_facts()
        assert task["name"] in installed or task["name"].partition("/")[0] not in families


@pytest.mark.parametrize(
    ("evaluates", "times", "lengths", "stops"),
    [
        # Intervals of 100 s. The second ends at 230 s, and a third would end after 270 s.
        ((False, False), (130.0, 230.0), [10.0], 1),
        # An evaluation takes 50 s.
        ((False, False, True), (10.0, 20.0, 80.0), [10.0, 10.0], 1),
        # An evaluation takes 30 s. Seven of them and an interval take 220 s.
        ((False, False, True), (10.0, 20.0, 60.0), [10.0, 10.0], 1),
        # An evaluation takes 20 s. With episodes as long as before training, the next ones would take 60 s.
        ((False, False, True), (10.0, 20.0, 50.0), [10.0, 10.0], 0),
        ((False, False, True), (10.0, 20.0, 50.0), [30.0, 10.0], 1),
    ],
)
def test_training_stops_where_too_little_time_is_left(
    monkeypatch: pytest.MonkeyPatch,
    evaluates: tuple[bool, ...],
    times: tuple[float, ...],
    lengths: list[float],
    stops: int,
) -> None:
    clock = iter(times)
    monkeypatch.setattr(out_of_the_box.time, "perf_counter", lambda: next(clock))
    stopped = []
    handle = SimpleNamespace(stop=lambda: stopped.append(True))
    callback = out_of_the_box.stop_in_time(0.0, 300.0, lambda: lengths)
    for number, is_evaluated in enumerate(evaluates, start=1):
        callback({"evaluation/episode/return": 1.0} if is_evaluated else {}, handle)
        assert len(stopped) == (stops if number == len(evaluates) else 0)
