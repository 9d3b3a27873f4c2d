"""Expert iteration: act by a tree search and learn to act as it did. AlphaZero and its variants differ in the search.

act     searches over the true environment and stores the improved policy that was found at the root
learn   fits the policy to it by cross-entropy; fits the critic to GAE targets
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns, search
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
    policies,
    vmap_over,
)
from spo.algorithms.planning import environment_model, evaluate_root
from spo.algorithms.replay_worker import ReplayConfig, ReplayWorkerFns, make_replay_worker
from spo.algorithms.tree_search import TreeLibrary, TreeSearchOutput, tree_search_metrics
from spo.algorithms.updates import actor_critic_optimiser, gradient_step, run_updates
from spo.checks import Multiplicity, NonNegativeFloat, PositiveOrInfinite, UnitInterval
from spo.networks import ActorCritic, ActorCriticParams, round_as_read
from spo.types import Action, Array, Environment, Float, Metrics, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class ExpertIterationConfig(ReplayConfig):
    """Hyperparameters that all variants share. Defaults are the paper's for AlphaZero."""

    learning_rate: NonNegativeFloat = 3e-4
    """Adam's learning rate for policy and critic."""
    max_grad_norm: PositiveOrInfinite = 0.5
    """Largest L2 norm of a gradient: larger ones are scaled down. Policy and critic are separate."""
    gamma: UnitInterval = 0.99
    """Discount factor, also inside the search."""
    gae_lambda: UnitInterval = 0.95
    """Mix of the critic's targets (GAE): 0 bootstraps after one step, 1 sums the rewards of the whole sequence."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus, which keeps the policy random."""
    num_simulations: Multiplicity = 64
    """Simulations per search. Each of them is one step of the environment's model."""
    tree_library: TreeLibrary = "spo"
    """Library of the tree search. mctx gives the same results and is slower."""


class Learner(NamedTuple):
    """Everything that is learned: the same on every device."""

    params: ActorCriticParams
    optimiser: optax.OptState


class Plan(NamedTuple):
    """Result of one search, as the replay buffer stores it."""

    actions: Action | None  # [K, ...]; None: all discrete actions
    weights: Float[Array, " K"]  # sum to 1


#: (key, roots [B], model, explore: add noise at the root, greedy: best action instead of a sample) -> TreeSearchOutput
SearchFn = Callable[[PRNGKey, search.Root, search.ModelFn, bool, Greedy], TreeSearchOutput]


def make_expert_iteration(
    setting: Setting, config: ExpertIterationConfig, network: ActorCritic, search_fn: SearchFn
) -> Algorithm:
    """Returns expert iteration with a search for a task: the functions below with the configuration bound to them."""
    train = setting.task.train
    workers = make_replay_worker(train, setting.num_devices, config)
    rate = config.learning_rate
    optimiser = actor_critic_optimiser(rate, rate, config.max_grad_norm)
    plan_fn = functools.partial(plan, setting.task.model, network, search_fn)
    decide_fn = functools.partial(decide, plan_fn, network)
    round_fn = functools.partial(round_as_read, network, train.observation_spec, train.action_spec)
    loss_fn = functools.partial(
        loss,
        network=network,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        entropy_coefficient=config.entropy_coefficient,
    )
    update_fn = functools.partial(update, loss_fn, optimiser)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = network.init(key_learner, train.observation_spec)
        learner = Learner(params, optimiser.init(params))
        return TrainState(learner, workers.init(key_worker, functools.partial(decide_fn, learner)))

    return Algorithm(
        init=init,
        step=functools.partial(step, workers, round_fn, decide_fn, update_fn, setting.skip_nonfinite_updates),
        act=functools.partial(act, plan_fn, network),
        value=lambda learner, _key, timestep: critic_values(network, learner.params, timestep),
        env_steps_per_iteration=config.num_envs * config.rollout_length,
        model_steps_per_env_step=config.num_simulations,
        network_evaluations_per_env_step=1 + config.num_simulations,
        greedy_per_state=True,
        inspect=Inspect(
            distribution=network.distribution,
            policy=lambda learner, timestep: policies(network, learner.params, timestep),
            search=functools.partial(inspect_search, plan_fn, network),
        ),
    )


def step(
    workers: ReplayWorkerFns,
    round_fn: Callable[[ActorCriticParams], ActorCriticParams],
    decide_fn: Callable[..., tuple[Action, Plan, Metrics]],
    update_fn: Callable[..., tuple[Learner, Metrics]],
    skip_nonfinite: bool,
    state: TrainState,
) -> tuple[TrainState, Metrics]:
    """Runs one iteration: acts by search, then learns from the replay buffer."""
    learner, worker = state
    key_rollout, key_batches = jax.random.split(worker.acting.key)
    decide_now = functools.partial(decide_fn, learner._replace(params=round_fn(learner.params)))
    worker, rollout_metrics = workers.collect(worker, key_rollout, decide_now)
    batches = workers.sample(worker, key_batches)
    learner, update_metrics = run_updates(update_fn, learner, batches, skip_nonfinite=skip_nonfinite)
    return TrainState(learner, worker), rollout_metrics | update_metrics


# --- Search -----------------------------------------------------------------------------------------------------------
def plan(
    environment: Environment,
    network: ActorCritic,
    search_fn: SearchFn,
    params: ActorCriticParams,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    *,
    explore: bool,
    greedy: Greedy,
) -> tuple[search.Root, TreeSearchOutput]:
    """Searches from a batch of states."""
    root = jax.vmap(functools.partial(evaluate_root, network, params))(env_state, timestep)
    return root, search_fn(key, root, environment_model(environment, network, params), explore, greedy)


def decide(
    plan_fn: Callable[..., tuple[search.Root, TreeSearchOutput]],
    network: ActorCritic,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
) -> tuple[Action, Plan, Metrics]:
    """Returns actions for the environments by search, the plans to store, and metrics."""
    root, output = plan_fn(learner.params, key, env_state, timestep, explore=True, greedy=False)
    actions = jax.vmap(network.distribution.to_environment)(output.action)
    return actions, Plan(output.candidates.actions, output.weights), tree_search_metrics(root.value, output)


# --- Learning ---------------------------------------------------------------------------------------------------------
def update(
    loss_fn: Callable[..., tuple[Float[Array, ""], Metrics]],
    optimiser: optax.GradientTransformation,
    learner: Learner,
    batch: Experience,
) -> tuple[Learner, Metrics]:
    """Takes one gradient step on policy and critic."""
    return gradient_step(learner, functools.partial(loss_fn, batch=batch), optimiser)


def loss(
    params: ActorCriticParams,
    *,
    batch: Experience,
    network: ActorCritic,
    gamma: float,
    gae_lambda: float,
    entropy_coefficient: float,
) -> tuple[Float[Array, ""], Metrics]:
    """Sums the losses over a batch [batch_size, sequence_length]."""
    over_batch = functools.partial(vmap_over, num_axes=2)
    policy, values = over_batch(network.both, in_axes=(None, 0, 0))(params, batch.observation, batch.action_mask)

    # Critic: GAE over the observed rewards, with values of the critic as it is now.
    gae = functools.partial(returns.gae, gamma=gamma, gae_lambda=gae_lambda)
    next_values = over_batch(network.critic, in_axes=(None, 0))(params, batch.next_observation)
    targets = jax.vmap(gae)(batch.reward, values, next_values, batch.terminated, batch.truncated).targets
    value_loss = jnp.mean(losses.squared_error(values, targets))

    # Policy: cross-entropy from the search's improved policy, less the entropy bonus.
    def cross_entropy(policy: Any, plan: Plan) -> Float[Array, ""]:
        actions = jnp.arange(plan.weights.shape[0]) if plan.actions is None else plan.actions
        log_probs = jax.vmap(functools.partial(network.distribution.log_prob, policy))(actions)
        return losses.weighted_likelihood_loss(log_probs, plan.weights)

    policy_loss = jnp.mean(over_batch(cross_entropy)(policy, batch.extras))
    entropy = jnp.mean(over_batch(network.distribution.entropy)(policy))
    return policy_loss - entropy_coefficient * entropy + value_loss, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "policy/entropy": entropy,
        "value/mean": jnp.mean(values),
        "value/target": jnp.mean(targets),
    }


# --- Acting -----------------------------------------------------------------------------------------------------------
def act(
    plan_fn: Callable[..., tuple[search.Root, TreeSearchOutput]],
    network: ActorCritic,
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
        return act_by_policy(network, learner.params, key, timestep, greedy=greedy)
    _, output = plan_fn(learner.params, key, env_state, timestep, explore=False, greedy=greedy)
    return jax.vmap(network.distribution.to_environment)(output.action)


def inspect_search(
    plan_fn: Callable[..., tuple[search.Root, TreeSearchOutput]],
    network: ActorCritic,
    learner: Learner,
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    temperature: None,
    *,
    greedy: bool,
) -> Searched:
    """Returns the actions of `act` by search, with the whole tree. A tree has no temperature."""
    del temperature
    _, output = plan_fn(learner.params, key, env_state, timestep, explore=False, greedy=greedy)
    return Searched(jax.vmap(network.distribution.to_environment)(output.action), output)
