"""Tests of `spo.train` and `spo.load`: the run of `spo train`, on an environment that need not have a name."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo
from spo import environments
from spo.acting import Episodes
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.training import evaluation, exports, loop
from spo.training.defaults import choose_experiment
from spo.training.experiment import EvaluationConfig, Experiment, ScalingConfig, to_json
from spo.training.library import Agent
from spo.training.records import NonFiniteError
from spo.training.run_folder import RunFolder
from spo.training.saved_learners import load_learner
from spo.training.trainer import Trainer
from training.comparing import assert_same_bits, records
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment

EXPERIMENT = tiny_experiment(num_seeds=1, seed=3, logs_per_evaluation=5)


def train_in_memory(**changes: Any) -> Agent:
    task = environments.make(EXPERIMENT.task, **EXPERIMENT.task_options)
    unnamed = task._replace(train=task.train._replace(name="not in the registry"))
    options = {
        "steps": EXPERIMENT.steps,
        "seed": EXPERIMENT.seed,
        "config": EXPERIMENT.config,
        "network": EXPERIMENT.network,
        "evaluation": EXPERIMENT.evaluation,
    }
    return spo.train(unnamed, **options | changes)


# --- Start and continue -----------------------------------------------------------------------------------------------
@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Experiment, dict[str, Any]]]:
    """Collects the calls of the loop. Each is interrupted when it has created the folder of its run."""
    found: list[tuple[Experiment, dict[str, Any]]] = []

    def train(experiment: Experiment, folder: Path, **options: Any) -> None:
        found.append((experiment, options))
        if not options["resume"]:
            RunFolder.unused(folder).create(experiment).release()
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "train", train)
    return found


def test_an_interruption_ends_with_the_way_to_continue(calls: list, tmp_path: Path):
    """And without the frames of the training, which no user needs."""
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match=r"run: continue it with the same call and resume=True") as caught:
        spo.train("tiny/chain", run=folder, progress=False)
    assert caught.value.__suppress_context__
    assert [frame.path.name for frame in caught.traceback][1:] == ["library.py", "contextlib.py", "library.py"]
    assert calls[0][1]["resume"] is False


def test_a_program_can_be_started_again_as_it_is(calls: list, tmp_path: Path):
    folder, learner = tmp_path / "run", tmp_path / "learner.npz"
    exports.write_learner(learner, {}, {"experiment": to_json(EXPERIMENT)})
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            spo.train("tiny/chain", run=folder, resume="auto", start_from=learner, progress=False)
    (first, started), (second, continued) = calls
    assert first == second
    assert (started["resume"], started["start_from"]) == (False, learner)
    assert (continued["resume"], continued["start_from"]) == (True, None)


def test_another_algorithm_does_not_continue_a_run(calls: list, tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        spo.train("tiny/chain", run=folder, algorithm="ppo", progress=False)
    with pytest.raises(ValueError, match="run was trained with the algorithm ppo: leave algorithm out"):
        spo.train("tiny/chain", run=folder, resume=True, algorithm="spo", progress=False)
    for given in ({}, {"algorithm": "ppo"}):
        with pytest.raises(KeyboardInterrupt):
            spo.train("tiny/chain", run=folder, resume=True, progress=False, **given)
    assert [experiment.algorithm for experiment, _ in calls] == ["ppo"] * 3


def test_a_run_in_the_folder_or_none_is_named_with_the_argument_that_helps(calls: list, tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=r"run holds no run to continue: .* resume='auto'"):
        spo.train("tiny/chain", run=folder, resume=True)
    RunFolder.unused(folder).create(EXPERIMENT).release()
    with pytest.raises(ValueError, match=r"run holds a run already: continue it with resume=True \(or resume='auto'"):
        spo.train("tiny/chain", run=folder)
    with pytest.raises(ValueError, match="resume must be True, False or 'auto', got 'always'"):
        spo.train("tiny/chain", run=folder, resume="always")
    with pytest.raises(ValueError, match="add run=FOLDER"):
        spo.train("tiny/chain", resume="auto")
    assert not calls


def test_all_devices_are_used_as_by_the_command_line(calls: list, tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        spo.train("tiny/chain", run=tmp_path / "run", progress=False)
    assert calls[0][0].num_devices is Experiment().num_devices is None


def test_a_dictionary_changes_single_settings_of_those_that_are_chosen(calls: list, tmp_path: Path):
    config = {"learning_rate": 3e-3, "search": {"num_particles": 32}}
    others = {"network": {"width": 32}, "evaluation": {"episodes": 5}, "scaling": {"rewards": False}}
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            spo.train("tiny/chain", 4e3, run=tmp_path / "run", resume=resume, config=config, **others, progress=False)
    chosen = choose_experiment("tiny/chain", "spo", 4e3)
    search = dataclasses.replace(chosen.config.search, num_particles=32)
    expected = dataclasses.replace(
        chosen,
        config=dataclasses.replace(chosen.config, learning_rate=3e-3, search=search),
        network=dataclasses.replace(chosen.network, width=32),
        evaluation=dataclasses.replace(chosen.evaluation, episodes=5),
        scaling=ScalingConfig(observations=True, rewards=False),
    )
    assert [experiment for experiment, _ in calls] == [expected, expected]


def test_a_dictionary_for_the_network_keeps_no_sizes_of_another_kind(calls: list, tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        spo.train("tiny/chain", run=tmp_path / "run", network={"kind": "auto", "depth": 3}, progress=False)
    assert calls[0][0].network == NetworkConfig(kind="auto", depth=3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"config": {"lerning_rate": 1.0}}, "no setting 'config.lerning_rate'. Did you mean 'config.learning_rate'"),
        ({"config": {"num_particles": 3}}, "Did you mean 'config.search.num_particles'?"),
        ({"config": {"search": {"horizon": 0}}}, "search.horizon must be 1 or more, got 0"),
        ({"network": {"wdth": 3}}, "Did you mean 'network.width'"),
        ({"learning_rate": 1e-3}, 'learning_rate is a hyperparameter: config={"learning_rate": ...}.'),
        ({"lr": 1e-3}, 'lr is a hyperparameter: config={"learning_rate": ...}.'),
        ({"horizon": 3}, 'horizon is a hyperparameter: config={"search": {"horizon": ...}}.'),
        (
            {"learning_rate": 1e-3, "algorithm": "ppo"},
            'config={"actor_learning_rate": ..., "critic_learning_rate": ...}.',
        ),
        ({"width": 3}, 'width is a setting: network={"width": ...}.'),
        ({"sead": 3}, "spo.train has no argument sead. Did you mean 'seed'"),
    ],
)
def test_a_wrong_name_gets_the_place_or_the_nearest_names(arguments: dict, words: str):
    with pytest.raises(ValueError, match=re.escape(words)):
        spo.train("tiny/chain", steps=100, **arguments)


def test_a_run_that_is_much_longer_than_asked_for_says_so(capsys: pytest.CaptureFixture[str]):
    """And what was not chosen for the task."""
    evaluations = {"evaluation": EvaluationConfig(num_evaluations=1, episodes=2, final_episodes=2)}
    spo.train("tiny/bandit", 100, config=BANDIT_CONFIG, network=BANDIT_NETWORK, **evaluations)
    printed = capsys.readouterr().out
    assert "The run has 1.3 times the 100 steps that were asked for" in printed
    assert "lower num_envs or rollout_length" in printed
    assert "nothing is chosen for this task" in printed


@pytest.mark.slow
def test_it_is_the_run_of_the_command(tmp_path: Path):
    loop.train(EXPERIMENT, tmp_path / "run", checkpoint_seconds=1e9)
    received: list[dict[str, float]] = []
    agent = train_in_memory(on_evaluation=received.append)
    _, learner = load_learner(tmp_path / "run", "best")
    assert_same_bits(agent.params, jax.tree.map(lambda leaf: leaf[0], learner.params))
    written = [record for record in records(tmp_path / "run") if record["kind"] != "train"]
    means = [{n[8:]: v for n, v in r["metrics"].items() if n.startswith("episode/")} for r in written]
    assert agent.summary["env_steps"] == 12 * ENV_STEPS_PER_ITERATION
    assert agent.summary["initial"] == means[0]
    assert agent.summary["final"] == means[-1]
    assert agent.summary["final_policy_only"]["return"] == written[-1]["metrics"]["policy_only/return"]
    steps = [4 * ENV_STEPS_PER_ITERATION, 8 * ENV_STEPS_PER_ITERATION, 12 * ENV_STEPS_PER_ITERATION]
    assert agent.summary["evaluations"] == received
    assert received == [{"env_steps": s, **m} for s, m in zip(steps, means[1:-1], strict=True)]


def test_a_metric_that_is_not_finite_stops_training(monkeypatch: pytest.MonkeyPatch):
    run = Trainer.run

    def poisoned(self: Trainer, state: Any) -> Any:
        state, metrics, seconds = run(self, state)
        return state, metrics | {"loss/value": np.array([np.nan], np.float32)}, seconds

    monkeypatch.setattr(Trainer, "run", poisoned)
    with pytest.raises(NonFiniteError, match="loss/value became nan in iterations 1 to 1"):
        train_in_memory()


def test_a_run_without_steps_is_refused():
    with pytest.raises(ValueError, match="steps must be a number between 1 and 1e15, got 0"):
        train_in_memory(steps=0)


def test_memory_only_training_does_not_import_orbax():
    script = "import sys, spo; spo.train; assert 'orbax' not in sys.modules, 'orbax'"
    subprocess.run([sys.executable, "-c", script], check=True)


BANDIT_CONFIG = SPOConfig(
    num_envs=16,
    rollout_length=8,
    sequence_length=8,
    batch_size=16,
    learning_rate=1e-2,
    search=SearchConfig(num_particles=8, horizon=1, unroll=1),
)
BANDIT_NETWORK = NetworkConfig(width=16, depth=1)


@pytest.mark.learns
def test_a_trained_agent_chooses_the_best_arm_of_a_bandit():
    """The arms pay 0, 0.5 and 1."""
    received: list[dict[str, float]] = []
    evaluation = EvaluationConfig(num_evaluations=2, episodes=32, final_episodes=64)
    environment = environments.make("tiny/bandit").train
    settings = {"config": BANDIT_CONFIG, "network": BANDIT_NETWORK, "evaluation": evaluation}
    agent = spo.train(environment, steps=2000, **settings, on_evaluation=received.append)
    state, timestep = environment.reset(jax.random.key(1))
    assert int(agent.act(jax.random.key(2), state, timestep, greedy=True)) == 2
    assert int(agent.act(jax.random.key(2), None, timestep, use_search=False, greedy=True)) == 2
    assert agent.summary["final"]["return"] > 0.8  # untrained: 0.5
    assert agent.summary["evaluations"] == received
    assert [entry["env_steps"] for entry in received] == [1024, 2048]


@pytest.fixture(scope="module")
def bandit_agent() -> Agent:
    evaluation = EvaluationConfig(num_evaluations=1, episodes=4, final_episodes=4)
    settings = {"config": BANDIT_CONFIG, "network": BANDIT_NETWORK, "evaluation": evaluation, "num_seeds": 2}
    return spo.train(environments.make("tiny/bandit").train, steps=128, **settings, progress=False)


def test_an_agent_is_evaluated_as_by_the_command(bandit_agent: Agent, tmp_path: Path):
    result = bandit_agent.evaluate(episodes=16, seed=3)
    assert (result["episodes"], result["use_search"], result["greedy"]) == (16, True, False)
    assert result["return"]["low"] <= result["return"]["mean"] <= result["return"]["high"]
    assert result["length"]["mean"] == 1
    assert (result["other_actions"]["kind"], result["other_actions"]["episodes"]) == ("greedy", 4)
    assert len(result["per_seed"]["return"]) == 1  # of this agent alone
    path = bandit_agent.save(tmp_path / "agent.npz")
    loaded = spo.load(path, env=environments.make("tiny/bandit").train)
    assert loaded.evaluate(episodes=16, seed=3) == result
    other = loaded.evaluate(episodes=16, seed=3, use_search=False, greedy=True)
    assert (other["use_search"], other["greedy"], other["other_actions"]["kind"]) == (False, True, "drawn")
    assert set(np.unique(other["return"]["mean"])) <= {0.0, 0.5, 1.0}  # greedy: always the same arm


def test_an_evaluation_may_have_another_search_budget(bandit_agent: Agent, monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []
    monkeypatch.setattr(evaluation, "evaluate_in_parts", lambda trainer, *_, **__: seen.append(trainer) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bandit_agent.evaluate(config={"search": {"num_particles": 5}})
    assert seen[0].experiment.config.search.num_particles == 5
    with pytest.raises(ValueError, match=r"no setting 'config\.serch'"):
        bandit_agent.evaluate(config={"serch": {}})
    with pytest.raises(ValueError, match="episodes must be 1 or more, got 0"):
        bandit_agent.evaluate(episodes=0)
    with pytest.raises(ValueError, match="This agent has no environment"):
        dataclasses.replace(bandit_agent, evaluator=None).evaluate()


def test_the_policy_acts_on_an_observation_alone(bandit_agent: Agent):
    state, timestep = environments.make("tiny/bandit").train.reset(jax.random.key(1))
    act, key = bandit_agent.act, jax.random.key(2)
    alone = act(key, None, np.asarray(timestep.observation), use_search=False)
    assert alone == act(key, None, timestep, use_search=False)
    with pytest.raises(ValueError, match="a search needs all of it and the state"):
        act(key, state, timestep.observation)
    with pytest.raises(ValueError, match=r"timestep\.observation is .* and must be"):
        act(key, None, np.zeros(17, np.float32), use_search=False)


def test_the_agent_has_the_parameters_of_the_best_evaluation(monkeypatch: pytest.MonkeyPatch):
    """The evaluations return given scores, which rise or fall."""

    def params(steps: float, *scores: float) -> Any:
        remaining = iter([-1.0, *scores])  # the first is that of the untrained parameters

        def evaluate(_: Any, __: Any, ___: Any, num_episodes: int, num_other: int, **____: Any) -> Episodes:
            shape = (1, num_episodes + num_other)
            return Episodes(np.full(shape, next(remaining, 0.0)), np.ones(shape, int), {})

        monkeypatch.setattr(Trainer, "evaluate", evaluate)
        evaluation = EvaluationConfig(num_evaluations=len(scores))
        agent = spo.train("tiny/bandit", steps, config=BANDIT_CONFIG, network=BANDIT_NETWORK, evaluation=evaluation)
        return jax.tree.leaves(agent.params)

    def equal(first: Any, second: Any) -> bool:
        return all(bool(jnp.all(a == b)) for a, b in zip(first, second, strict=True))

    early, late = params(1024, 1.0), params(2048, 0.0, 1.0)
    assert equal(params(2048, 1.0, 0.0), early)
    assert not equal(early, late)


def test_an_argument_of_a_wrong_type_is_refused():
    with pytest.raises(ValueError, match="config must be SPOConfig for the algorithm spo, got list"):
        spo.train("tiny/bandit", config=[])
    with pytest.raises(ValueError, match="Can't train on an object of type int: it must be a"):
        spo.train(3)


def test_importing_spo_does_not_import_jax():
    script = "import spo, sys; assert 'jax' not in sys.modules; assert not hasattr(spo, 'trian'); print(spo.train)"
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "function train" in printed


@pytest.mark.parametrize("path", [3, None, {}, b"runs"])
def test_a_path_of_another_type_is_refused(path):
    with pytest.raises(ValueError, match="run must be a path, got"):
        spo.load(path)
    with pytest.raises(ValueError, match="member must be a whole number, got 'abc'"):
        spo.load("run", member="abc")
    with pytest.raises(ValueError, match="path must be a path, got"):
        Agent(act=lambda *_: 0, params={}, summary={}).save(path)
    if path is not None:
        with pytest.raises(ValueError, match="run must be a path, got"):
            spo.train("tiny/bandit", run=path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"resume": 1}, "resume must be True, False or 'auto', got 1"),
        ({"progress": "no"}, "progress must be True or False, got 'no'"),
        ({"callback": 3}, "callback must be a function, got 3"),
        ({"on_evaluation": {}}, "on_evaluation must be a function, got {}"),
        ({"start_from": 1j}, "start_from must be text, got 1j|start_from must be a path, got 1j"),
        ({"deterministic": None}, "deterministic must be True or False, got None"),
        ({"num_seeds": True}, "num_seeds must be a whole number, got True"),
    ],
)
def test_settings_of_another_type_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        spo.train("tiny/bandit", **settings)
