"""A run that is stopped, in whichever way, ends as if it had never been."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spo.training import checkpoints
from spo.training.loop import train
from training.comparing import Interrupter, assert_same_run, last_checkpoint, records
from training.tiny_run import long_experiment, tiny_experiment

SCRIPT = Path(__file__).parent / "tiny_run.py"


def test_a_run_interrupted_again_and_again_ends_with_the_same_bits(whole_run: Path, tmp_path: Path):
    """In the middle of a first evaluation, of an interval, between training and its evaluation, and of the end."""
    folder = tmp_path / "run"
    compiled = set(os.listdir(os.environ["SPO_CACHE"]))
    # Of two seeds: each of these leaves a record of one seed or of an unfinished interval behind the last checkpoint.
    for number, (kind, nth) in enumerate([("evaluation", 2), ("train", 3), ("evaluation", 2), ("final", 1)]):
        reporter = Interrupter(kind, nth)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_experiment(), folder, reporter=reporter, resume=number > 0, checkpoint_seconds=1e9)
        assert f"spo train --resume {folder}" in reporter.messages[-1]
    assert last_checkpoint(folder).progress.iteration == 12
    train(tiny_experiment(), folder, resume=True)
    assert_same_run(whole_run, folder)
    assert set(os.listdir(os.environ["SPO_CACHE"])) == compiled, "a resumed run is the same program"


def test_resuming_a_finished_run_changes_nothing(whole_run: Path):
    before = (whole_run / "metrics.jsonl").read_bytes()
    reporter = Interrupter("train", 1)
    summary = train(tiny_experiment(), whole_run, resume=True, reporter=reporter)
    assert summary["iterations"] == 12
    assert "finished" in reporter.messages[-1]
    assert (whole_run / "metrics.jsonl").read_bytes() == before


def test_a_run_that_falls_back_to_the_checkpoint_before_ends_with_the_same_bits(whole_run: Path, tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(tiny_experiment(), folder, reporter=Interrupter("train", 9), checkpoint_seconds=0.0)
    *_, before, last = checkpoints.iterations(folder / "checkpoints")
    assert (before, last) == (6, 8)
    for file in (folder / "checkpoints" / str(last) / "worker").rglob("*"):
        if file.is_file() and file.stat().st_size > 1000:
            file.write_bytes(b"torn" * 100)
    reporter = Interrupter("never", 1)
    train(tiny_experiment(), folder, resume=True, reporter=reporter)
    assert "iteration 8 is damaged" in reporter.messages[0]
    assert_same_run(whole_run, folder)


def start(folder: Path, *words: str) -> subprocess.Popen:
    resume = ["resume"] if (folder / "config.json").exists() else []
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), *resume, *words], env=dict(os.environ))


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_run_ends_with_the_same_bits(whole_run: Path, tmp_path: Path):
    """Killed once between checkpoints and once while a checkpoint is being written."""
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
        kill(process)
        assert not (folder / "summary.json").exists()
    assert start(folder).wait() == 0
    assert_same_run(whole_run, folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_killed_twenty_times_ends_with_the_same_bits(tmp_path: Path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    train(long_experiment(), whole, checkpoint_seconds=1e9)
    moments = random.Random(0)
    for _ in range(20):
        lines = len(records(folder)) if folder.exists() else 0
        process = start(folder, "long")
        # Any moment: while it starts, or up to two seconds after it has written again.
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
