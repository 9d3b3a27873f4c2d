"""Tests of the run reader, with folders written by hand."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from reports.fake_runs import write_run
from spo.reports.comparison import compare
from spo.reports.run_files import check_config, read_config, read_records, with_checksum
from spo.reports.run_finding import find_runs
from spo.reports.runs import load_run, load_runs


def test_runs_are_found_by_name_by_pattern_and_below_a_folder_once_each(tmp_path: Path, monkeypatch):
    one = write_run(tmp_path / "a" / "one", [0.0, 0.5], final=0.6)
    write_run(tmp_path / "a" / "b" / "two", [0.0, 0.5], final=0.6)
    (tmp_path / "a" / "other").mkdir()
    (tmp_path / "a" / "other" / "config.json").write_text('{"name": "of another program"}')
    assert [run.folder.name for run in load_runs([one])] == ["one"]
    assert {run.folder.name for run in load_runs([tmp_path])} == {"one", "two"}
    monkeypatch.chdir(tmp_path)
    found = load_runs([f"{tmp_path}/a/o*", "a/one", one, tmp_path])
    assert sorted(run.folder.name for run in found) == ["one", "two"]


def test_a_run_is_read_as_written(tmp_path: Path):
    write_run(tmp_path / "run", [[0.0, 0.5], [0.1, 0.7]], final=[0.6, 0.8], points=[0, 500])
    (run,) = load_runs([tmp_path])
    assert sorted(run.evaluations) == sorted(run.finals) == [0, 1]
    assert [record["env_steps"] for record in run.evaluations[1]] == [0, 500]
    assert run.finals[1]["metrics"]["episode/solved"] == 0.8
    assert run.starts[0]["device"] == "NVIDIA H200"


def test_folders_without_a_run_raise_with_a_sentence(tmp_path: Path):
    with pytest.raises(ValueError, match="no folder"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="There is no run in"):
        load_runs([tmp_path])
    with pytest.raises(ValueError, match="There is no run in"):
        load_runs([f"{tmp_path}/x*"])
    empty = write_run(tmp_path / "empty", [0.0])
    (empty / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"empty has no evaluation.*leave it out"):
        load_runs([empty])
    (empty / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match="no evaluation"):
        load_runs([empty])
    with pytest.raises(ValueError, match="nothing to compare"):
        compare([])


def test_a_run_without_an_evaluation_is_left_out_unless_it_is_named(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, 0.5], final=0.6)
    empty = write_run(tmp_path / "empty", [0.0])
    (empty / "metrics.jsonl").unlink()
    warnings: list[str] = []
    assert [run.folder.name for run in load_runs([tmp_path], warnings.append)] == ["one"]
    assert "empty has no evaluation" in warnings[0]
    assert [run.folder.name for run in load_runs([tmp_path / "o*", tmp_path])] == ["one"]
    with pytest.raises(ValueError, match="There is no run in"):
        load_runs([f"{tmp_path}/e*"])


def test_a_run_may_have_no_records_and_no_summary(tmp_path: Path):
    for name in ("new", "old"):
        write_run(tmp_path / name, [0.0, 0.5], final=0.6)
    (tmp_path / "new" / "metrics.jsonl").unlink()
    (tmp_path / "old" / "summary.json").write_text('{"final_return": 0.6}')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("[]")
    new, old = map(load_run, find_runs(tmp_path))
    assert [old.folder.name, new.folder.name] == ["old", "new"]
    assert (old.env_steps, old.finished, old.summary) == (1000, True, {"final_return": 0.6})
    assert (new.env_steps, new.finished, new.summary) == (0, False, None)


DAMAGES = {
    "garbage": ("metrics.jsonl", b"no record\n", "Line 1 of .*metrics.jsonl is not JSON"),
    "bytes": ("metrics.jsonl", b"\xff\xfe\n", "Line 1 of .*metrics.jsonl is not JSON"),
    "number": ("metrics.jsonl", b"1\n", "Line 1 of .*metrics.jsonl is not a record"),
    "text": ("metrics.jsonl", b'{"kind": "train", "seed": 0, "env_steps": 1, "metrics": {"a": "b"}}\n', "Line 1 of"),
    "environment": ("environment.json", b"{", ".*environment.json is damaged"),
    "starts": ("environment.json", b"[]", ".*environment.json is damaged"),
    "summary": ("summary.json", b"\0\0", ".*summary.json is damaged: delete it"),
    "config": ("config.json", b"\0\0", ".*config.json is not the configuration of a run"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path, name: str):
    """The reason names the file."""
    file, content, reason = DAMAGES[name]
    write_run(tmp_path / "good", [0.0, 0.5], final=0.6)
    bad = write_run(tmp_path / "bad", [0.0, 0.5], final=0.6)
    (bad / file).write_bytes(content)
    warnings: list[str] = []
    assert [run.folder.name for run in load_runs([tmp_path / "good", bad], warnings.append)] == ["good"]
    assert len(warnings) == 1
    assert re.match(f"{bad} is damaged and left out: {reason}", warnings[0])
    with pytest.raises(ValueError, match=r"no run in .* that can be read: .*bad is damaged"):
        load_runs([bad])


def test_a_changed_configuration_is_noticed(tmp_path: Path):
    """One digit of a setting would otherwise make it another experiment."""
    folder = write_run(tmp_path / "run", [0.0, 0.5])
    path = folder / "config.json"
    check_config(folder, read_config(folder))  # an earlier version wrote no checksum
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()))))
    check_config(folder, read_config(folder))
    assert with_checksum({"a": (1, 2.0)})["sha256"] == with_checksum({"a": [1.0, 2]})["sha256"], "equal settings"
    path.write_text(path.read_text().replace('"num_particles": 16', '"num_particles": 17'))
    with pytest.raises(ValueError, match=r"config\.json was changed after the run's start, or is damaged"):
        load_run(folder)


def test_records_are_sorted_by_seed_and_steps_and_a_repeated_step_counts_once(tmp_path: Path):
    folder = write_run(tmp_path / "run", [[0.0, 0.5], [0.1, 0.7]], points=[0, 500])
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join([*lines[::-1], lines[0].replace("0.0", "0.25")]) + "\n")
    run = load_run(folder)
    assert list(run.evaluations) == [0, 1]
    assert [record["env_steps"] for record in run.evaluations[0]] == [0, 500]
    assert run.evaluations[0][0]["metrics"]["episode/solved"] == 0.25
    assert run.training == {}


@pytest.mark.parametrize("text", ["[]", "{", '{"name": "of another program"}'])
def test_the_configuration_of_another_program_is_not_a_run(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="not the configuration of a run"):
        read_config(tmp_path)
    with pytest.raises(ValueError, match="holds no run"):
        read_config(tmp_path / "nowhere")


def test_an_incomplete_last_line_is_skipped_and_another_one_raises(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    one, two = ({"kind": "train", "seed": seed, "env_steps": 1, "metrics": {"a": 1}} for seed in (0, 1))
    path.write_text(f'{json.dumps(one)}\n{json.dumps(two)}\n{{"kind"')
    assert read_records(path) == [one, two]
    path.write_text(f'{json.dumps(one)}\n{{"kind"\n{json.dumps(two)}\n')
    with pytest.raises(ValueError, match="Line 2"):
        read_records(path)
