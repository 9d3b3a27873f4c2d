"""Tests of the lock of a run folder: one run at a time, and a process that ends in any way releases it."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spo.training import locks, loop, run_folder
from spo.training.locks import RunLock
from spo.training.run_folder import RunFolder
from training.comparing import records
from training.tiny_run import tiny_experiment

HOLD = """
import fcntl, json, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
holder = {"host": "other", "pid": os.getpid(), "since": "noon", "command": "spo train"}
os.write(descriptor, json.dumps(holder).encode())
print("held", flush=True)
time.sleep(100)
"""


def test_a_second_process_is_refused_by_name_and_a_killed_one_holds_nothing(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / locks.LOCK_NAME)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            ValueError, match=rf"{tmp_path} is in use by process {holder.pid} on other since noon \(`spo train`\)"
        ):
            RunLock(tmp_path).acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunLock(tmp_path).acquire():
        named = json.loads((tmp_path / locks.LOCK_NAME).read_text())
        assert (named["host"], named["pid"]) == (socket.gethostname(), os.getpid())
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()}"):
            RunLock(tmp_path).acquire()
    RunLock(tmp_path).acquire().release()


def test_a_lock_that_is_dropped_is_free(tmp_path: Path):
    RunLock(tmp_path).acquire()
    RunLock(tmp_path).acquire()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_without_locks_a_file_names_the_holder(tmp_path: Path, no_locks: None):
    held = RunLock(tmp_path).acquire()
    with pytest.raises(ValueError, match=rf"in use by process {os.getpid()} .* delete .*{locks.HOLDER_NAME}"):
        RunLock(tmp_path).acquire()
    held.release()
    assert not (tmp_path / locks.HOLDER_NAME).exists()


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"born": "1"}])
def test_without_locks_a_dead_process_of_this_host_is_replaced(tmp_path: Path, no_locks: None, change: dict[str, Any]):
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": "noon", "command": ""}
    (tmp_path / locks.HOLDER_NAME).write_text(json.dumps(holder | change))
    with RunLock(tmp_path).acquire():
        assert json.loads((tmp_path / locks.HOLDER_NAME).read_text())["pid"] == os.getpid()


def test_without_locks_one_of_two_processes_takes_the_place_of_a_dead_one(
    tmp_path: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
):
    """Another process takes it after this one has seen that the holder is dead: its new file is not removed."""
    dead = {"host": socket.gethostname(), "pid": 2**22 + 1, "since": "noon"}
    path = tmp_path / locks.HOLDER_NAME
    path.write_text(json.dumps(dead))
    other = {"host": socket.gethostname(), "pid": os.getpid(), "born": locks._birth(os.getpid()), "since": "other"}
    has_ended = locks._has_ended

    def see_and_be_late(holder: dict[str, Any]) -> bool:
        answer = has_ended(holder)
        if answer:
            path.write_text(json.dumps(other))
        return answer

    monkeypatch.setattr(locks, "_has_ended", see_and_be_late)
    with pytest.raises(ValueError, match="is in use by"):
        RunLock(tmp_path).acquire()
    assert json.loads(path.read_text()) == other
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [locks.LOCK_NAME, locks.HOLDER_NAME]


def test_without_locks_a_process_that_was_killed_while_it_replaced_another_blocks_nobody(
    tmp_path: Path, no_locks: None
):
    dead = json.dumps({"host": socket.gethostname(), "pid": 2**22 + 1, "since": "noon"})
    for name in (locks.HOLDER_NAME, f"{locks.HOLDER_NAME}.guard"):
        (tmp_path / name).write_text(dead)
    with pytest.raises(ValueError, match="is in use by"):
        RunLock(tmp_path).acquire()
    with RunLock(tmp_path).acquire():
        assert json.loads((tmp_path / locks.HOLDER_NAME).read_text())["pid"] == os.getpid()


def test_without_locks_only_the_own_file_is_removed(tmp_path: Path, no_locks: None):
    """The user has deleted the file, and another process has got the lock."""
    held = RunLock(tmp_path).acquire()
    (tmp_path / locks.HOLDER_NAME).write_text('{"host": "another", "pid": 1}')
    held.release()
    assert (tmp_path / locks.HOLDER_NAME).read_text() == '{"host": "another", "pid": 1}'


@pytest.mark.parametrize("text", ['{"host": "another", "pid": 1, "since": "noon"}', "", "[]"])
def test_without_locks_a_process_elsewhere_is_not_replaced(tmp_path: Path, no_locks: None, text: str):
    (tmp_path / locks.HOLDER_NAME).write_text(text)
    with pytest.raises(ValueError, match="is in use by"):
        RunLock(tmp_path).acquire()
    assert (tmp_path / locks.HOLDER_NAME).read_text() == text


def test_all_processes_receive_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Process 1 of two takes no lock. It is refused when process 0 was."""
    monkeypatch.setattr(locks.processes, "is_first", lambda: False)
    monkeypatch.setattr(locks.processes, "broadcast_from_process_0", lambda _: False)
    with pytest.raises(ValueError, match="in use: process 0 names"):
        RunLock(tmp_path).acquire()
    monkeypatch.setattr(locks.processes, "broadcast_from_process_0", lambda _: True)
    RunLock(tmp_path).acquire()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_in_training_is_not_resumed(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    with folder.create(tiny_experiment()):
        before = sorted(folder.path.iterdir())
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()}"):
            loop.train(tiny_experiment(), folder.path, resume=True)
        with pytest.raises(ValueError, match="holds a run already"):
            folder.create(tiny_experiment(seed=1))
        assert sorted(folder.path.iterdir()) == before
    folder.open_to_train().release()


def test_of_two_runs_that_start_at_once_in_one_folder_one_is_refused(tmp_path: Path):
    """Both have found the folder unused."""
    one, other = (RunFolder.unused(tmp_path / "run") for _ in range(2))
    with one.create(tiny_experiment(seed=1)), pytest.raises(ValueError, match="holds a run already"):
        other.create(tiny_experiment(seed=2))
    assert one.experiment.seed == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_automatic_names_differ_within_a_second(tmp_path: Path):
    names = {run_folder.new_run_folder(tmp_path, "brax/ant", "spo").name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("brax-ant-spo-20") for name in names)
    odd = run_folder.new_run_folder(tmp_path, "my.module:make \x1b[0m", "spo")
    assert odd.parent == tmp_path
    assert odd.name.startswith("my.module-make-0m-spo-20")


@pytest.mark.program
def test_of_three_programs_that_start_together_one_trains(tmp_path: Path):
    """The others end with a sentence, and the records are those of one run."""
    command = [sys.executable, str(Path(__file__).parent / "tiny_run.py"), str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"}
    started = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    errors = [process.communicate()[1] for process in started]
    assert sorted(process.returncode != 0 for process in started) == [False, True, True]
    for process, error in zip(started, errors, strict=True):
        if process.returncode:
            assert "holds a run already" in error or "is in use by" in error
    found = [(record["kind"], record["iteration"], record["seed"]) for record in records(tmp_path / "run")]
    assert len(found) == len(set(found)) == 22
