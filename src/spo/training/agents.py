"""Trained agents: a function that chooses actions, with its parameters and results. `save` writes one to a file."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.algorithms.base import Algorithm
from spo.checks import PositiveInt, Seed, check_value
from spo.reports.formatting import format_metric
from spo.training.act_inputs import make_check
from spo.training.saved_learners import Origin, save_learner
from spo.types import Action, Environment, PRNGKey, State, TimeStep

#: (episodes, use_search, greedy, seed, changed hyperparameters) -> results, see `Agent.evaluate`
Evaluator = Callable[[int, bool | None, bool | None, int, dict[str, Any]], dict[str, Any]]


class Learners(NamedTuple):
    """The learners of all seeds of a run, and their origin: the content of a saved agent."""

    #: leaves are [seed, ...]
    learner: Any
    #: settings and length of their training
    origin: Origin


@dataclass(frozen=True, eq=False)
class Agent:
    """A trained agent: a function that chooses actions, its parameters and the results of its training."""

    act: Callable[..., Action]
    """(key, state, timestep, *, use_search=True, greedy=False) -> action, for one state of the environment; jitted.
    A search starts from the state. Without search, or with an algorithm that has none, the state may be None, and the
    observation alone may stand for the time step: all discrete actions are then valid. Arguments of other shapes raise
    ValueError."""
    params: Any
    """Network parameters of one seed."""
    summary: dict[str, Any]
    """Results of the training, as described in `spo.train`."""
    learners: Learners | None = None
    """All that `save` writes. None: this agent can't be saved."""
    evaluator: Evaluator | None = None
    """Plays the episodes of `evaluate`. None: this agent has no environment."""

    def save(self, path: str | Path) -> Path:
        """Writes the agent to a file that `spo.load`, `spo evaluate` and `spo train --from` read. Returns its path.

        The file has the learners of all seeds, by name, and the settings as JSON. Reading it executes nothing that is
        stored in it.
        """
        check_value("path", path, Path)
        if self.learners is None:
            raise ValueError("This agent has no settings to save: use one that spo.train or spo.load returned.")
        save_learner(Path(path), *self.learners)
        return Path(path)

    def evaluate(
        self,
        episodes: PositiveInt = 128,
        *,
        use_search: bool | None = None,
        greedy: bool | None = None,
        seed: Seed = 0,
        config: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Plays episodes of the evaluation's environment and returns the results, as `spo evaluate` does.

        "return", "length" and, where there is one, "solved" are dictionaries with "mean", and "low" and "high", the
        ends of its 95 % interval between episodes. "other_actions" has the same for a quarter as many episodes with
        greedy actions, or with drawn ones if `greedy`.

        Args:
          episodes: number of episodes. They are played side by side.
          use_search: choose actions by the search. None: as in the evaluations of the training.
          greedy: take the most likely action instead of a random one. None: as in the evaluations of the training.
          seed: random seed of the episodes.
          config: hyperparameters that differ from those of the training, such as `{"search": {"horizon": 8}}`.
        """
        check_value("episodes", episodes, PositiveInt)
        check_value("use_search", use_search, bool | None)
        check_value("greedy", greedy, bool | None)
        check_value("seed", seed, Seed)
        check_value("config", config, dict | None)
        if self.evaluator is None:
            raise ValueError("This agent has no environment: use one that spo.train or spo.load returned.")
        return self.evaluator(episodes, use_search, greedy, seed, config or {})

    def __repr__(self) -> str:
        """Returns one line: algorithm, environment, number of parameters, steps and result."""
        count = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        parts = [f"{count:,} parameters"]
        if self.learners is not None:
            origin = self.learners.origin
            steps = max(origin.env_steps)
            parts.insert(0, f"{origin.experiment.algorithm} on {origin.experiment.task}")
            parts.append(f"{origin.which} of training: {steps:,} steps" if steps else "before training")
        if "return" in self.summary.get("final", {}):
            parts.append(f"return {format_metric('episode/return', self.summary['final']['return'])}")
        return f"Agent({', '.join(parts)})"


def make_agent(
    algorithm: Algorithm,
    learner: Any,
    summary: dict[str, Any],
    learners: Learners | None = None,
    environment: Environment | None = None,
    evaluator: Evaluator | None = None,
) -> Agent:
    """Returns an agent with the learner of one seed.

    Args:
      algorithm: the algorithm that trained it.
      learner: the learner of one seed.
      summary: results of the training.
      learners: the learners of all seeds, for `Agent.save`.
      environment: the environment against which the arguments of `act` are checked; None: they are not checked.
      evaluator: plays the episodes of `Agent.evaluate`.
    """

    @functools.partial(jax.jit, static_argnames=("use_search", "greedy"))
    def jitted(
        learner: Any, key: PRNGKey, state: State, timestep: TimeStep, *, use_search: bool = True, greedy: bool = False
    ) -> Action:
        batch_of_one = jax.tree.map(lambda x: jnp.asarray(x)[None], (state, timestep))
        actions = algorithm.act(learner, key, *batch_of_one, use_search=use_search, greedy=greedy)
        return jax.tree.map(lambda x: x[0], actions)

    searches = algorithm.model_steps_per_env_step > 0
    nothing, never = jnp.zeros(()), jnp.zeros((), bool)  # reward and ends of a time step that has an observation alone
    check = None if environment is None else make_check(environment, searches)

    def act(
        key: PRNGKey, state: State, timestep: TimeStep | Any, *, use_search: bool = True, greedy: bool = False
    ) -> Action:
        if not isinstance(timestep, TimeStep) and not (use_search and searches):
            timestep = TimeStep(timestep, nothing, never, never)
        if check is not None:
            check(key, state, timestep, use_search)
        # The learner is an argument of the compiled function, not a constant inside it.
        return jitted(learner, key, state, timestep, use_search=use_search, greedy=greedy)

    return Agent(act, getattr(learner, "params", learner), summary, learners, evaluator)


def select_seed(learner: Any, seed: int) -> Any:
    """Returns the learner of one seed from leaves [seed, ...]."""
    num_seeds = jax.tree.leaves(learner)[0].shape[0]
    if not 0 <= seed < num_seeds:  # JAX would use the nearest valid index
        raise ValueError(f"There are {num_seeds} seed(s), counted from 0: there is no member {seed}.")
    return jax.tree.map(lambda leaf: leaf[seed], learner)


__all__ = ["Agent", "Evaluator", "Learners", "make_agent", "select_seed"]
