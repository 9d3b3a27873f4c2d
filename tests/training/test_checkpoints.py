"""Tests of checkpoints: they are complete or absent, and come back bit by bit."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from spo.algorithms.base import DEVICE_AXIS, TrainState
from spo.training import checkpoints
from spo.training.checkpointer import Checkpointer
from spo.training.run_state import Progress, RunState
from spo.training.trainer import abstract_state
from training.comparing import assert_same_bits


class Worker(NamedTuple):
    key: jax.Array
    replay: dict[str, jax.Array]
    nothing: None = None
    empty: tuple = ()


MESH = Mesh(np.array(jax.devices()[:1]), (DEVICE_AXIS,))
PROGRESS = Progress(
    iteration=0,
    env_steps_per_iteration=7,
    best_scores=(0.1, -1e300),
    best_iterations=(0, 0),
    metrics_bytes=0,
    num_devices=1,
    wall_seconds=1.5,
    compile_seconds=1.0,
    training_seconds=0.0,
    time_to_first_update=None,
)


def make_state(key: jax.Array) -> TrainState:
    """Returns leaves of every kind: floats with unusual bits, integers, booleans, typed and raw keys."""
    key_learner, key_worker, key_env = jax.random.split(key, 3)
    learner = {
        "w": jax.random.normal(key_learner, (2, 3)).at[0].set(jnp.array([jnp.nan, -0.0, 1e-45])),
        "optimiser": (jnp.array([3, 4], jnp.int32), jnp.zeros((2, 0))),
        "half": jnp.array([1.1, 2.2], jnp.bfloat16),
    }
    replay = {"flags": jnp.array([[True, False]]), "cells": jnp.arange(5000, dtype=jnp.int8)[None]}
    worker = Worker(key=jax.random.split(key_worker, (1, 2)), replay=replay)
    return TrainState(learner, {"worker": worker, "raw": jax.random.key_data(key_env)[None]})


def make_run_state(iteration: int) -> RunState:
    state = make_state(jax.random.key(iteration))
    best = make_state(jax.random.key(100 + iteration)).learner
    return RunState(state, best, PROGRESS._replace(iteration=iteration))


ABSTRACT = abstract_state(make_state, MESH)


def folders(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir())


def restore(folder: Path, message: Any = pytest.fail) -> RunState:
    state = checkpoints.restore(folder, ABSTRACT, 1, message)
    assert state is not None
    return state


def test_a_checkpoint_comes_back_to_the_bit(tmp_path: Path):
    saved = make_run_state(3)
    report = checkpoints.save(tmp_path, saved)
    restored = restore(tmp_path)
    assert restored.progress == saved.progress
    assert_same_bits(restored.train_state, saved.train_state)
    assert_same_bits(restored.best_learner, saved.best_learner)
    assert jax.random.split(restored.train_state.worker["worker"].key[0, 0]).dtype == jax.random.key(0).dtype
    assert report.num_bytes == sum(path.stat().st_size for path in (tmp_path / "3").rglob("*") if path.is_file())
    assert report.seconds > 0


def test_there_is_none_before_the_first(tmp_path: Path):
    assert checkpoints.restore(tmp_path / "checkpoints", ABSTRACT, 1, pytest.fail) is None
    with pytest.raises(ValueError, match="no checkpoint"):
        checkpoints.restore_learner(tmp_path, ABSTRACT.learner, "best", pytest.fail)


def test_the_last_two_are_kept(tmp_path: Path):
    for iteration in (2, 9, 10, 100):  # as numbers: "9" comes after "10" as text
        checkpoints.save(tmp_path, make_run_state(iteration))
    assert folders(tmp_path) == ["10", "100"]
    assert restore(tmp_path).progress.iteration == 100


def test_a_half_written_one_is_never_taken_for_a_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The process ends just before the checkpoint gets its name. It is ignored, and the next one removes it."""
    checkpoints.save(tmp_path, make_run_state(1))

    class Killed(BaseException):
        """Like a signal: no code handles it."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(os, name, die)
            patch.setattr(Path, name, die)
        with pytest.raises(Killed):
            checkpoints.save(tmp_path, make_run_state(2))
    assert len(folders(tmp_path)) == 2, "a checkpoint was half written"
    assert checkpoints.iterations(tmp_path) == [1]
    assert_same_bits(restore(tmp_path).train_state, make_run_state(1).train_state)
    checkpoints.save(tmp_path, make_run_state(2))
    assert folders(tmp_path) == ["1", "2"]
    assert_same_bits(restore(tmp_path).train_state, make_run_state(2).train_state)


@pytest.mark.parametrize("part", ["learner", "worker", "best_learner", "progress"])
def test_a_damaged_one_is_not_used(tmp_path: Path, part: str):
    for iteration in (1, 2):
        checkpoints.save(tmp_path, make_run_state(iteration))
    shutil.rmtree(tmp_path / "2" / part)
    messages: list[str] = []
    assert restore(tmp_path, messages.append).progress.iteration == 1
    assert "iteration 2 is damaged" in messages[0]
    checkpoints.save(tmp_path, make_run_state(2))  # its name is free again
    assert restore(tmp_path).progress.iteration == 2


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def zero_it(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    for iteration in (1, 2):
        checkpoints.save(folder, make_run_state(iteration))
    return folder


@pytest.mark.parametrize("damage", [flip_a_bit, zero_it, truncate, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["learner/d/*", "best_learner/_METADATA", "checksums.json", "progress/metadata"])
def test_damage_to_any_file_is_noticed(tmp_path: Path, two_checkpoints: Path, name: str, damage: Any):
    """Resume and the readers of learners use the checkpoint before, with one sentence that names the file."""
    folder = shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    (path,) = (folder / "2").glob(name)
    damage(path)
    messages: list[str] = []
    which = "best" if name.startswith("best") else "last"
    learner, progress = checkpoints.restore_learner(folder, ABSTRACT.learner, which, messages.append)
    before = make_run_state(1)
    assert_same_bits(learner, before.best_learner if which == "best" else before.train_state.learner)
    assert progress == before.progress
    assert checkpoints.iterations(folder) == [1, 2], "a reader changes nothing"
    assert restore(folder, messages.append).progress.iteration == 1
    assert len(messages) == 2
    for message in messages:
        assert message.startswith("The checkpoint of iteration 2 is damaged (")
        # One flipped bit in the checksums makes a good file look damaged.
        assert str(folder / "2" if (name, damage) == ("checksums.json", flip_a_bit) else path) in message
        assert message.endswith("): that of iteration 1 is used.")


def test_a_flipped_bit_in_a_large_array_is_noticed(tmp_path: Path):
    """The format itself checks only small arrays: without checksums each of these loads as another learner."""

    def make_large(key: jax.Array) -> TrainState:
        state = make_state(key)
        return state._replace(learner={**state.learner, "large": jax.random.normal(key, (2, 100, 100))})

    state, abstract = make_large(jax.random.key(0)), abstract_state(make_large, MESH)
    checkpoints.save(tmp_path, RunState(state, state.learner, PROGRESS._replace(iteration=1)))
    files = [path for path in (tmp_path / "1" / "learner").rglob("*") if path.is_file()]
    path = max(files, key=lambda file: file.stat().st_size)
    flip_a_bit(path)
    with pytest.raises(ValueError, match=f"iteration 1: {path} differs from its checksum"):
        checkpoints.restore_learner(tmp_path, abstract.learner, "last", pytest.fail)
    with pytest.raises(ValueError, match=f"iteration 1: {path} differs from its checksum"):
        checkpoints.restore(tmp_path, abstract, 1, pytest.fail)


def test_a_reader_of_learners_does_not_read_the_replay(tmp_path: Path, two_checkpoints: Path):
    folder = shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    shutil.rmtree(folder / "2" / "worker")
    learner, _ = checkpoints.restore_learner(folder, ABSTRACT.learner, "best", pytest.fail)
    assert_same_bits(learner, make_run_state(2).best_learner)


def test_a_checkpoint_of_an_earlier_version_is_read_with_a_sentence(tmp_path: Path):
    """It has no checksums."""
    state = make_run_state(1)
    checkpoints.save(tmp_path, state)
    (tmp_path / "1" / "checksums.json").unlink()
    path = tmp_path / "1" / "progress" / "metadata"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "has_checksums"}))
    messages: list[str] = []
    assert_same_bits(restore(tmp_path, messages.append).train_state, state.train_state)
    learner, _ = checkpoints.restore_learner(tmp_path, ABSTRACT.learner, "last", messages.append)
    assert_same_bits(learner, state.train_state.learner)
    assert [message[:52] for message in messages] == ["The checkpoint of iteration 1 has no checksums, beca"] * 2


def test_a_checkpoint_without_its_checksums_is_never_taken_for_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The process ends while they are computed. A resumed run removes what it has left."""
    checkpoints.save(tmp_path, make_run_state(1))

    def die(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.checksums, "write", die)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(tmp_path, make_run_state(2))
    (tmp_path / "0.removed").mkdir()
    assert checkpoints.iterations(tmp_path) == [1]
    assert restore(tmp_path).progress.iteration == 1
    checkpoints.remove_leftovers(tmp_path)
    assert folders(tmp_path) == ["1"]


def test_the_last_one_is_missed_when_it_is_lost(tmp_path: Path, two_checkpoints: Path):
    folder = shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    shutil.rmtree(folder / "2")
    messages: list[str] = []
    learner, _ = checkpoints.restore_learner(folder, ABSTRACT.learner, "last", messages.append)
    assert_same_bits(learner, make_run_state(1).train_state.learner)
    assert restore(folder, messages.append).progress.iteration == 1
    assert len(messages) == 2
    assert messages[0] == messages[1]
    assert messages[0].endswith(f"2 is damaged ({folder / '2'} is missing): that of iteration 1 is used.")
    assert restore(folder).progress.iteration == 1, "reported once"
    (folder / "latest.json").write_text('{"iteration": 2}')
    shutil.rmtree(folder / "1")
    for read in (
        lambda: checkpoints.restore(folder, ABSTRACT, 1, pytest.fail),
        lambda: checkpoints.restore_learner(folder, ABSTRACT.learner, "last", pytest.fail),
    ):
        with pytest.raises(ValueError, match=r"No checkpoint in .* can be read \(iteration 2: .*2 is missing\)"):
            read()
    (folder / "latest.json").write_text("garbage")
    assert checkpoints.restore(folder, ABSTRACT, 1, pytest.fail) is None


def test_the_checksum_of_the_metrics_is_continued(tmp_path: Path):
    """With each state, only the new lines are read. A run of an earlier version gets the checksum of all lines."""
    path = tmp_path / "metrics.jsonl"
    checkpointer = Checkpointer(tmp_path / "checkpoints", path, 0.0, lambda _: None)
    for iteration, text in enumerate(("one\n", "two\n", "three\n"), start=1):
        with path.open("a") as file:
            file.write(text)
        checkpointer.update(make_run_state(iteration))
        latest = json.loads((tmp_path / "checkpoints" / "latest.json").read_text())
        expected = {"metrics_bytes": path.stat().st_size, "metrics_crc32": zlib.crc32(path.read_bytes())}
        assert latest == {"iteration": iteration} | expected
        progress = restore(tmp_path / "checkpoints").progress
        assert {name: getattr(progress, name) for name in expected} == expected
        if iteration == 1:
            before = checkpointer.latest
            assert before is not None
            checkpointer.latest = before._replace(progress=before.progress._replace(metrics_crc32=None))


def test_checkpoints_after_evaluations_take_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """One is written after an evaluation if it takes at most 5 % of the time since the last, and after 60 s.

    Writing takes 1 s here. Before the first one, its time is guessed to be half a second.
    """
    now, saved = [0.0], []
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(
        checkpoints, "save", lambda _, state: saved.append(state.progress.iteration) or checkpoints.Saved(1, 1.0)
    )
    checkpointer = Checkpointer(tmp_path, None, None, lambda _: None)
    for iteration, seconds, is_evaluated in (
        (0, 11.0, True),  # nothing is learned yet
        (1, 11.0, False),
        (2, 11.0, True),  # saved
        (3, 20.0, True),  # too early
        (4, 31.5, True),  # saved
        (5, 90.0, False),
        (6, 92.0, False),  # saved
    ):
        now[0] = seconds
        checkpointer.update(make_run_state(iteration), is_evaluated=is_evaluated)
    assert saved == [2, 4, 6]
    checkpointer = Checkpointer(tmp_path, None, 200.0, lambda _: None)
    for iteration, seconds in ((7, 100.0), (8, 291.0), (9, 293.0)):  # the time that the caller has chosen
        now[0] = seconds
        checkpointer.update(make_run_state(iteration), is_evaluated=True)
    assert saved == [2, 4, 6, 9]


def test_a_copy_under_another_number_is_not_used(tmp_path: Path, two_checkpoints: Path):
    folder = shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    shutil.copytree(folder / "1", folder / "3")
    messages: list[str] = []
    assert restore(folder, messages.append).progress.iteration == 2
    assert "3 holds iteration 1" in messages[0]


def test_process_0_decides_for_all_which_checkpoint_is_used(
    tmp_path: Path, two_checkpoints: Path, monkeypatch: pytest.MonkeyPatch
):
    """Here process 1 of two: process 0 has found the last one damaged."""
    folder = shutil.copytree(two_checkpoints, tmp_path / "checkpoints")
    answers = iter([True, False, True, True])  # readable and damaged; readable and good
    monkeypatch.setattr(checkpoints.processes, "is_first", lambda: False)
    monkeypatch.setattr(checkpoints.processes, "broadcast_from_process_0", lambda _: next(answers))
    messages: list[str] = []
    assert restore(folder, messages.append).progress.iteration == 1
    assert checkpoints.iterations(folder) == [1, 2], "process 0 renames it"


OPERATING_SYSTEM_ERRORS = {
    "the disk": OSError(errno.EIO, "Input/output error"),
    "open files": OSError(errno.EMFILE, "Too many open files"),
    "memory": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "permission": PermissionError(errno.EACCES, "Permission denied"),
    "arrays": ValueError("RESOURCE_EXHAUSTED: Failed to open: x: Too many open files [os_error_code='24']"),
}


@pytest.mark.parametrize("place", ["checksums.check", "_restore_item"])
@pytest.mark.parametrize("error", OPERATING_SYSTEM_ERRORS.values(), ids=OPERATING_SYSTEM_ERRORS)
def test_an_error_of_the_operating_system_is_no_damage(
    tmp_path: Path, two_checkpoints: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
):
    """Neither a resumed run nor a reader uses an earlier checkpoint, and nothing is renamed."""
    folder = shutil.copytree(two_checkpoints, tmp_path / "checkpoints")

    def fail(path: Path, *_: Any) -> None:
        if path.name == "2":
            raise error

    monkeypatch.setattr(f"spo.training.checkpoints.{place}", fail)
    for read in (
        lambda: checkpoints.restore(folder, ABSTRACT, 1, pytest.fail),
        lambda: checkpoints.restore_learner(folder, ABSTRACT.learner, "last", pytest.fail),
    ):
        with pytest.raises(
            OSError, match=rf"The checkpoint {folder / '2'} can't be read \(.*, and nothing was changed"
        ):
            read()
    assert folders(folder) == ["1", "2"]


def test_if_none_can_be_read_the_error_names_the_reasons_and_nothing_changes(tmp_path: Path):
    """Twice: only the user may decide to start again and lose the records."""
    for iteration in (1, 2):
        checkpoints.save(tmp_path, make_run_state(iteration))
        shutil.rmtree(tmp_path / str(iteration) / "worker")
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"No checkpoint in .* can be read \(iteration 2: .*worker.*; iteration 1: .*worker"
        ):
            checkpoints.restore(tmp_path, ABSTRACT, 1, pytest.fail)
        assert checkpoints.iterations(tmp_path) == [1, 2]


@pytest.mark.parametrize("error", [MemoryError(), jax.errors.JaxRuntimeError("INTERNAL: out of memory")])
def test_a_device_without_memory_does_not_make_a_checkpoint_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    checkpoints.save(tmp_path, make_run_state(1))

    def no_memory(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_restore_item", no_memory)
        with pytest.raises(type(error)):
            checkpoints.restore(tmp_path, ABSTRACT, 1, pytest.fail)
    assert restore(tmp_path).progress.iteration == 1


def test_another_number_of_devices_is_refused(tmp_path: Path):
    checkpoints.save(tmp_path, make_run_state(1))
    with pytest.raises(ValueError, match="uses 1 devices and here are 4"):
        checkpoints.restore(tmp_path, ABSTRACT, 4, pytest.fail)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """The operating system refuses files over 3 kB while Orbax writes them."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_reported_and_earlier_checkpoints_stay(
    tmp_path: Path, request: pytest.FixtureRequest, capfd: Any
):
    checkpoints.save(tmp_path, make_run_state(1))
    noise = jax.random.bits(jax.random.key(0), (1, 20_000), jnp.uint8)  # can't be compressed
    grown = make_run_state(2)
    grown = grown._replace(train_state=grown.train_state._replace(worker={"noise": noise}))
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match=r"checkpoint .*/2 can't be written: .* The checkpoint of iteration 1 is intact"):
        checkpoints.save(tmp_path, grown)
    assert folders(tmp_path) == ["1"]
    assert_same_bits(restore(tmp_path).train_state, make_run_state(1).train_state)
    assert "Traceback" not in capfd.readouterr().err


FULL_DISK = """
import resource, sys
from pathlib import Path
import jax.numpy as jnp
import numpy as np
from spo.algorithms.base import TrainState
from spo.training import checkpoints, run_log
from spo.training.run_state import Progress, RunState

learner = {str(index): jnp.array(np.random.default_rng(index).normal(size=20_000)) for index in range(30)}
progress = Progress(1, 1, best_scores=(0.0,), best_iterations=(0,), num_devices=1)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
with run_log.collecting() as log:
    log.write_to(Path(sys.argv[1]) / "run.log")
    try:
        checkpoints.save(Path(sys.argv[1]) / "checkpoints", RunState(TrainState(learner, learner), learner, progress))
    except OSError as error:
        print(error)
"""


def test_a_program_on_a_full_disk_gets_one_sentence(tmp_path: Path):
    process = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True)
    assert "checkpoints/1 can't be written: " in process.stdout  # the reason is of whoever notices it first
    assert "There is no earlier one." in process.stdout
    assert process.returncode == 0
