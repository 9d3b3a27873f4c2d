"""PPO: Proximal Policy Optimisation (arXiv:1707.06347), for discrete and continuous actions.

    act         samples actions from the policy and stores their log-probabilities and the critic's values
    advantages  GAE over the rollout, once
    learn       several passes over the rollout in shuffled minibatches: clipped surrogate, value regression, entropy
                bonus

The rollout is then discarded. Discrete and continuous actions differ in the distribution only.
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
from spo.algorithms.observation_statistics import RunningStatistics, include_rollout, init_statistics, normalise
from spo.algorithms.updates import actor_critic_optimiser, gradient_step, total_updates
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, PositiveOrInfinite, UnitInterval, check_fields
from spo.networks import ActorCritic, ActorCriticParams, make_network
from spo.types import (
    Action,
    Array,
    Bool,
    Environment,
    Float,
    Metrics,
    Observation,
    PRNGKey,
    State,
    TimeStep,
)


@dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters of PPO. Defaults are the paper's for discrete actions (table "AlphaZero and PPO")."""

    num_envs: PositiveInt = 768
    """Number of parallel environments, over all devices."""
    rollout_length: PositiveInt = 85
    """Steps in each environment per iteration."""
    num_epochs: PositiveInt = 4
    """Passes over each rollout."""
    num_minibatches: PositiveInt = 64
    """Gradient updates per pass: the rollout is shuffled and split into so many parts."""
    actor_learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for the policy, and for layers that it shares with the critic."""
    critic_learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for the critic."""
    decay_learning_rates: bool = True
    """Decay both learning rates linearly to 0 over the run."""
    max_grad_norm: PositiveOrInfinite = 0.5
    """Largest L2 norm of a gradient: larger ones are scaled down. Policy and critic are separate."""
    gamma: UnitInterval = 0.99
    """Discount factor."""
    gae_lambda: UnitInterval = 0.95
    """Mix of the advantages (GAE): 0 bootstraps after one step, 1 sums the rewards of the whole rollout."""
    clip_epsilon: PositiveFloat = 0.1
    """Largest change of an action's probability, relative to the old policy's, that the loss rewards (ε)."""
    standardise_advantages: bool = True
    """Scale the advantages of each minibatch to mean 0 and standard deviation 1."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss. It matters if policy and critic share layers, and for gradient clipping."""
    value_clip: float | None = None
    """Ignore the critic's error where its value moved more than this since the rollout (scaled rewards). None: no."""
    entropy_coefficient: float = 1e-2
    """Weight of the entropy bonus, which keeps the policy random."""
    normalise_observations: bool = False
    """Shift and scale observations to a running mean of 0 and standard deviation of 1 (floating-point ones only)."""
    reward_scale: PositiveFloat = 1.0
    """Factor on all rewards that are learned from."""

    def __post_init__(self) -> None:
        check_fields(self)


class Learner(NamedTuple):
    """Everything that is learned: the same on every device."""

    params: ActorCriticParams
    optimiser: optax.OptState
    statistics: RunningStatistics | None  # of observations; None: they are not normalised


class Decision(NamedTuple):
    """An action with its log-probability and the critic's value when it was taken."""

    action: Action  # before squashing
    log_prob: Float[Array, ""]
    value: Float[Array, ""]


class Sample(NamedTuple):
    """One step as the losses use it."""

    observation: Observation  # normalised
    action_mask: Bool[Array, " A"] | None
    decision: Decision
    advantage: Float[Array, ""]
    target: Float[Array, ""]


def make_ppo(setting: Setting, config: PPOConfig) -> Algorithm:
    """Returns PPO for a task: the functions below with the configuration bound to them."""
    train = setting.task.train
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    num_envs = per_device("num_envs", config.num_envs, setting.num_devices)
    check_minibatches(num_envs, config.rollout_length, config.num_minibatches)
    env_steps = config.num_envs * config.rollout_length
    updates_per_iteration = config.num_epochs * config.num_minibatches
    decay_updates = total_updates(setting, env_steps, updates_per_iteration) if config.decay_learning_rates else None
    rates = (config.actor_learning_rate, config.critic_learning_rate)
    optimiser = actor_critic_optimiser(*rates, config.max_grad_norm, decay_updates=decay_updates)
    loss_fn = functools.partial(
        loss,
        network=network,
        clip_epsilon=config.clip_epsilon,
        standardise_advantages=config.standardise_advantages,
        value_coefficient=config.value_coefficient,
        value_clip=config.value_clip,
        entropy_coefficient=config.entropy_coefficient,
        reward_scale=config.reward_scale,
    )
    gae = functools.partial(returns.gae, gamma=config.gamma, gae_lambda=config.gae_lambda)
    step_fn = functools.partial(
        step,
        environment=train,
        rollout_length=config.rollout_length,
        decide_fn=functools.partial(decide, network),
        samples_fn=functools.partial(compute_advantages, network, gae, config.reward_scale),
        learn_fn=functools.partial(
            learn_in_minibatches,
            functools.partial(update, loss_fn, optimiser),
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            skip_nonfinite=setting.skip_nonfinite_updates,
        ),
    )

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = network.init(key_learner, train.observation_spec)
        statistics = init_statistics(train.observation_spec) if config.normalise_observations else None
        learner = Learner(params, optimiser.init(params), statistics)
        return TrainState(learner, init_worker(train, num_envs, key_worker))

    return Algorithm(
        init=init,
        step=step_fn,
        act=functools.partial(act, network),
        value=functools.partial(value, network, config.reward_scale),
        env_steps_per_iteration=env_steps,
        model_steps_per_env_step=0,
        network_evaluations_per_env_step=1,
        greedy_per_state=True,
        inspect=Inspect(distribution=network.distribution, policy=functools.partial(inspect_policy, network)),
    )


def step(
    state: TrainState,
    *,
    environment: Environment,
    rollout_length: int,
    decide_fn: Callable[..., tuple[Action, Decision, Metrics]],
    samples_fn: Callable[[Learner, Experience], Sample],
    learn_fn: Callable[..., tuple[Learner, Metrics]],
) -> tuple[TrainState, Metrics]:
    """Runs one iteration: acts by the policy, then learns from the rollout."""
    learner, worker = state
    key, key_learn = jax.random.split(worker.key)
    decide_fn = functools.partial(decide_fn, learner)
    worker, experience, rollout_metrics = rollout(environment, decide_fn, worker._replace(key=key), rollout_length)
    with jax.named_scope("update"):
        samples = samples_fn(learner, experience)
    learner, update_metrics = learn_fn(learner, samples, key_learn)
    if learner.statistics is not None:
        # After the updates: a rollout is learned with the statistics that it was collected with, so ratios start at 1.
        learner = learner._replace(statistics=include_rollout(learner.statistics, experience.observation))
    return TrainState(learner, worker), rollout_metrics | update_metrics


def decide(
    network: ActorCritic, learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep
) -> tuple[Action, Decision, Metrics]:
    """Samples actions from the policy; returns them as the environments take them and as they are learned from."""
    del env_state  # nothing is simulated
    distribution = network.distribution
    policy, values = jax.vmap(functools.partial(network.both, learner.params))(
        network_input(learner, timestep.observation), timestep.action_mask
    )
    actions = jax.vmap(distribution.sample)(jax.random.split(key, timestep.reward.shape[0]), policy)
    log_probs = jax.vmap(distribution.log_prob)(policy, actions)
    return jax.vmap(distribution.to_environment)(actions), Decision(actions, log_probs, values), {}


def network_input(learner: Learner, observation: Observation) -> Observation:
    """Returns observations, with any leading axes, as the network takes them: normalised if there are statistics."""
    return observation if learner.statistics is None else normalise(learner.statistics, observation)


def compute_advantages(
    network: ActorCritic,
    gae: Callable[..., returns.AdvantagesAndTargets],
    reward_scale: float,
    learner: Learner,
    experience: Experience,
) -> Sample:
    """Returns samples [T, E] with the advantages and targets of GAE.

    The value after each step is computed again. Where an episode was truncated, it is not that of the next step: the
    last state of the episode was never acted on.
    """
    decision: Decision = experience.extras
    next_values = values_over_time(
        functools.partial(network.critic, learner.params), network_input(learner, experience.next_observation)
    )
    advantages, targets = jax.vmap(gae, in_axes=1, out_axes=1)(
        reward_scale * experience.reward, decision.value, next_values, experience.terminated, experience.truncated
    )
    observation = network_input(learner, experience.observation)
    return Sample(observation, experience.action_mask, decision, advantages, targets)


# --- Learning ---------------------------------------------------------------------------------------------------------
def update(
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    learner: Learner,
    batch: Sample,
) -> tuple[Learner, Metrics]:
    """Takes one gradient step on policy and critic."""
    return gradient_step(learner, functools.partial(loss_fn, batch=batch), optimiser)


def loss(
    params: ActorCriticParams,
    *,
    batch: Sample,
    network: ActorCritic,
    clip_epsilon: float,
    standardise_advantages: bool,
    value_coefficient: float,
    value_clip: float | None,
    entropy_coefficient: float,
    reward_scale: float,
) -> tuple[Float[Array, ""], Metrics]:
    """Sums the policy's loss, the critic's loss and the entropy bonus over a minibatch [B]."""
    old, distribution = batch.decision, network.distribution
    policy, values = jax.vmap(functools.partial(network.both, params))(batch.observation, batch.action_mask)
    log_probs = jax.vmap(distribution.log_prob)(policy, old.action)

    advantages = batch.advantage
    if standardise_advantages:
        advantages = slice_of_device(losses.standardise(gather_from_devices(advantages)), advantages.shape[0])
    surrogate = functools.partial(losses.clipped_surrogate_loss, clip_epsilon=clip_epsilon)
    policy_loss = jnp.mean(jax.vmap(surrogate)(log_probs, old.log_prob, advantages))
    if value_clip is None:
        value_loss = jnp.mean(losses.squared_error(values, batch.target))
    else:
        value_loss = jnp.mean(losses.clipped_squared_error(values, old.value, batch.target, value_clip))
    entropy = jnp.mean(jax.vmap(distribution.entropy)(policy))
    total = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy

    log_ratios = log_probs - old.log_prob
    ratios = jnp.exp(log_ratios)
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "policy/entropy": entropy,
        # An estimate of KL(old || new) whose terms are all positive.
        "policy/kl": jnp.mean(ratios - 1.0 - log_ratios),
        "policy/clip_fraction": jnp.mean(jnp.abs(ratios - 1.0) > clip_epsilon),
        "value/mean": jnp.mean(values) / reward_scale,
        "value/target": jnp.mean(batch.target) / reward_scale,
    }


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
    """Returns actions for the environments from the policy. There is no search."""
    del env_state, use_search
    timestep = timestep._replace(observation=network_input(learner, timestep.observation))
    return act_by_policy(network, learner.params, key, timestep, greedy=greedy)


def value(
    network: ActorCritic, reward_scale: float, learner: Learner, key: PRNGKey, timestep: TimeStep
) -> Float[Array, " B"]:
    """Returns the critic's values in rewards of the environment."""
    del key  # the critic is deterministic
    timestep = timestep._replace(observation=network_input(learner, timestep.observation))
    return critic_values(network, learner.params, timestep) / reward_scale


def inspect_policy(network: ActorCritic, learner: Learner, timestep: TimeStep) -> Any:
    """Returns the parameters of the policies in the states [B]."""
    timestep = timestep._replace(observation=network_input(learner, timestep.observation))
    return policies(network, learner.params, timestep)
