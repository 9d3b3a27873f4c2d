"""Shared trainers: compilation dominates the cost of these tests, so each experiment is compiled once."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spo.training import experiment, loop, saved_learners, trainer
from training.tiny_run import tiny_experiment


@pytest.fixture(scope="session", autouse=True)
def shared_trainers() -> Iterator[None]:
    @functools.cache
    def from_json(text: str, deterministic: bool) -> trainer.Trainer:
        return trainer.Trainer(experiment.from_json(json.loads(text)), deterministic=deterministic)

    def make_trainer(
        chosen: experiment.Experiment, task: Any = None, *, deterministic: bool = False
    ) -> trainer.Trainer:
        if task is not None:
            return trainer.Trainer(chosen, task, deterministic=deterministic)
        return from_json(json.dumps(experiment.to_json(chosen)), deterministic)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Trainer", make_trainer)
        patch.setattr(saved_learners, "Trainer", make_trainer)
        yield


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    loop.train(tiny_experiment(), folder, checkpoint_seconds=0.0)
    return folder
