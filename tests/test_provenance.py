"""Tests of the commit that runs and measurements are stored with."""

import os
import subprocess
from pathlib import Path

import pytest

from spo import provenance


def test_the_commit_is_of_the_source_and_not_of_a_project_that_it_is_installed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "tracked.py").touch()
    (tmp_path / "installed.py").touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "figures.json").touch()
    author = ["-c", "user.name=A", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "tracked.py", "results"], [*author, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.delenv("SPO_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "installed.py"))
    assert provenance.git_commit() is None
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "tracked.py"))
    assert len(provenance.git_commit() or "") == 40
    (tmp_path / "results" / "figures.json").write_text("1")
    assert len(provenance.git_commit() or "") == 40
    (tmp_path / "tracked.py").write_text("1")
    assert (provenance.git_commit() or "").endswith("-dirty")
    monkeypatch.setenv("SPO_COMMIT", "0123abc")
    assert provenance.git_commit() == "0123abc"


def test_the_command_leaves_out_the_place_of_its_results(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["experiments/x.py", "--out", "/a/b", "--tasks", "c d", "--out=/d"])
    assert provenance.command_line() == "python experiments/x.py --tasks 'c d'"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system can't bind a process to cores")
def test_cores_are_those_that_the_process_may_use():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert provenance.num_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert provenance.num_cores() == len(allowed)
