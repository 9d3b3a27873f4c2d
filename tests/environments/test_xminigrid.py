"""The adapter against XLand-MiniGrid itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

package = pytest.importorskip("xminigrid")

from spo.environments import make  # noqa: E402
from spo.environments.registry import describe  # noqa: E402
from spo.environments.xminigrid import _channels, names  # noqa: E402
from spo.types import DiscreteActions  # noqa: E402

EMPTY = "MiniGrid-EmptyRandom-5x5"


@pytest.fixture(scope="module")
def empty():
    """Environment, its compiled step, and XLand-MiniGrid's environment, parameters and compiled step."""
    env, (raw, params) = make(f"xminigrid/{EMPTY}").train, package.make(EMPTY)
    return env, jax.jit(env.step), raw, params, jax.jit(lambda timestep, action: raw.step(params, timestep, action))


def test_plays_like_xminigrid(empty):
    env, step, raw, params, raw_step = empty
    key = jax.random.key(3)
    state, timestep = env.reset(key)
    theirs = raw.reset(params, key)
    for index in range(100):
        action = jax.random.randint(jax.random.fold_in(key, index), (), 0, 6)
        state, timestep = step(jax.random.key(index), state, action)
        theirs = raw_step(theirs, action)
        kinds_and_colours = np.asarray(theirs.observation)
        assert timestep.observation.shape == (7, 7, 13 + 12)
        np.testing.assert_array_equal(timestep.observation[..., :13].argmax(-1), kinds_and_colours[..., 0])
        np.testing.assert_array_equal(timestep.observation[..., 13:].argmax(-1), kinds_and_colours[..., 1])
        assert timestep.reward == theirs.reward
        assert bool(timestep.ended) == bool(theirs.last())
        assert bool(timestep.terminated) == (theirs.discount == 0)
        if timestep.ended:
            break
    assert timestep.terminated  # the goal is found by chance
    assert 0 < timestep.reward < 1


def test_the_time_limit_truncates(empty):
    env, step, *_ = empty
    state, _ = env.reset(jax.random.key(0))
    limit = describe(f"xminigrid/{EMPTY}").time_limit
    state = state.replace(step_num=jnp.int32(limit - 2))
    turn = 1
    for truncated in (False, True, True):
        state, timestep = step(jax.random.key(0), state, turn)
        assert (bool(timestep.truncated), bool(timestep.terminated)) == (truncated, False)


def test_the_players_cell_shows_the_carried_object():
    view = jnp.zeros((3, 3, 2), jnp.uint8).at[2, 1].set(jnp.array([3, 4], jnp.uint8))
    for pocket, shown in (((0, 0), (3, 4)), ((7, 5), (7, 5))):
        channels = _channels(view, jnp.array(pocket, jnp.uint8))
        assert tuple(np.flatnonzero(channels[2, 1])) == (shown[0], 13 + shown[1])


def test_specs_and_names():
    env = make("xminigrid/MiniGrid-DoorKey-5x5", view_size=5).train
    assert env.action_spec == DiscreteActions(6)
    assert (env.observation_spec.shape, env.observation_spec.dtype) == ((5, 5, 25), bool)
    assert "beyond the view" in env.hidden
    assert "MiniGrid-Playground" not in names()


def test_a_ruleset_gives_xland_its_goal(monkeypatch):
    _, params = package.make("XLand-MiniGrid-R1-9x9")
    goal = params.ruleset.goal.at[0].set(3)
    stored = package.benchmarks.Benchmark(
        goals=jnp.stack([params.ruleset.goal, goal]),
        rules=jnp.stack([params.ruleset.rules] * 2),
        init_tiles=jnp.stack([params.ruleset.init_tiles] * 2),
        num_rules=jnp.array([0, 0]),
    )
    monkeypatch.setattr(package, "load_benchmark", {"trivial-21k": stored}.get)
    with pytest.raises(ValueError, match="no goal without a ruleset: set benchmark to one of trivial-21k"):
        make("xminigrid/XLand-MiniGrid-R1-9x9")
    with pytest.raises(ValueError, match="ruleset must lie between 0 and 1 in trivial-21k, got 2"):
        make("xminigrid/XLand-MiniGrid-R1-9x9", benchmark="trivial-21k", ruleset=2)
    env = make("xminigrid/XLand-MiniGrid-R1-9x9", benchmark="trivial-21k", ruleset=1).train
    state, _ = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(state.goal_encoding, goal)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("MiniGrid-DoorKey-7x7", {}, "no environment 'MiniGrid-DoorKey-7x7'. Did you mean 'xminigrid/MiniGrid-DoorKey"),
        ("MiniGrid-Playground", {}, "has no goal and no reward"),
        (EMPTY, {"max_steps": 3}, "no option 'max_steps': it takes .*time_limit"),
        (EMPTY, {"time_limit": 0}, "at least one step"),
    ],
)
def test_bad_arguments(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(f"xminigrid/{name}", **options)
