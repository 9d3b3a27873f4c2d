"""One suite over all environments: the contract of `spo.types.Environment`.

A case names an environment and its properties. Time limits are set short, and an environment with long episodes gets
one. A short rollout of a few copies then covers every part of the contract. For each case one rollout and one step are
compiled, and all tests share them.
"""

import functools
import importlib.util
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.environments import make
from spo.environments.registry import names
from spo.environments.tiny import TINY_NAMES
from spo.environments.wrappers import AutoResetStep, auto_reset, episode_limit
from spo.types import DiscreteActions, State, Task, TimeStep

# Warnings of Brax, Jumanji and their dependencies about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System, piplines and environments are not actively:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing `(contact|ncon)` directly from `Data`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning"),
]

NUM_ENVS = 8
LIMIT = 4
SHORT = (("time_limit", LIMIT),)


class Case(NamedTuple):
    """An environment and its expected properties."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    #: It truncates after LIMIT steps unless it terminates before. Without a limit it must terminate.
    limited: bool = True
    #: The limit is not one of its options and is added by a wrapper.
    wrap_limit: bool = False
    random_start: bool = True
    #: A step depends on its key.
    stochastic: bool = False
    #: Relative and absolute tolerance of `vmap` against a loop: zero, except for physics in 32 bit.
    tolerance: float = 0.0
    renders: bool = True
    slow: bool = False
    #: The required package.
    needs: str | None = None

    @property
    def recipe(self) -> tuple:
        """Arguments of `make_once`."""
        return self.name, self.options, self.wrap_limit


def tiny_case(name: str) -> Case:
    limited = name in ("cliff", "slippery", "lqr")
    return Case(
        f"tiny/{name}",
        options=SHORT if limited else (),
        limited=limited,
        random_start=name in ("observation_reward", "context", "continuous_context", "lqr"),
        stochastic=name in ("gamble", "lottery", "slippery"),
        # One environment of each kind in the default run. The others differ only in their numbers.
        slow=name not in ("context", "masked", "gamble", "slippery", "continuous_credit", "lqr"),
    )


def brax_case(name: str, *, slow: bool = True, random_start: bool = True) -> Case:
    return Case(f"brax/{name}", SHORT, random_start=random_start, tolerance=1e-3, slow=slow, needs="brax")


def playground_case(name: str, *, slow: bool = True) -> Case:
    return Case(f"playground/{name}", SHORT, tolerance=1e-3, slow=slow, needs="mujoco_playground")


OTHER_MINATAR = ("asterix", "freeway", "seaquest", "space_invaders")

CASES = [
    *map(tiny_case, TINY_NAMES),
    Case("rubiks_cube", SHORT),
    Case("rubiks_cube", (*SHORT, ("size", 4)), slow=True),
    Case("sokoban/generated", (*SHORT, ("num_levels", 64))),
    brax_case("ant", slow=False),
    *map(brax_case, ["halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum"]),
    *map(brax_case, ["inverted_pendulum", "pusher", "reacher", "walker2d"]),
    Case("jumanji/snake", SHORT, needs="jumanji"),
    Case("jumanji/game_2048", wrap_limit=True, stochastic=True, needs="jumanji"),
    Case("jumanji/rubiks_cube", SHORT, slow=True, needs="jumanji"),
    Case("jumanji/knapsack", wrap_limit=True, slow=True, needs="jumanji"),
    Case("jumanji/maze", SHORT, slow=True, needs="jumanji"),
    Case("gymnax/CartPole-v1", SHORT, renders=False, needs="gymnax"),
    Case("gymnax/Pendulum-v1", SHORT, renders=False, needs="gymnax"),
    Case("pgx/2048", SHORT, stochastic=True, slow=True, needs="pgx"),
    Case("pgx/minatar-breakout", SHORT, stochastic=True, needs="pgx"),
    *[Case(f"pgx/minatar-{game}", SHORT, stochastic=True, slow=True, needs="pgx") for game in OTHER_MINATAR],
    Case("craftax/classic", SHORT, stochastic=True, slow=True, needs="craftax"),
    Case("craftax/full", SHORT, stochastic=True, slow=True, needs="craftax"),
    Case("xminigrid/MiniGrid-DoorKey-5x5", SHORT, needs="xminigrid"),
    Case("xminigrid/MiniGrid-MemoryS8", SHORT, slow=True, needs="xminigrid"),
    playground_case("CartpoleBalance", slow=False),
    *map(playground_case, ["CheetahRun", "FishSwim", "HumanoidWalk", "WalkerWalk"]),
]


def as_parameter(case: Case) -> Any:
    absent = case.needs is not None and importlib.util.find_spec(case.needs) is None
    marks = [pytest.mark.skipif(absent, reason=f"{case.needs} is not installed")]
    if case.slow:
        marks.append(pytest.mark.slow)
    options = "".join(f"-{key}={value}" for key, value in case.options if key not in ("time_limit", "num_levels"))
    return pytest.param(case, marks=marks, id=case.name + options)


every_case = pytest.mark.parametrize("case", [as_parameter(case) for case in CASES])


@functools.cache
def make_once(name: str, options: tuple[tuple[str, Any], ...], wrap_limit: bool) -> Task:
    task = make(name, **dict(options))
    return Task(*(episode_limit(env, LIMIT) for env in task)) if wrap_limit else task


def task_of(case: Case) -> Task:
    return make_once(*case.recipe)


def any_action(key, env, timestep):
    """Draws a valid action uniformly."""
    if isinstance(env.action_spec, DiscreteActions):
        return jax.random.categorical(key, jnp.where(timestep.action_mask, 0.0, -jnp.inf))
    size, low, high = env.action_spec
    return jax.random.uniform(key, (size,), minval=low, maxval=high)


class Rollout(NamedTuple):
    """Experience of NUM_ENVS copies, with resets: [T, NUM_ENVS, ...]. A step leads from `state` to `next_state`."""

    start: tuple[State, TimeStep]  # [NUM_ENVS, ...]
    state: State
    action: Any
    next_state: State
    step: AutoResetStep


@functools.cache
def rollout_of(recipe: tuple) -> Rollout:
    env = make_once(*recipe).train
    act = jax.vmap(lambda key, timestep: any_action(key, env, timestep))
    step = jax.vmap(auto_reset(env))

    @jax.jit
    def gather(key):
        def body(carry, key):
            state, timestep = carry
            key_action, key_step = jax.random.split(key)
            action = act(jax.random.split(key_action, NUM_ENVS), timestep)
            next_state, out = step(jax.random.split(key_step, NUM_ENVS), state, action)
            return (next_state, out.next), (state, action, next_state, out)

        key_reset, key_steps = jax.random.split(key)
        start = jax.vmap(env.reset)(jax.random.split(key_reset, NUM_ENVS))
        return Rollout(start, *jax.lax.scan(body, start, jax.random.split(key_steps, 2 * LIMIT + 1))[1])

    first, again = jax.device_get((gather(jax.random.key(0)), gather(jax.random.key(0))))
    assert_trees_equal(first, again)  # the same seed gives the same bits
    return first


def rollout(case: Case) -> Rollout:
    return rollout_of(case.recipe)


def steps_in_episode(ended):
    """Number of each step within its episode, counted from 1: [T, B]."""
    count, counts = np.zeros(ended.shape[1], int), []
    for ended_now in ended:
        count = count + 1
        counts.append(count)
        count = np.where(ended_now, 0, count)
    return np.stack(counts)


def assert_trees_equal(ours, theirs, tolerance=0.0):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), ours, theirs)


def trees_differ(ours, theirs):
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))


def pick(tree, *index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def types_of(tree):
    """Shapes, dtypes and weak types, which decide whether `jit` compiles again and `scan` accepts a carry."""
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), tree)


# --- Types -----------------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("new_key", [jax.random.key, jax.random.PRNGKey], ids=["typed_key", "raw_key"])
def test_specs_hold_after_reset_and_step_in_every_role(case, new_key):
    task = task_of(case)
    reset_types = []
    for env in task:
        state, timestep = jax.eval_shape(env.reset, new_key(0))
        action = jax.eval_shape(lambda key, t, env=env: any_action(key, env, t), new_key(0), timestep)
        next_state, next_timestep = jax.eval_shape(env.step, new_key(0), state, action)
        # A scan carries both, so a step may not change their types.
        assert types_of(next_state) == types_of(state)
        assert types_of(next_timestep) == types_of(timestep)
        assert not any(leaf.weak_type for leaf in jax.tree.leaves((state, timestep)))

        assert types_of(timestep.observation) == types_of(env.observation_spec)
        assert (timestep.reward.shape, timestep.reward.dtype) == ((), jnp.float32)
        for flag in (timestep.terminated, timestep.truncated):
            assert (flag.shape, flag.dtype) == ((), bool)
        if isinstance(env.action_spec, DiscreteActions):
            assert (timestep.action_mask.shape, timestep.action_mask.dtype) == ((env.action_spec.num_actions,), bool)
        else:
            assert timestep.action_mask is None
            assert env.action_spec.low < env.action_spec.high
        assert all(metric.shape == () for metric in timestep.metrics.values())
        reset_types.append(types_of((state, timestep)))
    assert reset_types[0] == reset_types[1] == reset_types[2]  # the roles share states


@every_case
def test_states_hold_no_keys(case):
    state, _ = jax.eval_shape(task_of(case).train.reset, jax.random.key(0))
    for path, leaf in jax.tree.leaves_with_path(state):
        assert not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        # A raw key is recognised by its name, because uint32[2] may be something else.
        assert not {"key", "rng"} & set(jax.tree_util.keystr(path, simple=True, separator="/").split("/"))


# --- Rollouts --------------------------------------------------------------------------------------------------------


@every_case
def test_time_steps_of_a_rollout_are_valid(case):
    timestep, following = rollout(case).step
    assert not np.any(timestep.terminated & timestep.truncated)
    for leaf in jax.tree.leaves((timestep.observation, timestep.reward)):
        assert np.all(np.isfinite(leaf))
    assert not np.any(following.ended)
    # After an end the next time step is a start, which has no reward.
    assert np.all(following.reward[timestep.ended] == 0)
    if timestep.action_mask is not None:
        assert np.all(following.action_mask.any(axis=-1))
        assert np.all(
            timestep.action_mask.any(axis=-1)
        )  # including last ones, where a policy may be evaluated for V(s)


@every_case
def test_limits_truncate_and_only_limits_do(case):
    timestep = rollout(case).step.timestep
    count = steps_in_episode(timestep.ended)
    if case.limited:
        assert count.max() == LIMIT
        np.testing.assert_array_equal(timestep.truncated, (count == LIMIT) & ~timestep.terminated)
        assert timestep.truncated.any()
    else:
        assert not timestep.truncated.any()
        assert timestep.terminated.any()


@every_case
def test_starts_are_fresh_where_they_are_random(case):
    """Compares the first starts of NUM_ENVS environments, and the starts after their first ends.

    Seeds are fixed. False alarms are most likely for `tiny/observation_reward`, with two starts: 2^-7 that eight
    environments agree, and 2^-8 that none changes.
    """
    played = rollout(case)
    first = pick(played.state, 0)
    end = played.step.timestep.ended.argmax(axis=0)
    assert played.step.timestep.ended[end, np.arange(NUM_ENVS)].all()
    second = pick(played.next_state, end, np.arange(NUM_ENVS))

    across_envs = [trees_differ(pick(first, 0), pick(first, i)) for i in range(1, NUM_ENVS)]
    across_restarts = [trees_differ(pick(second, 0), pick(second, i)) for i in range(1, NUM_ENVS)]
    successive = [trees_differ(pick(first, i), pick(second, i)) for i in range(NUM_ENVS)]
    for changes in (across_envs, across_restarts, successive):
        assert any(changes) == case.random_start


@every_case
def test_a_wrapper_keeps_the_types(case):
    env = episode_limit(task_of(case).model, LIMIT)
    state, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    action = jax.eval_shape(lambda key, t: any_action(key, env, t), jax.random.key(0), timestep)
    assert types_of(jax.eval_shape(env.step, jax.random.key(0), state, action)) == types_of((state, timestep))


# --- Single steps ----------------------------------------------------------------------------------------------------


@functools.cache
def counted_step(recipe: tuple):
    """The model's step under `jit`, and a list with one entry per trace."""
    env, traces = make_once(*recipe).model, []

    def step(key, state, action):
        traces.append(1)
        return env.step(key, state, action)

    return jax.jit(step), traces


def step_of(case: Case):
    return counted_step(case.recipe)


@every_case
def test_the_model_steps_real_states_and_vmap_equals_a_loop(case):
    """The batched step of training, inside a scan, against the model's step on single states."""
    step, traces = step_of(case)
    played = rollout(case)
    key_steps = jax.random.split(jax.random.split(jax.random.key(0))[1], 2 * LIMIT + 1)
    for t, env_index in [(0, 0), (1, 1), (LIMIT - 1, NUM_ENVS - 1)]:
        keys = jax.random.split(jax.random.split(key_steps[t])[1], NUM_ENVS)
        key_step, _ = jax.random.split(keys[env_index])  # as `auto_reset` splits it
        state, timestep = step(key_step, pick(played.state, t, env_index), pick(played.action, t, env_index))
        assert_trees_equal(timestep, pick(played.step.timestep, t, env_index), case.tolerance)
        if not timestep.ended:
            assert_trees_equal(state, pick(played.next_state, t, env_index), case.tolerance)
    assert len(traces) == 1


@every_case
def test_jit_compiles_once_from_reset_through_an_end(case):
    step, traces = step_of(case)
    env = task_of(case).model
    state, timestep = pick(rollout(case).start, 0)
    for key in jax.random.split(jax.random.key(1), LIMIT + 1):
        state, timestep = step(key, state, any_action(key, env, timestep))
    assert len(traces) == 1


@every_case
def test_the_model_never_resets(case):
    """After an end the environment stays ended. A reset would start another episode."""
    step, _ = step_of(case)
    played = rollout(case)
    t, env_index = np.argwhere(played.step.timestep.truncated if case.limited else played.step.timestep.terminated)[0]
    state, action = pick(played.state, t, env_index), pick(played.action, t, env_index)
    start = pick(played.state, 0, env_index)
    for key in jax.random.split(jax.random.key(2), 3):
        state, timestep = step(key, state, action)
        if case.stochastic and not case.limited and not timestep.ended:
            continue  # another draw than in the rollout: not at an end yet
        assert bool(timestep.ended)
        assert trees_differ(state, start)


@every_case
def test_a_step_is_a_function_of_key_state_and_action(case):
    """Chance comes from the step's key alone, so a search cannot see the draws of the real environment."""
    step, _ = step_of(case)
    played = rollout(case)
    stochastic_steps = 0
    for t in range(LIMIT):
        state, action = pick(played.state, t, 0), pick(played.action, t, 0)
        outcomes = [step(key, state, action) for key in jax.random.split(jax.random.key(3), 12)]
        assert_trees_equal(step(jax.random.split(jax.random.key(3), 12)[0], state, action), outcomes[0])
        stochastic_steps += any(trees_differ(outcomes[0], other) for other in outcomes[1:])
    assert (stochastic_steps > 0) == case.stochastic


@every_case
def test_states_can_be_drawn(case):
    if not case.renders:
        pytest.skip("this environment has no picture")
    state, _ = pick(rollout(case).start, 0)
    image = task_of(case).evaluation.render(state)
    assert isinstance(image, np.ndarray)
    assert image.dtype == np.uint8
    assert image.ndim == 3
    assert image.shape[2] == 3
    assert image.min() < image.max()


def test_every_family_has_a_case():
    assert {name.partition("/")[0] for name in names()} <= {case.name.partition("/")[0] for case in CASES} | {"boxoban"}
