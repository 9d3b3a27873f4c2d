"""Tests of training on four devices. As a program, this file trains on four simulated ones and prints the results."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from spo import environments
from spo.algorithms.base import Setting
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig, make_spo
from spo.networks import mlp_architecture
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer

NUM_DEVICES = 4
NUM_ITERATIONS = 30
CONFIG = SPOConfig(
    num_envs=32,
    rollout_length=8,
    sequence_length=8,
    num_updates=8,
    batch_size=32,
    replay_size=32 * 32,
    learning_rate=3e-3,
    dual_learning_rate=1e-2,
    target_smoothing=0.05,
    trust_region=False,
    search=SearchConfig(num_particles=16, horizon=1, resample_period=None, unroll=1),
)


def bits(tree: Any) -> list[bytes]:
    leaves = [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(tree)
    ]
    return [np.asarray(x).tobytes() for x in leaves]


def train(num_devices: int) -> dict[str, Any]:
    """Trains twice from the same seed on this number of devices, continues one of them, and returns the findings."""
    network = NetworkConfig(width=16, depth=1)
    experiment = Experiment(task="tiny/bandit", config=CONFIG, network=network, num_devices=num_devices)
    trainer = Trainer(experiment)
    start = trainer.init(jax.random.key(0))
    state, _ = trainer.run_fn(start, NUM_ITERATIONS)
    again, _ = trainer.run_fn(trainer.init(jax.random.key(0)), NUM_ITERATIONS)
    _, metrics = trainer.run_fn(state, NUM_ITERATIONS)
    copies = [[bits(shard.data) for shard in leaf.addressable_shards] for leaf in jax.tree.leaves(state.learner)]
    keys = [tuple(bits(key)) for key in start.worker.acting.key]  # [device]
    return {
        "num_copies": sorted({len(of_leaf) for of_leaf in copies}),
        "learner_is_the_same_everywhere": all(of_leaf.count(of_leaf[0]) == num_devices for of_leaf in copies),
        "learner_moved": bits(start.learner) != bits(state.learner),
        "repeats": bits(state) == bits(again),
        "replay_shape": state.worker.replay.experience.reward.shape,  # [device, seed, environment, time]
        "num_worker_keys": len(set(keys)),
        "env_steps_per_iteration": trainer.algorithm.env_steps_per_iteration,
        "num_episodes": float(metrics["episode/count"][0]),
        "mean_return": float(metrics["episode/return"][0] / metrics["episode/count"][0]),
        "value": float(metrics["value/mean"][0]),
    }


@pytest.fixture(scope="module")
def findings() -> dict[str, dict[str, Any]]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={NUM_DEVICES}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__))], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_learner_is_the_same_to_the_bit_on_every_device(findings: dict[str, dict[str, Any]]):
    four = findings["four"]
    assert four["num_copies"] == [NUM_DEVICES]
    assert four["learner_moved"]
    assert four["learner_is_the_same_everywhere"]


def test_each_device_has_its_own_share_of_the_experience(findings: dict[str, dict[str, Any]]):
    assert findings["four"]["replay_shape"] == [NUM_DEVICES, 1, 32 // NUM_DEVICES, 32]
    assert findings["four"]["num_worker_keys"] == NUM_DEVICES
    assert findings["one"]["replay_shape"] == [1, 1, 32, 32]


def test_a_run_on_four_devices_repeats_to_the_bit(findings: dict[str, dict[str, Any]]):
    assert findings["four"]["repeats"]


def test_four_devices_learn_what_one_does(findings: dict[str, dict[str, Any]]):
    """The best arm pays 1. Every step is an episode. Counts are sums over all devices."""
    for run in findings.values():
        assert run["env_steps_per_iteration"] == 32 * 8
        assert run["num_episodes"] == NUM_ITERATIONS * 32 * 8
        assert run["mean_return"] > 0.95
        assert run["value"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", ["num_envs", "batch_size"])
def test_sizes_that_the_devices_do_not_divide_are_refused(name: str):
    task = environments.make("tiny/bandit")
    setting = Setting(task, mlp_architecture(), total_env_steps=1.0, num_devices=NUM_DEVICES)
    config = dataclasses.replace(CONFIG, **{name: 30})
    with pytest.raises(ValueError, match=rf"{name} \(30\) must be divisible by the number of devices \(4\)"):
        make_spo(setting, config)


if __name__ == "__main__":
    print(json.dumps({"one": train(1), "four": train(NUM_DEVICES)}))
