"""Planning with the environment as the model: options of the search, its inputs, its call and its metrics."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from spo import losses, search
from spo.checks import Fraction, LoopLength, Multiplicity, PositiveFloat, PositiveInt, UnitInterval, check_fields
from spo.distributions import Distribution
from spo.networks import ActorCritic, ActorCriticParams
from spo.search import ModelFn, ModelOutput, Root
from spo.search.base import AnyModel
from spo.types import (
    Action,
    Array,
    DiscreteActions,
    Environment,
    Float,
    Metrics,
    PRNGKey,
    State,
    TimeStep,
)


@dataclass(frozen=True)
class SearchConfig:
    """Options of the search. Defaults are the paper's, except `resampling` and `resample_last` (departure 6).

    With the default period, which is as long as the horizon, only the last step could resample. Without
    `resample_last`, particles are therefore weighted and never resampled. The expected weight of each first action is
    the same, with less variance.
    """

    num_particles: Multiplicity = 16
    """Number of particles (N): trajectories that each search simulates in parallel."""
    horizon: LoopLength = 4
    """Number of steps that each particle looks ahead (h)."""
    resample_period: PositiveInt | None = 4
    """Resample the particles after every so many steps (p): promising ones are copied, others dropped. None: never."""
    resample_last: bool = False
    """Resample after the last step too, if the period falls on it (as in the paper). Otherwise keep the weights."""
    num_outcomes: PositiveInt = 1
    """Outcomes of each simulated step that are scored by their mean. More than 1 for chance, such as 16: with 1, the
    search gambles. Its cost grows as many times."""
    readout: Literal["last", "all_depths", "mean_returns"] = "last"
    """Result of the search: the final weights of the particles, their average over all steps of the search, or mean
    returns per first action (for chance and values that are not trusted)."""
    num_root_candidates: PositiveInt | None = None
    """Discrete actions: number of different first actions that share the particles. None: random first actions."""
    ess_threshold: Fraction | None = None
    """Resample only where the effective sample size is below this fraction of the particles. None: always."""
    resampling: Literal["multinomial", "stratified", "systematic", "residual"] = "systematic"
    """Method of resampling. The paper uses multinomial; the other three have less variance."""
    weighting: Literal["advantage", "q_value", "shared_advantage"] = "advantage"
    """Score by which a step changes a particle's weight: the advantage (paper), the Q-value (its ablation), or the
    advantage averaged over all particles with the same action in the same state (for chance)."""
    gamma: UnitInterval = 1.0
    """Discount factor inside the search. The paper has none, which is 1."""
    unroll: LoopLength = 4
    """Search steps per iteration of the compiled loop. More run faster and compile slower; results do not change."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="search.")
        if self.ess_threshold is not None and self.resample_period is None:
            raise ValueError("search.ess_threshold needs a search.resample_period: 1 checks after every step.")
        if self.readout == "all_depths" and self.resample_last:
            raise ValueError(
                "search.readout all_depths reads the weights of every step: search.resample_last must be False."
            )
        resampling = search.Resampling(self.resample_period, last=self.resample_last)
        if self.readout == "mean_returns" and not resampling.never_within(self.horizon):
            raise ValueError(
                "search.readout mean_returns needs particles that are never resampled: set "
                "search.resample_period to None."
            )

    @property
    def model_steps(self) -> int:
        """Number of model steps of one search: N · M · h."""
        return self.num_particles * self.num_outcomes * self.horizon


@dataclass(frozen=True)
class PlanningConfig:
    """Options of acting by search in training. Defaults are the paper's for discrete actions."""

    dirichlet_alpha: PositiveFloat = 0.03
    """Discrete actions: concentration of the exploration noise. A small value puts the noise on few actions."""
    root_exploration_weight: UnitInterval = 0.25
    """Discrete actions: share of random noise in the probabilities of the search's first actions, in training only."""
    correct_root_exploration: bool = False
    """Remove the noise from the weights of the first actions: it then widens what is tried, and is not learned."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """Options of the search."""

    def __post_init__(self) -> None:
        check_fields(self)


class Planner(NamedTuple):
    """The search on a task, with everything bound that does not change during training."""

    network: ActorCritic
    #: (params, temperature, key, states [B], time steps [B], *noise [B, A]) -> (roots, result of the search). The
    #: result has the particles of every depth if with_ancestry=True is added.
    plan: Callable[..., tuple[Root, search.SearchOutput]]
    #: (key, steps, environments) -> exploration noise for that many searches, see `draw_root_noise`; () for none
    draw_noise: Callable[[PRNGKey, int, int], tuple[Array, ...]]
    #: True if the particles of a search start with different weights
    weighted_roots: bool


def make_planner(config: PlanningConfig, environment: Environment, network: ActorCritic) -> Planner:
    """Returns the search with `environment` as its model."""
    search_config = config.search
    num_actions, exploration_weight = 0, 0.0
    if isinstance(environment.action_spec, DiscreteActions):
        num_actions, exploration_weight = environment.action_spec.num_actions, config.root_exploration_weight
    else:  # samples of a Gaussian are all different, and explore by its scale
        search_config = replace(search_config, num_root_candidates=None)
    corrects_noise = config.correct_root_exploration and exploration_weight > 0
    return Planner(
        network=network,
        plan=functools.partial(
            plan,
            environment=environment,
            network=network,
            search_fn=make_search(search_config, network.distribution, corrects_noise),
            gamma=search_config.gamma,
            over_chance=make_over_chance(search_config),
            exploration_weight=exploration_weight,
        ),
        draw_noise=functools.partial(draw_root_noise, num_actions, exploration_weight, config.dirichlet_alpha),
        weighted_roots=search_config.num_root_candidates is not None or corrects_noise,
    )


def plan(
    params: ActorCriticParams,
    temperature: Float[Array, ""],
    key: PRNGKey,
    env_state: State,
    timestep: TimeStep,
    noise: Float[Array, "B A"] | None = None,
    *,
    environment: Environment,
    network: ActorCritic,
    search_fn: Callable[..., search.SearchOutput],
    gamma: float,
    over_chance: Callable[[ModelFn], AnyModel],
    exploration_weight: float,
    with_ancestry: bool = False,
) -> tuple[Root, search.SearchOutput]:
    """Searches from a batch of states (Algorithm 1), with the policy as proposal and the critic for the advantages.

    `noise` (see `draw_root_noise`) is mixed into the probabilities of the first actions: departures 1 and 2.
    """
    root = jax.vmap(functools.partial(evaluate_root, network, params))(env_state, timestep)
    if noise is not None:
        root = root._replace(proposal=search.mix_in_dirichlet(root.prior, noise, fraction=exploration_weight))
    model_fn = over_chance(environment_model(environment, network, params, gamma))
    return root, search_fn(key, root, model_fn, temperature=temperature, with_ancestry=with_ancestry)


#: Functions of the search by the options of `SearchConfig`.
_SCHEMES = {
    "multinomial": search.resampling.multinomial,
    "stratified": search.resampling.stratified,
    "systematic": search.resampling.systematic,
    "residual": search.resampling.residual,
}
_SCORES = {
    "advantage": search.weighting.advantage,
    "q_value": search.weighting.q_value,
    "shared_advantage": search.weighting.advantage,  # of another model, which shares outcomes: `make_over_chance`
}
_READOUTS = {
    "last": search.readouts.last,
    "all_depths": search.readouts.all_depths,
    "mean_returns": search.readouts.mean_returns,
}


def make_search(
    config: SearchConfig, distribution: Distribution, correct_exploration: bool = False
) -> Callable[..., search.SearchOutput]:
    """Returns `search.search` with the options bound: key, root, model and temperature are left to pass."""
    root_fn = None
    if config.num_root_candidates is not None:
        root_fn = search.proposals.without_replacement(config.num_root_candidates, corrected=correct_exploration)
    elif correct_exploration:
        root_fn = search.proposals.corrected_root(distribution)
    return functools.partial(
        search.search,
        num_particles=config.num_particles,
        horizon=config.horizon,
        resampling=search.Resampling(
            period=config.resample_period,
            rule=search.resampling.by_weight(_SCHEMES[config.resampling]),
            ess_below=config.ess_threshold,
            last=config.resample_last,
        ),
        distribution=distribution,
        score_fn=_SCORES[config.weighting],
        proposal=search.Proposal(root_fn=root_fn),
        readout=_READOUTS[config.readout],
        unroll=config.unroll,
    )


def make_over_chance(config: SearchConfig) -> Callable[[ModelFn], AnyModel]:
    """Returns the function that makes a model score its steps by means over chance. By default it changes nothing."""
    over_outcomes = search.chance.shared if config.weighting == "shared_advantage" else search.chance.sampled
    return functools.partial(over_outcomes, num_outcomes=config.num_outcomes)


def draw_root_noise(
    num_actions: int, exploration_weight: float, alpha: float, key: PRNGKey, length: int, num_envs: int
) -> tuple[Float[Array, "T E A"], ...]:
    """Returns logarithms of Gamma(alpha) variables, which are Dirichlet noise once normalised; () if its weight is 0.

    All searches of a rollout get theirs at once: on a GPU, small kernels cost by their number.
    """
    return () if exploration_weight == 0 else (draw_log_gammas(key, alpha, (length, num_envs, num_actions)),)


#: Candidates per Gamma variable. The first one is accepted with a probability of at least 0.95 (shape 1), so that none
#: of them is with one of at most 1e-8.
_GAMMA_CANDIDATES = 6


def draw_log_gammas(key: PRNGKey, alpha: float, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Returns logarithms of Gamma(alpha) variables, by the rejection method of Marsaglia and Tsang (2000).

    With x normal and v = (1 + x / √(9d))³, d·v has the distribution Gamma(d + 1/3), if v is accepted. `jax.random`
    draws until all are accepted, in a loop whose end the host must wait for. Here all candidates are drawn at once, and
    the first accepted one counts. If none is, v = 1. An alpha below 1 is drawn as Gamma(alpha + 1) · U^(1/alpha).
    """
    key_normal, key_uniform, key_boost = jax.random.split(key, 3)
    d = alpha + 1.0 - 1.0 / 3.0
    x = jax.random.normal(key_normal, (_GAMMA_CANDIDATES, *shape))
    root = jnp.maximum(1.0 + x / jnp.sqrt(9.0 * d), 0.0)
    log_v = 3.0 * jnp.log(root)
    # 1 - U instead of U: U may be 0 and is never 1.
    log_uniform = jnp.log1p(-jax.random.uniform(key_uniform, x.shape))
    accepted = (root > 0.0) & (log_uniform < 0.5 * x**2 + d * (1.0 - root**3 + log_v))
    chosen = jnp.zeros(shape)
    for candidate in reversed(range(_GAMMA_CANDIDATES)):
        chosen = jnp.where(accepted[candidate], log_v[candidate], chosen)
    boost = jnp.log1p(-jax.random.uniform(key_boost, shape)) / alpha
    return jnp.log(d) + chosen + boost


def environment_model(
    environment: Environment, network: ActorCritic, params: ActorCriticParams, gamma: float = 1.0
) -> ModelFn:
    """Returns the search's model: one step of the true environment, then policy and value of the state reached."""

    def model_fn(key: PRNGKey, state: State, action: Action) -> ModelOutput:
        with jax.named_scope("simulate"):
            state, timestep = environment.step(key, state, network.distribution.to_environment(action))
        with jax.named_scope("network"):
            prior, value = network.actor_then_critic(params, timestep.observation, timestep.action_mask)
        return ModelOutput(
            state=state,
            prior=prior,
            value=value,
            reward=timestep.reward,
            discount=gamma * timestep.discount,
            ended=timestep.ended,
        )

    return model_fn


def evaluate_root(network: ActorCritic, params: ActorCriticParams, state: State, timestep: TimeStep) -> Root:
    """Returns one state as the root of a search. Use `jax.vmap` for the batch of roots that `search` takes."""
    prior, value = network.both(params, timestep.observation, timestep.action_mask)
    return Root(prior=prior, value=value, state=state)


# --- Metrics ----------------------------------------------------------------------------------------------------------
def search_metrics(root: Root, output: search.SearchOutput) -> Metrics:
    """Diagnostics of the last depth, and the difference between the values after and before the search, per root."""
    depths = output.diagnostics
    return {
        "search/ess": depths.ess[:, -1],
        "search/entropy": depths.entropy[:, -1],
        "search/num_root_actions": depths.num_root_actions[:, -1],
        "search/num_live": depths.num_live[:, -1],
        "search/value_gain": output.value - root.value,
        "search/valid": depths.valid,
    }


def improvement_metrics(
    root: Root,
    output: search.SearchOutput,
    log_prior: Float[Array, "B N"] | None,
    temperature: Float[Array, ""],
) -> Metrics:
    """KL divergences of the search's improved policy from the policy that it started with, per root.

    `log_prior` [B, N] is that of the samples whose advantages tune the temperature; None: all 1/N.
    """
    if log_prior is None:
        log_prior = jnp.full_like(output.weights, -jnp.log(output.weights.shape[1]))
    weights = jax.nn.softmax(log_prior + output.temperature_advantages / temperature, axis=1)
    # Of the samples that the temperature is tuned on: the KL divergence that ε_η bounds.
    metrics = {"search/kl": losses.kl_from_prior(weights, log_prior)}
    if output.action_weights is not None:
        # Of the weights as read out, from the policy without exploration noise.
        log_policy = jax.nn.log_softmax(root.prior)
        metrics["search/kl_to_policy"] = losses.kl_from_prior(output.action_weights, log_policy)
    return metrics
