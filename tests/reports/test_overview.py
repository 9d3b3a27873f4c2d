"""Tests of the overview of many runs."""

import collections
import datetime
import io
import json
import math
import os
import typing
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from reports.fake_runs import write_run
from spo.cli import saved
from spo.files import crc32
from spo.reports import overview
from spo.reports.overview import list_overviews, parse_since, read_last_records, read_overview, select, sort
from spo.reports.run_files import METRICS_CHECKSUM, read_records, with_checksum
from spo.reports.runs import load_run

#: Orders that `spo runs` offers.
SORT_KEYS = typing.get_args(typing.get_type_hints(saved.runs, include_extras=True)["sort"])


def set_start(folder: Path, day: str) -> Path:
    """Sets the time of the first start, as `spo train` stores it."""
    (folder / "environment.json").write_text(json.dumps({"starts": [{"time": f"{day}T12:00:00+0000"}]}))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    set_start(write_run(tmp_path / "new", [0.1, 0.5], algorithm="ppo"), "2026-03-01")
    set_start(write_run(tmp_path / "old", [10.0, 20.0], metric="return", task="brax/ant"), "2026-01-01")
    finished = set_start(
        write_run(tmp_path / "deep" / "er" / "done", [[0.2, 0.9], [0.4, 0.7]], final=0.8), "2026-02-01"
    )
    summary = {"env_steps": 1000, "final_return": 0.8, "final_solve_rate": 0.75, "best_env_steps_per_seed": [0, 0]}
    (finished / "summary.json").write_text(json.dumps(summary))
    return tmp_path


def names(overviews: list[overview.Overview]) -> list[str]:
    return [found.folder.name for found in overviews]


def test_runs_are_listed_by_the_time_of_their_first_start(root: Path):
    old, done, new = list_overviews(root)
    assert (old.task, old.metric, old.result, old.env_steps) == ("brax/ant", "episode/return", 20.0, 1000)
    assert (new.algorithm, new.result_text, new.state) == ("ppo", "solved 50.0 %", "at 100%")
    assert (done.num_seeds, done.state, done.result) == (2, "finished", 0.75)
    assert done.result_text == "solved 75.0 % (untrained)"


def test_order_and_choice(root: Path):
    runs = list_overviews(root)
    assert names(sort(runs, "task")) == ["old", "done", "new"]
    assert names(sort(runs, "algorithm")) == ["new", "old", "done"]
    assert names(sort(runs, "run")) == ["done", "new", "old"]
    assert names(sort(runs, "result")) == ["old", "done", "new"]  # returns apart from shares, the best first
    for key in SORT_KEYS:
        assert len(sort(runs, key)) == 3
    assert names(select(runs, task="brax")) == ["old"]
    assert names(select(runs, algorithm="spo")) == ["old", "done"]
    since = parse_since("2026-01-15", datetime.datetime.now())
    assert names(select(runs, since=since)) == ["done", "new"]


def test_dates():
    now = datetime.datetime(2026, 11, 16, 12)
    assert parse_since("7d", now) == datetime.datetime(2026, 11, 9, 12).timestamp()
    assert parse_since("2026-11-01T12:30", now) == datetime.datetime(2026, 11, 1, 12, 30).timestamp()
    for text in ("yesterday", "", "9999999d", "999999d", "2026-13-01", "0001-01-01x"):
        with pytest.raises(ValueError, match="is no date: write 2026-11-01"):
            parse_since(text, now)


@pytest.mark.parametrize("chunk", [1, 100, 700, 1 << 16])
def test_the_end_of_the_metrics_has_the_last_evaluation_of_every_seed(root: Path, monkeypatch, chunk: int):
    monkeypatch.setattr(overview, "_CHUNK", chunk)
    path = root / "deep" / "er" / "done" / "metrics.jsonl"
    train = [{"kind": "train", "seed": 0, "env_steps": step, "metrics": {}} for step in range(50)]
    evaluations = read_records(path)[:2]
    written = [*train, *evaluations, *train]
    path.write_text("".join(json.dumps(record) + "\n" for record in written))
    found = read_last_records(path)
    assert found == written[-len(found) :]
    assert [record for record in found if record["kind"] == "evaluation"] == evaluations
    path.write_text(path.read_text() + '{"kind": "tr')  # the run was killed while it wrote
    assert read_last_records(path)[-1] == train[-1]


def test_a_long_file_is_not_read_whole(tmp_path: Path, monkeypatch):
    run = write_run(tmp_path / "run", [0.1, 0.5])
    lines = [json.dumps({"kind": "train", "seed": 0, "env_steps": 5, "metrics": {}})] * 20_000
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n" + (run / "metrics.jsonl").read_text())
    monkeypatch.setattr(overview, "read_summary", lambda _: None)
    found = read_overview(run)
    assert (found.env_steps, found.result) == (1000, 0.5)
    assert len(read_last_records(run / "metrics.jsonl")) < 2000


def test_a_list_of_runs_reads_little(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A config.json once to find the run and once to describe it, and a long metrics.jsonl in few parts."""
    files: collections.Counter[str] = collections.Counter()
    read_text = Path.read_text

    def count(path: Path, *arguments: str) -> str:
        files[path.name] += 1
        return read_text(path, *arguments)

    class Metrics(io.BytesIO):
        """A file that counts its parts."""

        parts: typing.ClassVar[list[int]] = []

        def read(self, size: int | None = -1, /) -> bytes:
            self.parts.append(size or 0)
            return super().read(size)

    monkeypatch.setattr(Path, "read_text", count)
    assert len(list_overviews(root)) == 3
    assert files["config.json"] == 6
    path = root / "new" / "metrics.jsonl"
    long = path.read_bytes() + b'{"kind": "train", "seed": 0, "env_steps": 5, "metrics": {}}\n' * 20_000
    monkeypatch.setattr(Path, "open", lambda *_: Metrics(long))
    assert len(read_last_records(path)) == 20_002
    assert sum(Metrics.parts) == len(long)
    assert len(Metrics.parts) < 12


DAMAGES = {
    "config.json": ("config.json", b"{", "is not the configuration of a run"),
    "a config of another shape": ("config.json", None, "A file lacks what a run has"),
    "summary.json": ("summary.json", b'{"env_steps": ', ""),
    "an empty summary": ("summary.json", b"{}", "A file lacks what a run has"),
    "a summary that is a list": ("summary.json", b"[]", "summary.json is damaged"),
    "environment.json": ("environment.json", b"\xff\xfe", ""),
    "metrics.jsonl": ("metrics.jsonl", b'{"kind": "evaluation"\n{}\n', "metrics.jsonl is not JSON"),
    "records of another shape": ("metrics.jsonl", b"3\n", "A file lacks what a run has"),
}


@pytest.mark.parametrize(("file", "content", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_listed_as_damaged(root: Path, file: str, content: bytes | None, words: str):
    folder = root / "new"
    if content is None:
        config = json.loads((folder / "config.json").read_text())
        del config["num_seeds"]
        content = json.dumps(config).encode()
    (folder / file).write_bytes(content)
    damaged = [found for found in list_overviews(root) if found.state == "damaged"]
    assert names(damaged) == ["new"]
    assert words in damaged[0].damage
    assert damaged[0].damage
    assert len(list_overviews(root)) == 3
    for key in SORT_KEYS:
        sort(list_overviews(root), key)


def finish(folder: Path, **entries: object) -> Path:
    summary = {"env_steps": 1000, "final_return": 0.8, "final_solve_rate": 0.75}
    summary |= {METRICS_CHECKSUM: crc32(folder / "metrics.jsonl")} | entries
    (folder / "summary.json").write_text(json.dumps(with_checksum(summary)))
    return folder


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("metrics.jsonl", b"1000", b"1001", "metrics.jsonl was changed after the run wrote it, or is damaged"),
        ("summary.json", b"0.75", b"0.85", "summary.json is damaged: delete it"),
        ("environment.json", b"2026-03-01", b"2026-03-02", "environment.json is damaged: restore the file, or delete"),
        ("environment.json", b"sha256", b"sha257", "environment.json is damaged: restore the file, or delete"),
    ],
)
def test_a_changed_digit_of_a_finished_run_is_damage(root: Path, file: str, old: bytes, new: bytes, words: str):
    """In the list of runs, and for all that compares them."""
    folder = finish(root / "new")
    assert read_overview(folder).state == "finished"
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(with_checksum(environment)))
    assert load_run(folder).summary == {"env_steps": 1000, "final_return": 0.8, "final_solve_rate": 0.75}
    path = folder / file
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    found = read_overview(folder)
    assert found.state == "damaged"
    assert words in found.damage
    with pytest.raises(ValueError, match=words):
        load_run(folder)


@pytest.mark.parametrize("damage", [b'{"kind": "evaluation"\n{}\n', None])
def test_a_finished_run_of_an_earlier_version_with_damaged_metrics_is_damaged(root: Path, damage: bytes | None):
    """It has no checksums: the lines themselves are read."""
    folder = root / "deep" / "er" / "done"
    assert read_overview(folder).state == "finished"
    path = folder / "metrics.jsonl"
    path.unlink() if damage is None else path.write_bytes(damage)
    assert read_overview(folder).state == "damaged"


def test_a_changed_digit_of_a_run_in_training_is_damage(root: Path):
    """Lines after the last checkpoint have no checksum yet."""
    folder = root / "new"
    path = folder / "metrics.jsonl"
    latest = {"iteration": 1, "metrics_bytes": path.stat().st_size, METRICS_CHECKSUM: crc32(path)}
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "latest.json").write_text(json.dumps(latest))
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    assert len(load_run(folder).records) == 3
    path.write_bytes(path.read_bytes().replace(b"1000", b"1001", 1))
    with pytest.raises(ValueError, match=r"metrics.jsonl was changed after the run wrote it"):
        load_run(folder)
    assert read_overview(folder).state == "damaged"
    (folder / "checkpoints" / "latest.json").write_text('{"iteration": 1}')  # of an earlier version
    load_run(folder)


def test_files_of_other_programs_are_not_listed(root: Path):
    (root / "other").mkdir()
    (root / "other" / "config.json").write_text("{}")
    (root / "other" / "deeper").mkdir()
    os.symlink(root / "nowhere", root / "other" / "deeper" / "config.json")
    assert len(list_overviews(root)) == 3
    assert list_overviews(root / "nowhere") == []


def test_linked_runs_are_found_once(root: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = write_run(tmp_path_factory.mktemp("disk") / "moved", [0.1])
    os.symlink(elsewhere, root / "linked")
    os.symlink(root, root / "deep" / "above")
    assert sorted(names(list_overviews(root))) == ["done", "linked", "new", "old"]


def test_a_run_without_an_evaluation_has_no_result(tmp_path: Path):
    run = write_run(tmp_path / "run", [0.5])
    (run / "metrics.jsonl").unlink()
    found = read_overview(run)
    assert (found.result_text, found.env_steps, found.state) == ("", 0, "at 0%")
    assert math.isnan(found.result)
