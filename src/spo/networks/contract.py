"""Types of networks: an actor with a critic, a Q function, and both together, as pure functions of one observation."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from spo.distributions import Distribution
from spo.types import Action, Array, Bool, Float, Observation, PRNGKey, PyTree

ObservationSpec: TypeAlias = PyTree[jax.ShapeDtypeStruct]
ActionMask = Bool[Array, " A"] | None
#: Function of one observation that keeps its shapes, such as a normalisation.
Preprocess: TypeAlias = Callable[[Observation], Observation]


class ActorCriticParams(NamedTuple):
    """Parameters in three groups.

    `actor` receives gradients from the policy's loss only, and `critic` from the critic's loss only. A shared torso
    receives the gradient of the sum of both losses. If actor and critic share nothing, `torso` is empty.
    """

    torso: PyTree[Array]
    actor: PyTree[Array]
    critic: PyTree[Array]


class ActorCritic(NamedTuple):
    """Functions of one observation. Use `jax.vmap` for batches."""

    #: (key, observation spec) -> initial parameters
    init: Callable[[PRNGKey, ObservationSpec], ActorCriticParams]
    #: (params, observation, action_mask) -> parameters of the action distribution
    actor: Callable[[ActorCriticParams, Observation, ActionMask], Any]
    #: (params, observation) -> V(observation)
    critic: Callable[[ActorCriticParams, Observation], Float[Array, ""]]
    #: (params, observation, action_mask) -> both of the above, with a shared torso evaluated once
    both: Callable[[ActorCriticParams, Observation, ActionMask], tuple[Any, Float[Array, ""]]]
    #: family of the action distribution
    distribution: Distribution
    #: True if actor and critic share no layers
    separate: bool = False

    def actor_then_critic(
        self, params: ActorCriticParams, observation: Observation, action_mask: ActionMask
    ) -> tuple[Any, Any]:
        """Computes `both` by the actor and then by the critic, if they share no layers.

        It is faster than `both` for thousands of observations: one network then occupies a GPU.
        """
        if not self.separate:
            return self.both(params, observation, action_mask)
        return self.actor(params, observation, action_mask), self.critic(params, observation)

    def with_preprocessing(self, preprocess: Preprocess | None) -> "ActorCritic":
        """Returns the same networks on preprocessed observations. Their parameters stay as they are."""
        if preprocess is None:
            return self
        return self._replace(
            actor=lambda params, observation, mask: self.actor(params, preprocess(observation), mask),
            critic=lambda params, observation: self.critic(params, preprocess(observation)),
            both=lambda params, observation, mask: self.both(params, preprocess(observation), mask),
        )


class QNetwork(NamedTuple):
    """Q as functions of one observation. Twin critics are two sets of parameters."""

    #: (key, observation spec) -> initial parameters
    init: Callable[[PRNGKey, ObservationSpec], PyTree[Array]]
    #: (params, observation, action) -> Q(observation, action), the action as the environment takes it
    value: Callable[[PyTree[Array], Observation, Action], Float[Array, ""]]
    #: (params, observation) -> Q(observation, .) of every action; None for continuous actions
    all_values: Callable[[PyTree[Array], Observation], Float[Array, " A"]] | None
    #: (params, observation, K actions) -> Q(observation, .) of each action; None: `value` of each
    values: Callable[[PyTree[Array], Observation, Action], Float[Array, " K"]] | None = None

    def values_of(self, params: PyTree[Array], observation: Observation, actions: Action) -> Float[Array, " K"]:
        """Returns Q of several actions in one state. A network may compute them faster than one by one."""
        values = jax.vmap(self.value, in_axes=(None, None, 0)) if self.values is None else self.values
        return values(params, observation, actions)

    def with_preprocessing(self, preprocess: Preprocess | None) -> "QNetwork":
        """Returns the same network on preprocessed observations. Its parameters stay as they are."""
        if preprocess is None:
            return self
        all_values = self.all_values
        return self._replace(
            value=lambda params, observation, action: self.value(params, preprocess(observation), action),
            all_values=None
            if all_values is None
            else lambda params, observation: all_values(params, preprocess(observation)),
            values=lambda params, observation, actions: self.values_of(params, preprocess(observation), actions),
        )


class Networks(NamedTuple):
    """Networks that a user has built whole. `make_network` and `make_q_network` return them as they are."""

    #: policy and V
    actor_critic: ActorCritic
    #: for MPO and SMC-ENT; None: the other algorithms use V
    q_network: QNetwork | None = None
