"""SPO: Sequential Monte Carlo Policy Optimisation (paper, Algorithm 2), for discrete and continuous actions.

    E-step   acts by SMC search (Algorithm 1, in `search/smc.py`) and stores the particles' first actions and weights
    M-step   fits the policy to the weighted actions by maximum likelihood, inside a trust region around the old
             policy; fits the critic to GAE targets; tunes the temperature, so that the search improves the policy by
             a set KL divergence

Line numbers in comments are those of Algorithm 2. "Departure N" is row N of docs/departures.md. Discrete and continuous
actions differ only in the distribution and in what the trust region bounds.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns
from spo.acting import Experience
from spo.algorithms.base import (
    Algorithm,
    Greedy,
    Inspect,
    Searched,
    Setting,
    TrainState,
    act_by_policy,
    critic_values,
    mean_entropy,
    policies,
    select_actions,
    vmap_over,
)
from spo.algorithms.packing import move_average
from spo.algorithms.planning import Planner, PlanningConfig, improvement_metrics, make_planner, search_metrics
from spo.algorithms.replay_worker import ReplayConfig, ReplayWorkerFns, make_replay_worker
from spo.algorithms.trust_region import (
    Duals,
    TrustRegion,
    TrustRegionConfig,
    limit_temperature,
    make_trust_region,
    trust_region_loss,
)
from spo.algorithms.updates import actor_critic_optimiser, adam, gradient_step, run_updates, total_updates
from spo.checks import NonNegativeFloat, PositiveOrInfinite, UnitInterval
from spo.losses.duals import MINIMUM
from spo.networks import ActorCritic, ActorCriticParams, evaluate_both_ends, make_network, round_as_read
from spo.types import Action, Array, Float, Metrics, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class SPOConfig(PlanningConfig, TrustRegionConfig, ReplayConfig):
    """Hyperparameters of SPO. Defaults are the paper's for discrete actions (table "SPO Hyperparameters")."""

    learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for policy and critic."""
    decay_learning_rates: bool = False
    """Decay that learning rate linearly to 0 over the run."""
    dual_learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for the temperature and the multipliers of the trust region."""
    max_grad_norm: PositiveOrInfinite = 0.5
    """Largest L2 norm of a gradient: larger ones are scaled down. Policy, critic and multipliers are separate."""
    gamma: UnitInterval = 0.99
    """Discount factor of the critic's targets. The search has its own, `search.gamma`."""
    gae_lambda: UnitInterval = 0.95
    """Mix of the critic's targets (GAE): 0 bootstraps after one step, 1 sums the rewards of the whole sequence."""
    target_smoothing: UnitInterval = 5e-3
    """Rate at which the target networks follow the trained networks, per gradient update (τ)."""
    old_policy: Literal["target", "rollout"] = "target"
    """Policy that an update must stay close to: the target network's, or the one that collected the latest rollout."""
    fixed_temperature: bool = False
    """Keep the initial temperature instead of learning it (the paper's ablation)."""
    min_temperature: NonNegativeFloat = 0.0
    """Lowest temperature that is learned. Once the policy can hardly be improved, the temperature falls until the
    search follows errors of the critic. 0, as in the paper: no limit."""
    trust_region: bool = True
    """Limit how far an update moves the policy. False: plain maximum likelihood."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.min_temperature <= MINIMUM:
            raise ValueError(f"min_temperature must be 0 or above {MINIMUM:g}, got {self.min_temperature:g}.")
        if self.initial_temperature < self.min_temperature:
            raise ValueError(
                f"initial_temperature ({self.initial_temperature:g}) must not be below min_temperature "
                f"({self.min_temperature:g}): raise it, or lower min_temperature."
            )


class Learner(NamedTuple):
    """Everything that is learned: the same on every device."""

    params: ActorCriticParams  # policy θ and critic φ
    target_params: ActorCriticParams  # their moving averages θ' and φ'
    duals: Duals  # temperature η and multipliers α
    optimiser: optax.OptState
    dual_optimiser: optax.OptState


class Plan(NamedTuple):
    """Result of one search, as the replay buffer stores it. Particles may be in another order than root samples."""

    root_actions: Action  # [N, ...] first actions of the last particles (departure 14: before squashing)
    weights: Float[Array, " N"]  # of these particles; they sum to 1
    temperature_advantages: Float[Array, " N"]  # per root sample: summed up to the first resample (departure 7)
    log_prior: Float[Array, " N"] | None  # per root sample: log p_n of `losses.temperature_loss`; None: 1/N each


def make_spo(setting: Setting, config: SPOConfig) -> Algorithm:
    """Returns SPO for a task: the functions below with the configuration bound to them."""
    train, action_spec = setting.task.train, setting.task.train.action_spec
    network = make_network(train.observation_spec, action_spec, setting.architecture)
    trust_region = make_trust_region(config, action_spec, network.distribution)
    planner = make_planner(config, setting.task.model, network)
    workers = make_replay_worker(train, setting.num_devices, config, draw_noise=planner.draw_noise)
    env_steps = config.num_envs * config.rollout_length
    decay_updates = total_updates(setting, env_steps, config.num_updates) if config.decay_learning_rates else None
    rate, max_norm = config.learning_rate, config.max_grad_norm
    optimiser = actor_critic_optimiser(rate, rate, max_norm, decay_updates=decay_updates)
    dual_optimiser = adam(config.dual_learning_rate, max_norm)
    decide_fn = functools.partial(decide, planner)
    round_fn = functools.partial(round_as_read, network, train.observation_spec, action_spec)
    loss_fn = functools.partial(
        loss,
        network=network,
        trust_region=trust_region,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        temperature_kl_bound=config.temperature_kl_bound,
        bound_kl=config.trust_region,
        learn_temperature=not config.fixed_temperature,
    )
    update_fn = functools.partial(
        update, loss_fn, optimiser, dual_optimiser, config.min_temperature, config.target_smoothing
    )
    skip_nonfinite = setting.skip_nonfinite_updates

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        """Initialises learner and buffer (lines 1-3), and environments: once, where line 7 does it every iteration."""
        params, duals = network.init(key_learner, train.observation_spec), trust_region.initial_duals
        learner = Learner(params, params, duals, optimiser.init(params), dual_optimiser.init(duals))
        return TrainState(learner, workers.init(key_worker, functools.partial(decide_fn, learner)))

    model_steps = config.search.model_steps
    return Algorithm(
        init=init,
        step=functools.partial(step, workers, round_fn, decide_fn, update_fn, config.old_policy, skip_nonfinite),
        act=functools.partial(act, planner),
        value=lambda learner, _key, timestep: critic_values(network, learner.params, timestep),
        env_steps_per_iteration=env_steps,
        model_steps_per_env_step=model_steps,
        network_evaluations_per_env_step=1 + model_steps,
        greedy_per_state=True,
        inspect=Inspect(
            distribution=network.distribution,
            policy=lambda learner, timestep: policies(network, learner.params, timestep),
            search=functools.partial(inspect_search, planner),
            temperature=lambda learner: learner.duals.temperature,
        ),
    )


def step(
    workers: ReplayWorkerFns,
    round_fn: Callable[[ActorCriticParams], ActorCriticParams],
    decide_fn: Callable[..., tuple[Action, Plan, Metrics]],
    update_fn: Callable[..., tuple[Learner, Metrics]],
    old_policy: str,
    skip_nonfinite: bool,
    state: TrainState,
) -> tuple[TrainState, Metrics]:
    """Runs one iteration of Algorithm 2: the body of the loop in line 4, which `training/trainer.py` repeats."""
    learner, worker = state
    key_rollout, key_noise, key_batches = jax.random.split(worker.acting.key, 3)
    # E-step (lines 5-15): act by search in all environments (`spo.acting.rollout`) and store the results in the buffer.
    decide_now = functools.partial(decide_fn, learner._replace(params=round_fn(learner.params)))
    worker, rollout_metrics = workers.collect(worker, key_rollout, decide_now, key_noise)
    # M-step (lines 16-27): one update for each batch from the buffer.
    batches = workers.sample(worker, key_batches)
    update_once = functools.partial(update_fn, learner.params if old_policy == "rollout" else None)
    learner, update_metrics = run_updates(update_once, learner, batches, skip_nonfinite=skip_nonfinite)
    return TrainState(learner, worker), rollout_metrics | update_metrics


# --- E-step -----------------------------------------------------------------------------------------------------------
def decide(
    planner: Planner, learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *noise: Array
) -> tuple[Action, Plan, Metrics]:
    """Searches from each environment's state (line 9). The search also draws the action to execute (line 10).

    Returns these actions, the plans to store (line 13) and metrics. `noise`: one step of `draw_root_noise`, or none.
    """
    temperature = learner.duals.temperature
    root, output = planner.plan(learner.params, temperature, key, env_state, timestep, *noise)
    log_prior = jax.nn.log_softmax(output.root_log_weights, axis=1) if planner.weighted_roots else None
    plans = Plan(output.root_actions, output.weights, output.temperature_advantages, log_prior)
    metrics = search_metrics(root, output) | improvement_metrics(root, output, log_prior, temperature)
    return jax.vmap(planner.network.distribution.to_environment)(output.action), plans, metrics


# --- M-step -----------------------------------------------------------------------------------------------------------
def update(
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    dual_optimiser: optax.GradientTransformation,
    min_temperature: float,
    target_smoothing: float,
    rollout_params: ActorCriticParams | None,
    learner: Learner,
    batch: Experience,
) -> tuple[Learner, Metrics]:
    """Takes one gradient step on critic, policy and duals (lines 20-25); then moves the target networks (line 26)."""
    loss_of_batch = functools.partial(
        loss_fn, target_params=learner.target_params, rollout_params=rollout_params, batch=batch
    )
    learner, metrics = gradient_step(learner, loss_of_batch, optimiser, dual_optimiser)
    learner = learner._replace(duals=limit_temperature(learner.duals, min_temperature))
    # Line 26 moves φ'. θ' moves as well, because it is the old policy (departure 13).
    target_params = move_average(learner.target_params, learner.params, target_smoothing)
    return learner._replace(target_params=target_params), metrics


def loss(
    params: ActorCriticParams,
    duals: Duals,
    *,
    target_params: ActorCriticParams,
    rollout_params: ActorCriticParams | None,
    batch: Experience,
    network: ActorCritic,
    trust_region: TrustRegion,
    gamma: float,
    gae_lambda: float,
    temperature_kl_bound: float,
    bound_kl: bool,
    learn_temperature: bool,
) -> tuple[Float[Array, ""], Metrics]:
    """Sums the losses of a batch [batch_size, sequence_length]. Those of policy and critic share at most a torso."""
    plans: Plan = batch.extras
    over_batch = functools.partial(vmap_over, num_axes=2)
    inputs = (batch.observation, batch.action_mask)
    policy, values = over_batch(network.both, in_axes=(None, 0, 0))(params, *inputs)
    both_ends = (batch.observation, batch.next_observation)  # of each step
    # Departure 13: the old policy is the target network's, or that of the rollout (θ_i in the paper's equation 12).
    old_policy, target_values, next_values = evaluate_both_ends(network, target_params, *both_ends, batch.action_mask)
    if rollout_params is not None:
        old_policy = over_batch(network.actor, in_axes=(None, 0, 0))(rollout_params, *inputs)
    # Keeps the losses out of the kernels of the network's last layer, which would run ten times as long with them.
    policy, old_policy = jax.lax.optimization_barrier(policy), jax.lax.optimization_barrier(old_policy)

    # Line 21: regression of the critic on GAE targets from the target critic.
    gae = functools.partial(returns.gae, gamma=gamma, gae_lambda=gae_lambda)
    targets = jax.vmap(gae)(batch.reward, target_values, next_values, batch.terminated, batch.truncated).targets
    value_loss = jnp.mean(losses.squared_error(values, targets))
    # Line 23: likelihood of the search's actions (departure 12: missing in the paper's line), inside the trust region.
    # The projection gives log π(a|s). For a Gaussian it fits mean and scale separately (`decoupled_projection`).
    likelihood = functools.partial(losses.projection_loss, trust_region.projection)
    policy_loss = jnp.mean(over_batch(likelihood)(old_policy, policy, plans.root_actions, plans.weights))
    region_loss, region_metrics = trust_region_loss(trust_region, old_policy, policy, duals, num_axes=2)
    # Line 25: g(η), the dual of the search's KL constraint, estimated from the root samples.
    g = functools.partial(losses.temperature_loss, duals.temperature, kl_bound=temperature_kl_bound)
    temperature_loss = jnp.mean(
        over_batch(lambda plan: g(plan.temperature_advantages, log_prior=plan.log_prior))(plans)
    )
    total = policy_loss + value_loss
    total += region_loss if bound_kl else 0.0
    total += temperature_loss if learn_temperature else 0.0
    return total, region_metrics | {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "loss/temperature": temperature_loss,
        "temperature": duals.temperature,
        "policy/entropy": mean_entropy(network.distribution, policy),
        "value/mean": jnp.mean(values),
        "value/target": jnp.mean(targets),
    }


# --- Acting -----------------------------------------------------------------------------------------------------------
def act(
    planner: Planner,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    *,
    use_search: bool,
    greedy: Greedy,
) -> Action:
    """Returns actions for the environments, by search or by the policy alone, without exploration noise."""
    if not use_search:
        return act_by_policy(planner.network, learner.params, key, timestep, greedy=greedy)
    _, output = planner.plan(learner.params, learner.duals.temperature, key, env_state, timestep)
    return jax.vmap(planner.network.distribution.to_environment)(
        select_actions(greedy, output.best_action, output.action)
    )


def inspect_search(
    planner: Planner,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    temperature: Float[Array, ""],
    *,
    greedy: bool,
) -> Searched:
    """Returns the actions of `act` by search, with the genealogy of the particles."""
    _, output = planner.plan(learner.params, temperature, key, env_state, timestep, with_ancestry=True)
    actions = select_actions(greedy, output.best_action, output.action)
    return Searched(jax.vmap(planner.network.distribution.to_environment)(actions), output)
