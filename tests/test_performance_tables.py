"""Tests of the tables of docs/performance.md: their rows, and the numbers computed from them."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("performance_tables", ROOT / "tools" / "performance_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(speed, **changes):
    default = {
        "algorithm": "spo",
        "task": "rubiks_cube",
        "task_options": {},
        "settings": "paper",
        "dtype": "float32",
        "num_seeds": 1,
        "env_steps_per_second": float(speed),
        "reference_env_steps_per_second": None,
        "date": "2026-11-15",
    }
    return default | changes


def speeds(rows):
    return [int(row["env_steps_per_second"]) for row in rows]


def test_the_newest_row_of_one_measurement_is_shown(tables):
    older, newer = row(1, date="2026-11-14"), row(2, date="2026-11-15")
    assert speeds(tables.newest([newer, older])) == [2]
    # On one day the time decides. A row without a time is older.
    assert speeds(tables.newest([row(3, time="12:00:00"), row(4, time="09:00:00"), row(5)])) == [3]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "ppo"},
        {"task": "brax/ant"},
        {"task_options": {"physics": "brax"}},
        {"settings": "paper, 64 envs"},
        {"dtype": "bfloat16"},
        {"num_seeds": 5},
    ],
)
def test_rows_that_differ_in_one_of_these_are_different_measurements(tables, change):
    assert sorted(speeds(tables.newest([row(1), row(2, date="2026-12-31", **change)]))) == [1, 2]


def test_the_fused_physics_is_the_default(tables):
    named = row(2, date="2026-12-31", task_options={"physics": "fused"})
    assert speeds(tables.newest([row(1), named])) == [2]


def test_files_are_read_together(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "FIGURES", tmp_path)
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "training.json").write_text(tables.json.dumps([row(1), row(2, algorithm="ppo")]))
    (tmp_path / "h200" / "training_again.json").write_text(tables.json.dumps([row(3, time="10:00:00")]))
    assert speeds(tables.training("h200")) == [3, 2]
    assert tables.training("cpu") == []
    assert tables.table([], tables.TABLES["training"][1]) == "Not measured yet."


def test_headline_is_the_fastest_comparable_row_in_the_reference_precision(tables):
    rows = [
        row(300, reference_env_steps_per_second=100),
        row(400, reference_env_steps_per_second=100, task_options={"physics": "fused"}),
        row(900, reference_env_steps_per_second=100, dtype="bfloat16"),
        row(800),
    ]
    assert tables.headline(rows).splitlines()[2:] == ["| spo on rubiks_cube | 400 | 100 | 4.00 | float32 |"]


def test_a_column_without_values_is_left_out(tables):
    assert tables.table([{"a": 1}], [("first", "a"), ("second", "b")]) == "| first |\n|---|\n| 1 |"
