"""PPO: Proximal Policy Optimisation (arXiv:1707.06347), for discrete and continuous actions.

    act      by the policy; remember each action, its log-probability and what the critic said
    judge    GAE over the rollout, once
    learn    several passes over the rollout in shuffled minibatches: clipped surrogate, value regression, entropy bonus

The rollout is then forgotten. Discrete and continuous differ in the distribution, and in how its entropy is had.
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
    DEVICE_AXIS,
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
from spo.algorithms.minibatches import (
    check_minibatches,
    critic_over_time,
    learn_in_minibatches,
    of_all_devices,
    of_this_device,
)
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.environments.wrappers import (
    RunningStatistics,
    init_statistics,
    merge_statistics,
    normalise,
    update_statistics,
)
from spo.networks import ActorCriticParams, make_network
from spo.types import Action, Array, Bool, DiscreteActions, Float, Observation, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters of PPO. Defaults are the paper's for discrete actions (table "AlphaZero and PPO")."""

    num_envs: PositiveInt = 768
    """Environments side by side, over all devices."""
    rollout_length: PositiveInt = 85
    """Steps in each of them per iteration."""
    num_epochs: PositiveInt = 4
    """Passes over the rollout per iteration."""
    num_minibatches: PositiveInt = 64
    """Gradient steps per pass: the rollout is shuffled and cut into so many parts."""
    actor_learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for the actor and a torso that it shares with the critic."""
    critic_learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for the critic."""
    decay_learning_rates: bool = True
    """Let both fall linearly to 0 over the run."""
    max_grad_norm: PositiveFloat = 0.5
    """Each group's gradient is clipped to this norm."""
    gamma: UnitInterval = 0.99
    """Discount."""
    gae_lambda: UnitInterval = 0.95
    """Between one-step (0) and Monte-Carlo (1) advantages."""
    clip_epsilon: PositiveFloat = 0.1
    """How far from 1 the ratio of new to old probabilities is rewarded (ε)."""
    standardise_advantages: bool = True
    """Bring the advantages of each minibatch to mean 0 and deviation 1."""
    value_coefficient: float = 0.5
    """Weight of the value loss. Matters where actor and critic share a torso, and for the clipping of gradients."""
    value_clip: float | None = None
    """Stop pulling a value that is this far from where it was at the rollout (in scaled rewards); None: never."""
    entropy_coefficient: float = 1e-2
    """Weight of the entropy bonus."""
    normalise_observations: bool = False
    """Shift and scale observations by their running mean and deviation (floating-point observations only)."""
    reward_scale: PositiveFloat = 1.0
    """Rewards are multiplied by this before anything learns from them."""

    def __post_init__(self) -> None:
        check_fields(self)


class Learner(NamedTuple):
    params: ActorCriticParams
    optimiser: optax.OptState
    statistics: RunningStatistics | None  # of observations; None: they are taken as they come


class Decision(NamedTuple):
    """What acting leaves for learning."""

    action: Action  # as the distribution handles it: before squashing
    log_prob: Float[Array, ""]
    value: Float[Array, ""]


class Sample(NamedTuple):
    """One step as the network learns from it."""

    observation: Observation
    action_mask: Bool[Array, " A"] | None
    decision: Decision
    advantage: Float[Array, ""]
    target: Float[Array, ""]


def make_ppo(setting: Setting, config: PPOConfig) -> Algorithm:
    """PPO on a task, as the training loop takes it."""
    task = setting.task
    network = make_network(task.train.observation_spec, task.train.action_spec, setting.architecture)
    distribution = network.distribution
    discrete = isinstance(task.train.action_spec, DiscreteActions)
    num_envs = share("num_envs", config.num_envs, setting.num_devices)
    check_minibatches(num_envs, config.rollout_length, config.num_minibatches)

    env_steps_per_iteration = config.num_envs * config.rollout_length
    num_updates = updates_of_run(setting, env_steps_per_iteration, config.num_epochs * config.num_minibatches)
    make_optimiser = functools.partial(
        adam,
        max_grad_norm=config.max_grad_norm,
        decay_updates=num_updates if config.decay_learning_rates else None,
    )
    optimiser = actor_critic_optimiser(
        make_optimiser(config.actor_learning_rate), make_optimiser(config.critic_learning_rate)
    )

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = network.init(key_learner, task.train.observation_spec)
        statistics = init_statistics(task.train.observation_spec) if config.normalise_observations else None
        learner = Learner(params, optimiser.init(params), statistics)
        return TrainState(learner, init_worker(task.train, num_envs, key_worker))

    def see(learner: Learner, observation: Observation) -> Observation:
        """Observations with any leading axes as the network sees them."""
        return observation if learner.statistics is None else normalise(learner.statistics, observation)

    # --- Act ----------------------------------------------------------------------------------------------------------
    def decide(learner: Learner) -> Any:
        def decide(key: PRNGKey, env_state: State, timestep: TimeStep) -> tuple[Action, Decision, Metrics]:
            del env_state  # nothing looks ahead
            policy, values = jax.vmap(functools.partial(network.both, learner.params))(
                see(learner, timestep.observation), timestep.action_mask
            )
            actions = jax.vmap(distribution.sample)(jax.random.split(key, num_envs), policy)
            log_probs = jax.vmap(distribution.log_prob)(policy, actions)
            return jax.vmap(distribution.to_environment)(actions), Decision(actions, log_probs, values), {}

        return decide

    # --- Judge --------------------------------------------------------------------------------------------------------
    def judge(learner: Learner, experience: Experience) -> Sample:
        """Samples with leading axes [T, E]. The values of where each step led are asked of the critic anew: they are
        the next step's but where an episode ended, and what a truncated one ended in was never acted on."""
        decision: Decision = experience.extras
        next_values = critic_over_time(
            functools.partial(network.critic, learner.params), see(learner, experience.next_observation)
        )
        gae = functools.partial(returns.gae, gamma=config.gamma, gae_lambda=config.gae_lambda)
        advantages, targets = jax.vmap(gae, in_axes=1, out_axes=1)(
            config.reward_scale * experience.reward,
            decision.value,
            next_values,
            experience.terminated,
            experience.truncated,
        )
        return Sample(see(learner, experience.observation), experience.action_mask, decision, advantages, targets)

    # --- Learn --------------------------------------------------------------------------------------------------------
    def loss_fn(params: ActorCriticParams, batch: Sample, key: PRNGKey) -> tuple[Float[Array, ""], Metrics]:
        """The three losses over a minibatch [B]."""
        old = batch.decision
        policy, values = jax.vmap(functools.partial(network.both, params))(batch.observation, batch.action_mask)
        log_probs = jax.vmap(distribution.log_prob)(policy, old.action)

        advantages = batch.advantage
        if config.standardise_advantages:
            size = advantages.shape[0]
            advantages = of_this_device(losses.standardise(of_all_devices(advantages)), size)
        surrogate = functools.partial(losses.clipped_surrogate_loss, clip_epsilon=config.clip_epsilon)
        policy_loss = jnp.mean(jax.vmap(surrogate)(log_probs, old.log_prob, advantages))

        if config.value_clip is None:
            value_loss = jnp.mean(losses.squared_error(values, batch.target))
        else:
            value_loss = jnp.mean(losses.clipped_squared_error(values, old.value, batch.target, config.value_clip))

        entropy = jnp.mean(jax.vmap(distribution.entropy)(policy))
        bonus = entropy if discrete else jnp.mean(entropy_by_draws(key, policy))
        total = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * bonus

        log_ratios = log_probs - old.log_prob
        ratios = jnp.exp(log_ratios)
        return total, {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy": entropy,
            # KL(old || new): each term is positive, and the mean is the KL's.
            "policy/kl": jnp.mean(ratios - 1.0 - log_ratios),
            "policy/clip_fraction": jnp.mean(jnp.abs(ratios - 1.0) > config.clip_epsilon),
            "value/mean": jnp.mean(values) / config.reward_scale,
            "value/target": jnp.mean(batch.target) / config.reward_scale,
        }

    def entropy_by_draws(key: PRNGKey, policy: Any) -> Float[Array, " B"]:
        """−log π(a|s) at one fresh draw per state, differentiated through the draw: the squashed entropy has no closed
        form, and the one at the mean that `distribution.entropy` gives would let a wide Gaussian pass for random when
        it only ever hits the two ends of the box."""

        def one(key: PRNGKey, policy: Any) -> Float[Array, ""]:
            return -distribution.log_prob(policy, distribution.sample(key, policy))

        return jax.vmap(one)(jax.random.split(key, jax.tree.leaves(policy)[0].shape[0]), policy)

    def update(learner: Learner, batch: Sample, key: PRNGKey) -> tuple[Learner, Metrics]:
        gradients, metrics = jax.grad(loss_fn, has_aux=True)(learner.params, batch, key)
        gradients, metrics = jax.lax.pmean((gradients, metrics), DEVICE_AXIS)
        metrics["gradient_norm"] = optax.tree.norm(gradients)
        changes, optimiser_state = optimiser.update(gradients, learner.optimiser, learner.params)
        return learner._replace(params=optax.apply_updates(learner.params, changes), optimiser=optimiser_state), metrics

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
        if learner.statistics is not None:
            # Last of all: what the rollout was gathered with is what it is learned with, and ratios start at 1.
            learner = learner._replace(statistics=include(learner.statistics, experience.observation))
        return TrainState(learner, worker), rollout_metrics | update_metrics

    def include(statistics: RunningStatistics, observations: Observation) -> RunningStatistics:
        """Statistics with the observations of all devices' rollouts taken in."""
        num_observations, mean, squares = update_statistics(init_statistics(task.train.observation_spec), observations)
        mean_of_all = jax.lax.pmean(mean, DEVICE_AXIS)
        # Around the common mean: those around the device's own, and how far apart the two means are.
        squares = jax.tree.map(
            lambda own, mean, common: own + num_observations * jnp.square(mean - common), squares, mean, mean_of_all
        )
        of_rollout = RunningStatistics(
            jax.lax.psum(num_observations, DEVICE_AXIS), mean_of_all, jax.lax.psum(squares, DEVICE_AXIS)
        )
        return merge_statistics(statistics, of_rollout)

    # --- Acting with what was learned ---------------------------------------------------------------------------------
    def act(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *, use_search: bool, greedy: bool
    ) -> Action:
        """Actions for the environments: the most likely one or a draw."""
        del env_state, use_search  # PPO has no search: the policy is all there is
        seen = timestep._replace(observation=see(learner, timestep.observation))
        return act_by_policy(network, learner.params, key, seen, greedy=greedy)

    def value(learner: Learner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
        del key  # the critic says it outright
        seen = timestep._replace(observation=see(learner, timestep.observation))
        return critic_values(network, learner.params, seen) / config.reward_scale

    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=value,
        env_steps_per_iteration=env_steps_per_iteration,
        model_steps_per_env_step=0,
        network_evaluations_per_env_step=1,
    )
