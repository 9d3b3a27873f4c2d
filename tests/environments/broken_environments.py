"""Environments with one fault each, and the words that name it: `environments.broken_environments:broken`."""

import random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.wrappers import episode_limit
from spo.types import ContinuousActions, DiscreteActions, Environment, Starts, TimeStep

LENGTH = 4


class Corridor(NamedTuple):
    """Parts of a valid environment. A broken one replaces a part."""

    state: Any = jnp.int32
    observe: Any = lambda position: jax.nn.one_hot(position, LENGTH)
    reward: Any = lambda at_goal: at_goal.astype(jnp.float32)
    terminated: Any = lambda at_goal: at_goal
    truncated: Any = lambda at_goal: jnp.zeros((), bool)
    mask: Any = lambda at_goal: jnp.ones(2, bool)
    metrics: Any = lambda at_goal: {"solved": at_goal}
    #: (key, position, action) -> position
    move: Any = lambda key, position, action: jnp.clip(position + 2 * action - 1, 0, LENGTH - 1)
    #: (key) -> position
    start: Any = lambda key: jnp.zeros((), jnp.int32)


def corridor(**parts: Any) -> Environment:
    part = Corridor(**parts)

    def enter(position):
        at_goal = position == LENGTH - 1
        return part.state(position), TimeStep(
            observation=part.observe(position),
            reward=part.reward(at_goal),
            terminated=part.terminated(at_goal),
            truncated=part.truncated(at_goal),
            action_mask=part.mask(at_goal),
            metrics=part.metrics(at_goal),
        )

    def step(key, state, action):
        return enter(part.move(key, jax.tree.leaves(state)[0].reshape(-1)[0], action))

    return Environment(
        name="corridor",
        reset=lambda key: enter(part.start(key)),
        step=step,
        observation_spec=jax.ShapeDtypeStruct((LENGTH,), jnp.float32),
        action_spec=DiscreteActions(2),
        render=lambda state: np.zeros((2, 2, 3), np.uint8),
    )


def float_of(reward: float):
    return lambda at_goal: reward


def reset_with_a_longer_state() -> Environment:
    env = corridor()
    return env._replace(reset=lambda key: (jnp.zeros(3, jnp.int32), env.reset(key)[1]))


def counting() -> Environment:
    calls = []

    def reward(at_goal):
        calls.append(1)
        return at_goal * jnp.float32(len(calls))

    return corridor(reward=reward)


def leaking() -> Environment:
    history = []

    def move(key, position, action):
        history.append(position)
        return Corridor().move(key, position, action)

    return corridor(move=move)


class Stateful:
    """An environment as an object that keeps its state in itself, as other libraries do."""

    def __init__(self):
        self.valid = corridor()

    def reset(self, key):
        self.position, timestep = self.valid.reset(key)
        return jnp.zeros((), jnp.int32), timestep

    def step(self, key, state, action):
        self.position, timestep = self.valid.step(key, self.position, action)
        return state, timestep


def stateful() -> Environment:
    environment = Stateful()
    return corridor()._replace(reset=environment.reset, step=environment.step)


def looping(key, position, action):
    for _ in range(action):
        position = position + 1
    return position


def branching(key, position, action):
    if action == 1:
        return position + 1
    return position


def failing(key, position, action):
    raise KeyError("no such level")


def drawing_in_a_callback(key, position, action):
    drawn = jax.pure_callback(
        lambda: np.random.default_rng().integers(2**30, dtype=np.int32), jax.ShapeDtypeStruct((), jnp.int32)
    )
    return jnp.clip(position + drawn % 1000, 0, LENGTH + 10**4)


def gym_step(key, state, action):
    return jnp.zeros(LENGTH), 0.0, False, False, {}


class KeyedState(NamedTuple):
    position: Any
    key: Any


#: Function that makes the environment, and the words of its sentence: the field, and the remedy.
BROKEN = {
    "python_float_reward": (lambda: corridor(reward=float_of(1.0)), "reward of reset", "write jnp.float32(...)"),
    "integer_reward": (lambda: corridor(reward=lambda goal: goal.astype(int)), "reward of reset", "jnp.float32(...)"),
    "reward_of_two_numbers": (lambda: corridor(reward=lambda goal: jnp.zeros(2)), "reward", "return one number"),
    "nan_reward": (lambda: corridor(reward=lambda goal: jnp.where(goal, jnp.nan, 0.0)), "reward of step", "division"),
    "python_bool_end": (lambda: corridor(terminated=lambda goal: False), "terminated of reset", "jnp.bool_(...)"),
    "float_end": (lambda: corridor(truncated=lambda goal: jnp.zeros(())), "truncated of reset", "jnp.bool_(...)"),
    "wrong_observation_shape": (
        lambda: corridor(observe=lambda position: jnp.zeros(LENGTH + 1)),
        "observation is float32[4] in observation_spec and float32[5] in reset",
        "Change one of the two",
    ),
    "wrong_observation_structure": (
        lambda: corridor(observe=lambda position: {"place": jnp.zeros(LENGTH)}),
        "observation is only in observation_spec (one float32[4] array in observation_spec, a dict with place in",
        "Change one of the two",
    ),
    "float16_observation": (
        lambda: corridor(observe=lambda position: jax.nn.one_hot(position, LENGTH, dtype=jnp.float16)),
        "observation of reset is float16",
        "use float32",
    ),
    "float64_observation": (
        lambda: corridor(observe=lambda position: np.zeros(LENGTH)),
        "observation of reset is float64",
        "use float32",
    ),
    "float64_state": (
        lambda: corridor(state=lambda position: (position, np.zeros(2))),
        "state[1] of reset is float64",
        "use float32",
    ),
    "python_number_in_the_state": (
        lambda: corridor(state=lambda position: (position, 0)),
        "state[1] of reset is a Python int",
        "write jnp.int32(...)",
    ),
    "text_in_the_state": (lambda: corridor(state=lambda position: (position, "a")), "state[1]", "keep it outside"),
    "key_in_the_state": (
        lambda: corridor(state=lambda position: KeyedState(position, jax.random.PRNGKey(0))),
        "state.key of reset is a random key",
        "use the argument key",
    ),
    "state_changes_shape": (reset_with_a_longer_state, "state is int32[3] in reset and int32[] in step", "same"),
    "mask_too_long": (
        lambda: corridor(mask=lambda goal: jnp.ones(3, bool)),
        "action_mask of reset",
        "correct the mask",
    ),
    "mask_all_false": (
        lambda: corridor(mask=lambda goal: jnp.broadcast_to(~goal, (2,))),
        "action_mask of step is all False",
        "at least one action",
    ),
    "counter": (counting, "has side effects", "nothing but its arguments"),
    "leak": (leaking, "step has side effects", "needs in the state"),
    "numpy_randomness": (
        lambda: corridor(start=lambda key: jnp.int32(random.randrange(10**9))),
        "reset has side effects",
        "jax.random from its argument key",
    ),
    "constant_key": (
        lambda: corridor(start=lambda key: jax.random.randint(jax.random.key(3), (), 0, 2)),
        "reset draws random numbers with a key of its own",
        "use its argument key",
    ),
    "randomness_of_a_callback": (
        lambda: corridor(move=drawing_in_a_callback),
        "step gave two results for the same arguments",
        "argument key",
    ),
    "no_time_limit": (
        lambda: corridor(move=lambda key, position, action: position * 0),
        "did not end within 10,000 steps",
        "episode_limit",
    ),
    "reserved_metric": (lambda: corridor(metrics=lambda goal: {"return": goal}), "metric 'return'", "rename it"),
    "vector_metric": (lambda: corridor(metrics=lambda goal: {"place": jnp.zeros(3)}), "metrics['place']", "shape ()"),
    "state_in_an_attribute": (stateful, "reset has side effects", "write to no global, attribute or list"),
    "python_loop": (lambda: corridor(move=looping), "step can't be traced", "loops by jax.lax.scan"),
    "wrong_parameters": (
        lambda: corridor()._replace(step=lambda state, action: state),
        "step raised TypeError",
        "takes 2 positional arguments but 3 were given",
    ),
    "python_branch": (lambda: corridor(move=branching), "step can't be traced", "jnp.where or jax.lax.cond"),
    "error": (
        lambda: corridor(move=failing),
        "step raised KeyError (in broken_environments.py, line ",
        "'no such level'. Mend this line",
    ),
    "no_time_step": (
        lambda: corridor()._replace(reset=lambda key: (jnp.int32(0), jnp.zeros(4))),
        "reset must return (state, timestep)",
        "return state, TimeStep(...)",
    ),
    "number_of_goals_as_solved": (
        lambda: corridor(metrics=lambda goal: {"solved": jnp.float32(3.0)}),
        "metrics['solved'] of reset is 3",
        "Give other numbers another name",
    ),
    "action_spec_is_a_number": (lambda: corridor()._replace(action_spec=2), "action_spec", "DiscreteActions(4)"),
    "no_actions": (lambda: corridor()._replace(action_spec=DiscreteActions(0)), "num_actions", "DiscreteActions(4)"),
    "empty_range": (
        lambda: corridor()._replace(action_spec=ContinuousActions(1, 1.0, 1.0)),
        "action_spec.low",
        "low < high",
    ),
    "bounds_of_other_dimensions": (
        lambda: corridor()._replace(action_spec=ContinuousActions(2, -1.0, (1.0, 1.0, 1.0))),
        "action_spec.high has 3 numbers for 2 dimensions",
        "one for each dimension",
    ),
    "empty_range_of_a_dimension": (
        lambda: corridor()._replace(action_spec=ContinuousActions(2, [-1.0, 1.0], (1.0, 0.5))),
        "low < high in dimension 1, got (-1.0, 1.0) and (1.0, 0.5)",
        "such as ContinuousActions(2, -1.0, (1.0, 0.5))",
    ),
    "infinite_bound": (
        lambda: corridor()._replace(action_spec=ContinuousActions(2, -1.0, (1.0, float("inf")))),
        "must be finite numbers with low < high, got",
        "one number for all dimensions",
    ),
    "text_as_bound": (
        lambda: corridor()._replace(action_spec=ContinuousActions(1, "a", ("b",))),
        "must be finite numbers with low < high, got 'a' and ('b',)",
        "one number for all dimensions",
    ),
    "mask_of_continuous_actions": (
        lambda: corridor()._replace(action_spec=ContinuousActions(1)),
        "action_mask of reset must be None",
        "leave it out",
    ),
    "observation_spec_is_a_shape": (
        lambda: corridor()._replace(observation_spec=(LENGTH,)),
        "observation_spec[0] must be a jax.ShapeDtypeStruct",
        "jax.ShapeDtypeStruct((4,), jnp.float32)",
    ),
    "keys_of_two_types": (
        lambda: corridor()._replace(observation_spec={"place": jax.ShapeDtypeStruct((), int), 0: None}),
        "no valid pytrees of arrays",
        "dictionaries with text as keys",
    ),
    "int64_spec": (
        lambda: corridor()._replace(observation_spec=jax.ShapeDtypeStruct((), int)),
        "observation_spec is int64",
        "write jnp.int32",
    ),
    "nothing_to_observe": (
        lambda: corridor()._replace(observation_spec={"cell": jax.ShapeDtypeStruct((3, 0), jnp.float32)}),
        "observation_spec['cell'] is float32[3, 0], an array without a number",
        "leave it out or fill it",
    ),
    "names_of_other_actions": (
        lambda: corridor()._replace(action_names=("left", "right", "up")),
        "action_names must be a tuple with one text for each discrete action",
        "leave it out",
    ),
    "text_as_names_of_actions": (lambda: corridor()._replace(action_names="lr"), "action_names must be", "leave it"),
    "starts_is_a_function": (
        lambda: corridor()._replace(starts=corridor().reset),
        "starts must be a spo.types.Starts",
        "leave it out",
    ),
    "starts_in_the_wrong_order": (
        lambda: corridor()._replace(starts=Starts("Cell", 3, 0, lambda key, number: corridor().reset(key))),
        "starts.low and starts.high must be whole numbers with low <= high",
        "leave starts out",
    ),
    "render_is_no_function": (lambda: corridor()._replace(render=3), "render must be a function", "leave it out"),
    "grey_picture": (
        lambda: corridor()._replace(render=lambda state: jnp.ones((4, 4))),
        "render must return an RGB image, uint8[height, width, 3], got float32[4, 4]",
        "leave it out",
    ),
    "no_picture": (lambda: corridor()._replace(render=lambda state: None), "got a NoneType", "leave it out"),
    "error_in_render": (
        lambda: corridor()._replace(render=lambda state: state.place),
        "render raised AttributeError (in broken_environments.py, line ",
        "leave render out",
    ),
    "gym_style_step": (
        lambda: episode_limit(corridor()._replace(step=gym_step), 5),
        "step must return (state, timestep) with a spo.types.TimeStep, got a tuple of 5",
        "`return state, TimeStep(...)` (in broken_environments.py, line ",
    ),
    "step_is_no_function": (lambda: corridor()._replace(step=None), "step must be a function", "pass the function"),
}


def broken(fault: str = "python_float_reward") -> Environment:
    """A corridor with a fault.

    Args:
        fault: One of the names of `BROKEN`.
    """
    return BROKEN[fault][0]()
