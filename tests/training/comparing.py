"""Helpers that read runs from their folders, compare them bit by bit, and interrupt them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from spo.reports.run_files import read_summary
from spo.training import checkpoints, loop
from spo.training.run_state import RunState
from spo.training.sinks.base import Sink
from training.tiny_run import tiny_experiment


class Interrupter(Sink):
    """Raises KeyboardInterrupt at the `nth` record of a kind, as Ctrl-C would."""

    def __init__(self, kind: str, nth: int):
        self.kind, self.left = kind, nth
        self.messages: list[str] = []

    def log(self, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            self.left -= record["kind"] == self.kind
            if self.left == 0:
                self.left = -1
                raise KeyboardInterrupt

    def message(self, text: str) -> None:
        self.messages.append(text)


def records(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_time(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl without the only entry that differs between equal runs."""
    return [{name: value for name, value in record.items() if name != "time"} for record in records(folder)]


def last_state(folder: Path) -> RunState:
    """Returns the last checkpoint of a run of `tiny_experiment`."""
    abstract = loop.Trainer(tiny_experiment()).abstract_state
    state = checkpoints.restore(folder / "checkpoints", abstract, 1, message=pytest.fail)
    assert state is not None
    return state


def assert_same_bits(one: Any, other: Any) -> None:
    """Asserts that two trees have the same structure and the same bits in every leaf."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), jax.tree_util.keystr(path)


def assert_same_run(one: Path, other: Path) -> None:
    """Asserts that parameters, replay, environments, keys, metrics and results are the same. Only times may differ."""
    assert without_time(one) == without_time(other)
    a, b = last_state(one), last_state(other)
    assert_same_bits(a.train_state, b.train_state)
    assert_same_bits(a.best_learner, b.best_learner)
    for name in ("iteration", "best_scores", "best_iterations"):
        assert getattr(a.progress, name) == getattr(b.progress, name)
    results = [read_summary(folder) or pytest.fail(f"{folder} is not finished") for folder in (one, other)]
    times = {"time_to_first_update", "env_steps_per_second", "checkpoint_bytes"}
    kept = [{k: v for k, v in r.items() if k not in times and not k.endswith("_seconds")} for r in results]
    assert kept[0] == kept[1]
