"""MPO: Maximum a Posteriori Policy Optimisation (Abdolmaleki et al., arXiv:1806.06920), off-policy and without search.

    act      samples actions from the policy and stores their log-probabilities
    critic   fits Q to targets of replayed sequences, by Retrace or by GAE (`q_targets`)
    E-step   weights actions by exp(Q/η); tunes η, so that the weights improve the policy by a set KL divergence
    M-step   fits the policy to the weighted actions by maximum likelihood, inside a trust region around the old policy

It is SPO with a Q function in place of the search. The weighted actions are all actions of a discrete policy, with
their probabilities, or samples of a continuous one.

Both targets bootstrap from V(s) = E_π[Q(s, a)] of the target networks and differ in the later steps of a sequence:

    retrace   G_t = r_t + γ [V(s_{t+1}) + λ min(1, π/μ(a_{t+1}|s_{t+1})) (G_{t+1} − Q(s_{t+1}, a_{t+1}))]
    gae       G_t = r_t + γ [V(s_{t+1}) + λ (G_{t+1} − V(s_{t+1}))]

Retrace corrects for the policy μ that acted. GAE does not: its targets are also those of the policies in the replay.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns
from spo.acting import Experience
from spo.algorithms.base import (
    Algorithm,
    Greedy,
    Inspect,
    Setting,
    TrainState,
    act_by_policy,
    mean_entropy,
    policies,
    vmap_over,
)
from spo.algorithms.masked_observations import MaskedObservation, masked_observation, observe_masks
from spo.algorithms.packing import move_average
from spo.algorithms.replay_worker import ReplayConfig, ReplayWorkerFns, make_replay_worker
from spo.algorithms.trust_region import Duals, TrustRegion, TrustRegionConfig, make_trust_region, trust_region_loss
from spo.algorithms.updates import adam, gradient_step, run_updates, total_updates
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, PositiveOrInfinite, UnitInterval
from spo.networks import ActorCritic, ActorCriticParams, QNetwork, make_network, make_q_network
from spo.trees import select
from spo.types import Action, Array, Bool, Float, Metrics, PRNGKey, PyTree, State, TimeStep


@dataclass(frozen=True)
class MPOConfig(TrustRegionConfig, ReplayConfig):
    """Hyperparameters of MPO. Defaults are the paper's for discrete actions (table "MPO and VMPO")."""

    rollout_length: PositiveInt = 16
    """Steps in each environment per iteration."""
    num_updates: PositiveInt = 72
    """Gradient updates after each rollout. The paper's tables call them epochs."""
    batch_size: PositiveInt = 256
    """Sequences per gradient update, over all devices."""
    sequence_length: PositiveInt = 17
    """Consecutive environment steps per sequence. It may be longer than a rollout."""
    replay_size: PositiveInt = 500_000
    """Environment steps that the replay buffer holds, over all environments."""
    initial_temperature: PositiveFloat = 3.0
    """Initial temperature of the action weights (η). A low temperature concentrates the weight on the best actions."""
    temperature_kl_bound: PositiveFloat = 0.07
    """Target of the temperature: KL divergence of the weighted actions from the policy (ε_η)."""
    kl_bound: PositiveFloat = 1.5e-4
    """Discrete actions: how far the policy may move, as the KL divergence from the old policy to the new (ε_α)."""
    initial_multiplier: PositiveFloat = 3.0
    """Discrete actions: initial weight of the penalty for that KL divergence (α)."""
    actor_learning_rate: NonNegativeFloat = 2e-4
    """Adam's learning rate for the policy."""
    critic_learning_rate: NonNegativeFloat = 1e-3
    """Adam's learning rate for Q."""
    dual_learning_rate: NonNegativeFloat = 2e-2
    """Adam's learning rate for the temperature and the multipliers of the trust region."""
    decay_learning_rates: bool = True
    """Decay the learning rates of policy and Q linearly to 0 over the run."""
    max_grad_norm: PositiveOrInfinite = 0.5
    """Largest L2 norm of a gradient: larger ones are scaled down. Policy, Q and multipliers are separate."""
    gamma: UnitInterval = 0.95
    """Discount factor of the critic's targets."""
    q_targets: Literal["retrace", "gae"] = "gae"
    """Targets for Q. Retrace corrects for actions of older policies; GAE uses the rewards that followed as they are."""
    retrace_lambda: UnitInterval = 0.95
    """Mix of Retrace targets: 0 bootstraps after one step, 1 looks ahead as far as the policy agrees."""
    gae_lambda: UnitInterval = 0.95
    """Mix of GAE targets: 0 bootstraps after one step, 1 sums the rewards of the whole sequence."""
    target_smoothing: UnitInterval = 5e-3
    """Rate at which the target networks follow the trained networks, per gradient update (τ)."""
    num_samples: PositiveInt = 128
    """Continuous actions: samples per state, to weight and to average Q over. Discrete actions are summed exactly."""


class Params(NamedTuple):
    """Two networks that share nothing: their learning rates differ."""

    actor: ActorCriticParams  # its critic is empty: Q is the critic
    q: PyTree[Array]


class Learner(NamedTuple):
    """Everything that is learned: the same on every device."""

    params: Params
    target_params: Params  # moving averages of `params`
    duals: Duals
    optimiser: optax.OptState
    dual_optimiser: optax.OptState


class Decision(NamedTuple):
    """An action as the replay buffer stores it."""

    action: Action  # before squashing
    log_prob: Float[Array, ""]  # under the policy that took it


class MPONetworks(NamedTuple):
    """The policy's network and that of Q."""

    actor: ActorCritic
    q: QNetwork

    def policy(self, params: ActorCriticParams, state: MaskedObservation) -> Any:
        """Returns the parameters of the action distribution."""
        return self.actor.actor(params, state.observation, state.action_mask)

    def q_value(self, params: PyTree[Array], state: MaskedObservation, action: Action) -> Float[Array, ""]:
        """Returns Q(s, a) for an action before squashing."""
        return self.q.value(params, state.observation, self.actor.distribution.to_environment(action))

    def q_values(self, params: PyTree[Array], state: MaskedObservation, actions: Action) -> Float[Array, " K"]:
        """Returns Q(s, a) for several actions before squashing."""
        return self.q.values_of(params, state.observation, jax.vmap(self.actor.distribution.to_environment)(actions))


class ScoredActions(NamedTuple):
    """The actions of one state that the E-step weights: K of them."""

    actions: Action  # [K, ...]
    log_prior: Float[Array, " K"]  # logarithm of each one's share of the policy; the shares sum to 1
    q_values: Float[Array, " K"]

    @property
    def value(self) -> Float[Array, ""]:
        """V(s), the mean of Q under the policy."""
        return jnp.sum(jnp.exp(self.log_prior) * self.q_values)


#: (params, key, state) -> (policy, scored actions) of one state
ScoreActionsFn = Callable[[Params, PRNGKey, MaskedObservation], tuple[Any, ScoredActions]]
#: (networks, target params, batch [B, T], V of the T + 1 states of each sequence) -> targets for Q [B, T]
TargetsFn = Callable[[MPONetworks, Params, Experience, Float[Array, "B T+1"]], Float[Array, "B T"]]


def make_mpo(setting: Setting, config: MPOConfig) -> Algorithm:
    """Returns MPO for a task: the functions below with the configuration bound to them."""
    train = setting.task.train
    specs = (train.observation_spec, train.action_spec)
    networks = MPONetworks(make_network(*specs, setting.architecture), make_q_network(*specs, setting.architecture))
    trust_region = make_trust_region(config, train.action_spec, networks.actor.distribution)
    workers = make_replay_worker(observe_masks(train), setting.num_devices, config, warm_up=True)
    env_steps = config.num_envs * config.rollout_length
    decay_updates = total_updates(setting, env_steps, config.num_updates) if config.decay_learning_rates else None
    optimiser = optax.multi_transform(
        {
            "actor": adam(config.actor_learning_rate, config.max_grad_norm, decay_updates=decay_updates),
            "q": adam(config.critic_learning_rate, config.max_grad_norm, decay_updates=decay_updates),
        },
        Params._make(Params._fields),  # each field is a group, by its own name
    )
    dual_optimiser = adam(config.dual_learning_rate, config.max_grad_norm)
    decide_fn = functools.partial(decide, networks)
    score_actions_fn = functools.partial(score_actions, networks, config.num_samples)
    loss_fn = functools.partial(
        loss,
        networks=networks,
        score_actions_fn=score_actions_fn,
        trust_region=trust_region,
        targets_fn=make_targets(config),
        temperature_kl_bound=config.temperature_kl_bound,
    )
    update_fn = functools.partial(update, loss_fn, optimiser, dual_optimiser, config.target_smoothing)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        key_actor, key_q = jax.random.split(key_learner)
        actor = networks.actor.init(key_actor, train.observation_spec)._replace(critic={})
        params, duals = Params(actor, networks.q.init(key_q, train.observation_spec)), trust_region.initial_duals
        learner = Learner(params, params, duals, optimiser.init(params), dual_optimiser.init(duals))
        return TrainState(learner, workers.init(key_worker, functools.partial(decide_fn, learner)))

    return Algorithm(
        init=init,
        step=functools.partial(step, workers, decide_fn, update_fn, config.num_updates, setting.skip_nonfinite_updates),
        act=functools.partial(act, networks),
        value=functools.partial(policy_value, score_actions_fn),
        env_steps_per_iteration=env_steps,
        model_steps_per_env_step=0,
        network_evaluations_per_env_step=1,
        greedy_per_state=True,
        inspect=Inspect(
            distribution=networks.actor.distribution,
            policy=lambda learner, timestep: policies(networks.actor, learner.params.actor, timestep),
        ),
    )


def step(
    workers: ReplayWorkerFns,
    decide_fn: Callable[..., tuple[Action, Decision, Metrics]],
    update_fn: Callable[..., tuple[Learner, Metrics]],
    num_updates: int,
    skip_nonfinite: bool,
    state: TrainState,
) -> tuple[TrainState, Metrics]:
    """Runs one iteration: acts by the policy, then learns from the replay buffer."""
    learner, worker = state
    key_rollout, key_sample, key_updates = jax.random.split(worker.acting.key, 3)
    worker, rollout_metrics = workers.collect(worker, key_rollout, functools.partial(decide_fn, learner))
    inputs = (workers.sample(worker, key_sample), jax.random.split(key_updates, num_updates))
    learner, update_metrics = run_updates(update_fn, learner, inputs, skip_nonfinite=skip_nonfinite)
    return TrainState(learner, worker), rollout_metrics | update_metrics


def decide(
    networks: MPONetworks, learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep
) -> tuple[Action, Decision, Metrics]:
    """Samples actions from the policy; returns them as the environments take them and as they are stored."""
    del env_state  # nothing is simulated
    distribution = networks.actor.distribution

    def sample(key: PRNGKey, state: MaskedObservation) -> tuple[Action, Decision]:
        policy = networks.policy(learner.params.actor, state)
        action = distribution.sample(key, policy)
        return distribution.to_environment(action), Decision(action, distribution.log_prob(policy, action))

    keys = jax.random.split(key, timestep.reward.shape[0])
    return *jax.vmap(sample)(keys, timestep.observation), {}


# --- Learning ---------------------------------------------------------------------------------------------------------
def update(
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    dual_optimiser: optax.GradientTransformation,
    target_smoothing: float,
    learner: Learner,
    batch_and_key: tuple[Experience, PRNGKey],
) -> tuple[Learner, Metrics]:
    """Takes one gradient step on Q, policy and duals; then moves the target networks."""
    batch, key = batch_and_key
    loss_of_batch = functools.partial(loss_fn, target_params=learner.target_params, batch=batch, key=key)
    learner, metrics = gradient_step(learner, loss_of_batch, optimiser, dual_optimiser)
    target_params = move_average(learner.target_params, learner.params, target_smoothing)
    return learner._replace(target_params=target_params), metrics


def loss(
    params: Params,
    duals: Duals,
    *,
    target_params: Params,
    batch: Experience,
    key: PRNGKey,
    networks: MPONetworks,
    score_actions_fn: ScoreActionsFn,
    trust_region: TrustRegion,
    targets_fn: TargetsFn,
    temperature_kl_bound: float,
) -> tuple[Float[Array, ""], Metrics]:
    """Sums the losses over a batch [batch_size, sequence_length]. Each of them trains its own variables only."""
    over_batch = functools.partial(vmap_over, num_axes=2)
    states = jax.vmap(sequence_states)(batch.observation, batch.next_observation, batch.terminated)
    keys = jax.random.split(key, (batch.reward.shape[0], batch.reward.shape[1] + 1))
    old_policy, scored = over_batch(score_actions_fn, in_axes=(None, 0, 0))(target_params, keys, states)

    # Critic: values and traces are those of the target networks.
    q_taken = over_batch(networks.q_value, in_axes=(None, 0, 0))
    targets = targets_fn(networks, target_params, batch, over_batch(lambda one: one.value)(scored))
    values = q_taken(params.q, batch.observation, batch.extras.action)
    value_loss = jnp.mean(losses.squared_error(values, targets))

    # E-step: the improved policy as weights on actions, and its temperature.
    states, old_policy, scored = jax.tree.map(lambda x: x[:, :-1], (states, old_policy, scored))
    temperature = duals.temperature
    weights = over_batch(lambda one: losses.target_weights(one.q_values, temperature, one.log_prior))(scored)
    temperature_losses = over_batch(
        lambda one: losses.temperature_loss(temperature, one.q_values, temperature_kl_bound, one.log_prior)
    )
    temperature_loss = jnp.mean(temperature_losses(scored))

    # M-step: maximum likelihood of the weighted actions, inside the trust region.
    policy = over_batch(networks.policy, in_axes=(None, 0))(params.actor, states)
    likelihood = functools.partial(losses.projection_loss, trust_region.projection)
    policy_loss = jnp.mean(over_batch(likelihood)(old_policy, policy, scored.actions, weights))
    region_loss, region_metrics = trust_region_loss(trust_region, old_policy, policy, duals, num_axes=2)

    return policy_loss + value_loss + temperature_loss + region_loss, region_metrics | {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/temperature": temperature_loss,
        "temperature": temperature,
        # KL(q ‖ π_old), which ε_η bounds.
        "e_step/kl": jnp.mean(losses.kl_from_prior(weights, scored.log_prior)),
        "policy/entropy": mean_entropy(networks.actor.distribution, policy),
        "value/mean": jnp.mean(values),
        "value/target": jnp.mean(targets),
    }


def make_targets(config: MPOConfig) -> TargetsFn:
    """Returns the function of the targets for Q."""
    if config.q_targets == "gae":
        return functools.partial(gae_targets, gamma=config.gamma, gae_lambda=config.gae_lambda)
    return functools.partial(retrace_targets, gamma=config.gamma, retrace_lambda=config.retrace_lambda)


def retrace_targets(
    networks: MPONetworks,
    params: Params,
    batch: Experience,
    values: Float[Array, "B T+1"],
    *,
    gamma: float,
    retrace_lambda: float,
) -> Float[Array, "B T"]:
    """Returns the targets of `returns.retrace`."""
    retrace = functools.partial(returns.retrace, gamma=gamma, retrace_lambda=retrace_lambda)
    return jax.vmap(retrace)(
        vmap_over(networks.q_value, 2, in_axes=(None, 0, 0))(params.q, batch.observation, batch.extras.action),
        values[:, 1:],
        log_ratios(networks, params.actor, batch),
        batch.reward,
        batch.terminated,
        batch.truncated,
    )


def gae_targets(
    networks: MPONetworks,
    params: Params,
    batch: Experience,
    values: Float[Array, "B T+1"],
    *,
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "B T"]:
    """Returns the λ-returns of `returns.gae`. V(s_t) itself cancels out of the target of step t."""
    del networks, params
    gae = functools.partial(returns.gae, gamma=gamma, gae_lambda=gae_lambda)
    return jax.vmap(gae)(batch.reward, values[:, :-1], values[:, 1:], batch.terminated, batch.truncated).targets


def sequence_states(seen: PyTree[Array], after: PyTree[Array], terminated: Bool[Array, " T"]) -> PyTree[Array]:
    """Returns T + 1 states of a sequence: the first one seen, then for each step the state to bootstrap from.

    After a termination there is none, and the start of the next episode takes its place. The policy is improved in the
    first T states, and the steps need the values of the last T: each state is evaluated once for both. After a
    truncation, the policy is improved in the state where the episode was cut, not in the start that follows.
    """
    next_seen, after_all_but_last = jax.tree.map(lambda x: x[1:], seen), jax.tree.map(lambda x: x[:-1], after)
    between = select(terminated[:-1], next_seen, after_all_but_last)
    return jax.tree.map(
        lambda seen, between, after: jnp.concatenate([seen[:1], between, after[-1:]]), seen, between, after
    )


def score_actions(
    networks: MPONetworks, num_samples: int, params: Params, key: PRNGKey, state: MaskedObservation
) -> tuple[Any, ScoredActions]:
    """Returns the policy at a state, and actions there with their Q values: all of them, or samples."""
    policy = networks.policy(params.actor, state)
    if networks.q.all_values is not None:
        q_values = networks.q.all_values(params.q, state.observation)
        return policy, ScoredActions(jnp.arange(q_values.shape[0]), jax.nn.log_softmax(policy), q_values)
    keys = jax.random.split(key, num_samples)
    actions = jax.vmap(networks.actor.distribution.sample, in_axes=(0, None))(keys, policy)
    q_values = networks.q_values(params.q, state, actions)
    return policy, ScoredActions(actions, jnp.full_like(q_values, -math.log(num_samples)), q_values)


def log_ratios(networks: MPONetworks, params: ActorCriticParams, batch: Experience) -> Float[Array, "B T"]:
    """Returns log π(a|s) − log μ(a|s) of the actions taken, μ being the policy that took them."""
    policy = vmap_over(networks.policy, 2, in_axes=(None, 0))(params, batch.observation)
    log_probs = vmap_over(networks.actor.distribution.log_prob, 2)(policy, batch.extras.action)
    return log_probs - batch.extras.log_prob


# --- Acting -----------------------------------------------------------------------------------------------------------
def act(
    networks: MPONetworks,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    *,
    use_search: bool,
    greedy: Greedy,
) -> Action:
    """Returns actions for the environments. There is no search: the policy acts."""
    del env_state, use_search
    return act_by_policy(networks.actor, learner.params.actor, key, timestep, greedy=greedy)


def policy_value(
    score_actions_fn: ScoreActionsFn, learner: Learner, key: PRNGKey, timestep: TimeStep
) -> Float[Array, " B"]:
    """Returns the mean of Q under the policy: exact for discrete actions, else over samples."""
    keys = jax.random.split(key, timestep.reward.shape[0])
    _, scored = jax.vmap(functools.partial(score_actions_fn, learner.params))(keys, masked_observation(timestep))
    return jax.vmap(lambda one: one.value)(scored)
