"""Checkpoints are whole or not there, and nothing in them is ever executed."""

import json
import os
import pickle
import resource
import shutil
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
from spo.training.checkpoints import Checkpoint, Progress
from spo.training.program import shardings
from spo.training.run_folder import load_learner
from training.comparing import assert_same_bits, last_checkpoint


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
    """Every kind of leaf: numbers of all sorts, odd bits among them, booleans, typed and raw keys."""
    key_learner, key_worker, key_env = jax.random.split(key, 3)
    learner = {
        "w": jax.random.normal(key_learner, (2, 3)).at[0].set(jnp.array([jnp.nan, -0.0, 1e-45])),
        "optimiser": (jnp.array([3, 4], jnp.int32), jnp.zeros((2, 0))),
        "half": jnp.array([1.1, 2.2], jnp.bfloat16),
    }
    replay = {"flags": jnp.array([[True, False]]), "cells": jnp.arange(5000, dtype=jnp.int8)[None]}
    worker = Worker(key=jax.random.split(key_worker, (1, 2)), replay=replay)
    return TrainState(learner, {"worker": worker, "raw": jax.random.key_data(key_env)[None]})


def make_checkpoint(iteration: int) -> Checkpoint:
    state = make_state(jax.random.key(iteration))
    best = make_state(jax.random.key(100 + iteration)).learner
    return Checkpoint(state, best, PROGRESS._replace(iteration=iteration))


ABSTRACT = checkpoints.abstract_state(make_state, shardings(MESH))


def restore(folder: Path, say: Any = pytest.fail) -> Checkpoint:
    checkpoint = checkpoints.restore(folder, ABSTRACT, 1, say)
    assert checkpoint is not None
    return checkpoint


def test_a_checkpoint_comes_back_to_the_bit(tmp_path: Path):
    saved = make_checkpoint(3)
    report = checkpoints.save(tmp_path, saved)
    restored = restore(tmp_path)
    assert restored.progress == saved.progress
    assert_same_bits(restored.state, saved.state)
    assert_same_bits(restored.best_learner, saved.best_learner)
    assert jax.random.split(restored.state.worker["worker"].key[0, 0]).dtype == jax.random.key(0).dtype
    assert report.num_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert report.seconds > 0


def test_there_is_none_before_the_first(tmp_path: Path):
    assert checkpoints.restore(tmp_path / "checkpoints", ABSTRACT, 1, pytest.fail) is None
    with pytest.raises(ValueError, match="no checkpoint"):
        checkpoints.restore_learner(tmp_path, ABSTRACT.learner, "best")


def test_the_last_two_are_kept(tmp_path: Path):
    for iteration in (2, 9, 10, 100):  # as numbers: "9" comes after "10" as text
        checkpoints.save(tmp_path, make_checkpoint(iteration))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "100"]
    assert restore(tmp_path).progress.iteration == 100


def test_a_half_written_one_is_never_taken_for_a_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ended at the last moment, just before it gets its name: it is left out, and cleared away by the next."""
    checkpoints.save(tmp_path, make_checkpoint(1))

    class Killed(BaseException):
        """Like a signal: nobody handles it."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(os, name, die)
            patch.setattr(Path, name, die)
        with pytest.raises(Killed):
            checkpoints.save(tmp_path, make_checkpoint(2))
    assert len(list(tmp_path.iterdir())) == 2, "nothing was half written"
    assert checkpoints.iterations(tmp_path) == [1]
    assert_same_bits(restore(tmp_path).state, make_checkpoint(1).state)
    checkpoints.save(tmp_path, make_checkpoint(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert_same_bits(restore(tmp_path).state, make_checkpoint(2).state)


@pytest.mark.parametrize("part", ["learner", "worker", "best_learner", "progress"])
def test_a_damaged_one_is_left_aside(tmp_path: Path, part: str):
    for iteration in (1, 2):
        checkpoints.save(tmp_path, make_checkpoint(iteration))
    shutil.rmtree(tmp_path / "2" / part)
    said: list[str] = []
    assert restore(tmp_path, said.append).progress.iteration == 1
    assert "iteration 2 is damaged" in said[0]
    checkpoints.save(tmp_path, make_checkpoint(2))  # its name is free again
    assert restore(tmp_path).progress.iteration == 2


def test_without_a_readable_one_that_is_said_and_nothing_is_touched(tmp_path: Path):
    """Again and again: to begin anew, over the records of what was lost, is for the user to decide."""
    for iteration in (1, 2):
        checkpoints.save(tmp_path, make_checkpoint(iteration))
        shutil.rmtree(tmp_path / str(iteration) / "worker")
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"No checkpoint in .* can be read \(iteration 2: .*worker.*; iteration 1: .*worker"
        ):
            checkpoints.restore(tmp_path, ABSTRACT, 1, pytest.fail)
        assert checkpoints.iterations(tmp_path) == [1, 2]


@pytest.mark.parametrize("error", [MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")])
def test_a_device_without_room_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception):
    checkpoints.save(tmp_path, make_checkpoint(1))

    def no_room(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_restore_item", no_room)
        with pytest.raises(type(error)):
            checkpoints.restore(tmp_path, ABSTRACT, 1, pytest.fail)
    assert restore(tmp_path).progress.iteration == 1


def test_another_number_of_devices_is_refused(tmp_path: Path):
    checkpoints.save(tmp_path, make_checkpoint(1))
    with pytest.raises(ValueError, match="uses 1 devices and here are 4"):
        checkpoints.restore(tmp_path, ABSTRACT, 4, pytest.fail)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can grow over 3 kB: the operating system refuses it under Orbax's hands."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_said_and_harms_nothing(tmp_path: Path, request: pytest.FixtureRequest, capfd: Any):
    checkpoints.save(tmp_path, make_checkpoint(1))
    noise = jax.random.bits(jax.random.key(0), (1, 20_000), jnp.uint8)  # can't be compressed
    grown = make_checkpoint(2)
    grown = grown._replace(state=grown.state._replace(worker={"noise": noise}))
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match=r"checkpoint .*/2 can't be written: .* The checkpoint of iteration 1 is intact"):
        checkpoints.save(tmp_path, grown)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert_same_bits(restore(tmp_path).state, make_checkpoint(1).state)
    assert "Traceback" not in capfd.readouterr().err


def test_an_exported_learner_comes_back_to_the_bit(whole_run: Path, tmp_path: Path):
    """The best by default: no replay, one file, plain arrays."""
    checkpoint = last_checkpoint(whole_run)
    for which, learner, iterations in (
        ("best", checkpoint.best_learner, list(checkpoint.progress.best_iterations)),
        ("last", checkpoint.state.learner, [12, 12]),
    ):
        target = tmp_path / "exports" / f"{which}.npz"
        checkpoints.export(whole_run, target, which)
        assert [path.name for path in target.parent.glob(f"{which}*")] == [target.name]
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), learner)
        assert_same_bits(checkpoints.read_learner(target, abstract), learner)
        assert_same_bits(load_learner(whole_run, which)[1], learner)
        header = checkpoints.read_header(target)
        assert header["which"] == which
        assert header["iteration"] == iterations
        assert header["env_steps"] == [32 * i for i in iterations]
        assert header["experiment"]["task"] == "rubiks_cube"
    checkpoints.export(whole_run, tmp_path / "default.npz")
    assert checkpoints.read_header(tmp_path / "default.npz")["which"] == "best"


def test_a_learner_that_does_not_fit_is_refused(tmp_path: Path):
    source = tmp_path / "learner.npz"
    checkpoints.write_learner(source, {"w": jnp.zeros((2, 3))}, {"format": checkpoints.EXPORT_FORMAT})
    place = shardings(MESH).learner

    def like(**leaves: Any) -> Any:
        return {name: jax.ShapeDtypeStruct(*leaf, sharding=place) for name, leaf in leaves.items()}

    assert_same_bits(checkpoints.read_learner(source, like(w=((2, 3), jnp.float32))), {"w": jnp.zeros((2, 3))})
    for abstract, said in (
        (like(w=((2, 4), jnp.float32)), r"w is float32\[2, 3\] .* should be float32\[2, 4\]"),
        (like(w=((2, 3), jnp.int32)), r"should be int32\[2, 3\]"),
        (like(v=((2, 3), jnp.float32)), r"lacks \['v'\] and has \['w'\]"),
    ):
        with pytest.raises(ValueError, match=said):
            checkpoints.read_learner(source, abstract)


class _Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


def test_reading_a_file_runs_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    crater = tmp_path / "crater"
    monkeypatch.setenv("BOMB", str(crater))
    bomb = np.array([_Bomb()], dtype=object)
    header = np.array(json.dumps({"format": checkpoints.EXPORT_FORMAT}))
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(_Bomb()))
    np.savez(tmp_path / "in_header.npz", header=bomb)
    np.savez(tmp_path / "in_array.npz", header=header, w=bomb)
    np.savez(tmp_path / "other.npz", w=np.zeros(3))
    (tmp_path / "text.npz").write_text("not an archive")
    for name in ("plain", "in_header", "in_array", "other", "text", "absent"):
        with pytest.raises(ValueError):  # noqa: PT011 (each says it in its own way)
            checkpoints.read_learner(tmp_path / f"{name}.npz", {"w": jax.ShapeDtypeStruct((1,), jnp.float32)})
    assert not crater.exists()
