"""Tests of own environments: by `module:function` and as objects they are runs like any other."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
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
from spo.algorithms.smc_ent import SMCEntConfig, SoftSearchConfig
from spo.algorithms.spo import SPOConfig
from spo.cli import main
from spo.environments.checking import InvalidEnvironment
from spo.networks.config import NetworkConfig
from spo.reports import run_report
from spo.reports.run_files import read_config
from spo.training import checkpoints, library, loop
from spo.training.agents import Agent
from spo.training.experiment import EvaluationConfig
from spo.training.saved_learners import load_experiment
from spo.training.trainer import Trainer
from spo.types import Environment, Task
from training import own_environments
from training.comparing import assert_same_bits, without_time

TESTS = Path(__file__).resolve().parents[1]
CONFIG = SPOConfig(
    num_envs=4,
    rollout_length=2,
    num_updates=1,
    batch_size=4,
    sequence_length=2,
    replay_size=64,
    search=SearchConfig(num_particles=4, horizon=2, unroll=1),
)
STEPS = 4 * 2 * 4  # four iterations
SETTINGS: dict[str, Any] = {
    "steps": STEPS,
    "config": CONFIG,
    "network": NetworkConfig(width=8, depth=1),
    "evaluation": EvaluationConfig(num_evaluations=2, episodes=4, final_episodes=4),
    "progress": False,
}
OPTIONS = [
    *("--steps", str(STEPS), "--network.width", "8", "--network.depth", "1"),
    *("--num-envs", "4", "--rollout-length", "2", "--num-updates", "1", "--batch-size", "4"),
    *("--sequence-length", "2", "--replay-size", "64", "--evaluation.num-evaluations", "2"),
    *("--evaluation.episodes", "4", "--evaluation.final-episodes", "4"),
    *("--search.num-particles", "4", "--search.horizon", "2", "--search.unroll", "1"),
]
#: Settings of the preset that differ from those of `SPOConfig`.
AS_IN_PAPER = [
    *("--learning-rate", str(CONFIG.learning_rate), "--dual-learning-rate", str(CONFIG.dual_learning_rate)),
    *("--gamma", str(CONFIG.gamma), "--trust-region", "--search.readout", CONFIG.search.readout),
    *("--root-exploration-weight", str(CONFIG.root_exploration_weight)),
    *("--search.num-root-candidates", str(CONFIG.search.num_root_candidates)),
]
NAMES = ("corridor", "slider", "images", "dictionary")
#: Each environment compiles its own programs.
EACH = ["corridor", *(pytest.param(function, marks=pytest.mark.slow) for function in NAMES[1:])]


def name(function: str) -> str:
    return f"training.own_environments:{function}"


def evaluation_environment(function: str) -> Environment:
    made = getattr(own_environments, function)()
    return made.evaluation if isinstance(made, Task) else made


def actions(agent: Agent, environment: Environment) -> list[np.ndarray]:
    """Returns the first actions of an episode, with and without search."""
    found = []
    state, timestep = environment.reset(jax.random.key(0))
    for key in jax.random.split(jax.random.key(1), 3):
        found += [agent.act(key, state, timestep), agent.act(key, None, timestep, use_search=False)]
        state, timestep = environment.step(key, state, found[-2])
    return list(map(np.asarray, found))


def assert_same_actions(one: Agent, other: Agent, environment: Environment) -> None:
    for a, b in zip(actions(one, environment), actions(other, environment), strict=True):
        np.testing.assert_array_equal(a, b)


def assert_same_state(one: Path, other: Path) -> None:
    """Asserts that the last checkpoints have the same parameters, optimisers, replay, environments and keys."""
    abstract = Trainer(load_experiment(one)).abstract_state
    states = [checkpoints.restore(folder / "checkpoints", abstract, 1, pytest.fail) for folder in (one, other)]
    assert_same_bits(states[0].train_state, states[1].train_state)
    assert_same_bits(states[0].best_learner, states[1].best_learner)


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Agent]]:
    """Trains each environment once by `spo.train(name, run=...)`."""
    trained: dict[str, tuple[Path, Agent]] = {}

    def train(function: str) -> tuple[Path, Agent]:
        if function not in trained:
            folder = tmp_path_factory.mktemp("own") / function
            trained[function] = folder, spo.train(name(function), run=folder, **SETTINGS)
        return trained[function]

    return train


# --- Both doors -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("function", EACH)
def test_the_command_line_and_the_function_train_the_same_bits(function, run_of, tmp_path, capsys):
    folder, agent = run_of(function)
    result = spo_command(
        capsys,
        "train",
        "default",
        "--task",
        name(function),
        *OPTIONS,
        *AS_IN_PAPER,
        "--run",
        str(tmp_path / "run"),
        "--quiet",
    )
    assert result.code == 0, result.err
    assert load_experiment(folder) == load_experiment(tmp_path / "run")
    assert without_time(folder) == without_time(tmp_path / "run")
    assert_same_bits(agent.params, spo.load(tmp_path / "run").params)
    assert_same_state(folder, tmp_path / "run")
    for file in ("metrics.jsonl", "summary.json", "environment.json", "checkpoints", "tensorboard"):
        assert (folder / file).exists()


@pytest.mark.slow
def test_an_object_in_memory_trains_the_same_bits(run_of, capsys):
    """The callback receives each interval, and the progress is shown."""
    _, agent = run_of("corridor")
    received: list[dict[str, float]] = []
    settings = SETTINGS | {"progress": True, "callback": lambda metrics, _: received.append(metrics)}
    in_memory = spo.train(own_environments.corridor()._replace(name="corridor"), **settings)
    assert "spo on object:corridor: 32 steps" in capsys.readouterr().out
    assert_same_bits(agent.params, in_memory.params)
    assert [metrics["env_steps"] for metrics in received] == [8, 16, 24, 32]
    for entry in ("initial", "final", "final_policy_only", "evaluations", "env_steps"):
        assert in_memory.summary[entry] == agent.summary[entry]
    assert_same_actions(agent, in_memory, own_environments.corridor())


def test_a_run_is_silent_without_progress(run_of, capsys):
    run_of("corridor")
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_several_seeds_are_trained_side_by_side(run_of, tmp_path):
    _, agent = run_of("corridor")
    two = spo.train(name("corridor"), num_seeds=2, **SETTINGS)
    file = two.save(tmp_path / "agent.npz")
    assert_same_actions(agent, spo.load(file, member=0), own_environments.corridor())
    assert not all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(two.params), jax.tree.leaves(spo.load(file, member=1).params), strict=True)
    )


# --- Interrupted, resumed, loaded -------------------------------------------------------------------------------------
def interrupt(metrics: dict[str, float], _: loop.Handle) -> None:
    if metrics["env_steps"] == 24:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def object_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Agent]:
    """The run of an environment without a name, interrupted and resumed."""
    folder = tmp_path_factory.mktemp("object") / "run"
    with pytest.raises(KeyboardInterrupt):
        spo.train(own_environments.corridor(), run=folder, callback=interrupt, **SETTINGS)
    return folder, spo.train(own_environments.corridor(), run=folder, resume=True, **SETTINGS)


def test_an_interrupted_run_is_resumed_to_the_same_bits(run_of, object_run):
    folder, agent = run_of("corridor")
    assert without_time(folder) == without_time(object_run[0])
    assert_same_bits(agent.params, object_run[1].params)
    assert_same_state(folder, object_run[0])


@pytest.mark.slow
@pytest.mark.parametrize("function", NAMES)
def test_every_interrupted_run_is_resumed_to_the_same_bits(function, run_of, tmp_path):
    folder, agent = run_of(function)
    with pytest.raises(KeyboardInterrupt):
        spo.train(name(function), run=tmp_path / "run", callback=interrupt, **SETTINGS)
    resumed = spo.train(name(function), run=tmp_path / "run", resume=True, **SETTINGS)
    assert without_time(folder) == without_time(tmp_path / "run")
    assert_same_bits(agent.params, resumed.params)
    assert_same_state(folder, tmp_path / "run")


KILLED = """
import os, signal, sys
import spo
from training.test_own_environments import SETTINGS

def kill(metrics, _):
    if metrics["env_steps"] == 24:
        os.kill(os.getpid(), signal.SIGKILL)

spo.train(sys.argv[1], run=sys.argv[2], checkpoint_seconds=0.0, callback=kill, **SETTINGS)
"""


@pytest.mark.program
@pytest.mark.parametrize("function", NAMES)
def test_a_killed_run_is_resumed_to_the_same_bits(function, run_of, tmp_path, capsys):
    """SIGKILL, between two checkpoints. The command line resumes what the function has started."""
    folder, agent = run_of(function)
    run = tmp_path / "run"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.run(
        [sys.executable, "-c", KILLED, name(function), str(run)], env=environment, capture_output=True, check=False
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert checkpoints.iterations(run / "checkpoints") == [1, 2]
    assert len(without_time(run)) < len(without_time(folder))
    result = spo_command(capsys, "train", "--resume", str(run), "--quiet")
    assert result.code == 0, result.err
    assert without_time(folder) == without_time(run)
    assert_same_bits(agent.params, spo.load(run).params)
    assert_same_state(folder, run)


def test_the_run_of_an_object_is_loaded_with_the_object(object_run, tmp_path, capsys):
    folder, agent = object_run
    environment = own_environments.corridor()
    assert read_config(folder)["task"] == "object:environment"
    assert_same_actions(agent, spo.load(folder, env=environment), environment)
    assert_same_actions(agent, spo.load(agent.save(tmp_path / "agent.npz"), env=environment), environment)
    with pytest.raises(ValueError, match=r"holds a run already: continue it with resume=True"):
        spo.train(environment, run=folder, **SETTINGS)
    with pytest.raises(ValueError, match=r"given as an object.*spo.load\(path, env=env\)"):
        spo.load(folder)
    for command in (
        ["evaluate", str(folder)],
        ["render", str(folder)],
        ["export", str(folder), "x.npz"],
        ["train", "--resume", str(folder)],
    ):
        result = spo_command(capsys, *command)
        assert result.code == 2
        assert "given as an object and has no name to import" in result.err, command
        assert "spo.train(env, run=path, resume=True)" in result.err


# --- Commands on the run ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("function", EACH)
def test_saved_and_loaded_agents_act_the_same(function, run_of, tmp_path, capsys):
    folder, agent = run_of(function)
    environment = evaluation_environment(function)
    exported = tmp_path / "exported.npz"
    assert spo_command(capsys, "export", str(folder), str(exported)).code == 0
    saved = agent.save(tmp_path / "saved.npz")
    with np.load(exported) as one, np.load(saved) as other:
        assert {n: one[n].tobytes() for n in one.files} == {n: other[n].tobytes() for n in other.files}
    for source in (folder, saved):
        assert_same_actions(agent, spo.load(source), environment)


@pytest.mark.parametrize("function", EACH)
def test_a_run_is_evaluated_and_compared(function, run_of, tmp_path, capsys):
    folder, _ = run_of(function)
    result = spo_command(capsys, "evaluate", str(folder), "--episodes", "4")
    assert result.code == 0, result.err
    assert "return" in result.out
    result = spo_command(capsys, "compare", str(folder), "--out", str(tmp_path / "report"))
    assert result.code == 0, result.err
    result = spo_command(capsys, "runs", str(folder.parent))
    assert function in result.out


def test_a_variant_with_other_observations_is_refused_as_one(run_of, capsys):
    """It is not taken for an environment that has changed."""
    folder, _ = run_of("corridor")
    result = spo_command(capsys, "evaluate", str(folder), "--task.length", "5", "--episodes", "4")
    assert result.code == 2
    assert f"can't act in this variant of {name('corridor')}: its observation is float32[5]" in result.err


def test_the_commands_at_the_end_of_a_run_start_from_its_learner(run_of, tmp_path, capsys, monkeypatch):
    folder, _ = run_of("corridor")
    monkeypatch.chdir(tmp_path)
    hint = next(line for line in run_report.report(folder).splitlines() if "spo export" in line)
    for command in (hint.split("    ")[0], hint.partition("to start from: ")[2]):
        _, *words = command.split()
        result = spo_command(capsys, *words, *(["--quiet", "--run", "next"] if words[0] == "train" else []))
        assert result.code == 0, result.err
    assert load_experiment(Path("next")) == load_experiment(folder)
    assert read_config(Path("next"))["start_from"]["file"] == "learner.npz"
    result = spo_command(capsys, "train", "--from", "learner.npz", "--task", "tiny/chain", "--run", "other")
    assert result.code == 2
    assert f"trained with: spo on {name('corridor')}, 1 seed(s)." in result.err


@pytest.mark.slow
@pytest.mark.parametrize("function", ["slider", "images"])
def test_a_run_is_rendered(function, run_of, tmp_path, capsys):
    folder, _ = run_of(function)
    picture = tmp_path / "episode.gif"
    result = spo_command(capsys, "render", str(folder), "--out", str(picture))
    assert result.code == 0, result.err
    assert picture.stat().st_size > 0


def test_an_environment_without_pictures_says_so(run_of, tmp_path, capsys):
    folder, _ = run_of("corridor")
    result = spo_command(capsys, "render", str(folder), "--out", str(tmp_path / "episode.gif"))
    assert result.code == 2
    assert "The environment corridor draws no pictures" in result.err


@pytest.mark.program
def test_another_process_loads_the_agent_and_imports_its_module(run_of, tmp_path):
    _, agent = run_of("images")
    script = f"""
import sys, jax, numpy, spo
assert "training.own_environments" not in sys.modules
agent = spo.load({str(agent.save(tmp_path / "agent.npz"))!r})
from training.test_own_environments import actions, evaluation_environment
numpy.savez({str(tmp_path / "actions.npz")!r}, *actions(agent, evaluation_environment("images")))
"""
    subprocess.run([sys.executable, "-c", script], cwd=TESTS, env=dict(os.environ), check=True)
    with np.load(tmp_path / "actions.npz") as stored:
        for a, b in zip(stored.values(), actions(agent, evaluation_environment("images")), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_repr_of_an_agent_is_one_line(run_of):
    _, agent = run_of("corridor")
    text = repr(agent)
    assert len(text) < 200
    assert text.startswith("Agent(spo on training.own_environments:corridor, ")
    assert "parameters" in text


# --- Environments that have changed ---------------------------------------------------------------------------------
def test_an_environment_whose_specs_have_changed_is_refused(run_of, tmp_path):
    folder, agent = run_of("corridor")
    assert read_config(folder)["specs"]["observation"] == "float32[4]"
    with pytest.raises(ValueError, match=r"has changed since.*observation was float32\[4\] and is float32\[5\]"):
        spo.load(folder, env=own_environments.corridor(length=5))
    with pytest.raises(ValueError, match="has changed since this agent was trained"):
        spo.load(agent.save(tmp_path / "agent.npz"), env=own_environments.slider())
    with pytest.raises(ValueError, match=r"specs\.observation"):
        spo.train(name("corridor"), run=folder, resume=True, task_options={"length": 5}, **SETTINGS)


def test_a_module_that_is_gone_gets_a_sentence(run_of, tmp_path, capsys):
    _, agent = run_of("corridor")
    file = agent.save(tmp_path / "agent.npz")
    with np.load(file) as stored:
        arrays = dict(stored)
    header = json.loads(str(arrays["header"]))
    header["experiment"]["task"] = "module_that_is_gone:corridor"
    np.savez(file, **arrays | {"header": np.array(json.dumps(header))})
    result = spo_command(capsys, "evaluate", str(file))
    assert result.code == 2
    assert "There is no module 'module_that_is_gone'" in result.err


# --- Names and options ------------------------------------------------------------------------------------------------
def test_options_of_the_function_are_options_of_the_task(tmp_path, capsys, monkeypatch):
    made: list[Any] = []
    monkeypatch.setattr(loop, "train", lambda experiment, *_, **__: made.append(experiment))
    monkeypatch.setattr("spo.reports.run_report.draw_learning_curve", lambda *_: None)
    monkeypatch.setattr("spo.reports.run_report.short_report", lambda folder: "")
    task = ["--task", name("corridor"), "--task.length", "5", "--task.slip=0"]
    result = spo_command(capsys, "train", *task, "--run", str(tmp_path / "run"), "--quiet")
    assert result.code == 0, result.err
    assert made[0].task_options == {"length": 5, "slip": 0.0}
    help_text = spo_command(capsys, "train", "--task", name("corridor"), "--help").out
    assert "--task.time-limit INT" in help_text
    assert "Number of cells." in help_text


def test_an_option_can_be_a_tuple_a_list_or_a_text_of_digits(tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--task.size", "3", "2", "--task.doors", "4", "5", "--task.label", "7", "--quiet"]
    result = spo_command(capsys, "train", "--task", name("room"), *OPTIONS, *options, "--run", str(run))
    assert result.code == 0, result.err
    stored = load_experiment(run)
    assert stored.task_options == {"size": [3, 2], "doors": [4, 5], "label": "7"}
    assert stored.specs["observation"] == "float32[8]"
    evaluated = spo_command(capsys, "evaluate", str(run), "--episodes", "4")
    assert evaluated.code == 0, evaluated.err
    repeated = spo_command(capsys, "train", "--like", str(run), "--run", str(tmp_path / "again"), "--quiet")
    assert repeated.code == 0, repeated.err
    assert load_experiment(tmp_path / "again") == stored


def test_options_are_given_to_functions_and_refused_for_objects():
    with pytest.raises(ValueError, match="task_options are those of an environment that is given by name"):
        spo.train(own_environments.corridor(), task_options={"length": 5}, **SETTINGS)
    loaded = library._given_task(own_environments.corridor, {"length": 5})
    assert loaded.train.observation_spec.shape == (5,)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--task", name("corridors")], "has no 'corridors'. Did you mean 'corridor'"),
        (["--task", name("NOT_A_FUNCTION")], "is of type int and can't be called"),
        (["--task", name("not_an_environment")], "returned an object of type int"),
        (
            ["--task", name("broken_maker"), "--task.name", "x"],
            "broken_maker raised KeyError (in own_environments.py, line",
        ),
        (["--task", name("needs_a_length")], "--task.length"),
        (["--task", name("corridor"), "--task.lenght", "5"], "--task.lenght"),
        (["--task", name("corridor"), "--task.length", "abc"], "length must be a whole number, got 'abc'"),
        (["--task", "no_such_module:make"], "There is no module 'no_such_module'"),
    ],
)
def test_a_wrong_name_or_option_gets_a_sentence_and_leaves_no_folder(arguments, sentence, tmp_path, capsys):
    result = spo_command(capsys, "train", *arguments, *OPTIONS, "--run", str(tmp_path / "run"))
    assert result.code == 2
    assert sentence in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


def test_a_broken_environment_is_named_by_both_doors_before_a_folder_exists(tmp_path, capsys, monkeypatch):
    def broken() -> Environment:
        environment = own_environments.corridor()
        return environment._replace(observation_spec=jax.ShapeDtypeStruct((7,), np.float32))

    monkeypatch.setattr(own_environments, "broken", broken, raising=False)
    with pytest.raises(InvalidEnvironment) as direct:
        spo.check_environment(broken()._replace(name="broken"))
    with pytest.raises(InvalidEnvironment) as by_function:
        spo.train(name("broken"), run=tmp_path / "run", **SETTINGS)
    result = spo_command(capsys, "train", "--task", name("broken"), *OPTIONS, "--run", str(tmp_path / "run"))
    assert str(direct.value) == str(by_function.value)
    assert result.code == 2
    assert " ".join(str(direct.value).split()) in result.err
    assert not (tmp_path / "run").exists()


FEW = {"num_envs": 4, "rollout_length": 2}
OF_REPLAY = {**FEW, "num_updates": 1, "batch_size": 4, "sequence_length": 2, "replay_size": 64}
SMALL_SEARCH = SearchConfig(num_particles=4, horizon=2, unroll=1)
SMALL_SOFT_SEARCH = SoftSearchConfig(num_particles=4, horizon=2, unroll=1)
BOX_CONFIGS = {
    "spo": SPOConfig(**OF_REPLAY, search=SMALL_SEARCH),
    "ppo": PPOConfig(**FEW, num_epochs=1, num_minibatches=1),
    "mpo": MPOConfig(**OF_REPLAY),
    "smc_ent": SMCEntConfig(**FEW, num_updates=1, batch_size=4, replay_size=64, search=SMALL_SOFT_SEARCH),
}


@pytest.mark.parametrize("algorithm", BOX_CONFIGS)
def test_actions_keep_the_bounds_of_each_dimension(algorithm: str, tmp_path: Path):
    settings = SETTINGS | {"algorithm": algorithm, "config": BOX_CONFIGS[algorithm]}
    agent = spo.train(name("arm"), run=tmp_path / "run", **settings)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(agent.params))
    stored = load_experiment(tmp_path / "run").specs["actions"]
    low, high = own_environments.ARM_LOWS, own_environments.ARM_HIGHS
    assert stored == {"kind": "ContinuousActions", "size": 3, "low": list(low), "high": list(high)}
    assert agent.summary["final"]["outside"] == 0.0
    environment = own_environments.arm()
    keys = jax.random.split(jax.random.key(1), 64)
    states, timesteps = jax.vmap(environment.reset)(keys)
    loaded = spo.load(tmp_path / "run")
    actions = np.asarray(jax.vmap(loaded.act)(keys, states, timesteps))
    assert (np.float32(low) <= actions).all()
    assert (actions <= np.float32(high)).all()
    # A new policy covers most of each range.
    assert (np.ptp(actions, axis=0) > 0.4 * np.subtract(high, low)).all()


def test_an_unknown_argument_is_named():
    with pytest.raises(ValueError, match=r"spo\.train has no argument num_sedes"):
        spo.train(name("corridor"), num_sedes=3)
    with pytest.raises(ValueError, match="add run=FOLDER"):
        spo.train(name("corridor"), resume=True)


@pytest.mark.parametrize("door", ["in memory", "in a folder", "on the command line"])
def test_an_environment_without_an_end_in_sight_is_told_once(door: str, tmp_path, monkeypatch, capsys):
    """With the length of an episode that the chosen settings assume. Nothing is trained here."""

    class StopError(Exception):
        """Ends the test when training would begin."""

    def stop(*_: Any, **__: Any) -> None:
        raise StopError

    monkeypatch.setattr("spo.environments.checking.steps.SECONDS_FOR_TIME_LIMIT", 0.0)
    monkeypatch.setattr(loop, "Trainer", stop)
    monkeypatch.setattr(library, "Trainer", stop)
    doors: dict[str, Callable[[], Any]] = {
        "in memory": lambda: spo.train(name("corridor"), steps=100),
        "in a folder": lambda: spo.train(name("corridor"), steps=100, run=tmp_path / "run"),
        "on the command line": lambda: main(["train", "--task", name("corridor"), "--task.time-limit", "7"]),
    }
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StopError):
        doors[door]()
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("no episode of random actions ended in the 0 steps that the check had time for.") == 1
    steps = 7 if door == "on the command line" else 500
    assert printed.count(f"Settings that are chosen for it assume episodes of at most {steps} steps.") == 1
