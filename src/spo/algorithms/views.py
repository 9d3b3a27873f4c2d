"""What a network looks at, kept together: for algorithms that ask what a policy would do in the next state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.types import Array, Bool, DiscreteActions, Environment, Observation, PRNGKey, State, TimeStep


class View(NamedTuple):
    """A state as a network sees it."""

    observation: Observation
    action_mask: Bool[Array, " A"] | None


def view(timestep: TimeStep) -> View:
    return View(timestep.observation, timestep.action_mask)


def observe_views(environment: Environment) -> Environment:
    """The same world, whose observations are views.

    So the next state of an experience has its mask beside it. A value that is a mean over a policy bootstraps from
    there, and what an invalid action would be worth, which nothing ever trains, must have no part in it.
    """

    def look(state_and_timestep: tuple[State, TimeStep]) -> tuple[State, TimeStep]:
        state, timestep = state_and_timestep
        return state, timestep._replace(observation=view(timestep), action_mask=None)

    def step(key: PRNGKey, state: State, action: Any) -> tuple[State, TimeStep]:
        return look(environment.step(key, state, action))

    spec = environment.action_spec
    mask = jax.ShapeDtypeStruct((spec.num_actions,), jnp.bool_) if isinstance(spec, DiscreteActions) else None
    return environment._replace(
        reset=lambda key: look(environment.reset(key)),
        step=step,
        observation_spec=View._make((environment.observation_spec, mask)),
    )
