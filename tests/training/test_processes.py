"""Tests of two processes, with two devices each, that train together. As a program, this file is one of them."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.reports.run_files import read_summary
from spo.training import checkpoints, loop, processes
from spo.training.experiment import EvaluationConfig
from spo.training.saved_learners import load_learner
from spo.training.signals import Terminated, listen
from spo.training.sinks.base import Sink
from spo.training.trainer import make_mesh
from training.comparing import assert_same_bits, records, without_time
from training.tiny_run import tiny_experiment

pytestmark = pytest.mark.timeout(1200)

NUM_PROCESSES = 2
DEVICES_PER_PROCESS = 2
#: Twelve iterations in six intervals, on all devices.
EXPERIMENT = tiny_experiment(
    task="tiny/bandit",
    task_options={},
    num_devices=None,
    config=SPOConfig(
        num_envs=8,
        rollout_length=4,
        num_updates=1,
        batch_size=4,
        sequence_length=4,
        replay_size=8 * 16,
        search=SearchConfig(num_particles=4, horizon=1, unroll=1),
    ),
    network=NetworkConfig(width=16, depth=1),
    evaluation=EvaluationConfig(num_evaluations=3, episodes=16, final_episodes=32),
)


def start(folder: Path, num_devices: int, *words: str, **variables: str) -> subprocess.Popen:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={num_devices}"
    # pytest adds the folder of the tests only to its own process
    tests = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": tests} | variables
    command = [sys.executable, str(Path(__file__)), str(folder), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_together(folder: Path, *words: str, **variables: str) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [
        start(
            folder,
            DEVICES_PER_PROCESS,
            *words,
            JAX_COORDINATOR_ADDRESS=address,
            JAX_NUM_PROCESSES=str(NUM_PROCESSES),
            JAX_PROCESS_ID=str(index),
            **variables,
        )
        for index in range(NUM_PROCESSES)
    ]


def wait_for_training(folder: Path, started: list[subprocess.Popen], num_records: int) -> None:
    metrics = folder / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b'"train"') < num_records:
        assert [process.poll() for process in started] == [None] * NUM_PROCESSES
        time.sleep(0.01)


def kill(*started: subprocess.Popen) -> None:
    for process in started:
        process.kill()
        process.communicate()


def finish(*started: subprocess.Popen) -> list[dict[str, Any]]:
    """Returns what each process printed at its end."""
    try:
        ends = [process.communicate(timeout=500) for process in started]
    finally:
        kill(*started)
    assert [process.returncode for process in started] == [0] * len(started), ends
    return [json.loads(out.splitlines()[-1]) for out, _ in ends]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("runs") / "together"
    return folder, finish(*start_together(folder))


@pytest.mark.program
def test_two_processes_learn_what_one_does(together: tuple[Path, list[dict[str, Any]]], tmp_path: Path):
    """Random numbers and devices are the same. Only the order of sums over processes may differ."""
    folder, _ = together
    finish(start(tmp_path / "alone", NUM_PROCESSES * DEVICES_PER_PROCESS))
    ours, theirs = without_time(folder), without_time(tmp_path / "alone")
    assert [record["kind"] for record in ours].count("train") == 6 * EXPERIMENT.num_seeds
    for one, other in zip(ours, theirs, strict=True):
        assert one["metrics"] == pytest.approx(other["metrics"], rel=1e-4, abs=1e-5)
        assert {**one, "metrics": None} == {**other, "metrics": None}
    learners = [load_learner(path, "last")[1] for path in (folder, tmp_path / "alone")]
    for one, other in zip(*map(jax.tree.leaves, learners), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.program
def test_only_process_0_writes_files_and_calls_sinks(together: tuple[Path, list[dict[str, Any]]]):
    folder, ends = together
    assert [(end["num_devices"], end["num_local_devices"]) for end in ends] == [(4, 2)] * NUM_PROCESSES
    first, second = ends
    assert first["num_records"] == len(records(folder))
    assert second["num_records"] == 0
    (only_start,) = json.loads((folder / "environment.json").read_text())["starts"]
    assert only_start["num_processes"] == NUM_PROCESSES
    assert first["summary"] == second["summary"] == read_summary(folder)


@pytest.mark.program
def test_a_killed_run_of_two_processes_ends_with_the_same_bits(
    together: tuple[Path, list[dict[str, Any]]], tmp_path: Path
):
    folder = tmp_path / "run"
    killed = start_together(folder)
    try:
        wait_for_training(folder, killed, num_records=5)
    finally:
        kill(*killed)
    assert not (folder / "summary.json").exists()
    finish(*start_together(folder, "resume"))
    assert without_time(folder) == without_time(together[0])
    assert_same_bits(load_learner(folder, "last")[1], load_learner(together[0], "last")[1])
    _, resumed = json.loads((folder / "environment.json").read_text())["starts"]
    assert 0 < resumed["iteration"] < 12


@pytest.mark.program
@pytest.mark.parametrize("receiver", [0, 1])
def test_a_signal_to_one_process_ends_all_with_one_checkpoint(tmp_path: Path, receiver: int):
    folder = tmp_path / "run"
    started = start_together(folder, "long")
    try:
        wait_for_training(folder, started, num_records=5)
        started[receiver].terminate()
        ends = [process.communicate(timeout=60) for process in started]
    finally:
        kill(*started)
    assert [process.returncode for process in started] == [143, 143], ends
    assert f"Ended by SIGTERM: continue with `spo train --resume {folder} --distributed`." in ends[0][0]
    (iteration,) = checkpoints.iterations(folder / "checkpoints")  # the only one: none was due
    assert iteration == records(folder)[-1]["iteration"]


@pytest.mark.program
def test_a_signal_ends_all_processes_during_an_interval_of_minutes(tmp_path: Path):
    """None of them waits for its program. They agree on the state before the interval."""
    folder = tmp_path / "run"
    started = start_together(folder, "endless")
    try:
        while not (folder / "metrics.jsonl").exists() or b"evaluation" not in (folder / "metrics.jsonl").read_bytes():
            assert [process.poll() for process in started] == [None] * NUM_PROCESSES
            time.sleep(0.1)
        time.sleep(10)  # the first interval is compiled and runs
        start_time = time.monotonic()
        started[1].terminate()
        ends = [process.communicate(timeout=60) for process in started]
    finally:
        kill(*started)
    assert [process.returncode for process in started] == [143, 143], ends
    assert time.monotonic() - start_time < 30
    assert f"Ended by SIGTERM: continue with `spo train --resume {folder} --distributed`." in ends[0][0]
    assert checkpoints.iterations(folder / "checkpoints") == [0]


@pytest.mark.program
@pytest.mark.parametrize(
    ("victim", "number"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (0, signal.SIGSTOP), (1, signal.SIGSTOP)]
)
def test_the_others_end_within_a_minute_of_the_loss_of_one(tmp_path: Path, victim: int, number: int):
    folder = tmp_path / "run"
    started = start_together(folder, "long")
    try:
        wait_for_training(folder, started, num_records=5)
        started[victim].send_signal(number)
        _, error = started[1 - victim].communicate(timeout=60)
    finally:
        kill(*started)
    assert started[1 - victim].returncode == processes.LOST_CODE, error
    assert error.splitlines()[-1] == f"spo: {processes.lost_sentence(folder)}"


@pytest.mark.program
@pytest.mark.parametrize("absent", [0, 1])
def test_a_process_that_never_joins_is_reported(tmp_path: Path, absent: int):
    started = start_together(tmp_path / "run", SPO_JOIN_SECONDS="5")
    kill(started[absent])
    try:
        _, error = started[1 - absent].communicate(timeout=60)
    finally:
        kill(*started)
    assert started[1 - absent].returncode != 0
    assert "Not all processes have joined within 5 seconds: start them together" in error.splitlines()[-1]


# --- Tests without a second process -----------------------------------------------------------------------------------


def test_without_a_coordinator_the_error_names_the_variables_to_set(monkeypatch: pytest.MonkeyPatch):
    def initialize(num_processes: int | None, process_id: int | None, **seconds: int) -> None:
        assert (num_processes, process_id) == (None, 3)
        # The others must end within a minute of a loss.
        assert max(seconds.values()) <= 50
        assert seconds.keys() >= {"initialization_timeout", "heartbeat_timeout_seconds", "shutdown_timeout_seconds"}
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(processes, "explain_aborts", lambda sentence: None)
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setenv("JAX_PROCESS_ID", "3")
    with pytest.raises(ValueError, match=r"can't be found \(coordinator_address should be defined\): set JAX_COORD"):
        processes.join()


def test_a_signal_to_another_process_ends_this_one_with_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    numbers = iter([0, 0, signal.SIGTERM])
    monkeypatch.setattr(processes, "max_over_processes", lambda own: max(own, next(numbers)))
    with pytest.raises(Terminated) as caught:
        loop.train(tiny_experiment(), tmp_path / "run", checkpoint_seconds=1e9)
    assert caught.value.code == 143
    assert checkpoints.iterations(tmp_path / "run" / "checkpoints") == [4]


def test_with_several_processes_a_signal_takes_effect_after_the_interval(tmp_path: Path):
    with listen(raises=False) as listener:
        os.kill(os.getpid(), signal.SIGTERM)
    assert (listener.number, listener.may_stop) == (signal.SIGTERM, False)


class Left(Exception):
    """The process would have ended here."""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), 75, "Another process of this run"),
        (RuntimeError("UNAVAILABLE: Socket closed"), 75, "Another process of this run"),
        (OSError("No space left on device."), 2, "No space left on device."),
    ],
    ids=["devices", "service", "own"],
)
def test_an_error_in_one_process_ends_it_at_once(
    error: Exception, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Without waiting for the others, which notice it."""

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "explain_aborts", lambda sentence: None)
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Left, match=str(code)), processes.leaving_on_failure(Path("runs/a")):
        raise error
    assert f"spo: {words}" in capsys.readouterr().err


def test_an_abort_of_a_library_prints_the_sentence_instead_of_a_core_dump():
    """JAX aborts in a thread of its own when it has lost another process; the main thread may be blocked."""
    script = (
        "import ctypes, threading, time; from spo.training import processes; processes.explain_aborts('Resume it.');"
        "threading.Thread(target=ctypes.CDLL(None).abort).start(); time.sleep(60)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (processes.LOST_CODE, "spo: Resume it.\n")


def test_a_process_without_a_device_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="1 devices would leave some of them without one"):
        make_mesh(num_devices=1)


class Counter(Sink):
    """Counts the records."""

    num_records = 0

    def log(self, records: Sequence[dict[str, Any]]) -> None:
        self.num_records += len(records)


class Printer(Sink):
    """Prints messages."""

    def message(self, text: str) -> None:
        print(text, flush=True)


def main(folder: Path, *words: str) -> dict[str, Any]:
    if "JAX_PROCESS_ID" in os.environ:
        processes.join()
        time.sleep(2 * jax.process_index())  # the order in which processes arrive must not matter
    counter = Counter()
    lengths = {"long": {"steps": 1e7, "logs_per_evaluation": 100_000}, "endless": {"steps": 1e9}}
    experiment = dataclasses.replace(EXPERIMENT, **next((lengths[word] for word in words if word in lengths), {}))
    sinks, seconds = [counter, Printer()], 0.0 if experiment == EXPERIMENT else 1e9
    summary = loop.train(experiment, folder, sinks=sinks, resume="resume" in words, checkpoint_seconds=seconds)
    return {
        "summary": summary,
        "num_records": counter.num_records,
        "num_devices": jax.device_count(),
        "num_local_devices": jax.local_device_count(),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])))
