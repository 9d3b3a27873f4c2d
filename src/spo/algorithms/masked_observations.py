"""Observations that carry their action mask, for algorithms whose targets need the policy at the next state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spo.types import Action, Array, Bool, DiscreteActions, Environment, Observation, PRNGKey, State, TimeStep


class MaskedObservation(NamedTuple):
    """The inputs of a policy network in one state."""

    observation: Observation
    action_mask: Bool[Array, " A"] | None


def masked_observation(timestep: TimeStep) -> MaskedObservation:
    """Returns observation and mask of a time step in one tuple."""
    return MaskedObservation(timestep.observation, timestep.action_mask)


def observe_masks(environment: Environment) -> Environment:
    """Returns the same environment with `MaskedObservation`s as observations.

    The next observation of an experience then includes its mask. A value that is a mean over a policy bootstraps from
    there, and the values of invalid actions, which are never trained, must not count.
    """

    def join(state_and_timestep: tuple[State, TimeStep]) -> tuple[State, TimeStep]:
        state, timestep = state_and_timestep
        return state, timestep._replace(observation=masked_observation(timestep), action_mask=None)

    def step(key: PRNGKey, state: State, action: Action) -> tuple[State, TimeStep]:
        return join(environment.step(key, state, action))

    spec = environment.action_spec
    mask = jax.ShapeDtypeStruct((spec.num_actions,), jnp.bool_) if isinstance(spec, DiscreteActions) else None
    return environment._replace(
        reset=lambda key: join(environment.reset(key)),
        step=step,
        observation_spec=MaskedObservation._make((environment.observation_spec, mask)),
    )
