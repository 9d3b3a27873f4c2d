"""Tests of own networks: they train with V and with Q, are stored by name, and are named at the start of a run."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import spo
from cli.command import spo_command
from spo.algorithms.mpo import MPOConfig
from spo.algorithms.planning import SearchConfig
from spo.algorithms.ppo import PPOConfig
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.networks.description import count_parameters
from spo.training.experiment import EvaluationConfig, Experiment, from_json, to_json
from spo.training.trainer import Trainer
from training import own_environments, own_networks
from training.comparing import assert_same_bits

OF_REPLAY: dict[str, Any] = {"num_envs": 4, "rollout_length": 2, "num_updates": 1, "batch_size": 4, "replay_size": 64}
CONFIGS = {
    "spo": SPOConfig(**OF_REPLAY, sequence_length=2, search=SearchConfig(num_particles=4, horizon=2, unroll=1)),
    "ppo": PPOConfig(num_envs=4, rollout_length=2, num_epochs=1, num_minibatches=1),
    "mpo": MPOConfig(**OF_REPLAY, sequence_length=2),
}
EVALUATION = EvaluationConfig(num_evaluations=1, episodes=4, final_episodes=4)
ENVIRONMENT = "training.own_environments:images"
NETWORK = "training.own_networks:small_cnn"
SETTINGS: dict[str, Any] = {
    "steps": 16,
    "algorithm": "ppo",
    "config": CONFIGS["ppo"],
    "evaluation": EVALUATION,
    "network": own_networks.small_cnn,
}


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_spo_ppo_and_mpo_train_an_own_network(algorithm: str):
    experiment = Experiment(
        ENVIRONMENT,
        algorithm=algorithm,
        steps=8,
        num_devices=1,
        config=CONFIGS[algorithm],
        network=NetworkConfig(kind=NETWORK),
        evaluation=EVALUATION,
    )
    trainer = Trainer(from_json(to_json(experiment)))
    state = trainer.init(jax.random.key(0))
    before = jax.device_get(state.learner.params)
    assert any("'Conv_0'" in jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(before))
    words = f"Network: {NETWORK} (torso SmallCNN), {count_parameters(before):,} parameters"
    assert trainer.describe_network() == words
    after, metrics, _ = trainer.run(state)
    assert all(np.isfinite(values).all() for values in metrics.values())
    changed = jax.tree.map(lambda a, b: not np.array_equal(a, b), before, jax.device_get(after.learner.params))
    assert sum(jax.tree.leaves(changed)) > len(jax.tree.leaves(changed)) / 2


def test_a_run_names_its_network_and_is_loaded_by_this_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    agent = spo.train(ENVIRONMENT, run=tmp_path / "run", **SETTINGS)
    count = count_parameters(agent.params)
    assert f"\nNetwork: {NETWORK} (torso SmallCNN), {count:,} parameters\n" in capsys.readouterr().out
    assert_same_bits(agent.params, spo.load(tmp_path / "run").params)

    def local(*specs):
        return own_networks.small_cnn(*specs)

    # The same network as an object, which is needed again.
    path = spo.train(own_environments.images(), **SETTINGS | {"network": local, "progress": False}).save(tmp_path / "a")
    with pytest.raises(ValueError, match=r"The network 'local' was given as an object .* spo\.load\(path, network="):
        spo.load(path, env=own_environments.images())
    loaded = spo.load(path, env=own_environments.images(), network=local)
    assert_same_bits(agent.params, loaded.params)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("no_vector", "The torso of the network training.own_networks:no_vector must return one vector of features"),
        ("image_as_features", "The network training.own_networks:image_as_features returned a function: return a Flax"),
        ("small", "has no 'small'. Did you mean 'small_cnn'"),
    ],
    ids=["shape", "type", "name"],
)
def test_both_doors_name_a_wrong_network_before_a_folder_exists(
    network: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kind = f"training.own_networks:{network}"
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        spo.train("tiny/chain", run=folder, **SETTINGS | {"network": NetworkConfig(kind=kind)})
    result = spo_command(capsys, "train", "--task", "tiny/chain", "--network.kind", kind, "--run", str(folder))
    assert result.code == 2
    assert sentence in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not folder.exists()


def test_experiments_of_older_versions_have_the_papers_network():
    stored = to_json(Experiment("tiny/chain", config=CONFIGS["spo"]))
    del stored["network"]["kind"]
    assert from_json(stored).network == NetworkConfig(kind="paper")
