"""`fused_environment`: a Brax environment whose physics is `spring_physics`."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from spo.environments._adapters import require
from spo.environments.spring.physics import SpringState, from_brax, spring_physics
from spo.types import Array, Float, PRNGKey


class FusedEnvironment(NamedTuple):
    """A Brax environment whose `pipeline_state` is a `SpringState`. Start, observation, reward and end are Brax's."""

    reset: Callable[[PRNGKey], Any]
    step: Callable[[Any, Float[Array, " D"]], Any]
    #: A state with Brax's fields q, qd, x and xd.
    view: Callable[[SpringState], Any]


class _PipelineState(NamedTuple):
    """The fields of a pipeline state that Brax's environments read. XLA removes those that are not read."""

    spring: SpringState
    q: Float[Array, " q"]
    qd: Float[Array, " qd"]
    x: Any
    xd: Any


def fused_environment(brax_env: Any, **options: Any) -> FusedEnvironment:
    """Replaces the physics of a Brax `PipelineEnv` on the spring backend.

    Args:
        brax_env: the environment. Raises ValueError if its physics is not supported.
        **options: options of `spring_physics`.
    """
    pipeline_env = require("brax.envs", extra="envs").PipelineEnv
    if brax_env.backend != "spring":
        raise ValueError(f"Only spring physics is fused, not {brax_env.backend}: use the backend 'spring'.")
    if type(brax_env).pipeline_step is not pipeline_env.pipeline_step or brax_env._debug:
        raise ValueError("Only Brax's own pipeline step without debugging is fused: leave debug off.")
    physics = spring_physics(brax_env.sys, brax_env._n_frames, **options)

    def view(state: SpringState) -> _PipelineState:
        return _PipelineState(state, *physics.coordinates(state), *physics.links(state))

    def pipeline_step(before: _PipelineState, action: Float[Array, " D"]) -> _PipelineState:
        after, q, qd = physics.step(before.spring, action)
        return _PipelineState(after, q, qd, *physics.links(after))

    # The environment's own code computes everything but the physics.
    with_fused_physics = copy.copy(brax_env)
    with_fused_physics.pipeline_step = pipeline_step

    def reset(key: PRNGKey) -> Any:
        start = brax_env.reset(key)
        return start.replace(pipeline_state=from_brax(start.pipeline_state))

    def step(brax_state: Any, action: Float[Array, " D"]) -> Any:
        before = brax_state.replace(pipeline_state=view(brax_state.pipeline_state))
        after = with_fused_physics.step(before, action)
        return after.replace(pipeline_state=after.pipeline_state.spring)

    return FusedEnvironment(reset, step, view)
