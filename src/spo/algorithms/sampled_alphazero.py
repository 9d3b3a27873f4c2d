"""Sampled AlphaZero (Hubert et al., "Learning and planning in complex action spaces", 2021), for all kinds of actions.

AlphaZero with a tree that chooses among K samples of the policy at every node, instead of all actions. Samples of π
itself need no correction of the prior: each has 1/K, and an action drawn twice has 2/K. The policy learns the share of
visits of the root's samples. Everything else is AlphaZero.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from spo import search
from spo.algorithms.base import Algorithm, Greedy, Setting
from spo.algorithms.expert_iteration import ExpertIterationConfig, make_expert_iteration
from spo.algorithms.tree_search import (
    Candidates,
    CandidatesFn,
    TreeLibrary,
    TreeRoot,
    TreeSearchOutput,
    puct_search,
)
from spo.checks import Multiplicity, NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval
from spo.distributions import Distribution, Gaussian
from spo.networks import make_network
from spo.types import Array, Float, PRNGKey


@dataclass(frozen=True)
class SampledAlphaZeroConfig(ExpertIterationConfig):
    """Hyperparameters of Sampled AlphaZero. Defaults are the paper's (table "PPO and Sampled AlphaZero")."""

    num_envs: PositiveInt = 1024
    """Number of parallel environments, over all devices."""
    rollout_length: PositiveInt = 32
    """Steps in each environment per iteration."""
    num_updates: PositiveInt = 64
    """Gradient updates after each rollout. The paper's tables call them epochs."""
    batch_size: PositiveInt = 32
    """Sequences per gradient update, over all devices."""
    sequence_length: PositiveInt = 32
    """Consecutive environment steps per sequence."""
    entropy_coefficient: float = 0.005
    """Weight of the entropy bonus, which keeps the policy random."""
    num_samples: Multiplicity = 20
    """Actions sampled at each node of the tree (K)."""
    dirichlet_alpha: PositiveFloat = 0.03
    """Concentration of the exploration noise. A small value puts the noise on few of the sampled actions."""
    root_exploration_weight: UnitInterval = 0.25
    """Share of random noise in the search's prior over sampled first actions, in training only. 0: none."""
    root_action_noise: NonNegativeFloat = 0.001
    """Continuous actions: standard deviation of noise on first actions, before squashing, in training. 0: none."""


def make_sampled_alphazero(setting: Setting, config: SampledAlphaZeroConfig) -> Algorithm:
    """Returns Sampled AlphaZero for a task."""
    train = setting.task.train
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    search_fn = functools.partial(
        search_samples,
        candidates_fn=functools.partial(sample_candidates, network.distribution, config.num_samples),
        num_simulations=config.num_simulations,
        gamma=config.gamma,
        exploration_weight=config.root_exploration_weight,
        dirichlet_alpha=config.dirichlet_alpha,
        action_noise=config.root_action_noise,
        library=config.tree_library,
    )
    return make_expert_iteration(setting, config, network, search_fn)


def search_samples(
    key: PRNGKey,
    root: search.Root,
    model_fn: search.ModelFn,
    explore: bool,
    greedy: Greedy,
    *,
    candidates_fn: CandidatesFn,
    num_simulations: int,
    gamma: float,
    exploration_weight: float,
    dirichlet_alpha: float,
    action_noise: float,
    library: TreeLibrary = "spo",
) -> TreeSearchOutput:
    """Runs PUCT over sampled actions, with noise on the root's samples and on their prior if `explore`."""
    key_candidates, key_noise, key_search = jax.random.split(key, 3)
    proposal = widen(root.prior, action_noise) if explore else root.prior
    candidates = jax.vmap(candidates_fn)(jax.random.split(key_candidates, root.value.shape[0]), proposal)
    if explore and exploration_weight > 0:
        log_prior = search.add_dirichlet_noise(
            key_noise, candidates.log_prior, fraction=exploration_weight, alpha=dirichlet_alpha
        )
        candidates = candidates._replace(log_prior=log_prior)
    return puct_search(
        key_search,
        TreeRoot(candidates, root.value, root.state),
        model_fn,
        num_simulations=num_simulations,
        gamma=gamma,
        greedy=greedy,
        candidates_fn=candidates_fn,
        library=library,
    )


def sample_candidates(distribution: Distribution, num_samples: int, key: PRNGKey, policy: Any) -> Candidates:
    """Returns K samples of the policy π. Their prior is (β̂/β)π, which for β = π is β̂: the frequency of each sample.

    Of equal discrete actions the first one gets the prior of all, and the others can't be chosen.
    """
    actions = jax.vmap(distribution.sample, in_axes=(0, None))(jax.random.split(key, num_samples), policy)
    if distribution.num_actions(policy) is None:
        return Candidates(actions, log_prior=jnp.full(num_samples, -jnp.log(num_samples)))
    return Candidates(actions, log_prior=jnp.log(sample_frequencies(actions)))


def sample_frequencies(actions: Array) -> Float[Array, " K"]:
    """Returns the frequency of each of K discrete actions among them. Of equal actions, all but the first get 0."""
    same = actions[:, None] == actions[None, :]
    comes_first = jnp.argmax(same, axis=1) == jnp.arange(actions.shape[0])
    return jnp.where(comes_first, jnp.mean(same, axis=1), 0.0)


def widen(policy: Any, deviation: float) -> Any:
    """Returns the policy with Gaussian noise of a standard deviation added to its samples. Logits are unchanged."""
    if not isinstance(policy, Gaussian):
        return policy
    return Gaussian(policy.mean, jnp.sqrt(policy.scale**2 + deviation**2))
