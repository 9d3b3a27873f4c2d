"""Training as a function call, `spo.train(world, steps=1e5)`, and a saved run as an agent, `spo.load(folder)`.

The same intervals as those of `spo train`, without a folder and a display: for these, and for resuming, see
`spo.training.loop`.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from spo import environments
from spo.algorithms.base import Algorithm
from spo.algorithms.registry import default_config
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.training.experiment import EvaluationConfig, Experiment, build
from spo.training.intervals import Clock, Record, begin, evaluate_finally, go_on, make_chain
from spo.types import Action, Environment, PRNGKey, State, Task, TimeStep

#: For worlds that are small or cheap: learns from fewer steps than the paper's settings, which are `SPOConfig()`.
SMALL = SPOConfig(
    num_envs=64, rollout_length=16, sequence_length=16, learning_rate=1e-3, dual_learning_rate=5e-3, trust_region=False
)
PAPER_NETWORK = NetworkConfig()
FEW_EVALUATIONS = EvaluationConfig(num_evaluations=10, final_episodes=128)


class Agent(NamedTuple):
    """What training leaves to act with."""

    #: (key, state, timestep, *, use_search=True, greedy=False) -> action, for one state of the world; jitted. Without
    #: search nothing looks at the state: None will do.
    act: Callable[..., Action]
    params: Any
    summary: dict[str, Any]


def train(
    world: Task | Environment | str,
    steps: float = 1e5,
    *,
    seed: int = 0,
    algorithm: str = "spo",
    config: Any = None,
    network: NetworkConfig = PAPER_NETWORK,
    evaluation: EvaluationConfig = FEW_EVALUATIONS,
    on_evaluation: Callable[[dict[str, float]], None] | None = None,
) -> Agent:
    """Trains on a world and returns the agent with the parameters of the best evaluation.

    Its summary has the learning curve (`evaluations`), means over episodes before training (`initial`) and with the
    best parameters (`final`, and `final_policy_only` without search), `env_steps` and `wall_seconds`.

    Args:
        world: a task, an environment (to train in, to be judged in and to plan with) or a name from `spo envs`.
        steps: environment steps; the last interval is finished.
        seed: where all randomness comes from.
        algorithm, config, network, evaluation: as in an `Experiment`. Without a config, SPO's is `SMALL`, and another
            algorithm's the default of its own, which is the paper's (of SPO but for how it resamples).
        on_evaluation: called with the means of every evaluation during training, such as `print`.
    """
    task = _as_task(world)
    experiment = Experiment(
        task=task.train.name,
        algorithm=algorithm,
        steps=steps,
        seed=seed,
        num_devices=1,
        config=config or (SMALL if algorithm == "spo" else default_config(algorithm)),
        network=network,
        evaluation=evaluation,
    )
    curve: list[Record] = []

    def log(records: list[Record]) -> None:
        (record,) = records  # of one seed
        if record["kind"] != "train":
            curve.append(record)
        if on_evaluation is not None and _is_in_training(record):
            on_evaluation(_point(record))

    clock = Clock()
    built = build(experiment, task)
    chain = make_chain(experiment, built, clock)
    position = begin(chain, log)
    for reached in go_on(chain, log, position):
        position = reached
    evaluate_finally(chain, log, position)
    initial, *_, final = curve
    summary = {
        "env_steps": final["env_steps"],
        "initial": _means(initial),
        "final": _means(final),
        "final_policy_only": _means(final, "policy_only"),
        "evaluations": [_point(record) for record in curve if _is_in_training(record)],
        "wall_seconds": clock.wall_seconds(),
    }
    return make_agent(built.algorithm, _member(position.best_learner, 0), summary)


def load(run: str | Path, *, which: Literal["best", "last"] = "best", member: int = 0) -> Agent:
    """The agent of a run that `spo train` saved, or of a file that `spo export` wrote. `member` is one of its seeds."""
    import json

    from spo.training.run_folder import load_learner

    experiment, learner = load_learner(Path(run), which)
    summary_path = Path(run) / "summary.json"  # a file has none
    summary = json.loads(summary_path.read_text("utf-8")) if summary_path.exists() else {}
    return make_agent(build(experiment).algorithm, _member(learner, member), summary)


def make_agent(algorithm: Algorithm, learner: Any, summary: dict[str, Any]) -> Agent:
    """An agent from what one seed has learned."""

    @functools.partial(jax.jit, static_argnames=("use_search", "greedy"))
    def act(
        learner: Any, key: PRNGKey, state: State, timestep: TimeStep, *, use_search: bool = True, greedy: bool = False
    ) -> Action:
        batch_of_one = jax.tree.map(lambda x: jnp.asarray(x)[None], (state, timestep))
        actions = algorithm.act(learner, key, *batch_of_one, use_search=use_search, greedy=greedy)
        return jax.tree.map(lambda x: x[0], actions)

    # The learner is an argument of what is compiled, not a constant inside it.
    return Agent(functools.partial(act, learner), learner.params, summary)


def _as_task(world: Task | Environment | str) -> Task:
    if isinstance(world, str):
        return environments.make(world)
    if isinstance(world, Environment):
        return Task(train=world, evaluation=world, model=world)
    if isinstance(world, Task):
        return world
    raise ValueError(
        f"Can't train on a {type(world).__name__}: give a spo.types.Task, a spo.types.Environment or a name."
    )


def _is_in_training(record: Record) -> bool:
    return record["kind"] == "evaluation" and record["iteration"] > 0


def _point(record: Record) -> dict[str, float]:
    """Of the learning curve."""
    return {"env_steps": record["env_steps"], **_means(record)}


def _means(record: Record, prefix: str = "episode") -> dict[str, float]:
    """Over the episodes of a record, with their number and the spread of their returns."""
    metrics = record["metrics"].items()
    return {name.removeprefix(f"{prefix}/"): value for name, value in metrics if name.startswith(f"{prefix}/")}


def _member(learner: Any, member: int) -> Any:
    """One seed of a learner whose leaves are [seed, ...]."""
    num_seeds = jax.tree.leaves(learner)[0].shape[0]
    if not 0 <= member < num_seeds:  # JAX would take the nearest one
        raise ValueError(f"There are {num_seeds} seed(s), counted from 0: there is no member {member}.")
    return jax.tree.map(lambda leaf: leaf[member], learner)


__all__ = ["SMALL", "Agent", "load", "make_agent", "train"]
