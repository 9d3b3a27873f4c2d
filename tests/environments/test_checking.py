"""Tests of `check_environment`: valid environments pass, and each broken one is named with its field and its remedy."""

import pickle
import re
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spo
from cli.command import spo_command
from environments.broken_environments import BROKEN, LENGTH, broken, corridor, counting, float_of
from spo.environments import make
from spo.environments.checking import InvalidEnvironment, check_environment
from spo.environments.checking.traces import random_action
from spo.environments.wrappers import episode_limit
from spo.types import ContinuousActions, Task


def sentence_about(fault: str) -> str:
    with pytest.raises(InvalidEnvironment) as raised:
        check_environment(broken(fault))
    return str(raised.value)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_environment_is_named_with_its_remedy(fault: str):
    sentence = sentence_about(fault)
    _, field, remedy = BROKEN[fault]
    assert sentence.startswith("Environment 'corridor': ")
    assert field in sentence
    assert remedy in sentence
    assert "\n" not in sentence
    assert len(sentence) < 420


TEN = (
    *("python_float_reward", "wrong_observation_shape", "mask_too_long", "mask_all_false", "float16_observation"),
    *("state_changes_shape", "counter", "numpy_randomness", "no_time_limit", "reserved_metric"),
)


@pytest.mark.parametrize("fault", TEN)
def test_all_doors_say_the_same_within_seconds_and_before_a_folder_exists(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    started = [time.monotonic()]
    sentence, folder = sentence_about(fault), tmp_path / "run"
    started.append(time.monotonic())
    for environment in (broken(fault), "environments.broken_environments:broken"):
        options = {"task_options": {"fault": fault}} if isinstance(environment, str) else {}
        with pytest.raises(InvalidEnvironment) as raised:
            spo.train(environment, run=folder, **options)
        assert str(raised.value) == sentence
        started.append(time.monotonic())
    task = ("--task", "environments.broken_environments:broken", "--task.fault", fault)
    result = spo_command(capsys, "train", *task, "--run", str(folder))
    assert result.code == 2
    assert result.err.strip() == f"spo: {sentence}"
    assert not folder.exists()
    assert max(np.diff([*started, time.monotonic()])) < 20


def test_valid_environments_pass_in_silence(capsys: pytest.CaptureFixture[str]):
    for environment in (
        corridor(),
        corridor(mask=lambda goal: None),  # optional
        corridor(reward=lambda goal: jnp.where(goal, 1.0, 0.0)),  # a weak type
        corridor(state=lambda position: (position, np.arange(3))),  # int64, which JAX makes int32
        corridor(start=lambda key: jax.random.randint(key, (), 0, 2)),
        corridor(state=lambda position: (position, jnp.zeros(3, jnp.float16))),
        episode_limit(corridor(move=lambda key, position, action: position * 0), 30),
        corridor()._replace(action_names=("left", "right")),
        make("tiny/lqr").train,
        make("sokoban/generated", num_levels=2, num_evaluation_levels=1).train,
    ):
        assert check_environment(environment) is None
    assert capsys.readouterr() == ("", "")


def test_random_actions_keep_the_bounds_of_each_dimension():
    spec = ContinuousActions(3, (-2.0, 0.0, 5.0), jnp.asarray([2.0, 0.5, 6.0]))
    assert spec == ContinuousActions(3, [-2.0, 0.0, 5.0], (2.0, 0.5, 6.0))
    assert spec._replace(low=-1.0).bounds == ((-1.0, 2.0), (-1.0, 0.5), (-1.0, 6.0))
    assert isinstance(hash(spec), int)
    assert pickle.loads(pickle.dumps(spec)) == spec
    environment = corridor()._replace(action_spec=spec)
    draws = jax.vmap(lambda key: random_action(environment, key, None))(jax.random.split(jax.random.key(0), 2000))
    np.testing.assert_allclose(np.min(draws, axis=0), [-2.0, 0.0, 5.0], atol=0.02)
    np.testing.assert_allclose(np.max(draws, axis=0), [2.0, 0.5, 6.0], atol=0.02)


def test_a_picture_may_be_any_image_that_can_be_drawn():
    image = pytest.importorskip("PIL.Image")
    check_environment(corridor()._replace(render=lambda state: image.new("RGB", (4, 3))))


def test_a_library_that_cannot_draw_here_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "window_library.py").write_text("def draw(state): return None.glGetError\n")
    monkeypatch.syspath_prepend(tmp_path)

    def needs_a_window(state):
        import window_library

        return window_library.draw(state)

    def needs_a_display(state):
        raise OSError("no display")

    for render in (needs_a_window, needs_a_display):
        check_environment(corridor()._replace(render=render))


def test_containers_of_observations_are_named_on_both_sides():
    pair = jax.ShapeDtypeStruct((2,), jnp.float32)
    for spec, words in (
        ([pair, pair], "a list with float32[2], float32[2] in observation_spec, one float32[4] array in reset"),
        ({"a": pair, "b": pair}, "a dict with a, b in observation_spec, one float32[4] array in reset"),
    ):
        with pytest.raises(InvalidEnvironment, match=re.escape(words)):
            check_environment(corridor()._replace(observation_spec=spec))


def test_a_jitted_function_is_checked_as_well():
    environment = counting()
    with pytest.raises(InvalidEnvironment, match="side effects"):
        check_environment(environment._replace(reset=jax.jit(environment.reset), step=jax.jit(environment.step)))


def test_a_constant_key_is_found_inside_a_step_and_a_derived_key_is_allowed():
    def noisy(key_of):
        def move(key, position, action):
            noise = jax.random.bernoulli(jax.random.fold_in(key_of(key, position), 1))
            return jnp.clip(position + action + noise, 0, LENGTH - 1)

        return corridor(move=move)

    check_environment(noisy(lambda key, position: key))
    check_environment(noisy(lambda key, position: jax.random.key(position)))  # a level from its number
    with pytest.raises(InvalidEnvironment, match="step draws random numbers with a key of its own"):
        check_environment(noisy(lambda key, position: jax.random.PRNGKey(0)))


def test_all_environments_of_a_task_are_checked_and_compared():
    valid = corridor()
    check_environment(Task(valid, valid, valid))
    with pytest.raises(InvalidEnvironment, match="reward of reset must be a float32 array"):
        check_environment(Task(valid, corridor(reward=float_of(1.0)), valid))
    with pytest.raises(InvalidEnvironment, match=r"must be a spo.types.Environment, got a Python float"):
        check_environment(Task(valid, 2.5, valid))
    with pytest.raises(InvalidEnvironment, match="name must be text"):
        check_environment(valid._replace(name=3))
    other = corridor(state=lambda position: (position, position))
    with pytest.raises(InvalidEnvironment, match=re.escape("reset of task.train and of task.model differ")):
        check_environment(Task(valid, valid, other))


def test_a_function_that_cannot_be_batched_is_named():
    def move(key, position, action):
        place = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.pure_callback(lambda now: np.int32(now + 1), place, position)

    with pytest.raises(InvalidEnvironment, match=r"step under jax.vmap and jax.lax.scan raised .*vmap_method"):
        check_environment(corridor(move=move))


def test_a_slow_environment_is_not_judged_by_its_time_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """One sentence says that no end was seen, also if a task has several environments."""
    monkeypatch.setattr("spo.environments.checking.steps.SECONDS_FOR_TIME_LIMIT", 0.0)
    endless = [corridor(move=lambda key, position, action: position * 0) for _ in range(3)]
    expected = "Environment 'corridor': no episode of random actions ended in the 0 steps that the check had time for."
    for environment in (endless[0], Task(*endless)):
        notes: list[str] = []
        check_environment(environment, message=notes.append)
        assert [note.startswith(expected) for note in notes] == [True]
        assert "episode_limit(environment, 1000)" in notes[0]
    assert capsys.readouterr() == ("", "")
    check_environment(endless[0])
    assert capsys.readouterr() == ("", f"spo: {notes[0]}\n")


def test_a_slow_environment_is_not_checked_for_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("spo.environments.checking.steps.SECONDS_FOR_TIME_LIMIT", 0.1)
    calls: list[None] = []

    def stay(position: np.ndarray) -> np.ndarray:
        calls.append(time.sleep(0.01))
        return position * 0

    def move(key: Any, position: Any, action: Any) -> Any:
        place = jax.ShapeDtypeStruct((), position.dtype)
        return jax.pure_callback(stay, place, position, vmap_method="sequential")

    notes: list[str] = []
    check_environment(corridor(move=move), message=notes.append)
    assert len(calls) < 100
    assert len(notes) == 1


@pytest.mark.parametrize(
    "arguments", [{"num_steps": 0}, {"num_steps": "a"}, {"max_steps_for_time_limit": 2.5}], ids=str
)
def test_numbers_of_steps_are_checked(arguments: dict):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"{name} must be"):
        check_environment(corridor(), **arguments)


def test_the_package_exports_it():
    assert spo.check_environment is check_environment
    with pytest.raises(ValueError, match=re.escape("must be a spo.types.Environment, got a str: build one")):
        spo.check_environment("corridor")
