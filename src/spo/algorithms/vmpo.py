"""V-MPO: on-policy maximum a posteriori policy optimisation (arXiv:1909.12238), discrete and continuous actions.

    act         samples actions from the old policy, which is kept for a number of updates
    advantages  GAE over the rollout, once
    E-step      weights the better half of the actions by their advantages; tunes the temperature of the weights
    M-step      fits the policy to the weighted actions by maximum likelihood, inside a trust region around the old
                policy; fits the critic to the GAE targets

The rollout is then discarded. Discrete and continuous actions differ in the distribution and in what the trust region
bounds, and in nothing else.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns
from spo.acting import Experience, init_worker, rollout
from spo.algorithms.base import (
    Algorithm,
    Greedy,
    Inspect,
    Setting,
    TrainState,
    act_by_policy,
    critic_values,
    per_device,
    policies,
)
from spo.algorithms.minibatches import (
    check_minibatches,
    gather_from_devices,
    learn_in_minibatches,
    slice_of_device,
    values_over_time,
)
from spo.algorithms.trust_region import Duals, TrustRegion, TrustRegionConfig, make_trust_region, trust_region_loss
from spo.algorithms.updates import actor_critic_optimiser, adam, gradient_step, total_updates
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, PositiveOrInfinite, UnitInterval
from spo.networks import ActorCritic, ActorCriticParams, make_network
from spo.types import Action, Array, Bool, Environment, Float, Integer, Metrics, Observation, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class VMPOConfig(TrustRegionConfig):
    """Hyperparameters of V-MPO. Defaults are the paper's for discrete actions (table "MPO and VMPO")."""

    initial_temperature: PositiveFloat = 3.0
    """Initial temperature of the action weights (η). A low temperature concentrates the weight on the best actions."""
    temperature_kl_bound: PositiveFloat = 0.5
    """KL divergence of the better half's weights from equal ones (ε_η). The temperature is learned to meet it."""
    kl_bound: PositiveFloat = 1e-3
    """Discrete actions: how far the policy may move, as the KL divergence from the old policy to the new (ε_α)."""
    initial_multiplier: PositiveFloat = 3.0
    """Discrete actions: initial weight of the penalty for that KL divergence (α)."""
    num_envs: PositiveInt = 768
    """Number of parallel environments, over all devices."""
    rollout_length: PositiveInt = 86
    """Steps in each environment per iteration."""
    num_epochs: PositiveInt = 4
    """Passes over each rollout."""
    num_minibatches: PositiveInt = 1
    """Gradient updates per pass, one for each part of the shuffled rollout. The better half is taken in each part."""
    actor_learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for the policy, and for layers that it shares with the critic."""
    critic_learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for the critic."""
    dual_learning_rate: NonNegativeFloat = 1e-2
    """Adam's learning rate for the temperature and the multipliers of the trust region."""
    decay_learning_rates: bool = False
    """Decay the learning rates of policy and critic linearly to 0 over the run."""
    max_grad_norm: PositiveOrInfinite = 0.5
    """Largest L2 norm of a gradient: larger ones are scaled down. Policy, critic and multipliers are separate."""
    gamma: UnitInterval = 0.99
    """Discount factor."""
    gae_lambda: UnitInterval = 0.95
    """Mix of the advantages (GAE): 0 bootstraps after one step, 1 sums the rewards of the whole rollout."""
    target_period: PositiveInt = 64
    """Gradient updates after which the new policy replaces the old one, which acts. Replaced between rollouts only."""


class Learner(NamedTuple):
    """Everything that is learned: the same on every device."""

    params: ActorCriticParams
    old_params: ActorCriticParams  # the policy that acts, and the centre of the trust region
    duals: Duals
    optimiser: optax.OptState
    dual_optimiser: optax.OptState
    num_updates: Integer[Array, ""]


class Decision(NamedTuple):
    """An action and the distribution that it was drawn from."""

    action: Action  # before squashing
    policy: Any  # parameters of the old policy's distribution


class Sample(NamedTuple):
    """One step as the losses use it."""

    observation: Observation
    action_mask: Bool[Array, " A"] | None
    decision: Decision
    advantage: Float[Array, ""]
    target: Float[Array, ""]


def make_vmpo(setting: Setting, config: VMPOConfig) -> Algorithm:
    """Returns V-MPO for a task: the functions below with the configuration bound to them."""
    train = setting.task.train
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    trust_region = make_trust_region(config, train.action_spec, network.distribution)
    num_envs = per_device("num_envs", config.num_envs, setting.num_devices)
    check_minibatches(num_envs, config.rollout_length, config.num_minibatches)
    env_steps = config.num_envs * config.rollout_length
    updates_per_iteration = config.num_epochs * config.num_minibatches
    decay_updates = total_updates(setting, env_steps, updates_per_iteration) if config.decay_learning_rates else None
    rates = (config.actor_learning_rate, config.critic_learning_rate)
    optimiser = actor_critic_optimiser(*rates, config.max_grad_norm, decay_updates=decay_updates)
    dual_optimiser = adam(config.dual_learning_rate, config.max_grad_norm)
    loss_fn = functools.partial(
        loss,
        network=network,
        trust_region=trust_region,
        temperature_kl_bound=config.temperature_kl_bound,
        num_devices=setting.num_devices,
    )
    gae = functools.partial(returns.gae, gamma=config.gamma, gae_lambda=config.gae_lambda)
    step_fn = functools.partial(
        step,
        environment=train,
        rollout_length=config.rollout_length,
        decide_fn=functools.partial(decide, network),
        samples_fn=functools.partial(compute_advantages, network, gae),
        learn_fn=functools.partial(
            learn_in_minibatches,
            functools.partial(update, loss_fn, optimiser, dual_optimiser),
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            skip_nonfinite=setting.skip_nonfinite_updates,
        ),
        renew_fn=functools.partial(renew_old_policy, updates_per_iteration, config.target_period),
    )

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params, duals = network.init(key_learner, train.observation_spec), trust_region.initial_duals
        states = (optimiser.init(params), dual_optimiser.init(duals))
        learner = Learner(params, params, duals, *states, num_updates=jnp.zeros((), jnp.int32))
        return TrainState(learner, init_worker(train, num_envs, key_worker))

    return Algorithm(
        init=init,
        step=step_fn,
        act=functools.partial(act, network),
        value=lambda learner, _key, timestep: critic_values(network, learner.params, timestep),
        env_steps_per_iteration=env_steps,
        model_steps_per_env_step=0,
        network_evaluations_per_env_step=1,
        greedy_per_state=True,
        inspect=Inspect(
            distribution=network.distribution,
            policy=lambda learner, timestep: policies(network, learner.params, timestep),
        ),
    )


def step(
    state: TrainState,
    *,
    environment: Environment,
    rollout_length: int,
    decide_fn: Callable[..., tuple[Action, Decision, Metrics]],
    samples_fn: Callable[[Learner, Experience], Sample],
    learn_fn: Callable[..., tuple[Learner, Metrics]],
    renew_fn: Callable[[Learner], Learner],
) -> tuple[TrainState, Metrics]:
    """Runs one iteration: acts by the old policy, then learns from the rollout."""
    learner, worker = state
    key, key_learn = jax.random.split(worker.key)
    decide_fn = functools.partial(decide_fn, learner)
    worker, experience, rollout_metrics = rollout(environment, decide_fn, worker._replace(key=key), rollout_length)
    with jax.named_scope("update"):
        samples = samples_fn(learner, experience)
    learner, update_metrics = learn_fn(learner, samples, key_learn)
    return TrainState(renew_fn(learner), worker), rollout_metrics | update_metrics


def decide(
    network: ActorCritic, learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep
) -> tuple[Action, Decision, Metrics]:
    """Samples actions from the old policy; returns them as the environments take them and as they are learned from."""
    del env_state  # nothing is simulated
    distribution = network.distribution
    policy = jax.vmap(functools.partial(network.actor, learner.old_params))(timestep.observation, timestep.action_mask)
    actions = jax.vmap(distribution.sample)(jax.random.split(key, timestep.reward.shape[0]), policy)
    return jax.vmap(distribution.to_environment)(actions), Decision(actions, policy), {}


def compute_advantages(
    network: ActorCritic,
    gae: Callable[..., returns.AdvantagesAndTargets],
    learner: Learner,
    experience: Experience,
) -> Sample:
    """Returns samples [T, E] with the advantages and targets of GAE, by the critic as it is before the updates."""
    critic = functools.partial(network.critic, learner.params)
    advantages, targets = jax.vmap(gae, in_axes=1, out_axes=1)(
        experience.reward,
        values_over_time(critic, experience.observation),
        values_over_time(critic, experience.next_observation),
        experience.terminated,
        experience.truncated,
    )
    return Sample(experience.observation, experience.action_mask, experience.extras, advantages, targets)


# --- E-step and M-step ------------------------------------------------------------------------------------------------
def update(
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    dual_optimiser: optax.GradientTransformation,
    learner: Learner,
    batch: Sample,
) -> tuple[Learner, Metrics]:
    """Takes one gradient step on critic, policy and duals."""
    return gradient_step(learner, functools.partial(loss_fn, batch=batch), optimiser, dual_optimiser)


def loss(
    params: ActorCriticParams,
    duals: Duals,
    *,
    batch: Sample,
    network: ActorCritic,
    trust_region: TrustRegion,
    temperature_kl_bound: float,
    num_devices: int,
) -> tuple[Float[Array, ""], Metrics]:
    """Sums the losses over a batch [B]. Each of them trains its own variables only."""
    policy, values = jax.vmap(functools.partial(network.both, params))(batch.observation, batch.action_mask)
    old_policy, temperature = batch.decision.policy, duals.temperature
    value_loss = jnp.mean(losses.squared_error(values, batch.target))

    # E-step: weights on the better half of all devices' samples.
    advantages = gather_from_devices(batch.advantage)
    best = losses.top_half(advantages)
    best_weights = losses.target_weights(advantages[best], temperature)
    temperature_loss = losses.temperature_loss(temperature, advantages[best], temperature_kl_bound)

    # M-step: their likelihood. Losses are averaged over devices, and this one is a sum: hence the factor.
    weights = jnp.zeros_like(advantages).at[best].set(best_weights)
    weights = slice_of_device(weights, batch.advantage.shape[0]) * num_devices
    log_probs = jax.vmap(trust_region.projection.log_prob)(old_policy, policy, batch.decision.action)
    policy_loss = losses.weighted_likelihood_loss(log_probs, weights)
    # The trust region counts all samples.
    region_loss, region_metrics = trust_region_loss(trust_region, old_policy, policy, duals, num_axes=1)

    return policy_loss + value_loss + temperature_loss + region_loss, region_metrics | {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/temperature": temperature_loss,
        "temperature": temperature,
        # KL divergence of these weights from equal ones, which ε_η bounds.
        "e_step/kl": losses.kl_from_prior(best_weights, jnp.full_like(best_weights, -jnp.log(best_weights.shape[0]))),
        "policy/entropy": jnp.mean(jax.vmap(network.distribution.entropy)(policy)),
        "value/mean": jnp.mean(values),
        "value/target": jnp.mean(batch.target),
    }


def renew_old_policy(updates_per_iteration: int, target_period: int, learner: Learner) -> Learner:
    """Copies the new policy to the old one if a multiple of the period lies among the iteration's updates.

    The copy never happens between two updates. The centre of the trust region is then always the policy that drew the
    actions, and its distributions, stored when it acted, need not be computed again.
    """
    num_updates = learner.num_updates + updates_per_iteration
    is_due = num_updates // target_period > learner.num_updates // target_period
    old_params = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), learner.params, learner.old_params)
    return learner._replace(old_params=old_params, num_updates=num_updates)


# --- Acting -----------------------------------------------------------------------------------------------------------
def act(
    network: ActorCritic,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    *,
    use_search: bool,
    greedy: Greedy,
) -> Action:
    """Returns actions for the environments from the newest policy. There is no search."""
    del env_state, use_search
    return act_by_policy(network, learner.params, key, timestep, greedy=greedy)
