"""Soft Q-learning from replayed steps, the learner of SMC-ENT: Munchausen-DQN for discrete actions, SAC for continuous.

Both maximise reward plus τ times the policy's entropy, τ being the entropy temperature. All values are in scaled
rewards; metrics are in rewards of the environment.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo import losses, returns
from spo.acting import Experience
from spo.algorithms.base import Setting
from spo.algorithms.masked_observations import MaskedObservation
from spo.checks import PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.distributions import Distribution, categorical, masked_logits
from spo.networks import ActorCritic, ActorCriticParams, QNetwork, make_network, make_q_network
from spo.types import Action, Array, ContinuousActions, Float, Metrics, PRNGKey, PyTree


@dataclass(frozen=True)
class SoftQConfig:
    """Options of soft Q-learning. Defaults are the paper's for discrete actions (table "SMC-Ent")."""

    gamma: UnitInterval = 0.97
    """Discount factor, in learning and in the search."""
    reward_scale: PositiveFloat = 10.0
    """Factor on all rewards, in learning and in the search."""
    entropy_temperature: PositiveFloat = 0.03
    """Value of one nat of the policy's entropy, in scaled rewards (τ). Continuous actions: its initial value."""
    target_entropy_per_dimension: float = -1.0
    """Continuous actions: entropy of the policy, per action dimension, that τ is tuned to."""
    num_value_samples: PositiveInt = 64
    """Continuous actions: samples of the policy over which the value of a state is averaged."""
    munchausen_coefficient: float = 0.9
    """Discrete actions: share of τ times the log-policy that Munchausen-DQN adds to the reward."""
    munchausen_clip: float = -1e3
    """Discrete actions: lower bound on τ times the log-policy in that term."""
    huber_delta: PositiveFloat = 1.0
    """Discrete actions: error at which the loss of Q changes from quadratic to linear (Huber loss)."""

    def __post_init__(self) -> None:
        check_fields(self)


class SoftParams(NamedTuple):
    """Everything that soft Q-learning trains. For discrete actions the policy is softmax(Q/τ) with τ fixed: only Q."""

    q: PyTree[Array]  # continuous actions: of both critics, stacked [2, ...]
    actor: ActorCriticParams | None = None  # its critic is empty: Q is the critic
    raw_entropy_temperature: Float[Array, ""] | None = None


class SoftQLearning(NamedTuple):
    """Soft Q-learning for one kind of action."""

    init: Callable[[PRNGKey], SoftParams]
    #: (params, key, state) -> policy and soft value of one state
    evaluate: Callable[[SoftParams, PRNGKey, MaskedObservation], tuple[Any, Float[Array, ""]]]
    entropy_temperature: Callable[[SoftParams], Float[Array, ""]]
    #: (params, target Q, steps [B], key) -> (loss, metrics)
    loss: Callable[[SoftParams, PyTree[Array], Experience, PRNGKey], tuple[Float[Array, ""], Metrics]]
    distribution: Distribution


def make_soft_q_learning(setting: Setting, config: SoftQConfig) -> SoftQLearning:
    """Returns SAC for continuous actions, else Munchausen-DQN."""
    continuous = isinstance(setting.task.train.action_spec, ContinuousActions)
    return (make_soft_actor_critic if continuous else make_munchausen_dqn)(setting, config)


# --- Discrete actions: Munchausen-DQN ---------------------------------------------------------------------------------
def make_munchausen_dqn(setting: Setting, config: SoftQConfig) -> SoftQLearning:
    """Returns Munchausen-DQN (Vieillard et al., arXiv:2007.14430). The policy is softmax(Q/τ)."""
    train = setting.task.train
    network = make_q_network(train.observation_spec, train.action_spec, setting.architecture)
    temperature = config.entropy_temperature
    q_values = functools.partial(masked_q_values, network)

    def evaluate(
        params: SoftParams, key: PRNGKey, state: MaskedObservation
    ) -> tuple[Float[Array, " A"], Float[Array, ""]]:
        del key  # nothing is sampled
        values = q_values(params.q, state)
        return values / temperature, returns.soft_value(values, temperature)

    return SoftQLearning(
        init=lambda key: SoftParams(network.init(key, train.observation_spec)),
        evaluate=evaluate,
        entropy_temperature=lambda _: jnp.asarray(temperature, jnp.float32),
        loss=functools.partial(
            munchausen_loss,
            q_values=q_values,
            temperature=temperature,
            gamma=config.gamma,
            reward_scale=config.reward_scale,
            coefficient=config.munchausen_coefficient,
            clip_min=config.munchausen_clip,
            huber_delta=config.huber_delta,
        ),
        distribution=categorical,
    )


def masked_q_values(network: QNetwork, params: PyTree[Array], state: MaskedObservation) -> Float[Array, " A"]:
    """Returns Q(s, ·), with -inf for invalid actions."""
    assert network.all_values is not None  # discrete actions always have them
    values = network.all_values(params, state.observation)
    return values if state.action_mask is None else masked_logits(values, state.action_mask)


def munchausen_loss(
    params: SoftParams,
    target_q: PyTree[Array],
    batch: Experience,
    key: PRNGKey,
    *,
    q_values: Callable[[PyTree[Array], MaskedObservation], Float[Array, " A"]],
    temperature: float,
    gamma: float,
    reward_scale: float,
    coefficient: float,
    clip_min: float,
    huber_delta: float,
) -> tuple[Float[Array, ""], Metrics]:
    """Huber loss of Q on the targets of Munchausen-DQN, over steps [B]."""
    del key  # nothing is sampled
    bonus_fn = functools.partial(
        returns.munchausen_bonus, temperature=temperature, coefficient=coefficient, clip_min=clip_min
    )

    def one(step: Experience) -> tuple[Array, Array, Array]:
        bonus = bonus_fn(q_values(target_q, step.observation), step.extras)
        next_value = returns.soft_value(q_values(target_q, step.next_observation), temperature)
        target = returns.td_target(reward_scale * step.reward + bonus, next_value, step.terminated, gamma=gamma)
        values = q_values(params.q, step.observation)
        return values[step.extras], target, categorical.entropy(values / temperature)

    values, targets, entropies = jax.vmap(one)(batch)
    value_loss = jnp.mean(losses.huber(values, targets, huber_delta))
    return value_loss, {
        "loss/value": value_loss,
        "policy/entropy": jnp.mean(entropies),
        "value/mean": jnp.mean(values) / reward_scale,
        "value/target": jnp.mean(targets) / reward_scale,
    }


# --- Continuous actions: SAC ------------------------------------------------------------------------------------------
class SACNetworks(NamedTuple):
    """An actor and twin critics as functions of one state."""

    actor: ActorCritic
    q: QNetwork

    def policy(self, params: SoftParams, state: MaskedObservation) -> Any:
        """Returns the parameters of the action distribution."""
        assert params.actor is not None
        return self.actor.actor(params.actor, state.observation, None)

    def sample(self, policy: Any, key: PRNGKey) -> tuple[Action, Float[Array, ""]]:
        """Returns an action as the environment takes it, differentiable in the policy, and its log-density."""
        distribution = self.actor.distribution
        action = distribution.sample(key, policy)
        return distribution.to_environment(action), distribution.log_prob(policy, action)

    def twin_q(self, q: PyTree[Array], state: MaskedObservation, action: Action) -> Float[Array, "2"]:
        """Returns Q(s, a) by both critics."""
        return jax.vmap(self.q.value, in_axes=(0, None, None))(q, state.observation, action)

    def soft_value(
        self, q: PyTree[Array], policy: Any, temperature: Float[Array, ""], state: MaskedObservation, keys: Any
    ) -> Float[Array, ""]:
        """Returns V(s) by one sample of the policy for each of the keys."""
        actions, log_probs = jax.vmap(functools.partial(self.sample, policy))(keys)
        twins = jax.vmap(self.q.values_of, in_axes=(0, None, None))(q, state.observation, actions)
        return returns.sampled_soft_value(jnp.min(twins, axis=0), log_probs, temperature)


def make_soft_actor_critic(setting: Setting, config: SoftQConfig) -> SoftQLearning:
    """Returns SAC (Haarnoja et al., arXiv:1812.05905): an actor, twin critics, and τ tuned to a target entropy."""
    train = setting.task.train
    assert isinstance(train.action_spec, ContinuousActions)
    specs = (train.observation_spec, train.action_spec, setting.architecture)
    networks = SACNetworks(make_network(*specs), make_q_network(*specs))

    def init(key: PRNGKey) -> SoftParams:
        key_actor, key_q = jax.random.split(key)
        return SoftParams(
            # One critic after the other: on a CPU with few cores, a vmapped orthogonal initialisation can hang.
            q=jax.lax.map(lambda key: networks.q.init(key, train.observation_spec), jax.random.split(key_q)),
            actor=networks.actor.init(key_actor, train.observation_spec)._replace(critic={}),
            raw_entropy_temperature=jnp.asarray(losses.raw_from_positive(config.entropy_temperature), jnp.float32),
        )

    def evaluate(params: SoftParams, key: PRNGKey, state: MaskedObservation) -> tuple[Any, Float[Array, ""]]:
        policy, keys = networks.policy(params, state), jax.random.split(key, config.num_value_samples)
        return policy, networks.soft_value(params.q, policy, tuned_temperature(params), state, keys)

    return SoftQLearning(
        init=init,
        evaluate=evaluate,
        entropy_temperature=tuned_temperature,
        loss=functools.partial(
            sac_loss,
            networks=networks,
            gamma=config.gamma,
            reward_scale=config.reward_scale,
            target_entropy=config.target_entropy_per_dimension * train.action_spec.size,
        ),
        distribution=networks.actor.distribution,
    )


def tuned_temperature(params: SoftParams) -> Float[Array, ""]:
    """Returns the entropy temperature τ of SAC."""
    assert params.raw_entropy_temperature is not None
    return losses.positive_from_raw(params.raw_entropy_temperature)


def sac_loss(
    params: SoftParams,
    target_q: PyTree[Array],
    batch: Experience,
    key: PRNGKey,
    *,
    networks: SACNetworks,
    gamma: float,
    reward_scale: float,
    target_entropy: float,
) -> tuple[Float[Array, ""], Metrics]:
    """Sums the losses of critics, actor and entropy temperature over steps [B]."""
    temperature = tuned_temperature(params)

    def one(key: PRNGKey, step: Experience) -> tuple[Array, Array, Array, Array]:
        key_next, key_now = jax.random.split(key)
        next_policy = networks.policy(params, step.next_observation)
        next_value = networks.soft_value(target_q, next_policy, temperature, step.next_observation, key_next[None])
        target = returns.td_target(reward_scale * step.reward, next_value, step.terminated, gamma=gamma)
        values = networks.twin_q(params.q, step.observation, step.extras)
        action, log_prob = networks.sample(networks.policy(params, step.observation), key_now)
        # The actor's loss trains the actor only, not the critics.
        q_value = jnp.min(networks.twin_q(jax.lax.stop_gradient(params.q), step.observation, action))
        return values, target, log_prob, losses.soft_policy_loss(log_prob, q_value, temperature)

    values, targets, log_probs, policy_losses = jax.vmap(one)(jax.random.split(key, batch.reward.shape[0]), batch)
    value_loss = jnp.mean(jnp.sum(losses.squared_error(values, targets[:, None]), axis=1))
    policy_loss = jnp.mean(policy_losses)
    temperature_loss = jnp.mean(
        jax.vmap(lambda log_prob: losses.entropy_temperature_loss(temperature, log_prob, target_entropy))(log_probs)
    )
    return value_loss + policy_loss + temperature_loss, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/temperature": temperature_loss,
        "policy/entropy": -jnp.mean(log_probs),
        "value/mean": jnp.mean(values) / reward_scale,
        "value/target": jnp.mean(targets) / reward_scale,
    }
