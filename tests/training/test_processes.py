"""Tests of two processes, with two devices each, that train together. As a program, this file is one of them."""

import json
import os
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
from spo.training import loop, processes
from spo.training.experiment import EvaluationConfig
from spo.training.run_folder import load_learner
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
    tests = str(Path(__file__).parents[1])  # pytest adds this path only to its own process
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": tests} | variables
    command = [sys.executable, str(Path(__file__)), str(folder), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_together(folder: Path, *words: str) -> list[subprocess.Popen]:
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
        )
        for index in range(NUM_PROCESSES)
    ]


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
    assert first["summary"] == second["summary"] == json.loads((folder / "summary.json").read_text())


@pytest.mark.program
def test_a_killed_run_of_two_processes_ends_with_the_same_bits(
    together: tuple[Path, list[dict[str, Any]]], tmp_path: Path
):
    folder = tmp_path / "run"
    killed, metrics = start_together(folder), folder / "metrics.jsonl"
    try:
        while not metrics.exists() or metrics.read_bytes().count(b'"train"') < 5:
            assert [process.poll() for process in killed] == [None] * NUM_PROCESSES
            time.sleep(0.01)
    finally:
        kill(*killed)
    assert not (folder / "summary.json").exists()
    finish(*start_together(folder, "resume"))
    assert without_time(folder) == without_time(together[0])
    assert_same_bits(load_learner(folder, "last")[1], load_learner(together[0], "last")[1])
    _, resumed = json.loads((folder / "environment.json").read_text())["starts"]
    assert 0 < resumed["iteration"] < 12


# --- Tests without a second process -----------------------------------------------------------------------------------


def test_without_a_coordinator_the_error_names_the_variables_to_set(monkeypatch: pytest.MonkeyPatch):
    def initialize(num_processes: int | None, process_id: int | None) -> None:
        assert (num_processes, process_id) == (None, 3)
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setenv("JAX_PROCESS_ID", "3")
    with pytest.raises(ValueError, match=r"can't be found \(coordinator_address should be defined\): set JAX_COORD"):
        processes.join()


def test_a_process_without_a_device_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="1 devices would leave some of them without one"):
        make_mesh(num_devices=1)


class Counter(Sink):
    """Counts the records."""

    num_records = 0

    def log(self, records: Sequence[dict[str, Any]]) -> None:
        self.num_records += len(records)


def main(folder: Path, resume: bool) -> dict[str, Any]:
    if "JAX_PROCESS_ID" in os.environ:
        processes.join()
        time.sleep(2 * jax.process_index())  # the order in which processes arrive must not matter
    counter = Counter()
    summary = loop.train(EXPERIMENT, folder, sinks=[counter], resume=resume, checkpoint_seconds=0.0)
    return {
        "summary": summary,
        "num_records": counter.num_records,
        "num_devices": jax.device_count(),
        "num_local_devices": jax.local_device_count(),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), "resume" in sys.argv)))
