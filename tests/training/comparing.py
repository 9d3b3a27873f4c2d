"""Runs looked at from outside: their records, their checkpoints, and whether two are the same to the bit."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from spo.training import checkpoints, loop
from spo.training.program import shardings
from training.tiny_run import tiny_experiment


class Interrupter:
    """A reporter that presses Ctrl-C when it hears of the `nth` record of a kind."""

    def __init__(self, kind: str, nth: int):
        self.kind, self.left = kind, nth
        self.messages: list[str] = []

    def start(self, *_: Any) -> None: ...

    def log(self, record: dict[str, Any]) -> None:
        self.left -= record["kind"] == self.kind
        if self.left == 0:
            self.left = -1
            raise KeyboardInterrupt

    def message(self, text: str) -> None:
        self.messages.append(text)

    def stop(self) -> None: ...


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def last_checkpoint(folder: Path) -> checkpoints.Checkpoint:
    program = loop.build(tiny_experiment()).program
    abstract = checkpoints.abstract_state(program.init, shardings(program.mesh))
    checkpoint = checkpoints.restore(folder / "checkpoints", abstract, 1, say=pytest.fail)
    assert checkpoint is not None
    return checkpoint


def assert_same_bits(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), jax.tree_util.keystr(path)


def assert_same_run(one: Path, other: Path) -> None:
    """Parameters, best parameters, replay, environments, keys, metrics and results, to the bit; only times differ."""

    def without_time(folder: Path) -> list[dict[str, Any]]:
        return [{name: value for name, value in record.items() if name != "time"} for record in records(folder)]

    assert without_time(one) == without_time(other)
    a, b = last_checkpoint(one), last_checkpoint(other)
    assert_same_bits(a.state, b.state)
    assert_same_bits(a.best_learner, b.best_learner)
    for name in ("iteration", "best_scores", "best_iterations"):
        assert getattr(a.progress, name) == getattr(b.progress, name)
    results = [json.loads((folder / "summary.json").read_text()) for folder in (one, other)]
    times = {"time_to_first_update", "env_steps_per_second", "checkpoint_bytes"}
    kept = [{k: v for k, v in r.items() if k not in times and not k.endswith("_seconds")} for r in results]
    assert kept[0] == kept[1]
