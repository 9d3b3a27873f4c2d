"""Environments by name, and error messages for wrong names and options."""

import sys
from pathlib import Path

import jax
import pytest

from spo import known_environments
from spo.environments import make, names
from spo.environments.registry import describe
from spo.known_environments import LIBRARIES, suggest_environments
from spo.types import DiscreteActions, Task

# `names()` imports every installed library.
pytestmark = pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained:DeprecationWarning")


@pytest.mark.parametrize("name", ["rubiks_cube", "sokoban/generated", "tiny/chain", "jumanji/game_2048"])
def test_makes_by_name(name):
    if name.partition("/")[0] in LIBRARIES:
        pytest.importorskip(name.partition("/")[0])
    assert name in names()
    options = {"num_levels": 3, "num_evaluation_levels": 2} if name == "sokoban/generated" else {}
    task = make(name, **options)
    assert isinstance(task, Task)
    _, timestep = jax.eval_shape(task.train.reset, jax.random.key(0))
    shapes = jax.tree.map(lambda leaf: leaf.shape, timestep.observation)
    assert shapes == jax.tree.map(lambda spec: spec.shape, task.train.observation_spec)


def test_options_reach_the_environment():
    def steps_to_the_end(task):
        state, timestep = task.train.reset(jax.random.key(1))
        step = jax.jit(task.train.step)
        count = 0
        while not timestep.ended:
            state, timestep = step(jax.random.key(0), state, 0)
            count += 1
        return count

    assert steps_to_the_end(make("rubiks_cube", time_limit=2)) == 2
    assert steps_to_the_end(make("rubiks_cube", time_limit=3)) == 3


def test_generated_sokoban_evaluates_on_other_levels():
    from spo.environments.sokoban_generator import generate_levels

    train, evaluation = generate_levels(4, 2), generate_levels(5, 2)
    task = make("sokoban/generated", seed=4, num_levels=2, num_evaluation_levels=2)
    for environment, levels in ((task.train, train), (task.evaluation, evaluation)):
        keys = jax.random.split(jax.random.key(0), 16)
        _, timesteps = jax.vmap(environment.reset)(keys)
        seen = {board.tobytes() for board in jax.device_get(timesteps.observation)}
        assert seen == {level.tobytes() for level in levels}


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("rubik_cube", {}, "no environment 'rubik_cube'. Did you mean 'rubiks_cube'"),
        ("CartPole-v1", {}, "no environment 'CartPole-v1'. Did you mean 'gymnax/CartPole-v1'"),
        ("breakout", {}, "Did you mean 'pgx/minatar-breakout' or 'gymnax/Breakout-MinAtar'"),
        ("playgroud/cheetahrun", {}, "Did you mean 'playground/CheetahRun'"),
        ("chain", {}, r"no environment 'chain'. Did you mean 'tiny/chain'\?$"),
        ("qqqq", {}, "no environment 'qqqq'. `spo envs` lists all environments"),
        ("sokoban", {}, "no environment 'sokoban'. Did you mean 'sokoban/generated'"),
        ("sokoban/hard", {}, "no environment 'sokoban/hard'.*sokoban/generated"),
        ("boxoban/medium", {}, "boxoban/unfiltered"),
        ("tiny/chains", {}, "Did you mean 'tiny/chain'"),
        ("rubiks_cube", {"scrambles": 3}, "rubiks_cube has no option 'scrambles': it takes .*min_scrambles"),
        ("boxoban/unfiltered", {"train": "hard"}, "no option 'train': it takes .*evaluation"),
        ("tiny/chain", {"size": 3}, "tiny/chain has no option 'size': it takes .*length"),
        ("tiny/credit", {"size": 3}, "it takes none"),
    ],
)
def test_bad_names_and_options(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(name, **options)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("chain", "Did you mean 'tiny/chain'?"),
        ("ant", "Did you mean 'brax/ant'?"),
        ("gymnasium/CartPole-v1", "Did you mean 'gymnax/CartPole-v1'?"),
        ("breakout", "Did you mean 'pgx/minatar-breakout' or 'gymnax/Breakout-MinAtar'?"),
    ],
)
def test_the_same_last_part_excludes_other_names_and_installed_packages_come_first(monkeypatch, name, suggestion):
    """A missing package is named, with the command that installs it."""
    absent = {"gymnax": "Install gymnax.", "playground": "Install playground."}
    monkeypatch.setattr(known_environments, "missing", lambda: absent)
    install = " Install gymnax." if "gymnax" in suggestion else ""
    assert suggest_environments(name) == suggestion + install
    if name == "breakout":
        monkeypatch.setattr(known_environments, "missing", lambda: {"pgx": "Install pgx."})
        question = "Did you mean 'gymnax/Breakout-MinAtar' or 'pgx/minatar-breakout'? Install pgx."
        assert suggest_environments(name) == question


def test_the_sentence_about_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sentence = r"'brax/ant'\? The package brax is not installed: pip install -e \".+\[envs\]\"\.$"
    with pytest.raises(ValueError, match=sentence):
        make("ant")


def test_an_unknown_name_of_another_library():
    pytest.importorskip("jumanji")
    with pytest.raises(ValueError, match=r"Jumanji has no environment 'snakes'. Did you mean 'jumanji/snake'"):
        make("jumanji/snakes")


@pytest.mark.parametrize(("family", "library"), LIBRARIES.items(), ids=LIBRARIES)
def test_a_missing_package_names_the_extra(monkeypatch, family, library):
    package, extra = library.module, library.extra
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [])  # no other package can be found
    monkeypatch.setattr(
        sys, "meta_path", [finder for finder in sys.meta_path if not hasattr(finder, "known_source_files")]
    )
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf'{package} is not installed: pip install -e ".+\[{extra}\]"'):
        make(f"{family}/anything")
    assert not any(name.startswith(f"{family}/") for name in names())


def test_describe_loads_no_data(monkeypatch):
    monkeypatch.setenv("SPO_DATA", "/nowhere")
    description = describe("boxoban/unfiltered")
    assert description.time_limit == 120
    assert description.environment.action_spec == DiscreteActions(4)


@pytest.mark.parametrize(("name", "time_limit"), [("rubiks_cube", 20), ("tiny/cliff", 50), ("tiny/chain", None)])
def test_describe_has_the_default_time_limit(name, time_limit):
    assert describe(name).time_limit == time_limit


def test_importing_the_registry_imports_no_simulator():
    import subprocess

    simulators = "{'brax', 'jumanji', 'mujoco', 'matplotlib'}"
    code = f"import sys, spo.environments; print(sorted({simulators} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (3, {}, "The name of an environment must be text, got 3"),
        ("rubiks_cube", {"size": 1000}, "at most 32 cubies to an edge"),
        ("rubiks_cube", {"max_scrambles": 10**6}, "at most 10000 scrambles"),
        ("tiny/chain", {"length": 10**6}, "length=1000000 is too large for a table"),
        ("tiny/chain", {"length": "abc"}, "tiny/chain: length must be a whole number, got 'abc'"),
        ("tiny/chain", {"exit_reward": float("nan")}, "tiny/chain: exit_reward must be a finite number, got nan"),
    ],
)
def test_options_that_would_fill_the_memory_or_have_another_type_are_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        make(name, **options)


@pytest.mark.parametrize("name", ["subprocess:getoutput", "os:system", "spo.cli:main"])
def test_a_name_from_a_file_calls_no_function_of_another_library(name: str, tmp_path: Path):
    """The options are those of a run folder: whoever sends one must not start a program."""
    with pytest.raises(ValueError, match=r"so it makes no environment|a function of spo itself"):
        make(name, command=f"touch {tmp_path / 'started'}")
    assert not list(tmp_path.iterdir())
