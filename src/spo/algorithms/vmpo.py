"""V-MPO: on-policy maximum a posteriori policy optimisation (arXiv:1909.12238), discrete and continuous actions.

    act      by the old policy, which stays the same for a while
    judge    GAE over the rollout, once
    E-step   weigh the better half of the actions by their advantages; tune the temperature of the weights
    M-step   fit the policy to the weighted actions by maximum likelihood, inside a trust region around the old one; fit
             the critic to the GAE targets

The rollout is then forgotten. Discrete and continuous differ in the distribution and in what the trust region bounds,
and in nothing else.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns
from spo.acting import Experience, init_worker, rollout
from spo.algorithms.base import (
    Algorithm,
    Metrics,
    Setting,
    TrainState,
    act_by_policy,
    actor_critic_optimiser,
    adam,
    critic_values,
    share,
    updates_of_run,
)
from spo.algorithms.m_step import Bound, Duals, init_duals, make_gradient_step, make_trust_region, stay_inside
from spo.algorithms.minibatches import (
    check_minibatches,
    critic_over_time,
    learn_in_minibatches,
    of_all_devices,
    of_this_device,
)
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.networks import ActorCriticParams, make_network
from spo.types import Action, Array, Bool, Float, Integer, Observation, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class VMPOConfig:
    """Hyper-parameters of V-MPO. Defaults are the paper's for discrete actions (table "MPO and VMPO")."""

    num_envs: PositiveInt = 768
    """Environments side by side, over all devices."""
    rollout_length: PositiveInt = 86
    """Steps in each of them per iteration."""
    num_epochs: PositiveInt = 4
    """Passes over the rollout per iteration."""
    num_minibatches: PositiveInt = 1
    """Gradient steps per pass: parts of the shuffled rollout, each with a better half of its own. 1: all at once."""
    actor_learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for the actor and a torso that it shares with the critic."""
    critic_learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for the critic."""
    dual_learning_rate: NonNegativeFloat = 1e-2
    """Adam's, for the temperature and the multipliers."""
    decay_learning_rates: bool = False
    """Let the actor's and the critic's fall linearly to 0 over the run."""
    max_grad_norm: PositiveFloat = 0.5
    """Each group's gradient is clipped to this norm."""
    gamma: UnitInterval = 0.99
    """Discount."""
    gae_lambda: UnitInterval = 0.95
    """Between one-step (0) and Monte-Carlo (1) advantages."""
    target_period: PositiveInt = 64
    """Gradient steps between two copies of the policy to the old one; it is copied between rollouts only."""
    initial_temperature: PositiveFloat = 3.0
    """Temperature of the weights at the start (η)."""
    temperature_kl_bound: PositiveFloat = 0.5
    """KL from the better half to its weighted self that the temperature is tuned for (ε_η)."""
    initial_multiplier: PositiveFloat = 3.0
    """Discrete actions: multiplier of the trust region at the start (α)."""
    kl_bound: PositiveFloat = 1e-3
    """Discrete actions: bound on the KL from the old policy (ε_α)."""
    initial_mean_multiplier: PositiveFloat = 10.0
    """Continuous actions: multiplier of the mean's trust region at the start (α_μ)."""
    mean_kl_bound: PositiveFloat = 5e-2
    """Continuous actions: bound on the mean's KL, per action dimension (ε_αμ)."""
    initial_scale_multiplier: PositiveFloat = 500.0
    """Continuous actions: multiplier of the covariance's trust region at the start (α_Σ)."""
    scale_kl_bound: PositiveFloat = 5e-4
    """Continuous actions: bound on the covariance's KL, per action dimension (ε_αΣ)."""

    def __post_init__(self) -> None:
        check_fields(self)


class Learner(NamedTuple):
    params: ActorCriticParams
    old_params: ActorCriticParams  # whose policy acts, and is the centre of the trust region
    duals: Duals
    optimiser: optax.OptState
    dual_optimiser: optax.OptState
    num_updates: Integer[Array, ""]


class Decision(NamedTuple):
    """What acting leaves for learning."""

    action: Action  # as the distribution handles it: before squashing
    policy: Any  # the old one: parameters of the distribution that the action was drawn from


class Sample(NamedTuple):
    """One step as the network learns from it."""

    observation: Observation
    action_mask: Bool[Array, " A"] | None
    decision: Decision
    advantage: Float[Array, ""]
    target: Float[Array, ""]


def make_vmpo(setting: Setting, config: VMPOConfig) -> Algorithm:
    """V-MPO on a task, as the training loop takes it."""
    task = setting.task
    network = make_network(task.train.observation_spec, task.train.action_spec, setting.architecture)
    distribution = network.distribution
    num_envs = share("num_envs", config.num_envs, setting.num_devices)
    check_minibatches(num_envs, config.rollout_length, config.num_minibatches)
    if config.target_period < 1:
        raise ValueError(f"target_period must be 1 or more gradient steps, got {config.target_period}.")
    trust_region = make_trust_region(
        task.train.action_spec,
        distribution,
        policy=Bound(config.kl_bound, config.initial_multiplier),
        mean=Bound(config.mean_kl_bound, config.initial_mean_multiplier),
        scale=Bound(config.scale_kl_bound, config.initial_scale_multiplier),
    )
    projection = trust_region.projection

    env_steps_per_iteration = config.num_envs * config.rollout_length
    updates_per_iteration = config.num_epochs * config.num_minibatches
    num_updates = updates_of_run(setting, env_steps_per_iteration, updates_per_iteration)
    make_optimiser = functools.partial(
        adam,
        max_grad_norm=config.max_grad_norm,
        decay_updates=num_updates if config.decay_learning_rates else None,
    )
    optimiser = actor_critic_optimiser(
        make_optimiser(config.actor_learning_rate), make_optimiser(config.critic_learning_rate)
    )
    dual_optimiser = adam(config.dual_learning_rate, config.max_grad_norm)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = network.init(key_learner, task.train.observation_spec)
        duals = init_duals(trust_region, config.initial_temperature)
        learner = Learner(
            params=params,
            old_params=params,
            duals=duals,
            optimiser=optimiser.init(params),
            dual_optimiser=dual_optimiser.init(duals),
            num_updates=jnp.zeros((), jnp.int32),
        )
        return TrainState(learner, init_worker(task.train, num_envs, key_worker))

    # --- Act ----------------------------------------------------------------------------------------------------------
    def decide(learner: Learner) -> Any:
        def decide(key: PRNGKey, env_state: State, timestep: TimeStep) -> tuple[Action, Decision, Metrics]:
            del env_state  # nothing looks ahead
            policy = jax.vmap(functools.partial(network.actor, learner.old_params))(
                timestep.observation, timestep.action_mask
            )
            actions = jax.vmap(distribution.sample)(jax.random.split(key, num_envs), policy)
            return jax.vmap(distribution.to_environment)(actions), Decision(actions, policy), {}

        return decide

    # --- Judge --------------------------------------------------------------------------------------------------------
    def judge(learner: Learner, experience: Experience) -> Sample:
        """Samples with leading axes [T, E]."""
        critic = functools.partial(network.critic, learner.params)
        gae = functools.partial(returns.gae, gamma=config.gamma, gae_lambda=config.gae_lambda)
        advantages, targets = jax.vmap(gae, in_axes=1, out_axes=1)(
            experience.reward,
            critic_over_time(critic, experience.observation),
            critic_over_time(critic, experience.next_observation),
            experience.terminated,
            experience.truncated,
        )
        return Sample(experience.observation, experience.action_mask, experience.extras, advantages, targets)

    # --- E-step and M-step --------------------------------------------------------------------------------------------
    def loss_fn(params: ActorCriticParams, duals: Duals, batch: Sample) -> tuple[Float[Array, ""], Metrics]:
        """All losses over a batch [B]; each trains its own variables."""
        size = batch.advantage.shape[0]
        new_policy, values = jax.vmap(functools.partial(network.both, params))(batch.observation, batch.action_mask)
        old_policy = batch.decision.policy
        value_loss = jnp.mean(losses.squared_error(values, batch.target))

        # E-step: the better half of all devices' samples, weighted by how good they are.
        temperature = losses.positive_from_raw(duals.raw_temperature)
        everyone = of_all_devices(batch.advantage)
        best = losses.top_half(everyone)
        best_weights = losses.target_weights(everyone[best], temperature)
        temperature_loss = losses.temperature_loss(temperature, everyone[best], config.temperature_kl_bound)

        # M-step: their likelihood, where the mean over devices is to be the sum ...
        weights = of_this_device(jnp.zeros_like(everyone).at[best].set(best_weights), size) * setting.num_devices
        log_probs = jax.vmap(projection.log_prob)(old_policy, new_policy, batch.decision.action)
        policy_loss = losses.weighted_likelihood_loss(log_probs, weights)
        # ... inside the trust region, over all samples.
        kls = jax.tree.map(lambda x: jnp.mean(x, axis=0), jax.vmap(projection.kls)(old_policy, new_policy))
        region, region_metrics = stay_inside(trust_region, kls, duals.raw_multipliers)

        total = policy_loss + value_loss + temperature_loss + region.penalty + region.dual
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/temperature": temperature_loss,
            "temperature": temperature,
            # From equal weights to these: what ε_η bounds.
            "e_step/kl": jnp.sum(jax.scipy.special.xlogy(best_weights, best_weights * best_weights.shape[0])),
            "policy/entropy": jnp.mean(jax.vmap(distribution.entropy)(new_policy)),
            "value/mean": jnp.mean(values),
            "value/target": jnp.mean(batch.target),
        }
        return total, metrics | region_metrics

    gradient_step = make_gradient_step(loss_fn, optimiser, dual_optimiser)

    def update(learner: Learner, batch: Sample, key: PRNGKey) -> tuple[Learner, Metrics]:
        del key  # nothing is drawn while learning
        return gradient_step(learner, batch)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        learner, worker = state
        key, key_learn = jax.random.split(worker.key)
        worker, experience, rollout_metrics = rollout(
            task.train, decide(learner), worker._replace(key=key), config.rollout_length
        )
        with jax.named_scope("update"):
            samples = judge(learner, experience)
        learner, update_metrics = learn_in_minibatches(
            update,
            learner,
            samples,
            key_learn,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            skip_nonfinite=setting.skip_nonfinite_updates,
        )
        return TrainState(renew_old_policy(learner), worker), rollout_metrics | update_metrics

    def renew_old_policy(learner: Learner) -> Learner:
        """Copies the policy to the old one if a multiple of the period came by among the updates since the rollout.

        Not in their midst: the centre of the trust region then is the policy that drew the actions, always, and what it
        said when it acted need not be computed again.
        """
        num_updates = learner.num_updates + updates_per_iteration
        is_time = num_updates // config.target_period > learner.num_updates // config.target_period
        old_params = jax.tree.map(lambda new, old: jnp.where(is_time, new, old), learner.params, learner.old_params)
        return learner._replace(old_params=old_params, num_updates=num_updates)

    # --- Acting with what was learned ---------------------------------------------------------------------------------
    def act(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *, use_search: bool, greedy: bool
    ) -> Action:
        """Actions for the environments by the newest policy: the most likely one or a draw."""
        del env_state, use_search  # V-MPO has no search: the policy is all there is
        return act_by_policy(network, learner.params, key, timestep, greedy=greedy)

    def value(learner: Learner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
        del key  # the critic says it outright
        return critic_values(network, learner.params, timestep)

    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=value,
        env_steps_per_iteration=env_steps_per_iteration,
        model_steps_per_env_step=0,
        network_evaluations_per_env_step=1,
    )
