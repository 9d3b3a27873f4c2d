"""SMC-ENT: acting by the same search under maximum-entropy control (Piché et al., ICLR 2019).

    act      by SMC search; proposals and values come from soft Q-learning, and so do the weights
    learn    soft Q-learning from replayed steps: SAC for continuous actions, Munchausen-DQN for discrete ones

What the search finds is acted on and trains nothing: beside SPO it shows what the search alone is worth. Everything
inside is in scaled rewards; what leaves (`value`, metrics) is in those of the environment.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns, search
from spo.acting import Experience, Worker, blank_experience, init_worker, rollout
from spo.algorithms.base import (
    DEVICE_AXIS,
    Algorithm,
    Metrics,
    Setting,
    TrainState,
    adam,
    run_updates,
    share,
)
from spo.algorithms.views import View, observe_views, view
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.distributions import Distribution, categorical, masked_logits
from spo.networks import ActorCriticParams, make_network, make_q_network
from spo.replay import make_replay
from spo.types import Action, Array, ContinuousActions, Float, PRNGKey, PyTree, State, TimeStep


@dataclass(frozen=True)
class SoftSearchConfig:
    """The search. Defaults are the paper's for discrete actions."""

    num_particles: PositiveInt = 16
    """Particles per root (N)."""
    horizon: PositiveInt = 4
    """Steps each particle looks ahead (h)."""
    resample_period: PositiveInt | None = 4
    """Resample after every so many steps (p); None: never."""
    resample_last: bool = True
    """Resample after the last step too, if that is one of the period's; False reads the weights out as they stand."""
    temperature: float = 0.1
    """What scores are divided by (the table's "resample temperature"): low is greedy."""
    unroll: PositiveInt = 4
    """Depths written out in a row in the compiled program: more runs faster and compiles slower."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="search.")


@dataclass(frozen=True)
class SMCEntConfig:
    """Hyper-parameters of SMC-ENT. Defaults are the paper's for discrete actions (table "SMC-Ent")."""

    num_envs: PositiveInt = 768
    """Environments side by side, over all devices."""
    rollout_length: PositiveInt = 32
    """Steps in each of them per iteration."""
    num_updates: PositiveInt = 64
    """Gradient steps per iteration (the table's "epochs")."""
    batch_size: PositiveInt = 2048
    """Steps per gradient step, over all devices."""
    replay_size: PositiveInt = 1_000_000
    """Transitions in the replay, over all environments."""
    actor_learning_rate: NonNegativeFloat = 3e-4
    """Continuous actions: Adam's, for the policy."""
    critic_learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for Q."""
    dual_learning_rate: NonNegativeFloat = 3e-4
    """Continuous actions: Adam's, for the entropy temperature."""
    max_grad_norm: PositiveFloat = 0.5
    """Each group's gradient is clipped to this norm."""
    gamma: UnitInterval = 0.97
    """Discount, in learning and in the search."""
    target_smoothing: UnitInterval = 5e-3
    """How far the target Q follows the online one per gradient step."""
    reward_scale: PositiveFloat = 10.0
    """Rewards are multiplied by this before anything else sees them."""
    entropy_temperature: PositiveFloat = 0.03
    """What a nat of entropy is worth, in scaled rewards (τ). Continuous actions: at the start, tuned from there."""
    target_entropy_per_dimension: float = -1.0
    """Continuous actions: entropy of the policy, per action dimension, that τ is tuned for."""
    num_value_samples: PositiveInt = 64
    """Continuous actions: draws from the policy that a value is the mean over."""
    munchausen_coefficient: float = 0.9
    """Discrete actions: share of the scaled log-policy that is added to the reward."""
    munchausen_clip: float = -1e3
    """Discrete actions: the scaled log-policy counts for no less than this there."""
    huber_delta: PositiveFloat = 1.0
    """Discrete actions: where the loss of Q turns from quadratic to linear."""
    search: SoftSearchConfig = field(default_factory=SoftSearchConfig)
    """The search."""

    def __post_init__(self) -> None:
        check_fields(self)


class SoftParams(NamedTuple):
    """What soft Q-learning trains. For discrete actions the policy is softmax(Q/τ) with τ fixed: Q is all."""

    q: PyTree[Array]  # continuous actions: of both critics, stacked [2, ...]
    actor: ActorCriticParams | None = None  # its critic is empty: here Q is the critic
    raw_entropy_temperature: Float[Array, ""] | None = None


class SoftLearning(NamedTuple):
    """Soft Q-learning for one kind of action."""

    init: Callable[[PRNGKey], SoftParams]
    #: (params, key, state) -> policy and soft value of one state
    judge: Callable[[SoftParams, PRNGKey, View], tuple[Any, Float[Array, ""]]]
    entropy_temperature: Callable[[SoftParams], Float[Array, ""]]
    #: (params, target Q, steps [B], key) -> (loss, metrics)
    loss: Callable[[SoftParams, PyTree[Array], Experience, PRNGKey], tuple[Float[Array, ""], Metrics]]
    distribution: Distribution


class Learner(NamedTuple):
    params: SoftParams
    target_q: PyTree[Array]
    optimiser: optax.OptState


class SMCEntWorker(NamedTuple):
    acting: Worker
    replay: Any


# --- Soft Q-learning --------------------------------------------------------------------------------------------------
def munchausen_dqn(setting: Setting, config: SMCEntConfig) -> SoftLearning:
    """Discrete actions (Vieillard et al., arXiv:2007.14430). The policy is softmax(Q/τ)."""
    train = setting.task.train
    network = make_q_network(train.observation_spec, train.action_spec, setting.architecture)
    temperature = config.entropy_temperature

    def q_values(q: PyTree[Array], state: View) -> Float[Array, " A"]:
        """Q(s, .), -inf for invalid actions."""
        assert network.all_values is not None  # of discrete actions there always are
        values = network.all_values(q, state.observation)
        return values if state.action_mask is None else masked_logits(values, state.action_mask)

    def judge(params: SoftParams, key: PRNGKey, state: View) -> tuple[Float[Array, " A"], Float[Array, ""]]:
        del key  # nothing is drawn
        values = q_values(params.q, state)
        return values / temperature, returns.soft_value(values, temperature)

    def loss(
        params: SoftParams, target_q: PyTree[Array], batch: Experience, key: PRNGKey
    ) -> tuple[Float[Array, ""], Metrics]:
        del key

        def one(step: Experience) -> tuple[Array, Array, Array]:
            bonus = returns.munchausen_bonus(
                q_values(target_q, step.observation),
                step.extras,
                temperature=temperature,
                coefficient=config.munchausen_coefficient,
                clip_min=config.munchausen_clip,
            )
            target = returns.td_target(
                config.reward_scale * step.reward + bonus,
                returns.soft_value(q_values(target_q, step.next_observation), temperature),
                step.terminated,
                gamma=config.gamma,
            )
            values = q_values(params.q, step.observation)
            return values[step.extras], target, categorical.entropy(values / temperature)

        values, targets, entropies = jax.vmap(one)(batch)
        value_loss = jnp.mean(losses.huber(values, targets, config.huber_delta))
        return value_loss, {
            "loss/value": value_loss,
            "policy/entropy": jnp.mean(entropies),
            "value/mean": jnp.mean(values) / config.reward_scale,
            "value/target": jnp.mean(targets) / config.reward_scale,
        }

    return SoftLearning(
        init=lambda key: SoftParams(network.init(key, train.observation_spec)),
        judge=judge,
        entropy_temperature=lambda _: jnp.asarray(temperature, jnp.float32),
        loss=loss,
        distribution=categorical,
    )


def soft_actor_critic(setting: Setting, config: SMCEntConfig) -> SoftLearning:
    """Continuous actions (SAC: Haarnoja et al., arXiv:1812.05905): an actor, twin critics, τ tuned to an entropy."""
    train = setting.task.train
    assert isinstance(train.action_spec, ContinuousActions)
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    q_network = make_q_network(train.observation_spec, train.action_spec, setting.architecture)
    distribution = network.distribution
    target_entropy = config.target_entropy_per_dimension * train.action_spec.size

    def init(key: PRNGKey) -> SoftParams:
        key_actor, key_q = jax.random.split(key)
        return SoftParams(
            # One critic after the other: see `spo.training.program`, which does the same with seeds.
            q=jax.lax.map(lambda key: q_network.init(key, train.observation_spec), jax.random.split(key_q)),
            actor=network.init(key_actor, train.observation_spec)._replace(critic={}),
            raw_entropy_temperature=jnp.asarray(losses.raw_from_positive(config.entropy_temperature), jnp.float32),
        )

    def entropy_temperature(params: SoftParams) -> Float[Array, ""]:
        assert params.raw_entropy_temperature is not None
        return losses.positive_from_raw(params.raw_entropy_temperature)

    def policy(params: SoftParams, state: View) -> Any:
        assert params.actor is not None
        return network.actor(params.actor, state.observation, None)

    def draw(chosen: Any, key: PRNGKey) -> tuple[Action, Float[Array, ""]]:
        """An action as the environment takes it, differentiable in the policy, and its log-density."""
        action = distribution.sample(key, chosen)
        return distribution.to_environment(action), distribution.log_prob(chosen, action)

    def twin_q(q: PyTree[Array], state: View, action: Action) -> Float[Array, "2"]:
        return jax.vmap(q_network.value, in_axes=(0, None, None))(q, state.observation, action)

    def soft_value(params: SoftParams, q: PyTree[Array], chosen: Any, state: View, keys: Any) -> Float[Array, ""]:
        """V(s) by one draw from the policy for each of the keys."""
        actions, log_probs = jax.vmap(functools.partial(draw, chosen))(keys)
        q_values = jnp.min(jax.vmap(functools.partial(twin_q, q, state))(actions), axis=-1)
        return returns.sampled_soft_value(q_values, log_probs, entropy_temperature(params))

    def judge(params: SoftParams, key: PRNGKey, state: View) -> tuple[Any, Float[Array, ""]]:
        chosen = policy(params, state)
        return chosen, soft_value(params, params.q, chosen, state, jax.random.split(key, config.num_value_samples))

    def loss(
        params: SoftParams, target_q: PyTree[Array], batch: Experience, key: PRNGKey
    ) -> tuple[Float[Array, ""], Metrics]:
        temperature = entropy_temperature(params)

        def one(key: PRNGKey, step: Experience) -> tuple[Array, Array, Array, Array]:
            key_next, key_now = jax.random.split(key)
            chosen = policy(params, step.next_observation)
            target = returns.td_target(
                config.reward_scale * step.reward,
                soft_value(params, target_q, chosen, step.next_observation, key_next[None]),
                step.terminated,
                gamma=config.gamma,
            )
            values = twin_q(params.q, step.observation, step.extras)
            action, log_prob = draw(policy(params, step.observation), key_now)
            # The critics say which way is up, and learn nothing from it.
            q_value = jnp.min(twin_q(jax.lax.stop_gradient(params.q), step.observation, action))
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
            "value/mean": jnp.mean(values) / config.reward_scale,
            "value/target": jnp.mean(targets) / config.reward_scale,
        }

    return SoftLearning(init, judge, entropy_temperature, loss, distribution)


# --- SMC-ENT ----------------------------------------------------------------------------------------------------------
def make_smc_ent(setting: Setting, config: SMCEntConfig) -> Algorithm:
    """SMC-ENT on a task, as the training loop takes it."""
    environment = observe_views(setting.task.train)
    continuous = isinstance(environment.action_spec, ContinuousActions)
    learning = (soft_actor_critic if continuous else munchausen_dqn)(setting, config)
    distribution = learning.distribution
    num_envs = share("num_envs", config.num_envs, setting.num_devices)
    batch_size = share("batch_size", config.batch_size, setting.num_devices)
    replay = make_replay(
        num_envs=num_envs,
        capacity=config.replay_size // setting.num_devices,
        rollout_length=config.rollout_length,
        num_batches=config.num_updates,
        batch_size=batch_size,
        sequence_length=1,
    )
    optimiser = optax.multi_transform(
        {
            "q": adam(config.critic_learning_rate, config.max_grad_norm),
            "actor": adam(config.actor_learning_rate, config.max_grad_norm),
            "raw_entropy_temperature": adam(config.dual_learning_rate, config.max_grad_norm),
        },
        SoftParams._make(SoftParams._fields),  # each field is a group, by its own name
    )
    run_search = functools.partial(
        search.search,
        num_particles=config.search.num_particles,
        horizon=config.search.horizon,
        resample_period=config.search.resample_period,
        resample_last=config.search.resample_last,
        resample_fn=search.resampling.multinomial,
        temperature=config.search.temperature,
        gamma=config.gamma,
        unroll=config.search.unroll,
        distribution=distribution,
    )

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = learning.init(key_learner)
        learner = Learner(params=params, target_q=params.q, optimiser=optimiser.init(params))
        acting = init_worker(environment, num_envs, key_worker)
        replay_state = replay.init(blank_experience(environment, decide(learner), acting))
        return TrainState(learner, SMCEntWorker(acting, replay_state))

    # --- Act by search ------------------------------------------------------------------------------------------------
    def model(params: SoftParams) -> search.ModelFn:
        def model_fn(key: PRNGKey, state: State, action: Action) -> search.ModelOutput:
            key_step, key_judge = jax.random.split(key)
            with jax.named_scope("world"):
                state, timestep = setting.task.model.step(key_step, state, distribution.to_environment(action))
            with jax.named_scope("network"):
                prior, value = learning.judge(params, key_judge, view(timestep))
            return search.ModelOutput(
                state=state,
                prior=prior,
                value=value,
                reward=config.reward_scale * timestep.reward,
                discount=timestep.discount,
                ended=timestep.ended,
            )

        return model_fn

    def plan(
        params: SoftParams, key: PRNGKey, env_state: State, states: View
    ) -> tuple[search.Root, search.SearchOutput]:
        key_root, key_search = jax.random.split(key)
        prior, value = judge_all(params, key_root, states)
        root = search.Root(prior=prior, value=value, state=env_state)
        weight_fn = search.weighting.soft_advantage(learning.entropy_temperature(params))
        return root, run_search(key_search, root, model(params), weight_fn=weight_fn)

    def judge_all(params: SoftParams, key: PRNGKey, states: View) -> tuple[Any, Float[Array, " B"]]:
        num_states = jax.tree.leaves(states)[0].shape[0]
        return jax.vmap(functools.partial(learning.judge, params))(jax.random.split(key, num_states), states)

    def to_environment(actions: Action) -> Action:
        return jax.vmap(distribution.to_environment)(actions)

    def decide(learner: Learner) -> Any:
        def decide(key: PRNGKey, env_state: State, timestep: TimeStep) -> tuple[Action, Action, Metrics]:
            root, output = plan(learner.params, key, env_state, timestep.observation)
            action, depths = to_environment(output.action), output.diagnostics
            metrics = {
                "search/ess": jnp.mean(depths.ess[:, -1]),
                "search/entropy": jnp.mean(depths.entropy[:, -1]),
                "search/num_root_actions": jnp.mean(depths.num_root_actions[:, -1]),
                "search/num_live": jnp.mean(depths.num_live[:, -1]),
                "search/value_gain": jnp.mean(output.value - root.value) / config.reward_scale,
                "search/valid": jnp.mean(depths.valid),
            }
            return action, action, metrics

        return decide

    # --- Learn from the replay ----------------------------------------------------------------------------------------
    def update(learner: Learner, batch_and_key: tuple[Experience, PRNGKey]) -> tuple[Learner, Metrics]:
        gradients, metrics = jax.grad(learning.loss, has_aux=True)(learner.params, learner.target_q, *batch_and_key)
        metrics["entropy_temperature"] = learning.entropy_temperature(learner.params)
        gradients, metrics = jax.lax.pmean((gradients, metrics), DEVICE_AXIS)
        metrics["gradient_norm"] = optax.tree.norm(gradients)
        changes, optimiser_state = optimiser.update(gradients, learner.optimiser, learner.params)
        params = optax.apply_updates(learner.params, changes)
        return Learner(
            params=params,
            target_q=optax.incremental_update(params.q, learner.target_q, config.target_smoothing),
            optimiser=optimiser_state,
        ), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        learner, (acting, replay_state) = state
        key, key_sample, key_updates = jax.random.split(acting.key, 3)
        acting, experience, rollout_metrics = rollout(
            environment, decide(learner), acting._replace(key=key), config.rollout_length
        )
        replay_state = replay.add(replay_state, experience)
        transitions = jax.tree.map(lambda x: x[:, :, 0], replay.sample(replay_state, key_sample))
        learner, update_metrics = run_updates(
            update,
            learner,
            (transitions, jax.random.split(key_updates, config.num_updates)),
            skip_nonfinite=setting.skip_nonfinite_updates,
        )
        metrics = rollout_metrics | update_metrics
        return TrainState(learner, SMCEntWorker(acting, replay_state)), metrics

    # --- Acting with what was learned ---------------------------------------------------------------------------------
    def act(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *, use_search: bool, greedy: bool
    ) -> Action:
        """Actions for the environments: by search or by the bare policy, the most likely one or a draw."""
        if use_search:
            _, output = plan(learner.params, key, env_state, view(timestep))
            return to_environment(output.best_action if greedy else output.action)
        key_judge, key_sample = jax.random.split(key)
        policies, _ = judge_all(learner.params, key_judge, view(timestep))
        if greedy:
            return to_environment(jax.vmap(distribution.mode)(policies))
        keys = jax.random.split(key_sample, timestep.reward.shape[0])
        return to_environment(jax.vmap(distribution.sample)(keys, policies))

    def value(learner: Learner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
        """The soft value, which counts entropy as well as reward."""
        _, values = judge_all(learner.params, key, view(timestep))
        return values / config.reward_scale

    budget = config.search.num_particles * config.search.horizon
    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=value,
        env_steps_per_iteration=config.num_envs * config.rollout_length,
        model_steps_per_env_step=budget,
        network_evaluations_per_env_step=1 + budget,
    )
