"""Adapter to gymnax (https://github.com/RobertTLange/gymnax): "CartPole-v1", "Breakout-MinAtar", ...

The adapter calls gymnax's `step_env`, because its `step` resets at the end of an episode. Since 1.0, gymnax separates
termination (returned by `step_env`) from its time limit (`is_truncated`), and so does the adapter. States hold no keys.

Some environments have states that the observation does not show (bandits, MemoryChain). There a search that steps the
state has more information than the policy, and `Environment.hidden` names it.
"""

import inspect
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments._adapters import cast_like, check_options, jit_foreign, require, specs_of, unknown_name
from spo.environments.wrappers import check_time_limit
from spo.host import abstract_key
from spo.installation import install_hint
from spo.types import (
    Action,
    ActionSpec,
    ContinuousActions,
    DiscreteActions,
    Environment,
    Observation,
    PRNGKey,
    State,
    Task,
    TimeStep,
)

#: What a state holds and its observation does not show.
_HIDDEN = {
    "BernoulliBandit-misc": "the chances of the arms",
    "DeepSea-bsuite": "which action moves right",
    "GaussianBandit-misc": "the means of the arms",
    "MNISTBandit-bsuite": "the label of the image",
    "MemoryChain-bsuite": "the bits to remember",
    "MetaMaze-misc": "the goal",
    "PointRobot-misc": "the goal",
    "SimpleBandit-bsuite": "the rewards of the arms",
}


def names() -> list[str]:
    """Names of all environments of gymnax."""
    return sorted(require("gymnax", extra="gymnax").registered_envs)


def gymnax(name: str, *, time_limit: int | None = None, **gymnax_options: Any) -> Task:
    """An environment of gymnax, such as "CartPole-v1".

    Args:
        name: Name of the environment in gymnax.
        time_limit: Longest episode, in steps. None: gymnax's own limit (`max_steps_in_episode`).
        **gymnax_options: Fields of the environment's parameters (`gravity=...`) or arguments of its constructor
            (`size=...` for "DeepSea-bsuite").
    """
    env, params = _build(name, time_limit, gymnax_options)
    action_spec = _action_spec(name, env, params)
    gymnax_reset, gymnax_step = jit_foreign(env.reset_env), jit_foreign(env.step_env)
    observation_like, state_like = jax.eval_shape(lambda key: gymnax_reset(key, params), abstract_key())
    observation_spec, state_spec = specs_of(observation_like), specs_of(state_like)

    def timestep(observation: Observation, reward: Any, terminated: Any, truncated: Any) -> TimeStep:
        terminated = jnp.asarray(terminated, bool)
        return TimeStep(
            observation=cast_like(observation_spec, observation),
            reward=jnp.asarray(reward, jnp.float32).reshape(()),  # some environments with actions[1] return reward[1]
            terminated=terminated.reshape(()),
            truncated=jnp.asarray(truncated, bool) & ~terminated.reshape(()),
            action_mask=jnp.ones(action_spec.num_actions, bool) if isinstance(action_spec, DiscreteActions) else None,
        )

    def reset(key: PRNGKey) -> tuple[State, TimeStep]:
        observation, state = gymnax_reset(key, params)
        return cast_like(state_spec, state), timestep(observation, 0.0, False, False)

    def step(key: PRNGKey, state: State, action: Action) -> tuple[State, TimeStep]:
        observation, state, reward, terminated, _ = gymnax_step(key, state, action, params)
        truncated = env.is_truncated(state, params)
        return cast_like(state_spec, state), timestep(observation, reward, terminated, truncated)

    def render(state: State) -> NoReturn:
        raise NotImplementedError(
            f"This adapter does not draw gymnax: use gymnax.visualize.Visualizer for an animation of {name!r}."
        )

    environment = Environment(
        name=f"gymnax/{name}",
        reset=reset,
        step=step,
        observation_spec=observation_spec,
        action_spec=action_spec,
        render=render,
        hidden=_HIDDEN.get(name, ""),
    )
    return Task(train=environment, evaluation=environment, model=environment)


def time_limit(name: str) -> int:
    """gymnax's own time limit for `name`."""
    return int(_build(name, None, {})[1].max_steps_in_episode)


def _build(name: str, time_limit: int | None, options: dict[str, Any]) -> tuple[Any, Any]:
    package = require("gymnax", extra="gymnax")
    registration = require("gymnax.registration", extra="gymnax")
    if name not in names():
        raise unknown_name("gymnax", "gymnax", name, names())
    env, params = package.make(name)
    if not hasattr(env, "is_truncated"):
        raise ImportError(f"gymnax before 1.0 mixes time limits and ends: {install_hint('gymnax')} installs 1.0.")
    constructor_options = set(inspect.signature(registration._registry[name]).parameters)
    fields = set(params.__dataclass_fields__)
    check_options(f"gymnax/{name}", options, constructor_options | fields | {"time_limit"})
    env, params = package.make(name, **{key: options[key] for key in options if key in constructor_options})
    changed = {key: options[key] for key in options if key in fields - constructor_options}
    if time_limit is not None:
        check_time_limit(time_limit)
        changed["max_steps_in_episode"] = time_limit
    return env, params.replace(**changed)


def _action_spec(name: str, env: Any, params: Any) -> ActionSpec:
    space = env.action_space(params)
    kind = type(space).__name__
    if kind == "Discrete":
        return DiscreteActions(int(space.n))
    if kind == "Box" and len(space.shape) == 1:
        lows, highs = np.unique(np.asarray(space.low)), np.unique(np.asarray(space.high))
        if lows.size == highs.size == 1:
            return ContinuousActions(space.shape[0], float(lows[0]), float(highs[0]))
    raise ValueError(
        f"gymnax/{name} takes actions from {space!r}. Supported are one discrete action, or a vector whose bounds are "
        "the same in every dimension."
    )
