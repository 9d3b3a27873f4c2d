"""Training as a function call, `spo.train(environment, steps=1e5)`, and agents of saved runs, `spo.load(folder)`."""

import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from spo import environments
from spo.algorithms.base import Algorithm
from spo.algorithms.registry import default_config
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig, Experiment
from spo.training.loop import run
from spo.training.records import Record
from spo.training.run_folder import load_learner
from spo.training.sinks.base import Sink
from spo.training.trainer import Trainer
from spo.types import Action, Environment, PRNGKey, State, Task, TimeStep

#: Settings of SPO for small or cheap environments. They need fewer steps than those of the paper, `SPOConfig()`.
SMALL = SPOConfig(
    num_envs=64, rollout_length=16, sequence_length=16, learning_rate=1e-3, dual_learning_rate=5e-3, trust_region=False
)
PAPER_NETWORK = NetworkConfig()
FEW_EVALUATIONS = EvaluationConfig(num_evaluations=10, final_episodes=128)


class Agent(NamedTuple):
    """A trained agent: a function that chooses actions, its parameters and the results of its training."""

    #: (key, state, timestep, *, use_search=True, greedy=False) -> action, for one state of the environment; jitted.
    #: Without search the state is not used and may be None.
    act: Callable[..., Action]
    #: Network parameters, those of the best evaluation.
    params: Any
    #: Results of the training, as described in `train`.
    summary: dict[str, Any]


def train(
    environment: Task | Environment | str,
    steps: float = 1e5,
    *,
    seed: int = 0,
    algorithm: str = "spo",
    config: Any = None,
    network: NetworkConfig = PAPER_NETWORK,
    evaluation: EvaluationConfig = FEW_EVALUATIONS,
    on_evaluation: Callable[[dict[str, float]], None] | None = None,
) -> Agent:
    """Trains on an environment and returns the agent with the parameters of the best evaluation.

    Its summary has the learning curve (`evaluations`), means over episodes before training (`initial`) and with the
    best parameters (`final`, and `final_policy_only` without search), `env_steps` and `wall_seconds`.

    Args:
      environment: a task; or an environment for training, evaluation and planning; or a name from `spo envs`.
      steps: number of environment steps. The run can be slightly longer: it ends with a whole interval.
      seed: random seed.
      algorithm: name of the algorithm.
      config: its hyperparameters. By default `SMALL` for SPO, and the paper's for other algorithms.
      network: sizes of the network.
      evaluation: number and length of the evaluations.
      on_evaluation: receives the means of every evaluation during training; for example `print`.
    """
    started_at = time.perf_counter()
    task = _to_task(environment)
    experiment = Experiment(
        task=task.train.name,
        algorithm=algorithm,
        steps=steps,
        seed=seed,
        num_devices=1,
        config=config if config is not None else SMALL if algorithm == "spo" else default_config(algorithm),
        network=network,
        evaluation=evaluation,
    )
    trainer = Trainer(experiment, task)
    evaluations = _Evaluations(on_evaluation)
    state = run(trainer, sinks=[evaluations], started_at=started_at)
    summary = evaluations.summary() | {"wall_seconds": state.progress.wall_seconds}
    return make_agent(trainer.algorithm, select_seed(state.best_learner, 0), summary)


def load(run: str | Path, *, which: Literal["best", "last"] = "best", member: int = 0) -> Agent:
    """Returns the agent of a saved run.

    Args:
      run: a folder that `spo train` wrote, or a file that `spo export` wrote.
      which: the parameters of the best evaluation, or the last ones.
      member: number of the seed, from 0, in a run with several seeds.
    """
    experiment, learner = load_learner(Path(run), which)
    summary_path = Path(run) / "summary.json"  # an exported file has none
    summary = json.loads(summary_path.read_text("utf-8")) if summary_path.exists() else {}
    return make_agent(Trainer(experiment).algorithm, select_seed(learner, member), summary)


def make_agent(algorithm: Algorithm, learner: Any, summary: dict[str, Any]) -> Agent:
    """Returns an agent with the learner of one seed."""

    @functools.partial(jax.jit, static_argnames=("use_search", "greedy"))
    def act(
        learner: Any, key: PRNGKey, state: State, timestep: TimeStep, *, use_search: bool = True, greedy: bool = False
    ) -> Action:
        batch_of_one = jax.tree.map(lambda x: jnp.asarray(x)[None], (state, timestep))
        actions = algorithm.act(learner, key, *batch_of_one, use_search=use_search, greedy=greedy)
        return jax.tree.map(lambda x: x[0], actions)

    # The learner is an argument of the compiled function, not a constant inside it.
    return Agent(functools.partial(act, learner), learner.params, summary)


def select_seed(learner: Any, seed: int) -> Any:
    """Returns the learner of one seed from leaves [seed, ...]."""
    num_seeds = jax.tree.leaves(learner)[0].shape[0]
    if not 0 <= seed < num_seeds:  # JAX would use the nearest valid index
        raise ValueError(f"There are {num_seeds} seed(s), counted from 0: there is no member {seed}.")
    return jax.tree.map(lambda leaf: leaf[seed], learner)


class _Evaluations(Sink):
    """Collects the evaluations of a run with one seed."""

    def __init__(self, on_evaluation: Callable[[dict[str, float]], None] | None):
        self._on_evaluation = on_evaluation
        self._initial: dict[str, float] = {}
        self._curve: list[dict[str, float]] = []
        self._final: Record = {}

    def log(self, records: Sequence[Record]) -> None:
        (record,) = records
        if record["kind"] == "final":
            self._final = record
        elif record["kind"] == "evaluation" and record["iteration"] == 0:
            self._initial = _means(record, "episode")
        elif record["kind"] == "evaluation":
            self._curve.append({"env_steps": record["env_steps"], **_means(record, "episode")})
            if self._on_evaluation is not None:
                self._on_evaluation(self._curve[-1])

    def summary(self) -> dict[str, Any]:
        return {
            "env_steps": self._final["env_steps"],
            "initial": self._initial,
            "final": _means(self._final, "episode"),
            "final_policy_only": _means(self._final, "policy_only"),
            "evaluations": self._curve,
        }


def _means(record: Record, prefix: str) -> dict[str, float]:
    """Returns the metrics "prefix/..." of a record, without the prefix."""
    metrics = record["metrics"].items()
    return {name.removeprefix(f"{prefix}/"): value for name, value in metrics if name.startswith(f"{prefix}/")}


def _to_task(environment: Task | Environment | str) -> Task:
    if isinstance(environment, str):
        return environments.make(environment)
    if isinstance(environment, Environment):
        return Task(train=environment, evaluation=environment, model=environment)
    if isinstance(environment, Task):
        return environment
    raise ValueError(
        f"Can't train on a {type(environment).__name__}: give a spo.types.Task, a spo.types.Environment or a name."
    )


__all__ = ["SMALL", "Agent", "load", "make_agent", "train"]
