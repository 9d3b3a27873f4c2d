"""SMC-ENT: the same search under maximum-entropy control (Piché et al., ICLR 2019).

    act      by SMC search, with proposals, values and weights from soft Q-learning
    learn    soft Q-learning from replayed steps (`spo.algorithms.soft_q_learning`)

The result of the search is acted on and trains nothing. Beside SPO, it shows the effect of the search alone. Everything
inside is in scaled rewards; `value` and the metrics are in rewards of the environment.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import search
from spo.acting import Experience
from spo.algorithms.base import (
    Algorithm,
    Greedy,
    Inspect,
    Searched,
    Setting,
    TrainState,
    select_actions,
)
from spo.algorithms.masked_observations import MaskedObservation, masked_observation, observe_masks
from spo.algorithms.packing import move_average
from spo.algorithms.planning import search_metrics
from spo.algorithms.replay_worker import ReplayConfig, ReplayWorkerFns, make_replay_worker
from spo.algorithms.soft_q_learning import SoftParams, SoftQConfig, SoftQLearning, make_soft_q_learning
from spo.algorithms.updates import adam, gradient_step, run_updates
from spo.checks import (
    LoopLength,
    Multiplicity,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PositiveOrInfinite,
    UnitInterval,
    check_fields,
)
from spo.search.results import scale_values
from spo.types import Action, Array, Environment, Float, Metrics, PRNGKey, PyTree, State, TimeStep


@dataclass(frozen=True)
class SoftSearchConfig:
    """Options of the search. Defaults are the paper's for discrete actions."""

    num_particles: Multiplicity = 16
    """Number of particles (N): trajectories that each search simulates in parallel."""
    horizon: LoopLength = 4
    """Number of steps that each particle looks ahead (h)."""
    resample_period: PositiveInt | None = 4
    """Resample the particles after every so many steps (p): promising ones are copied, others dropped. None: never."""
    resample_last: bool = True
    """Resample after the last step too, if the period falls on it. Otherwise keep the weights: less variance."""
    temperature: PositiveFloat = 0.1
    """Divisor of the particles' scores (the table's "resample temperature"). A low one prefers the best particles."""
    unroll: LoopLength = 4
    """Search steps per iteration of the compiled loop. More run faster and compile slower; results do not change."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="search.")


@dataclass(frozen=True)
class SMCEntConfig(SoftQConfig):
    """Hyperparameters of SMC-ENT. Defaults are the paper's for discrete actions (table "SMC-Ent")."""

    num_envs: PositiveInt = 768
    """Number of parallel environments, over all devices."""
    rollout_length: PositiveInt = 32
    """Steps in each environment per iteration."""
    num_updates: PositiveInt = 64
    """Gradient updates after each rollout. The paper's tables call them epochs."""
    batch_size: PositiveInt = 2048
    """Environment steps per gradient update, over all devices."""
    replay_size: PositiveInt = 1_000_000
    """Environment steps that the replay buffer holds, over all environments."""
    actor_learning_rate: NonNegativeFloat = 3e-4
    """Continuous actions: Adam's learning rate for the policy."""
    critic_learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for Q."""
    dual_learning_rate: NonNegativeFloat = 3e-4
    """Continuous actions: Adam's learning rate for the entropy temperature."""
    max_grad_norm: PositiveOrInfinite = 0.5
    """Largest L2 norm of a gradient: larger ones are scaled down. Policy, Q and τ are separate."""
    target_smoothing: UnitInterval = 5e-3
    """Rate at which the target Q follows the trained Q, per gradient update."""
    search: SoftSearchConfig = field(default_factory=SoftSearchConfig)
    """Options of the search."""


class Learner(NamedTuple):
    """Everything that is learned: the same on every device."""

    params: SoftParams
    target_q: PyTree[Array]  # moving average of `params.q`
    optimiser: optax.OptState


def make_smc_ent(setting: Setting, config: SMCEntConfig) -> Algorithm:
    """Returns SMC-ENT for a task: the functions below with the configuration bound to them."""
    soft_q = make_soft_q_learning(setting, config)
    sizes = ReplayConfig(
        num_envs=config.num_envs,
        rollout_length=config.rollout_length,
        num_updates=config.num_updates,
        batch_size=config.batch_size,
        sequence_length=1,
        replay_size=config.replay_size,
    )
    workers = make_replay_worker(observe_masks(setting.task.train), setting.num_devices, sizes)
    optimiser = optax.multi_transform(
        {
            "q": adam(config.critic_learning_rate, config.max_grad_norm),
            "actor": adam(config.actor_learning_rate, config.max_grad_norm),
            "raw_entropy_temperature": adam(config.dual_learning_rate, config.max_grad_norm),
        },
        SoftParams._make(SoftParams._fields),  # each field is a group, by its own name
    )
    plan_fn = functools.partial(
        plan,
        soft_q=soft_q,
        environment=setting.task.model,
        search_fn=make_search(config, soft_q),
        reward_scale=config.reward_scale,
        gamma=config.gamma,
    )
    decide_fn = functools.partial(decide, plan_fn, soft_q, config.reward_scale)
    update_fn = functools.partial(update, soft_q, optimiser, config.target_smoothing)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = soft_q.init(key_learner)
        learner = Learner(params, target_q=params.q, optimiser=optimiser.init(params))
        return TrainState(learner, workers.init(key_worker, functools.partial(decide_fn, learner)))

    model_steps = config.search.num_particles * config.search.horizon
    skip_nonfinite = setting.skip_nonfinite_updates
    return Algorithm(
        init=init,
        step=functools.partial(step, workers, decide_fn, update_fn, config.num_updates, skip_nonfinite),
        act=functools.partial(act, plan_fn, soft_q),
        value=functools.partial(value, soft_q, config.reward_scale),
        env_steps_per_iteration=config.num_envs * config.rollout_length,
        model_steps_per_env_step=model_steps,
        network_evaluations_per_env_step=1 + model_steps,
        greedy_per_state=True,
        inspect=Inspect(
            distribution=soft_q.distribution,
            policy=functools.partial(inspect_policy, soft_q),
            search=functools.partial(inspect_search, plan_fn, soft_q, config.reward_scale),
            temperature=lambda _learner: jnp.asarray(config.search.temperature),
        ),
    )


def step(
    workers: ReplayWorkerFns,
    decide_fn: Callable[..., tuple[Action, Action, Metrics]],
    update_fn: Callable[..., tuple[Learner, Metrics]],
    num_updates: int,
    skip_nonfinite: bool,
    state: TrainState,
) -> tuple[TrainState, Metrics]:
    """Runs one iteration: acts by search, then learns from the replay buffer."""
    learner, worker = state
    key_rollout, key_sample, key_updates = jax.random.split(worker.acting.key, 3)
    worker, rollout_metrics = workers.collect(worker, key_rollout, functools.partial(decide_fn, learner))
    transitions = jax.tree.map(lambda x: x[:, :, 0], workers.sample(worker, key_sample))
    inputs = (transitions, jax.random.split(key_updates, num_updates))
    learner, update_metrics = run_updates(update_fn, learner, inputs, skip_nonfinite=skip_nonfinite)
    return TrainState(learner, worker), rollout_metrics | update_metrics


# --- Planner ----------------------------------------------------------------------------------------------------------
def make_search(config: SMCEntConfig, soft_q: SoftQLearning) -> Callable[..., search.SearchOutput]:
    """Returns `search.search` with the options bound: key, root, model and score are left to pass."""
    return functools.partial(
        search.search,
        num_particles=config.search.num_particles,
        horizon=config.search.horizon,
        resampling=search.Resampling(
            period=config.search.resample_period,
            rule=search.resampling.by_weight(search.resampling.multinomial),
            last=config.search.resample_last,
        ),
        temperature=config.search.temperature,
        unroll=config.search.unroll,
        distribution=soft_q.distribution,
    )


def plan(
    params: SoftParams,
    key: PRNGKey,
    env_state: State,
    states: MaskedObservation,
    *,
    soft_q: SoftQLearning,
    environment: Environment,
    search_fn: Callable[..., search.SearchOutput],
    reward_scale: float,
    gamma: float,
    **options: Any,
) -> tuple[search.Root, search.SearchOutput]:
    """Searches from a batch of states. Scores are soft advantages: they count the policy's entropy.

    `options` are further arguments of `search.search`.
    """
    key_root, key_search = jax.random.split(key)
    prior, values = evaluate_batch(soft_q, params, key_root, states)
    root = search.Root(prior=prior, value=values, state=env_state)
    score_fn = search.weighting.soft_advantage(soft_q.entropy_temperature(params))
    model_fn = soft_model(environment, soft_q, reward_scale, gamma, params)
    return root, search_fn(key_search, root, model_fn, score_fn=score_fn, **options)


def soft_model(
    environment: Environment, soft_q: SoftQLearning, reward_scale: float, gamma: float, params: SoftParams
) -> search.ModelFn:
    """Returns the search's model: one step of the true environment, then policy and soft value of the state reached."""

    def model_fn(key: PRNGKey, state: State, action: Action) -> search.ModelOutput:
        key_step, key_evaluate = jax.random.split(key)
        with jax.named_scope("simulate"):
            state, timestep = environment.step(key_step, state, soft_q.distribution.to_environment(action))
        with jax.named_scope("network"):
            prior, value = soft_q.evaluate(params, key_evaluate, masked_observation(timestep))
        return search.ModelOutput(
            state=state,
            prior=prior,
            value=value,
            reward=reward_scale * timestep.reward,
            discount=gamma * timestep.discount,
            ended=timestep.ended,
        )

    return model_fn


def evaluate_batch(
    soft_q: SoftQLearning, params: SoftParams, key: PRNGKey, states: MaskedObservation
) -> tuple[Any, Float[Array, " B"]]:
    """Returns policies and soft values of states [B]."""
    num_states = jax.tree.leaves(states)[0].shape[0]
    return jax.vmap(functools.partial(soft_q.evaluate, params))(jax.random.split(key, num_states), states)


def decide(
    plan_fn: Callable[..., tuple[search.Root, search.SearchOutput]],
    soft_q: SoftQLearning,
    reward_scale: float,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
) -> tuple[Action, Action, Metrics]:
    """Returns actions for the environments by search, the same actions to store, and metrics."""
    root, output = plan_fn(learner.params, key, env_state, timestep.observation)
    actions = jax.vmap(soft_q.distribution.to_environment)(output.action)
    metrics = search_metrics(root, output)
    metrics["search/value_gain"] /= reward_scale
    return actions, actions, metrics


# --- Learning ---------------------------------------------------------------------------------------------------------
def update(
    soft_q: SoftQLearning,
    optimiser: optax.GradientTransformation,
    target_smoothing: float,
    learner: Learner,
    batch_and_key: tuple[Experience, PRNGKey],
) -> tuple[Learner, Metrics]:
    """Takes one gradient step on the loss of soft Q-learning; then moves the target Q."""
    batch, key = batch_and_key

    def loss(params: SoftParams) -> tuple[Float[Array, ""], Metrics]:
        total, metrics = soft_q.loss(params, learner.target_q, batch, key)
        return total, metrics | {"entropy_temperature": soft_q.entropy_temperature(params)}

    learner, metrics = gradient_step(learner, loss, optimiser)
    target_q = move_average(learner.target_q, learner.params.q, target_smoothing)
    return learner._replace(target_q=target_q), metrics


# --- Acting -----------------------------------------------------------------------------------------------------------
def act(
    plan_fn: Callable[..., tuple[search.Root, search.SearchOutput]],
    soft_q: SoftQLearning,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    *,
    use_search: bool,
    greedy: Greedy,
) -> Action:
    """Returns actions for the environments, by search or by the policy alone."""
    distribution, states = soft_q.distribution, masked_observation(timestep)
    if use_search:
        _, output = plan_fn(learner.params, key, env_state, states)
        actions = select_actions(greedy, output.best_action, output.action)
    else:
        key_evaluate, key_sample = jax.random.split(key)
        policies, _ = evaluate_batch(soft_q, learner.params, key_evaluate, states)
        keys = jax.random.split(key_sample, timestep.reward.shape[0])
        drawn = jax.vmap(distribution.sample)(keys, policies)
        actions = select_actions(greedy, jax.vmap(distribution.mode)(policies), drawn)
    return jax.vmap(distribution.to_environment)(actions)


def value(
    soft_q: SoftQLearning, reward_scale: float, learner: Learner, key: PRNGKey, timestep: TimeStep
) -> Float[Array, " B"]:
    """Returns the soft values, which count entropy as well as reward, in rewards of the environment."""
    _, values = evaluate_batch(soft_q, learner.params, key, masked_observation(timestep))
    return values / reward_scale


# --- Inspection -------------------------------------------------------------------------------------------------------
def inspect_policy(soft_q: SoftQLearning, learner: Learner, timestep: TimeStep) -> Any:
    """Returns the parameters of the policies in the states [B]. They do not depend on the key, which values do."""
    return evaluate_batch(soft_q, learner.params, jax.random.key(0), masked_observation(timestep))[0]


def inspect_search(
    plan_fn: Callable[..., tuple[search.Root, search.SearchOutput]],
    soft_q: SoftQLearning,
    reward_scale: float,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    temperature: Float[Array, ""],
    *,
    greedy: bool,
) -> Searched:
    """Returns the actions of `act` by search, with the genealogy of the particles in rewards of the environment."""
    states = masked_observation(timestep)
    _, output = plan_fn(learner.params, key, env_state, states, temperature=temperature, with_ancestry=True)
    actions = output.best_action if greedy else output.action
    actions = jax.vmap(soft_q.distribution.to_environment)(actions)
    return Searched(actions, scale_values(output, 1.0 / reward_scale))
