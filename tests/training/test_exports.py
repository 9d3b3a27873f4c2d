"""Tests of exported learners: they come back bit by bit, and reading them executes nothing."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.training import exports
from spo.training.saved_learners import export_learner, load_experiment, load_learner
from spo.training.trainer import make_mesh, state_shardings
from training.comparing import assert_same_bits, last_state


def test_a_missing_file_or_folder_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"There is no file .*nope\.npz: name a folder"):
        load_experiment(tmp_path / "nope.npz")
    with pytest.raises(ValueError, match=r"There is no folder .*nowhere for 'a\.npz': create it first\."):
        exports.write_learner(tmp_path / "nowhere" / "a.npz", {}, {})
    assert list(tmp_path.iterdir()) == []


def test_an_exported_learner_comes_back_to_the_bit(whole_run: Path, tmp_path: Path):
    """One file of plain arrays, without the replay. The best parameters are the default."""
    state = last_state(whole_run)
    for which, learner, iterations in (
        ("best", state.best_learner, list(state.progress.best_iterations)),
        ("last", state.train_state.learner, [12, 12]),
    ):
        target = tmp_path / f"{which}.npz"
        export_learner(whole_run, target, which)
        assert [path.name for path in target.parent.glob(f"{which}*")] == [target.name]
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), learner)
        assert_same_bits(exports.read_learner(target, abstract), learner)
        assert_same_bits(load_learner(whole_run, which)[1], learner)
        header = exports.read_header(target)
        assert header["which"] == which
        assert header["iteration"] == iterations
        assert header["env_steps"] == [32 * i for i in iterations]
        assert header["experiment"]["task"] == "rubiks_cube"
    export_learner(whole_run, tmp_path / "default.npz")
    assert exports.read_header(tmp_path / "default.npz")["which"] == "best"


def test_a_learner_that_does_not_fit_is_refused(tmp_path: Path):
    source = tmp_path / "learner.npz"
    exports.write_learner(source, {"w": jnp.zeros((2, 3))}, {})
    place = state_shardings(make_mesh(1)).learner

    def like(**leaves: Any) -> Any:
        return {name: jax.ShapeDtypeStruct(*leaf, sharding=place) for name, leaf in leaves.items()}

    assert_same_bits(exports.read_learner(source, like(w=((2, 3), jnp.float32))), {"w": jnp.zeros((2, 3))})
    for abstract, message in (
        (like(w=((2, 4), jnp.float32)), r"w is float32\[2, 3\] .* should be float32\[2, 4\]"),
        (like(w=((2, 3), jnp.int32)), r"should be int32\[2, 3\]"),
        (like(v=((2, 3), jnp.float32)), r"lacks \['v'\] and has \['w'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            exports.read_learner(source, abstract)


def test_the_refusal_of_a_learner_names_its_task(tmp_path: Path):
    source = tmp_path / "learner.npz"
    header = {"experiment": {"algorithm": "ppo", "task": "warehouse:make_env", "num_seeds": 2}}
    exports.write_learner(source, {"w": jnp.zeros((2, 3))}, header)
    place = state_shardings(make_mesh(1)).learner
    for name, shape in (("v", (2, 3)), ("w", (2, 4))):
        abstract = {name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place)}
        with pytest.raises(ValueError, match=r"it was trained with: ppo on warehouse:make_env, 2 seed\(s\)\."):
            exports.read_learner(source, abstract)


def test_a_changed_array_is_noticed(tmp_path: Path):
    """Also one whose own checksum in the archive is right, as after a repair. Files without a checksum are read."""
    source = tmp_path / "learner.npz"
    place = state_shardings(make_mesh(1)).learner
    like = {"w": jax.ShapeDtypeStruct((2, 3), jnp.float32, sharding=place)}
    exports.write_learner(source, {"w": jnp.zeros((2, 3))}, {"which": "last"})
    header = exports.read_header(source)
    np.savez(source, header=np.array(json.dumps(header)), w=np.full((2, 3), 1e-3, np.float32))
    with pytest.raises(ValueError, match=r"learner\.npz is damaged: export the learner again"):
        exports.read_learner(source, like)
    np.savez(source, header=np.array(json.dumps({"format": exports.EXPORT_FORMAT})), w=np.ones((2, 3), np.float32))
    assert_same_bits(exports.read_learner(source, like), {"w": jnp.ones((2, 3))})


def test_a_draft_does_not_follow_a_link(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "learner.npz.draft").symlink_to(tmp_path / "precious")
    exports.write_learner(tmp_path / "learner.npz", {"w": jnp.zeros((2, 3))}, {})
    assert (tmp_path / "precious").read_text() == "mine"


class _Bomb:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


def test_reading_a_file_executes_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    crater = tmp_path / "crater"
    monkeypatch.setenv("BOMB", str(crater))
    bomb = np.array([_Bomb()], dtype=object)
    header = np.array(json.dumps({"format": exports.EXPORT_FORMAT}))
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(_Bomb()))
    np.savez(tmp_path / "in_header.npz", header=bomb)
    np.savez(tmp_path / "in_array.npz", header=header, w=bomb)
    np.savez(tmp_path / "other.npz", w=np.zeros(3))
    (tmp_path / "text.npz").write_text("not an archive")
    for name in ("plain", "in_header", "in_array", "other", "text", "absent"):
        with pytest.raises(ValueError):  # noqa: PT011 (each has its own message)
            exports.read_learner(tmp_path / f"{name}.npz", {"w": jax.ShapeDtypeStruct((1,), jnp.float32)})
    assert not crater.exists()
