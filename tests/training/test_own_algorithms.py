"""Tests of own algorithms: by `module:function` and as objects they train, are saved and are loaded."""

import dataclasses
import functools
from pathlib import Path

import pytest

import spo
from cli.command import spo_command
from spo.algorithms import registry
from spo.algorithms.registry import default_config, find_algorithm
from spo.networks.config import NetworkConfig
from spo.reports.run_files import read_config
from spo.training.experiment import EvaluationConfig, Experiment, from_json, to_json
from spo.training.saved_learners import load_experiment
from training.comparing import assert_same_bits, without_time
from training.own_algorithms import ReinforceConfig, make_reinforce

NAME = "training.own_algorithms:make_reinforce"
SETTINGS = {
    "steps": 64,
    "config": ReinforceConfig(num_envs=4, rollout_length=4),
    "network": NetworkConfig(kind="mlp", width=8, depth=1),
    "evaluation": EvaluationConfig(num_evaluations=1, episodes=4, final_episodes=4),
    "progress": False,
}
OPTIONS = (
    *("--task", "tiny/chain", "--steps", "64", "--num-envs", "4", "--rollout-length", "4"),
    *("--network.width", "8", "--network.depth", "1", "--evaluation.num-evaluations", "1"),
    *("--evaluation.episodes", "4", "--evaluation.final-episodes", "4", "--quiet"),
)


def test_both_doors_train_an_own_algorithm_to_the_same_bits(tmp_path: Path, capsys):
    agent = spo.train("tiny/chain", algorithm=make_reinforce, run=tmp_path / "function", **SETTINGS)
    result = spo_command(capsys, "train", "--algorithm", NAME, *OPTIONS, "--run", str(tmp_path / "command"))
    assert result.code == 0, result.err
    assert load_experiment(tmp_path / "function") == load_experiment(tmp_path / "command")
    assert without_time(tmp_path / "function") == without_time(tmp_path / "command")
    file = agent.save(tmp_path / "agent.npz")
    assert_same_bits(agent.params, spo.load(file).params)
    assert repr(agent).startswith(f"Agent({NAME} on tiny/chain")


def test_a_function_without_a_name_is_kept_as_an_object(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_given", {})
    name = registry.name_algorithm(functools.wraps(make_reinforce)(lambda *arguments: make_reinforce(*arguments)))
    assert name == "object:make_reinforce"
    experiment = Experiment(task="tiny/chain", algorithm=name, config=ReinforceConfig(num_envs=2))
    assert from_json(to_json(experiment)) == experiment
    registry._given.clear()
    with pytest.raises(
        ValueError, match=r"was given as an object.*pass its function again with the argument algorithm"
    ):
        from_json(to_json(experiment))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("training.own_algorithms:make_without_types", r"must have two parameters, \(setting, config: MyConfig\)"),
        ("training.own_algorithms:NOT_A_FUNCTION", "name a function that returns an algorithm"),
        ("no_such_module:make", "There is no module 'no_such_module'"),
        ("reinforce", "There is no algorithm 'reinforce'"),
    ],
)
def test_what_is_no_algorithm_gets_a_sentence(name: str, sentence: str, capsys):
    with pytest.raises(ValueError, match=sentence):
        find_algorithm(name)
    result = spo_command(capsys, "train", "--algorithm", name)
    assert result.code == 2
    assert result.err.startswith("spo: ")


def test_a_configuration_needs_defaults(monkeypatch: pytest.MonkeyPatch):
    @dataclasses.dataclass
    class Needs:
        size: int

    monkeypatch.setitem(registry.ALGORITHMS, "needs", (Needs, make_reinforce))
    with pytest.raises(ValueError, match=r"Needs\.size has no default"):
        default_config("needs")


def test_the_network_of_a_saved_agent_is_the_default_of_a_run_from_it(tmp_path: Path, capsys, monkeypatch):
    agent = spo.train("tiny/chain", algorithm=make_reinforce, **SETTINGS)
    file = agent.save(tmp_path / "agent.npz")
    command = ("--algorithm", NAME, *(word for word in OPTIONS if word != "--quiet"))
    start = command.index("--network.width")
    command = command[:start] + command[start + 4 :]  # the size is that of the file
    run = tmp_path / "run"
    result = spo_command(capsys, "train", *command, "--from", str(file), "--run", str(run))
    assert result.code == 0, result.err
    assert read_config(run)["network"]["width"] == 8
    assert "Starts from agent.npz: the best parameters of its run, iteration" in result.out
