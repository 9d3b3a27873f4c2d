"""MPO: Maximum a Posteriori Policy Optimisation (Abdolmaleki et al., arXiv:1806.06920), off-policy and without search.

    act      by the policy; remember how likely the action was
    critic   fit Q to Retrace targets of replayed sequences
    E-step   weigh actions by exp(Q/η); tune η to improve the policy by a set KL
    M-step   fit the policy to the weighted actions by maximum likelihood, inside a trust region around the old one

It is SPO with a Q function in the place of the search. Which actions are weighed depends on their kind: all discrete
ones, by their probability, or draws from a continuous policy.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns
from spo.acting import Experience, Worker, blank_experience, init_worker, rollout
from spo.algorithms.base import (
    Algorithm,
    Metrics,
    Setting,
    TrainState,
    act_by_policy,
    adam,
    run_updates,
    share,
    updates_of_run,
    vmap_over,
)
from spo.algorithms.m_step import Bound, Duals, init_duals, make_gradient_step, make_trust_region, stay_inside
from spo.algorithms.views import View, observe_views, view
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.networks import ActorCriticParams, make_network, make_q_network
from spo.replay import make_replay
from spo.types import Action, Array, Bool, Float, PRNGKey, PyTree, State, TimeStep


@dataclass(frozen=True)
class MPOConfig:
    """Hyper-parameters of MPO. Defaults are the paper's for discrete actions (table "MPO and VMPO")."""

    num_envs: PositiveInt = 768
    """Environments side by side, over all devices."""
    rollout_length: PositiveInt = 16
    """Steps in each of them per iteration."""
    num_updates: PositiveInt = 72
    """Gradient steps per iteration (the table's "epochs")."""
    batch_size: PositiveInt = 256
    """Sequences per gradient step, over all devices."""
    sequence_length: PositiveInt = 17
    """Steps per sequence; may be longer than a rollout."""
    replay_size: PositiveInt = 500_000
    """Transitions in the replay, over all environments."""
    actor_learning_rate: NonNegativeFloat = 2e-4
    """Adam's, for the policy."""
    critic_learning_rate: NonNegativeFloat = 1e-3
    """Adam's, for Q."""
    dual_learning_rate: NonNegativeFloat = 2e-2
    """Adam's, for the temperature and the multipliers."""
    decay_learning_rates: bool = True
    """Let the learning rates of policy and Q fall linearly to 0 over the run."""
    max_grad_norm: PositiveFloat = 0.5
    """Each group's gradient is clipped to this norm."""
    gamma: UnitInterval = 0.95
    """Discount."""
    retrace_lambda: UnitInterval = 0.95
    """Between one-step (0) and long (1) Retrace targets for Q (the table's "GAE Lambda")."""
    target_smoothing: UnitInterval = 5e-3
    """How far the target networks follow the online ones per gradient step (τ)."""
    num_samples: PositiveInt = 128
    """Continuous actions: draws per state, to weigh and to average Q over. Discrete actions are summed over exactly."""
    initial_temperature: PositiveFloat = 3.0
    """Temperature of the E-step at the start (η)."""
    temperature_kl_bound: PositiveFloat = 0.07
    """KL from the policy to the improved one that the temperature is tuned for (ε_η)."""
    initial_multiplier: PositiveFloat = 3.0
    """Discrete actions: multiplier of the trust region at the start (α)."""
    kl_bound: PositiveFloat = 1.5e-4
    """Discrete actions: bound on the KL of an update (ε_α)."""
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


class Params(NamedTuple):
    """Two networks that share nothing: their learning rates differ."""

    actor: ActorCriticParams  # its critic is empty: here Q is the critic
    q: PyTree[Array]


class Learner(NamedTuple):
    params: Params
    target_params: Params
    duals: Duals
    optimiser: optax.OptState
    dual_optimiser: optax.OptState


class MPOWorker(NamedTuple):
    acting: Worker
    replay: Any


class Decision(NamedTuple):
    """What is remembered of an action."""

    action: Action
    log_prob: Float[Array, ""]  # under the policy that took it


class Candidates(NamedTuple):
    """The actions of one state that the E-step weighs: K of them."""

    actions: Action  # [K, ...]
    log_prior: Float[Array, " K"]  # how much each stands for under the policy, summing to 1
    q_values: Float[Array, " K"]

    @property
    def value(self) -> Float[Array, ""]:
        """V(s), the mean of Q under the policy."""
        return jnp.sum(jnp.exp(self.log_prior) * self.q_values)


def states_of_sequence(seen: PyTree[Array], after: PyTree[Array], terminated: Bool[Array, " T"]) -> PyTree[Array]:
    """The T + 1 states of a sequence: the first that was seen, then of each step the state to bootstrap from.

    After a termination, which has none, it is the start of the next episode. So the first T are states to improve the
    policy in, the last T those whose values the steps need, and each state is judged once for both. After a truncation
    the policy is improved in the state in which the episode was cut, and not in the start that follows it.
    """

    def join(seen: Array, after: Array) -> Array:
        over = terminated[:-1].reshape((-1,) + (1,) * (seen.ndim - 1))
        return jnp.concatenate([seen[:1], jnp.where(over, seen[1:], after[:-1]), after[-1:]])

    return jax.tree.map(join, seen, after)


def make_mpo(setting: Setting, config: MPOConfig) -> Algorithm:
    """MPO on a task, as the training loop takes it."""
    environment = observe_views(setting.task.train)
    observation_spec, action_spec = setting.task.train.observation_spec, setting.task.train.action_spec
    network = make_network(observation_spec, action_spec, setting.architecture)
    q_network = make_q_network(observation_spec, action_spec, setting.architecture)
    distribution = network.distribution
    num_envs = share("num_envs", config.num_envs, setting.num_devices)
    batch_size = share("batch_size", config.batch_size, setting.num_devices)
    env_steps_per_iteration = config.num_envs * config.rollout_length
    trust_region = make_trust_region(
        action_spec,
        distribution,
        policy=Bound(config.kl_bound, config.initial_multiplier),
        mean=Bound(config.mean_kl_bound, config.initial_mean_multiplier),
        scale=Bound(config.scale_kl_bound, config.initial_scale_multiplier),
    )
    projection = trust_region.projection
    warmup_length = max(config.sequence_length - config.rollout_length, 0)
    replay = make_replay(
        num_envs=num_envs,
        capacity=config.replay_size // setting.num_devices,
        rollout_length=config.rollout_length,
        num_batches=config.num_updates,
        batch_size=batch_size,
        sequence_length=config.sequence_length,
        warmup_length=warmup_length,
    )
    num_updates = updates_of_run(setting, env_steps_per_iteration, config.num_updates)
    decay_updates = num_updates if config.decay_learning_rates else None
    optimiser = optax.multi_transform(
        {
            "actor": adam(config.actor_learning_rate, config.max_grad_norm, decay_updates=decay_updates),
            "q": adam(config.critic_learning_rate, config.max_grad_norm, decay_updates=decay_updates),
        },
        Params._make(Params._fields),  # each field is a group, by its own name
    )
    dual_optimiser = adam(config.dual_learning_rate, config.max_grad_norm)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        key_actor, key_q = jax.random.split(key_learner)
        params = Params(
            actor=network.init(key_actor, observation_spec)._replace(critic={}),
            q=q_network.init(key_q, observation_spec),
        )
        duals = init_duals(trust_region, config.initial_temperature)
        learner = Learner(
            params=params,
            target_params=params,
            duals=duals,
            optimiser=optimiser.init(params),
            dual_optimiser=dual_optimiser.init(duals),
        )
        acting = init_worker(environment, num_envs, key_worker)
        replay_state = replay.init(blank_experience(environment, decide(learner), acting))
        if warmup_length > 0:  # until the first rollout completes a sequence
            acting, experience, _ = rollout(environment, decide(learner), acting, warmup_length)
            replay_state = replay.add(replay_state, experience)
        return TrainState(learner, MPOWorker(acting, replay_state))

    # --- Act by the policy --------------------------------------------------------------------------------------------
    def policy(params: ActorCriticParams, state: View) -> Any:
        return network.actor(params, state.observation, state.action_mask)

    def decide(learner: Learner) -> Any:
        def one(key: PRNGKey, state: View) -> tuple[Action, Decision]:
            chosen = policy(learner.params.actor, state)
            action = distribution.sample(key, chosen)
            return distribution.to_environment(action), Decision(action, distribution.log_prob(chosen, action))

        def decide(key: PRNGKey, env_state: State, timestep: TimeStep) -> tuple[Action, Decision, Metrics]:
            del env_state  # nothing is imagined
            return *jax.vmap(one)(jax.random.split(key, num_envs), timestep.observation), {}

        return decide

    # --- What actions are worth ---------------------------------------------------------------------------------------
    def q_value(params: PyTree[Array], state: View, action: Action) -> Float[Array, ""]:
        return q_network.value(params, state.observation, distribution.to_environment(action))

    def judge(params: Params, key: PRNGKey, state: View) -> tuple[Any, Candidates]:
        """The policy at a state, and the actions there with what they are worth."""
        chosen = policy(params.actor, state)
        if q_network.all_values is not None:
            q_values = q_network.all_values(params.q, state.observation)
            return chosen, Candidates(jnp.arange(q_values.shape[0]), jax.nn.log_softmax(chosen), q_values)
        keys = jax.random.split(key, config.num_samples)
        actions = jax.vmap(distribution.sample, in_axes=(0, None))(keys, chosen)
        q_values = jax.vmap(functools.partial(q_value, params.q, state))(actions)
        return chosen, Candidates(actions, jnp.full_like(q_values, -math.log(config.num_samples)), q_values)

    # --- Learn from the replay ----------------------------------------------------------------------------------------
    def loss_fn(
        params: Params, duals: Duals, target_params: Params, batch: Experience, key: PRNGKey
    ) -> tuple[Float[Array, ""], Metrics]:
        """All losses over a batch with leading axes [batch_size, sequence_length]; each trains its own variables."""
        over_batch = functools.partial(vmap_over, num_axes=2)
        states = jax.vmap(states_of_sequence)(batch.observation, batch.next_observation, batch.terminated)
        keys = jax.random.split(key, (batch_size, config.sequence_length + 1))
        old_policy, candidates = over_batch(judge, in_axes=(None, 0, 0))(target_params, keys, states)

        # Critic: Retrace with values and traces of the target networks.
        decisions: Decision = batch.extras
        q_of_taken = over_batch(q_value, in_axes=(None, 0, 0))
        policy_then = over_batch(policy, in_axes=(None, 0))(target_params.actor, batch.observation)
        retrace = functools.partial(returns.retrace, gamma=config.gamma, retrace_lambda=config.retrace_lambda)
        targets = jax.vmap(retrace)(
            q_of_taken(target_params.q, batch.observation, decisions.action),
            over_batch(lambda c: c.value)(candidates)[:, 1:],
            over_batch(distribution.log_prob)(policy_then, decisions.action) - decisions.log_prob,
            batch.reward,
            batch.terminated,
            batch.truncated,
        )
        values = q_of_taken(params.q, batch.observation, decisions.action)
        value_loss = jnp.mean(losses.squared_error(values, targets))

        # E-step: the improved policy as weights on actions, and its temperature.
        states, old_policy, candidates = jax.tree.map(lambda x: x[:, :-1], (states, old_policy, candidates))
        temperature = losses.positive_from_raw(duals.raw_temperature)
        weights = over_batch(lambda c: losses.target_weights(c.q_values, temperature, c.log_prior))(candidates)
        temperature_losses = over_batch(
            lambda c: losses.temperature_loss(temperature, c.q_values, config.temperature_kl_bound, c.log_prior)
        )
        dual_loss = jnp.mean(temperature_losses(candidates))

        # M-step: maximum likelihood of the weighted actions ...
        new_policy = over_batch(policy, in_axes=(None, 0))(params.actor, states)

        def likelihood(old: Any, new: Any, actions: Action, weights: Float[Array, " K"]) -> Float[Array, ""]:
            log_probs = jax.vmap(functools.partial(projection.log_prob, old, new))(actions)
            return losses.weighted_likelihood_loss(log_probs, weights)

        policy_loss = jnp.mean(over_batch(likelihood)(old_policy, new_policy, candidates.actions, weights))
        # ... inside the trust region.
        kls = jax.tree.map(lambda x: jnp.mean(x, axis=(0, 1)), over_batch(projection.kls)(old_policy, new_policy))
        region, region_metrics = stay_inside(trust_region, kls, duals.raw_multipliers)

        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/temperature": dual_loss,
            "temperature": temperature,
            # KL(q || π_old), what ε_η bounds.
            "e_step/kl": jnp.mean(
                jnp.sum(jnp.where(weights > 0, weights * (jnp.log(weights) - candidates.log_prior), 0.0), axis=-1)
            ),
            "policy/entropy": jnp.mean(over_batch(distribution.entropy)(new_policy)),
            "value/mean": jnp.mean(values),
            "value/target": jnp.mean(targets),
        }
        total = policy_loss + value_loss + dual_loss + region.penalty + region.dual
        return total, metrics | region_metrics

    gradient_step = make_gradient_step(loss_fn, optimiser, dual_optimiser)

    def update(learner: Learner, batch_and_key: tuple[Experience, PRNGKey]) -> tuple[Learner, Metrics]:
        learner, metrics = gradient_step(learner, learner.target_params, *batch_and_key)
        target_params = optax.incremental_update(learner.params, learner.target_params, config.target_smoothing)
        return learner._replace(target_params=target_params), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        learner, (acting, replay_state) = state
        key, key_sample, key_updates = jax.random.split(acting.key, 3)
        acting, experience, rollout_metrics = rollout(
            environment, decide(learner), acting._replace(key=key), config.rollout_length
        )
        replay_state = replay.add(replay_state, experience)
        learner, update_metrics = run_updates(
            update,
            learner,
            (replay.sample(replay_state, key_sample), jax.random.split(key_updates, config.num_updates)),
            skip_nonfinite=setting.skip_nonfinite_updates,
        )
        metrics = rollout_metrics | update_metrics
        return TrainState(learner, MPOWorker(acting, replay_state)), metrics

    # --- Acting with what was learned ---------------------------------------------------------------------------------
    def act(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *, use_search: bool, greedy: bool
    ) -> Action:
        del env_state, use_search  # there is no search
        return act_by_policy(network, learner.params.actor, key, timestep, greedy=greedy)

    def value(learner: Learner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
        """The mean of Q under the policy: exact, or over `num_samples` draws."""
        keys = jax.random.split(key, timestep.reward.shape[0])
        _, candidates = jax.vmap(functools.partial(judge, learner.params))(keys, view(timestep))
        return jax.vmap(lambda c: c.value)(candidates)

    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=value,
        env_steps_per_iteration=env_steps_per_iteration,
        model_steps_per_env_step=0,
        network_evaluations_per_env_step=1,
    )
