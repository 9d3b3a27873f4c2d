"""AlphaZero and Gumbel AlphaZero, for discrete actions, on mctx.

    act     by tree search over the true environment; remember the improved policy that it found at the root
    learn   fit the policy to it by cross-entropy; fit the critic to GAE targets

The two differ in the search: MuZero's (PUCT; noise at the root; the improved policy is the shares of visits) or Gumbel
MuZero's (sequential halving; the improved policy is softmax(logits + q)). `spo.algorithms.sampled_alphazero` is the
third of them: what they all learn from their search stands here, in `make_expert_iteration`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
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
    act_by_policy,
    actor_critic_optimiser,
    adam,
    critic_values,
    run_updates,
    share,
    vmap_over,
)
from spo.algorithms.planning import environment_model, evaluate_root
from spo.algorithms.tree_search import Candidates, TreeRoot, TreeSearchOutput, gumbel_search, puct_search
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.networks import ActorCritic, ActorCriticParams, make_network
from spo.replay import make_replay
from spo.search.policies import check_dirichlet
from spo.types import Action, Array, DiscreteActions, Float, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class ExpertIterationConfig:
    """What all three have in common. Defaults are the paper's for AlphaZero."""

    num_envs: PositiveInt = 768
    """Environments side by side, over all devices."""
    rollout_length: PositiveInt = 21
    """Steps in each of them per iteration."""
    num_updates: PositiveInt = 16
    """Gradient steps per iteration (the table's "epochs")."""
    batch_size: PositiveInt = 64
    """Sequences per gradient step, over all devices."""
    sequence_length: PositiveInt = 17
    """Steps per sequence."""
    replay_size: PositiveInt = 65_536
    """Transitions in the replay, over all environments."""
    learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for actor and critic."""
    max_grad_norm: PositiveFloat = 0.5
    """The gradients of actor and critic are each clipped to this norm."""
    gamma: UnitInterval = 0.99
    """Discount, also inside the search."""
    gae_lambda: UnitInterval = 0.95
    """Between one-step (0) and Monte-Carlo (1) targets for the critic."""
    entropy_coefficient: float = 0.0
    """What a nat of the policy's entropy is worth in its loss."""
    num_simulations: PositiveInt = 64
    """Simulations of the search; each is one step of the model."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class AlphaZeroConfig(ExpertIterationConfig):
    """Hyper-parameters of AlphaZero. Defaults are the paper's (table "Hyperparameters for AlphaZero and PPO")."""

    dirichlet_alpha: PositiveFloat = 0.03
    """Concentration of the exploration noise at the root."""
    root_exploration_weight: UnitInterval = 0.25
    """Share of that noise in the root's prior, in training only. 0: none."""


@dataclass(frozen=True)
class GumbelAlphaZeroConfig(ExpertIterationConfig):
    """Hyper-parameters of Gumbel AlphaZero. Defaults are the paper's for AlphaZero."""

    max_num_considered_actions: PositiveInt = 16
    """Actions that the search tries at the root, drawn without replacement; all of them where there are fewer."""


class Learner(NamedTuple):
    params: ActorCriticParams
    optimiser: optax.OptState


class ExpertIterationWorker(NamedTuple):
    acting: Worker
    replay: Any


class Plan(NamedTuple):
    """What a search leaves for learning."""

    actions: Action | None  # [K, ...]; None: all there are
    weights: Float[Array, " K"]


#: (key, roots [B], model, explore: is there noise at the root?, greedy: the best action, or a draw?)
SearchFn = Callable[[PRNGKey, search.Root, search.ModelFn, bool, bool], TreeSearchOutput]


def make_alphazero(setting: Setting, config: AlphaZeroConfig) -> Algorithm:
    """AlphaZero on a task, as the training loop takes it."""
    _check_discrete("alphazero", setting)
    check_dirichlet(config.root_exploration_weight, config.dirichlet_alpha)

    def search_fn(
        key: PRNGKey, root: search.Root, model_fn: search.ModelFn, explore: bool, greedy: bool
    ) -> TreeSearchOutput:
        key_noise, key_search = jax.random.split(key)
        prior = root.prior
        if explore and config.root_exploration_weight > 0:
            prior = search.add_dirichlet_noise(
                key_noise, prior, fraction=config.root_exploration_weight, alpha=config.dirichlet_alpha
            )
        return puct_search(
            key_search,
            TreeRoot(Candidates(None, prior), root.value, root.state),
            model_fn,
            num_simulations=config.num_simulations,
            gamma=config.gamma,
            greedy=greedy,
        )

    return make_expert_iteration(setting, config, _network(setting), search_fn)


def make_gumbel_alphazero(setting: Setting, config: GumbelAlphaZeroConfig) -> Algorithm:
    """Gumbel AlphaZero on a task. Its search explores by itself: there is no noise to mix into the prior."""
    _check_discrete("gumbel_alphazero", setting)
    if config.max_num_considered_actions < 1:
        raise ValueError(
            f"max_num_considered_actions is {config.max_num_considered_actions}: the search needs at least 1 to try."
        )

    def search_fn(
        key: PRNGKey, root: search.Root, model_fn: search.ModelFn, explore: bool, greedy: bool
    ) -> TreeSearchOutput:
        del explore  # a Gumbel draw is how it acts, in evaluation too
        return gumbel_search(
            key,
            TreeRoot(Candidates(None, root.prior), root.value, root.state),
            model_fn,
            num_simulations=config.num_simulations,
            gamma=config.gamma,
            greedy=greedy,
            max_num_considered_actions=config.max_num_considered_actions,
        )

    return make_expert_iteration(setting, config, _network(setting), search_fn)


def make_expert_iteration(
    setting: Setting, config: ExpertIterationConfig, network: ActorCritic, search_fn: SearchFn
) -> Algorithm:
    """Act by a search, learn to act as it did."""
    if config.num_simulations < 1:
        raise ValueError(f"num_simulations is {config.num_simulations}: a search needs at least 1.")
    task, distribution = setting.task, network.distribution
    num_envs = share("num_envs", config.num_envs, setting.num_devices)
    replay = make_replay(
        num_envs=num_envs,
        capacity=config.replay_size // setting.num_devices,
        rollout_length=config.rollout_length,
        num_batches=config.num_updates,
        batch_size=share("batch_size", config.batch_size, setting.num_devices),
        sequence_length=config.sequence_length,
    )
    of_each = adam(config.learning_rate, config.max_grad_norm)
    optimiser = actor_critic_optimiser(of_each, of_each)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = network.init(key_learner, task.train.observation_spec)
        learner = Learner(params, optimiser.init(params))
        acting = init_worker(task.train, num_envs, key_worker)
        blank = blank_experience(task.train, decide(learner), acting)
        return TrainState(learner, ExpertIterationWorker(acting, replay.init(blank)))

    # --- Act by search ------------------------------------------------------------------------------------------------
    def plan(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, explore: bool, greedy: bool
    ) -> tuple[search.Root, TreeSearchOutput]:
        root = jax.vmap(functools.partial(evaluate_root, network, learner.params))(env_state, timestep)
        return root, search_fn(key, root, environment_model(task.model, network, learner.params), explore, greedy)

    def decide(learner: Learner) -> Any:
        def decide(key: PRNGKey, env_state: State, timestep: TimeStep) -> tuple[Action, Plan, Metrics]:
            root, output = plan(learner, key, env_state, timestep, explore=True, greedy=False)
            remembered = Plan(output.candidates.actions, output.weights)
            return to_environment(output.action), remembered, search_metrics(root, output)

        return decide

    def to_environment(actions: Action) -> Action:
        return jax.vmap(distribution.to_environment)(actions)

    def search_metrics(root: search.Root, output: TreeSearchOutput) -> Metrics:
        weights, taken = output.weights, output.weights > 0
        log_weights = jnp.log(jnp.where(taken, weights, 1.0))
        log_prior = jnp.where(taken, jax.nn.log_softmax(output.candidates.log_prior), 0.0)
        return {
            "search/kl": jnp.mean(jnp.sum(weights * (log_weights - log_prior), axis=1)),
            "search/entropy": jnp.mean(-jnp.sum(weights * log_weights, axis=1)),
            "search/num_root_actions": jnp.mean(jnp.sum(output.visits > 0, axis=1)),
            "search/value_gain": jnp.mean(output.value - root.value),
        }

    # --- Learn from the replay ----------------------------------------------------------------------------------------
    def loss_fn(params: ActorCriticParams, batch: Experience) -> tuple[Float[Array, ""], Metrics]:
        """Both losses over a batch with leading axes [batch_size, sequence_length]; each trains its own variables."""
        over_batch = functools.partial(vmap_over, num_axes=2)
        policy, values = over_batch(network.both, in_axes=(None, 0, 0))(params, batch.observation, batch.action_mask)

        # Critic: GAE over the real rollout, with values of the critic as it is now.
        gae = functools.partial(returns.gae, gamma=config.gamma, gae_lambda=config.gae_lambda)
        next_values = over_batch(network.critic, in_axes=(None, 0))(params, batch.next_observation)
        targets = jax.vmap(gae)(batch.reward, values, next_values, batch.terminated, batch.truncated).targets
        value_loss = jnp.mean(losses.squared_error(values, targets))

        # Actor: cross-entropy from the search's improved policy.
        def likelihood(policy: Any, plan: Plan) -> Float[Array, ""]:
            actions = jnp.arange(plan.weights.shape[0]) if plan.actions is None else plan.actions
            log_probs = jax.vmap(functools.partial(distribution.log_prob, policy))(actions)
            return losses.weighted_likelihood_loss(log_probs, plan.weights)

        policy_loss = jnp.mean(over_batch(likelihood)(policy, batch.extras))
        entropy = jnp.mean(over_batch(distribution.entropy)(policy))
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy": entropy,
            "value/mean": jnp.mean(values),
            "value/target": jnp.mean(targets),
        }
        return policy_loss - config.entropy_coefficient * entropy + value_loss, metrics

    def update(learner: Learner, batch: Experience) -> tuple[Learner, Metrics]:
        gradients, metrics = jax.grad(loss_fn, has_aux=True)(learner.params, batch)
        gradients, metrics = jax.lax.pmean((gradients, metrics), DEVICE_AXIS)
        metrics["gradient_norm"] = optax.tree.norm(gradients)
        changes, optimiser_state = optimiser.update(gradients, learner.optimiser, learner.params)
        return Learner(optax.apply_updates(learner.params, changes), optimiser_state), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        learner, (acting, replay_state) = state
        key, key_updates = jax.random.split(acting.key)
        acting, experience, rollout_metrics = rollout(
            task.train, decide(learner), acting._replace(key=key), config.rollout_length
        )
        replay_state = replay.add(replay_state, experience)
        learner, update_metrics = run_updates(
            update,
            learner,
            replay.sample(replay_state, key_updates),
            skip_nonfinite=setting.skip_nonfinite_updates,
        )
        metrics = rollout_metrics | update_metrics
        return TrainState(learner, ExpertIterationWorker(acting, replay_state)), metrics

    # --- Acting with what was learned ---------------------------------------------------------------------------------
    def act(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *, use_search: bool, greedy: bool
    ) -> Action:
        """Actions for the environments: by search or by the bare policy, the best one or a draw. No noise."""
        if use_search:
            _, output = plan(learner, key, env_state, timestep, explore=False, greedy=greedy)
            return to_environment(output.action)
        return act_by_policy(network, learner.params, key, timestep, greedy=greedy)

    def value(learner: Learner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
        del key  # the critic says it outright
        return critic_values(network, learner.params, timestep)

    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=value,
        env_steps_per_iteration=config.num_envs * config.rollout_length,
        model_steps_per_env_step=config.num_simulations,
        network_evaluations_per_env_step=1 + config.num_simulations,
    )


def _network(setting: Setting) -> ActorCritic:
    train = setting.task.train
    return make_network(train.observation_spec, train.action_spec, setting.architecture)


def _check_discrete(name: str, setting: Setting) -> None:
    if not isinstance(setting.task.train.action_spec, DiscreteActions):
        raise ValueError(f"{name} needs discrete actions: for continuous ones use sampled_alphazero.")
