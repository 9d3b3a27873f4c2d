"""Sampled AlphaZero (Hubert et al., "Learning and planning in complex action spaces", 2021), for all kinds of actions.

AlphaZero whose tree chooses among K draws from the policy rather than among all actions. Draws from π itself need no
correction of the prior: each has 1/K, an action drawn twice 2/K. The policy learns the shares of visits of the root's
draws. All else is AlphaZero.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from spo import search
from spo.algorithms.alphazero import ExpertIterationConfig, make_expert_iteration
from spo.algorithms.base import Algorithm, Setting
from spo.algorithms.tree_search import Candidates, CandidatesFn, TreeRoot, TreeSearchOutput, puct_search
from spo.checks import PositiveFloat, PositiveInt, UnitInterval
from spo.distributions import Distribution, Gaussian
from spo.networks import make_network
from spo.search.policies import check_dirichlet
from spo.types import Array, Float, PRNGKey


@dataclass(frozen=True)
class SampledAlphaZeroConfig(ExpertIterationConfig):
    """Hyper-parameters of Sampled AlphaZero. Defaults are the paper's (table "PPO and Sampled AlphaZero")."""

    num_envs: PositiveInt = 1024
    """Environments side by side, over all devices."""
    rollout_length: PositiveInt = 32
    """Steps in each of them per iteration."""
    num_updates: PositiveInt = 64
    """Gradient steps per iteration (the table's "epochs")."""
    batch_size: PositiveInt = 32
    """Sequences per gradient step, over all devices."""
    sequence_length: PositiveInt = 32
    """Steps per sequence."""
    entropy_coefficient: float = 0.005
    """What a nat of the policy's entropy is worth in its loss."""
    num_samples: PositiveInt = 20
    """Actions drawn at each node of the tree (K)."""
    dirichlet_alpha: PositiveFloat = 0.03
    """Concentration of the exploration noise on the root's draws."""
    root_exploration_weight: UnitInterval = 0.25
    """Share of that noise in the root's prior, in training only. 0: none."""
    root_action_noise: float = 0.001
    """Continuous actions: deviation of Gaussian noise on the root's draws (unsquashed), in training only. 0: none."""


def make_sampled_alphazero(setting: Setting, config: SampledAlphaZeroConfig) -> Algorithm:
    """Sampled AlphaZero on a task, as the training loop takes it."""
    if config.num_samples < 1:
        raise ValueError(f"num_samples is {config.num_samples}: a node needs at least 1 action to choose from.")
    if config.root_action_noise < 0:
        raise ValueError(f"root_action_noise is a standard deviation, got {config.root_action_noise}: use 0 or more.")
    check_dirichlet(config.root_exploration_weight, config.dirichlet_alpha)
    train = setting.task.train
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    candidates_fn = draw_candidates(network.distribution, config.num_samples)

    def search_fn(
        key: PRNGKey, root: search.Root, model_fn: search.ModelFn, explore: bool, greedy: bool
    ) -> TreeSearchOutput:
        key_candidates, key_noise, key_search = jax.random.split(key, 3)
        proposal = widened(root.prior, config.root_action_noise) if explore else root.prior
        candidates = jax.vmap(candidates_fn)(jax.random.split(key_candidates, root.value.shape[0]), proposal)
        if explore and config.root_exploration_weight > 0:
            log_prior = search.add_dirichlet_noise(
                key_noise, candidates.log_prior, fraction=config.root_exploration_weight, alpha=config.dirichlet_alpha
            )
            candidates = candidates._replace(log_prior=log_prior)
        return puct_search(
            key_search,
            TreeRoot(candidates, root.value, root.state),
            model_fn,
            num_simulations=config.num_simulations,
            gamma=config.gamma,
            greedy=greedy,
            candidates_fn=candidates_fn,
        )

    return make_expert_iteration(setting, config, network, search_fn)


def draw_candidates(distribution: Distribution, num_samples: int) -> CandidatesFn:
    """K draws from the policy π. Their prior is (β̂/β)π, which for β = π is β̂: how often each was drawn, over K.

    Among discrete draws of the same action the first stands for all of them, and the others are not to be taken.
    """

    def candidates_fn(key: PRNGKey, policy: Any) -> Candidates:
        actions = jax.vmap(distribution.sample, in_axes=(0, None))(jax.random.split(key, num_samples), policy)
        if distribution.num_actions(policy) is None:
            return Candidates(actions, log_prior=jnp.full(num_samples, -jnp.log(num_samples)))
        return Candidates(actions, log_prior=jnp.log(shares_of_draws(actions)))

    return candidates_fn


def shares_of_draws(actions: Array) -> Float[Array, " K"]:
    """How often each of K discrete actions is among them, over K; 0 for those that come up earlier already."""
    same = actions[:, None] == actions[None, :]
    comes_first = jnp.argmax(same, axis=1) == jnp.arange(actions.shape[0])
    return jnp.where(comes_first, jnp.mean(same, axis=1), 0.0)


def widened(policy: Any, deviation: float) -> Any:
    """The policy whose draws are those of `policy` with Gaussian noise added. Logits stay as they are."""
    if not isinstance(policy, Gaussian):
        return policy
    return Gaussian(policy.mean, jnp.sqrt(policy.scale**2 + deviation**2))
