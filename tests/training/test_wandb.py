"""Logging to Weights & Biases, with a stand-in for the library: nothing leaves this machine."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from spo.training import loop
from spo.training.wandb import WandbReporter
from training.tiny_run import tiny_experiment


class _Inner(loop.SilentReporter):
    def __init__(self) -> None:
        self.records: list[dict] = []
        self.stopped = False

    def log(self, record: dict) -> None:
        self.records.append(record)

    def stop(self) -> None:
        self.stopped = True


def test_records_go_to_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started, logged, finished = [], [], []
    run = types.SimpleNamespace(log=logged.append, finish=lambda: finished.append(True))

    def init(**settings: Any) -> Any:
        started.append(settings)
        return run

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    inner = _Inner()
    loop.train(tiny_experiment(), tmp_path / "run", reporter=WandbReporter("cubes", inner))
    [settings] = started
    assert (settings["project"], settings["name"], settings["resume"]) == ("cubes", "run", "allow")
    assert settings["config"]["task"] == tiny_experiment().task
    num_records = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert len(logged) == num_records
    assert all("env_steps" in line for line in logged)
    assert any(name.startswith("final/seed_0/episode/return") for line in logged for name in line)
    assert finished == [True]
    assert len(inner.records) == num_records
    assert inner.stopped


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"pip install 'spo-jax\[wandb\]'"):
        WandbReporter("cubes", _Inner())
