"""SPO: Sequential Monte Carlo Policy Optimisation (paper, Algorithm 2), for discrete and continuous actions.

    E-step   act by SMC search; remember what it found: the particles' root actions and weights
    M-step   fit the policy to the weighted root actions by maximum likelihood, inside a trust region around the old
             one; fit the critic to GAE targets; tune the search's temperature to improve the policy by a set KL

Discrete and continuous differ in the distribution and in what the trust region bounds, and in nothing else.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spo import losses, returns, search
from spo.acting import Experience, Worker, blank_experience, init_worker, rollout
from spo.algorithms.base import (
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
    updates_of_run,
    vmap_over,
)
from spo.algorithms.m_step import Bound, Duals, init_duals, make_gradient_step, make_trust_region, stay_inside
from spo.algorithms.planning import environment_model, evaluate_root
from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.distributions import Distribution
from spo.networks import ActorCriticParams, make_network
from spo.replay import make_replay
from spo.search.policies import check_dirichlet
from spo.types import Action, Array, DiscreteActions, Float, PRNGKey, State, TimeStep


@dataclass(frozen=True)
class SearchConfig:
    """The search: the paper's but for `resampling` and `resample_last`, which the presets paper/... have as it has.

    A period that is no shorter than the horizon, as here, leaves no resample but the last: without that one, particles
    are weighed and never redrawn.
    """

    num_particles: PositiveInt = 16
    """Particles per root (N)."""
    horizon: PositiveInt = 4
    """Steps each particle looks ahead (h)."""
    resample_period: PositiveInt | None = 4
    """Resample after every so many steps (p); None: never."""
    resample_last: bool = False
    """Resample after the last step too, if that is one of the period's (the paper); False reads the weights out."""
    readout: Literal["last", "all_depths"] = "last"
    """Read the weights after the last step, or the mean over all depths, which forgets no first action."""
    num_root_candidates: PositiveInt | None = None
    """Discrete actions: up to so many different first actions, each with a group of the particles; None: N draws."""
    ess_threshold: float | None = None
    """Resample only where the effective sample size is below this fraction of the particles; None: always."""
    resampling: Literal["multinomial", "stratified", "systematic", "residual"] = "systematic"
    """How ancestors are drawn. The paper's is multinomial."""
    weighting: Literal["advantage", "q_value"] = "advantage"
    """What a particle's weight grows by: the advantage (the paper), or the Q value (its ablation)."""
    gamma: UnitInterval = 1.0
    """Discount inside the search; the paper has none."""
    unroll: PositiveInt = 4
    """Depths written out in a row in the compiled program: more runs faster and compiles slower."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="search.")


@dataclass(frozen=True)
class SPOConfig:
    """Hyper-parameters of SPO. Defaults are the paper's for discrete actions (table "SPO Hyperparameters"), but for how
    the search resamples: see `SearchConfig`."""

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
    decay_learning_rates: bool = False
    """Let that rate fall linearly to 0 over the run."""
    dual_learning_rate: NonNegativeFloat = 3e-4
    """Adam's, for the temperature and the multipliers."""
    max_grad_norm: PositiveFloat = 0.5
    """Each group's gradient is clipped to this norm."""
    gamma: UnitInterval = 0.99
    """Discount."""
    gae_lambda: UnitInterval = 0.95
    """Between one-step (0) and Monte-Carlo (1) targets for the critic."""
    target_smoothing: UnitInterval = 5e-3
    """How far the target networks follow the online ones per gradient step (τ)."""
    old_policy: Literal["target", "rollout"] = "target"
    """What the trust region is built around: the target network, or the policy that gathered the last rollout."""
    initial_temperature: PositiveFloat = 0.5
    """The search's temperature at the start (η)."""
    fixed_temperature: bool = False
    """Keep the temperature where it starts (the paper's ablation)."""
    temperature_kl_bound: PositiveFloat = 0.5
    """KL from the policy to the search's improved one that the temperature is tuned for (ε_η)."""
    trust_region: bool = True
    """Bound the KL of each update; False: plain maximum likelihood."""
    initial_multiplier: PositiveFloat = 0.5
    """Discrete actions: multiplier of the trust region at the start (α)."""
    kl_bound: PositiveFloat = 1e-3
    """Discrete actions: bound on the KL of an update (ε_α)."""
    initial_mean_multiplier: PositiveFloat = 10.0
    """Continuous actions: multiplier of the mean's trust region at the start (α_μ)."""
    mean_kl_bound: PositiveFloat = 5e-2
    """Continuous actions: bound on the mean's KL, per action dimension (ε_αμ)."""
    initial_scale_multiplier: PositiveFloat = 500.0
    """Continuous actions: multiplier of the covariance's trust region at the start (α_Σ)."""
    scale_kl_bound: PositiveFloat = 5e-4
    """Continuous actions: bound on the covariance's KL, per action dimension (ε_αΣ)."""
    dirichlet_alpha: PositiveFloat = 0.03
    """Discrete actions: concentration of the exploration noise at the root."""
    root_exploration_weight: UnitInterval = 0.25
    """Discrete actions: share of that noise among the root's proposals, in training only. 0: none."""
    correct_root_exploration: bool = False
    """Weigh first actions by policy / noised policy: noise widens what is tried, and is not learned."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """The search."""

    def __post_init__(self) -> None:
        check_fields(self)


class Learner(NamedTuple):
    params: ActorCriticParams
    target_params: ActorCriticParams
    duals: Duals
    optimiser: optax.OptState
    dual_optimiser: optax.OptState


class SPOWorker(NamedTuple):
    acting: Worker
    replay: Any


class Plan(NamedTuple):
    """What a search leaves for learning."""

    root_actions: Action  # [N, ...]
    weights: Float[Array, " N"]
    temperature_advantages: Float[Array, " N"]
    log_prior: Float[Array, " N"] | None  # of the samples behind the line above; None: all alike


def make_search(config: SearchConfig, distribution: Distribution) -> Callable[..., search.SearchOutput]:
    """`search.search` as a configuration describes it: what is left are key, root, model and temperature."""
    candidates = config.num_root_candidates
    return functools.partial(
        search.search,
        num_particles=config.num_particles,
        horizon=config.horizon,
        resample_period=config.resample_period,
        resample_last=config.resample_last,
        readout=config.readout,
        root_fn=None if candidates is None else search.roots.without_replacement(candidates),
        ess_threshold=config.ess_threshold,
        resample_fn=getattr(search.resampling, config.resampling),
        weight_fn=getattr(search.weighting, config.weighting),
        gamma=config.gamma,
        unroll=config.unroll,
        distribution=distribution,
    )


def make_spo(setting: Setting, config: SPOConfig) -> Algorithm:
    """SPO on a task, as the training loop takes it."""
    task = setting.task
    # Departure 16: where rewards are rare, a critic that starts off by a constant, another one for every seed, takes
    # millions of steps to unlearn it, and until then the constant acts on the search like another temperature.
    network = make_network(task.train.observation_spec, task.train.action_spec, setting.architecture, value_gain=0.01)
    action_spec, distribution = task.train.action_spec, network.distribution
    num_envs = share("num_envs", config.num_envs, setting.num_devices)
    trust_region = make_trust_region(
        action_spec,
        distribution,
        policy=Bound(config.kl_bound, config.initial_multiplier),
        mean=Bound(config.mean_kl_bound, config.initial_mean_multiplier),
        scale=Bound(config.scale_kl_bound, config.initial_scale_multiplier),
    )
    projection = trust_region.projection
    replay = make_replay(
        num_envs=num_envs,
        capacity=config.replay_size // setting.num_devices,
        rollout_length=config.rollout_length,
        num_batches=config.num_updates,
        batch_size=share("batch_size", config.batch_size, setting.num_devices),
        sequence_length=config.sequence_length,
    )
    env_steps_per_iteration = config.num_envs * config.rollout_length
    num_updates = updates_of_run(setting, env_steps_per_iteration, config.num_updates)
    of_each = adam(
        config.learning_rate,
        config.max_grad_norm,
        decay_updates=num_updates if config.decay_learning_rates else None,
    )
    optimiser = actor_critic_optimiser(of_each, of_each)
    dual_optimiser = adam(config.dual_learning_rate, config.max_grad_norm)
    search_config = config.search
    if not isinstance(action_spec, DiscreteActions):
        search_config = replace(search_config, num_root_candidates=None)  # continuous draws differ as they are
    check_dirichlet(config.root_exploration_weight, config.dirichlet_alpha)
    run_search = make_search(search_config, distribution)

    def init(key_learner: PRNGKey, key_worker: PRNGKey) -> TrainState:
        params = network.init(key_learner, task.train.observation_spec)
        duals = init_duals(trust_region, config.initial_temperature)
        learner = Learner(
            params=params,
            target_params=params,
            duals=duals,
            optimiser=optimiser.init(params),
            dual_optimiser=dual_optimiser.init(duals),
        )
        acting = init_worker(task.train, num_envs, key_worker)
        blank = blank_experience(task.train, decide(learner), acting, draw_noise(key_worker, 1))
        return TrainState(learner, SPOWorker(acting, replay.init(blank)))

    # --- E-step: act by search ----------------------------------------------------------------------------------------
    def plan(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, log_gamma: Array | None = None
    ) -> tuple[search.Root, search.SearchOutput]:
        root = jax.vmap(functools.partial(evaluate_root, network, learner.params))(env_state, timestep)
        proposal = None
        if log_gamma is not None:
            proposal = search.mix_in_dirichlet(root.prior, log_gamma, fraction=config.root_exploration_weight)
        output = run_search(
            key,
            root,
            environment_model(task.model, network, learner.params),
            temperature=losses.positive_from_raw(learner.duals.raw_temperature),
            root_proposal=proposal,
            correct_root_proposal=config.correct_root_exploration and proposal is not None,
        )
        return root, output

    def decide(learner: Learner) -> Any:
        def decide(key: PRNGKey, env_state: State, timestep: TimeStep, *noise: Array) -> tuple[Action, Plan, Metrics]:
            root, output = plan(learner, key, env_state, timestep, *noise)
            log_prior = None
            if search_config.num_root_candidates is not None or config.correct_root_exploration:
                log_prior = jax.nn.log_softmax(output.root_log_weights, axis=1)
            remembered = Plan(output.root_actions, output.weights, output.temperature_advantages, log_prior)
            return to_environment(output.action), remembered, search_metrics(learner, root, output, log_prior)

        return decide

    def draw_noise(key: PRNGKey, length: int) -> tuple[Array, ...]:
        """Exploration noise for the roots of a rollout, if there is any: continuous policies explore by their scale."""
        if not isinstance(action_spec, DiscreteActions) or config.root_exploration_weight == 0:
            return ()
        return (jax.random.loggamma(key, config.dirichlet_alpha, (length, num_envs, action_spec.num_actions)),)

    def to_environment(actions: Action) -> Action:
        return jax.vmap(distribution.to_environment)(actions)

    def search_metrics(
        learner: Learner, root: search.Root, output: search.SearchOutput, log_prior: Array | None
    ) -> Metrics:
        temperature = losses.positive_from_raw(learner.duals.raw_temperature)
        if log_prior is None:
            log_prior = jnp.full_like(output.weights, -jnp.log(output.weights.shape[1]))
        weights = jax.nn.softmax(log_prior + output.temperature_advantages / temperature, axis=1)
        depths = output.diagnostics
        metrics = {
            # KL(q || proposal) of the samples that the temperature is tuned on: what ε_η bounds.
            "search/kl": jnp.mean(jnp.sum(jax.scipy.special.rel_entr(weights, jnp.exp(log_prior)), axis=1)),
            "search/ess": jnp.mean(depths.ess[:, -1]),
            "search/entropy": jnp.mean(depths.entropy[:, -1]),
            "search/num_root_actions": jnp.mean(depths.num_root_actions[:, -1]),
            "search/num_live": jnp.mean(depths.num_live[:, -1]),
            "search/value_gain": jnp.mean(output.value - root.value),
            "search/valid": jnp.mean(depths.valid),
        }
        if output.action_weights is not None:
            log_prior = jax.nn.log_softmax(root.prior)
            q = output.action_weights
            kl = jnp.sum(jnp.where(q > 0, q * (jnp.log(jnp.where(q > 0, q, 1.0)) - log_prior), 0.0), axis=1)
            # To the policy itself, without the noise, on the actions as read out.
            metrics["search/kl_to_policy"] = jnp.mean(kl)
        return metrics

    # --- M-step: learn from the replay --------------------------------------------------------------------------------
    def loss_fn(
        params: ActorCriticParams,
        duals: Duals,
        target_params: ActorCriticParams,
        rollout_params: ActorCriticParams,
        batch: Experience,
    ) -> tuple[Float[Array, ""], Metrics]:
        """All losses over a batch with leading axes [batch_size, sequence_length]; each trains its own variables."""
        over_batch = functools.partial(vmap_over, num_axes=2)
        seen = (batch.observation, batch.action_mask)
        new_policy, values = over_batch(network.both, in_axes=(None, 0, 0))(params, *seen)
        # The target network looks at both ends of every step at once: small kernels cost by their number.
        both_ends = jax.tree.map(lambda now, next: jnp.stack([now, next]), batch.observation, batch.next_observation)
        at_both_ends = jax.vmap(over_batch(network.both, in_axes=(None, 0, 0)), in_axes=(None, 0, None))
        target_policies, target_values = at_both_ends(target_params, both_ends, batch.action_mask)
        # Departure 13: what the paper leaves open.
        if config.old_policy == "target":
            old_policy = jax.tree.map(lambda x: x[0], target_policies)
        else:
            old_policy = over_batch(network.actor, in_axes=(None, 0, 0))(rollout_params, *seen)

        # Critic: GAE over the real rollout, with values of the target critic.
        gae = functools.partial(returns.gae, gamma=config.gamma, gae_lambda=config.gae_lambda)
        targets = jax.vmap(gae)(
            batch.reward, target_values[0], target_values[1], batch.terminated, batch.truncated
        ).targets
        value_loss = jnp.mean(losses.squared_error(values, targets))

        # Actor: maximum likelihood of the search's root actions (departure 12: the paper's line forgets it) ...
        plans: Plan = batch.extras

        def likelihood(old: Any, new: Any, plan: Plan) -> Float[Array, ""]:
            log_probs = jax.vmap(functools.partial(projection.log_prob, old, new))(plan.root_actions)
            return losses.weighted_likelihood_loss(log_probs, plan.weights)

        policy_loss = jnp.mean(over_batch(likelihood)(old_policy, new_policy, plans))
        # ... inside the trust region.
        kls = jax.tree.map(lambda x: jnp.mean(x, axis=(0, 1)), over_batch(projection.kls)(old_policy, new_policy))
        region, region_metrics = stay_inside(trust_region, kls, duals.raw_multipliers)

        # Temperature: spend the KL budget of the search, no more and no less.
        temperature = losses.positive_from_raw(duals.raw_temperature)
        temperature_losses = over_batch(
            lambda plan: losses.temperature_loss(
                temperature, plan.temperature_advantages, config.temperature_kl_bound, plan.log_prior
            )
        )
        temperature_loss = jnp.mean(temperature_losses(plans))
        total = policy_loss + value_loss
        if config.trust_region:
            total += region.penalty + region.dual
        if not config.fixed_temperature:
            total += temperature_loss
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/temperature": temperature_loss,
            "temperature": temperature,
            "policy/entropy": jnp.mean(over_batch(distribution.entropy)(new_policy)),
            "value/mean": jnp.mean(values),
            "value/target": jnp.mean(targets),
        }
        return total, metrics | region_metrics

    gradient_step = make_gradient_step(loss_fn, optimiser, dual_optimiser)

    def update(rollout_params: ActorCriticParams, learner: Learner, batch: Experience) -> tuple[Learner, Metrics]:
        learner, metrics = gradient_step(learner, learner.target_params, rollout_params, batch)
        target_params = optax.incremental_update(learner.params, learner.target_params, config.target_smoothing)
        return learner._replace(target_params=target_params), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        learner, (acting, replay_state) = state
        key, key_noise, key_updates = jax.random.split(acting.key, 3)
        noise = draw_noise(key_noise, config.rollout_length)
        acting, experience, rollout_metrics = rollout(
            task.train, decide(learner), acting._replace(key=key), config.rollout_length, noise
        )
        replay_state = replay.add(replay_state, experience)
        learner, update_metrics = run_updates(
            functools.partial(update, learner.params),
            learner,
            replay.sample(replay_state, key_updates),
            skip_nonfinite=setting.skip_nonfinite_updates,
        )
        metrics = rollout_metrics | update_metrics
        return TrainState(learner, SPOWorker(acting, replay_state)), metrics

    # --- Acting with what was learned ---------------------------------------------------------------------------------
    def act(
        learner: Learner, key: PRNGKey, env_state: State, timestep: TimeStep, *, use_search: bool, greedy: bool
    ) -> Action:
        """Actions for the environments: by search or by the bare policy, the most likely one or a draw. No noise."""
        if use_search:
            _, output = plan(learner, key, env_state, timestep)
            return to_environment(output.best_action if greedy else output.action)
        return act_by_policy(network, learner.params, key, timestep, greedy=greedy)

    def value(learner: Learner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
        del key  # the critic says it outright
        return critic_values(network, learner.params, timestep)

    budget = config.search.num_particles * config.search.horizon
    return Algorithm(
        init=init,
        step=step,
        act=act,
        value=value,
        env_steps_per_iteration=env_steps_per_iteration,
        model_steps_per_env_step=budget,
        network_evaluations_per_env_step=1 + budget,
    )
