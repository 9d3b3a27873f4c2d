"""A world and a network, put together as what a search asks for: roots and a model."""

import jax

from spo.networks import ActorCritic, ActorCriticParams
from spo.search import ModelFn, ModelOutput, Root
from spo.types import Action, Environment, PRNGKey, State, TimeStep


def environment_model(environment: Environment, network: ActorCritic, params: ActorCriticParams) -> ModelFn:
    """The true world as the model: step it, then look at the new state with the network."""

    def model_fn(key: PRNGKey, state: State, action: Action) -> ModelOutput:
        with jax.named_scope("world"):
            state, timestep = environment.step(key, state, network.distribution.to_environment(action))
        with jax.named_scope("network"):
            prior, value = network.both(params, timestep.observation, timestep.action_mask)
        return ModelOutput(
            state=state,
            prior=prior,
            value=value,
            reward=timestep.reward,
            discount=timestep.discount,
            ended=timestep.ended,
        )

    return model_fn


def evaluate_root(network: ActorCritic, params: ActorCriticParams, state: State, timestep: TimeStep) -> Root:
    """One state as the root of a search (`vmap` makes the batch that `search` takes)."""
    prior, value = network.both(params, timestep.observation, timestep.action_mask)
    return Root(prior=prior, value=value, state=state)
