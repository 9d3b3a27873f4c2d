"""Tests of interrupted runs: resumed, they end with the same bits as a run that was never interrupted."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest

from spo.training import checkpoints
from spo.training.loop import train
from spo.training.trainer import Trainer
from training.comparing import Interrupter, assert_same_run, last_state, records
from training.tiny_run import long_experiment, tiny_experiment

SCRIPT = Path(__file__).parent / "tiny_run.py"


def test_a_run_interrupted_again_and_again_ends_with_the_same_bits(whole_run: Path, tmp_path: Path):
    """Interrupted in the first evaluation, in an interval, between training and its evaluation, and at the end."""
    folder = tmp_path / "run"
    # Each leaves records of an unfinished interval in the file, after those of the last checkpoint.
    for number, (kind, nth) in enumerate([("evaluation", 2), ("train", 3), ("evaluation", 2), ("final", 1)]):
        interrupter = Interrupter(kind, nth)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_experiment(), folder, sinks=[interrupter], resume=number > 0, checkpoint_seconds=1e9)
        assert f"spo train --resume {folder}" in interrupter.messages[-1]
    assert last_state(folder).progress.iteration == 12
    train(tiny_experiment(), folder, resume=True)
    assert_same_run(whole_run, folder)


def test_a_resumed_run_compiles_the_same_programs(whole_run: Path):
    """A state from a file and a new state have the same types and shardings, weak types included."""

    def types(tree: Any) -> Any:
        return jax.tree.map(lambda x: (jax.typeof(x), x.sharding), tree)

    new, restored = Trainer(tiny_experiment()).init(jax.random.key(0)), last_state(whole_run)
    assert types(restored.train_state) == types(new)
    assert types(restored.best_learner) == types(new.learner)


def test_resuming_a_finished_run_changes_nothing(whole_run: Path):
    before = (whole_run / "metrics.jsonl").read_bytes()
    interrupter = Interrupter("train", 1)
    summary = train(tiny_experiment(), whole_run, resume=True, sinks=[interrupter])
    assert summary["iterations"] == 12
    assert "finished" in interrupter.messages[-1]
    assert (whole_run / "metrics.jsonl").read_bytes() == before


def test_a_run_that_falls_back_to_the_checkpoint_before_ends_with_the_same_bits(whole_run: Path, tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(tiny_experiment(), folder, sinks=[Interrupter("train", 9)], checkpoint_seconds=0.0)
    *_, before, last = checkpoints.iterations(folder / "checkpoints")
    assert (before, last) == (6, 8)
    for file in (folder / "checkpoints" / str(last) / "worker").rglob("*"):
        if file.is_file() and file.stat().st_size > 1000:
            file.write_bytes(b"torn" * 100)
    listener = Interrupter("never", 1)
    train(tiny_experiment(), folder, resume=True, sinks=[listener])
    assert "iteration 8 is damaged" in listener.messages[0]
    assert_same_run(whole_run, folder)


def start(folder: Path, *words: str) -> subprocess.Popen:
    resume = ["resume"] if (folder / "config.json").exists() else []
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), *resume, *words], env=dict(os.environ))


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.program
def test_a_killed_run_ends_with_the_same_bits(whole_run: Path, tmp_path: Path):
    """Killed once between two checkpoints and once while a checkpoint is written."""
    folder = tmp_path / "run"

    def train_lines() -> int:
        path = folder / "metrics.jsonl"
        return path.read_bytes().count(b'"train"') if path.exists() else 0

    def writing() -> bool:
        path = folder / "checkpoints"
        return train_lines() > lines and path.exists() and any(path.glob("*.orbax-checkpoint-tmp"))

    for happened in (lambda: train_lines() >= 3, writing):
        lines = train_lines()
        process = start(folder)
        while not happened():
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.001)
        kill(process)
        assert not (folder / "summary.json").exists()
    assert start(folder).wait() == 0
    assert_same_run(whole_run, folder)


@pytest.mark.program
@pytest.mark.timeout(1200)
def test_a_run_killed_twenty_times_ends_with_the_same_bits(tmp_path: Path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    train(long_experiment(), whole, checkpoint_seconds=1e9)
    moments = random.Random(0)
    for _ in range(20):
        lines = len(records(folder)) if folder.exists() else 0
        process = start(folder, "long")
        # At a random moment: while it starts, or up to two seconds after it has written a record.
        if moments.random() < 0.8:
            while process.poll() is None and not (folder / "metrics.jsonl").exists():
                time.sleep(0.01)
            mark = time.time()
            while process.poll() is None and (folder / "metrics.jsonl").stat().st_mtime <= mark:
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 2))
        else:
            time.sleep(moments.uniform(0, 5))
        assert process.poll() is None, f"the run ended before it could be killed, at {lines} lines"
        kill(process)
    assert start(folder, "long").wait() == 0
    assert_same_run(whole, folder)
