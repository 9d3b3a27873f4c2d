"""Adapter to Brax (https://github.com/google/brax): continuous control by simulated physics.

None of Brax's wrappers is used: no automatic reset, no stored start state, no action repeat. Brax's `done` is
`terminated`; the time limit is the adapter's and truncates.

A Brax state holds observation, reward, metrics and more. The adapter's state keeps what the next step reads, the
physics and `info`, because a search carries one state per particle.

Sizes, compared with the paper's table:

    ant          27 observations, 8 actions     the same
    halfcheetah  17 observations, 6 actions     the paper has 18, which includes the x position (departure 18)
    humanoid     244 observations, 17 actions   the paper has 376, as Gym's Humanoid, which also observes contact forces

Physics can diverge. A NaN is passed on unchanged. Most environments of Brax do not end on it, because their health
checks are comparisons, and a NaN fails both.

MuJoCo Playground is the successor of these environments, see `spo.environments.playground`.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments._adapters import (
    cast_like,
    check_options,
    jit_foreign,
    mujoco_warnings_to_log,
    output_to_log,
    require,
    specs_of,
    unknown_name,
)
from spo.environments._mujoco_drawing import draw
from spo.environments.spring import fused_environment
from spo.environments.wrappers import episode_limit
from spo.host import abstract_key, on_host
from spo.types import Array, ContinuousActions, Environment, Float, PRNGKey, PyTree, Task, TimeStep

BACKENDS = ("generalized", "mjx", "positional", "spring")

_UNSUPPORTED: Mapping[str, str] = {
    "fast": "it has no physics and is only used by Brax's own tests",
    "swimmer": "it needs the generalized backend, whose fluid forces use a function that JAX has removed",
}


#: Environments without fused physics, each with the reason.
_NOT_FUSED: Mapping[str, str] = {
    "pusher": "its arm touches the object that it pushes, and only contacts with a fixed plane are fused",
}


class BraxState(NamedTuple):
    """The part of a Brax state that the next step reads: the physics and `info`."""

    pipeline_state: PyTree[Array]
    info: dict[str, Array]


def names() -> list[str]:
    """Names of all supported environments."""
    return sorted(require("brax.envs", extra="envs")._envs.keys() - _UNSUPPORTED)


def physics_of(name: str) -> str:
    """Returns the physics that an environment has with its default options, in one word."""
    return "fused" if why_not_fused(name) is None else "Brax"


def why_not_fused(name: str) -> str | None:
    """Reason why an environment has no fused physics with its default options. None if it has."""
    if name not in names():
        raise unknown_name("Brax", "brax", name, names())
    return _NOT_FUSED.get(name)


def brax(
    name: str,
    *,
    backend: str = "spring",
    physics: Literal["auto", "brax", "fused"] = "auto",
    time_limit: int = 1000,
    **brax_options: Any,
) -> Task:
    """An environment of Brax, such as "ant".

    The fused physics is one kernel on a GPU, about twenty times as fast as Brax's, with a fifth of the state. It equals
    Brax's up to rounding, and is closer to float64 than Brax's own on a GPU, which multiplies in TF32. Forward-mode
    derivatives exist where XLA computes the physics. The GPU kernel and reverse mode have none. All environments but
    "pusher" have the fused physics (`why_not_fused`).

    Args:
        name: Name of the environment in Brax.
        backend: Physics engine of Brax: spring, positional, generalized or mjx.
        physics: Implementation of the spring engine: fused is this package's GPU kernel, about twenty times as fast;
            brax is Brax's own; auto uses fused for the environments that it supports.
        time_limit: Longest episode, in steps.
        **brax_options: Arguments of the constructor of Brax's environment.
    """
    with on_host():
        brax_env = _build(name, backend, brax_options)
        stepped, view = _with_physics(physics, name, brax_env)
    brax_reset, brax_step = jit_foreign(stepped.reset), jit_foreign(stepped.step)
    start = jax.eval_shape(brax_reset, abstract_key())
    specs = specs_of(start)
    brax_state_type = type(start)

    def split(brax_state: Any) -> tuple[BraxState, TimeStep]:
        cast = cast_like(specs, brax_state)
        timestep = TimeStep(
            observation=cast.obs,
            reward=cast.reward,
            terminated=cast.done.astype(bool),
            truncated=jnp.zeros((), bool),
            metrics=cast.metrics,
        )
        return BraxState(cast.pipeline_state, cast.info), timestep

    def reset(key: PRNGKey) -> tuple[BraxState, TimeStep]:
        return split(brax_reset(key))

    def step(key: PRNGKey, state: BraxState, action: Float[Array, " D"]) -> tuple[BraxState, TimeStep]:
        del key  # the physics is deterministic
        unread = {"obs": specs.obs, "reward": specs.reward, "done": specs.done, "metrics": specs.metrics}
        zeros = jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype), unread)
        before = brax_state_type(pipeline_state=state.pipeline_state, info=dict(state.info), **zeros)
        return split(brax_step(before, action))

    environment = Environment(
        name=f"brax/{name}",
        reset=reset,
        step=step,
        observation_spec=specs.obs,
        action_spec=ContinuousActions(brax_env.action_size),
        render=lambda state: draw(brax_env.sys.mj_model, np.asarray(view(state.pipeline_state).q)),
    )
    environment = episode_limit(environment, time_limit)
    return Task(train=environment, evaluation=environment, model=environment)


def _with_physics(physics: str, name: str, brax_env: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The environment with the chosen physics, and the function from its states to those of Brax."""
    if physics not in ("auto", "brax", "fused"):
        raise ValueError(f"physics must be 'brax', 'fused' or 'auto', got {physics!r}.")
    if physics != "brax":
        try:
            fused = fused_environment(brax_env)
            return fused, fused.view
        except ValueError as error:
            if physics == "fused":
                raise ValueError(f"brax/{name} has no fused physics: {error} Use physics='brax'.") from error
    return brax_env, lambda pipeline_state: pipeline_state


def _build(name: str, backend: str, options: Mapping[str, Any]) -> Any:
    brax_envs = require("brax.envs", extra="envs")
    if name in _UNSUPPORTED:
        raise ValueError(f"Brax's {name!r} is not supported: {_UNSUPPORTED[name]}.")
    if name not in names():
        raise unknown_name("Brax", "brax", name, names())
    if backend not in BACKENDS:
        raise ValueError(f"Brax has no backend {backend!r}: choose one of {', '.join(BACKENDS)}.")
    constructors = (brax_envs._envs[name], brax_envs.PipelineEnv)
    allowed = {parameter for constructor in constructors for parameter in _named_parameters(constructor)}
    check_options(f"brax/{name}", options, allowed - {"sys"} | {"time_limit", "backend", "physics"})
    try:
        with (
            mujoco_warnings_to_log(),
            output_to_log("brax"),
        ):  # MuJoCo reports what it would like to see changed in Brax's files
            return brax_envs.get_environment(name, backend=backend, **options)
    except ValueError as error:
        raise ValueError(
            f"Brax cannot make {name!r} on the backend {backend!r} ({error}): try another one of {', '.join(BACKENDS)}."
        ) from error


def _named_parameters(constructor: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(constructor).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
