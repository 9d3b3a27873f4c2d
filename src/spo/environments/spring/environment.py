"""`fused_environment`: a Brax environment whose physics is `spring_physics`."""

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from spo.environments._adapters import require
from spo.environments.spring.observations import replace_observation
from spo.environments.spring.physics import SpringPhysics, SpringState, spring_physics
from spo.types import Array, Float, PRNGKey


class FusedEnvironment(NamedTuple):
    """A Brax environment whose `pipeline_state` is a `SpringState`. Start, observation, reward and end are Brax's."""

    reset: Callable[[PRNGKey], Any]
    step: Callable[[Any, Float[Array, " D"]], Any]
    #: A state with Brax's fields q, qd, x and xd.
    view: Callable[[SpringState], Any]
    #: Converts a state of Brax's spring pipeline.
    from_brax: Callable[[Any], SpringState]


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

    def pipeline_step(before: _LazyPipelineState, action: Float[Array, " D"]) -> _LazyPipelineState:
        after, q, qd = physics.step(before.spring, action)
        return _LazyPipelineState(physics, after, (q, qd))

    # The environment's own code computes everything but the physics and some observations.
    with_fused_physics = copy.copy(brax_env)
    with_fused_physics.pipeline_step = pipeline_step
    replace_observation(with_fused_physics, physics)

    def reset(key: PRNGKey) -> Any:
        start = brax_env.reset(key)
        return start.replace(pipeline_state=physics.from_brax(start.pipeline_state))

    def step(brax_state: Any, action: Float[Array, " D"]) -> Any:
        before = brax_state.replace(pipeline_state=_LazyPipelineState(physics, brax_state.pipeline_state))
        after = with_fused_physics.step(before, action)
        return after.replace(pipeline_state=after.pipeline_state.spring)

    return FusedEnvironment(reset, step, view, physics.from_brax)


class _PipelineState(NamedTuple):
    """The fields of a pipeline state that Brax's environments read."""

    spring: SpringState
    q: Float[Array, " q"]
    qd: Float[Array, " qd"]
    x: Any
    xd: Any


class _LazyPipelineState:
    """The same fields, traced only where an environment reads them."""

    def __init__(self, physics: SpringPhysics, spring: SpringState, coordinates: Any = None) -> None:
        self.spring = spring
        self._physics = physics
        self._given_coordinates = coordinates

    @functools.cached_property
    def _coordinates(self) -> tuple[Any, Any]:
        return self._given_coordinates or self._physics.coordinates(self.spring)

    @functools.cached_property
    def _links(self) -> tuple[Any, Any]:
        return self._physics.links(self.spring)

    @property
    def q(self) -> Any:
        return self._coordinates[0]

    @property
    def qd(self) -> Any:
        return self._coordinates[1]

    @property
    def x(self) -> Any:
        return self._links[0]

    @property
    def xd(self) -> Any:
        return self._links[1]
