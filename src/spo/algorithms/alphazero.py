"""AlphaZero and Gumbel AlphaZero, for discrete actions.

Both are expert iteration (`spo.algorithms.expert_iteration`) and differ in the search:

    AlphaZero          MuZero's search: PUCT, noise at the root; the improved policy is the share of visits
    Gumbel AlphaZero   Gumbel MuZero's search: sequential halving; the improved policy is softmax(logits + q)
"""

import functools
from dataclasses import dataclass

import jax

from spo import search
from spo.algorithms.base import Algorithm, Greedy, Setting
from spo.algorithms.expert_iteration import ExpertIterationConfig, make_expert_iteration
from spo.algorithms.tree_search import (
    Candidates,
    TreeLibrary,
    TreeRoot,
    TreeSearchOutput,
    gumbel_search,
    puct_search,
)
from spo.checks import PositiveFloat, PositiveInt, UnitInterval
from spo.networks import ActorCritic, make_network
from spo.types import DiscreteActions, PRNGKey


@dataclass(frozen=True)
class AlphaZeroConfig(ExpertIterationConfig):
    """Hyperparameters of AlphaZero. Defaults are the paper's (table "Hyperparameters for AlphaZero and PPO")."""

    dirichlet_alpha: PositiveFloat = 0.3
    """Concentration of the exploration noise. A small value puts the noise on few actions."""
    root_exploration_weight: UnitInterval = 0.25
    """Share of random noise in the search's prior over first actions, in training only. 0: none."""


@dataclass(frozen=True)
class GumbelAlphaZeroConfig(ExpertIterationConfig):
    """Hyperparameters of Gumbel AlphaZero. Defaults are the paper's for AlphaZero."""

    max_num_considered_actions: PositiveInt = 16
    """Largest number of first actions that a search tries, drawn without replacement."""


def make_alphazero(setting: Setting, config: AlphaZeroConfig) -> Algorithm:
    """Returns AlphaZero for a task."""
    search_fn = functools.partial(
        search_with_noise,
        num_simulations=config.num_simulations,
        gamma=config.gamma,
        exploration_weight=config.root_exploration_weight,
        dirichlet_alpha=config.dirichlet_alpha,
        library=config.tree_library,
    )
    return make_expert_iteration(setting, config, _discrete_network("alphazero", setting), search_fn)


def make_gumbel_alphazero(setting: Setting, config: GumbelAlphaZeroConfig) -> Algorithm:
    """Returns Gumbel AlphaZero for a task."""
    search_fn = functools.partial(
        search_with_gumbel,
        num_simulations=config.num_simulations,
        gamma=config.gamma,
        max_num_considered_actions=config.max_num_considered_actions,
        library=config.tree_library,
    )
    return make_expert_iteration(setting, config, _discrete_network("gumbel_alphazero", setting), search_fn)


def search_with_noise(
    key: PRNGKey,
    root: search.Root,
    model_fn: search.ModelFn,
    explore: bool,
    greedy: Greedy,
    *,
    num_simulations: int,
    gamma: float,
    exploration_weight: float,
    dirichlet_alpha: float,
    library: TreeLibrary = "spo",
) -> TreeSearchOutput:
    """Runs PUCT over all actions, with Dirichlet noise in the root's prior if `explore`."""
    key_noise, key_search = jax.random.split(key)
    prior = root.prior
    if explore and exploration_weight > 0:
        prior = search.add_dirichlet_noise(key_noise, prior, fraction=exploration_weight, alpha=dirichlet_alpha)
    return puct_search(
        key_search,
        TreeRoot(Candidates(None, prior), root.value, root.state),
        model_fn,
        num_simulations=num_simulations,
        gamma=gamma,
        greedy=greedy,
        library=library,
    )


def search_with_gumbel(
    key: PRNGKey,
    root: search.Root,
    model_fn: search.ModelFn,
    explore: bool,
    greedy: Greedy,
    *,
    num_simulations: int,
    gamma: float,
    max_num_considered_actions: int,
    library: TreeLibrary = "spo",
) -> TreeSearchOutput:
    """Runs sequential halving over all actions. Its Gumbel samples explore, in evaluation too: no noise is added."""
    del explore
    return gumbel_search(
        key,
        TreeRoot(Candidates(None, root.prior), root.value, root.state),
        model_fn,
        num_simulations=num_simulations,
        gamma=gamma,
        greedy=greedy,
        max_num_considered_actions=max_num_considered_actions,
        library=library,
    )


def _discrete_network(name: str, setting: Setting) -> ActorCritic:
    train = setting.task.train
    if not isinstance(train.action_spec, DiscreteActions):
        raise ValueError(f"{name} needs discrete actions: for continuous ones use sampled_alphazero.")
    return make_network(train.observation_spec, train.action_spec, setting.architecture)
