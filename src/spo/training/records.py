"""Records: the metrics of a run, in one form for all algorithms. metrics.jsonl has one record per line.

A record belongs to one seed and has these entries:

    kind         "train": one interval. "evaluation": during training; the first is of the untrained parameters.
                 "final": the best parameters at the end.
    seed         number of the seed, from 0
    iteration    iterations so far
    env_steps    environment steps so far
    model_steps  steps that the search has simulated so far
    network_evaluations
                 states that a network has evaluated to choose actions so far
    metrics      name -> number. "episode/..." are means over "episode/count" finished episodes. Evaluations also have
                 "greedy/...", the same for the best actions instead of drawn ones, or "drawn/..." if
                 `evaluation.greedy`. In a "final" record, "policy_only/..." are the same for the policy without
                 search, and "last/..." for the last parameters.
    time         wall_seconds: of the run so far. env_steps_per_second: of all seeds together. These are the only
                 numbers that differ between two runs with the same random seed.
"""

import statistics
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from spo.acting import Episodes
from spo.algorithms.base import Algorithm
from spo.host import abstract_key
from spo.reports.formatting import format_list
from spo.training.run_state import Progress
from spo.types import RESERVED_METRICS, Task

Record = dict[str, Any]


class NonFiniteError(FloatingPointError, RuntimeError):
    """A metric is infinite or NaN: training can't continue from here."""

    def __init__(self, text: str, from_environment: bool = False):
        super().__init__(text)
        #: True if the number came from the environment, and not from an update
        self.from_environment = from_environment


def make_records(
    algorithm: Algorithm,
    kind: str,
    progress: Progress,
    metrics: dict[str, np.ndarray],
    env_steps_per_second: float | None = None,
) -> list[Record]:
    """Returns one record per seed. Metrics that are not finite are left out: no episode has ended in the interval.

    Args:
      algorithm: the algorithm, for its costs per environment step.
      kind: "train", "evaluation" or "final".
      progress: progress of the run, with its times.
      metrics: name -> values [seed].
      env_steps_per_second: the speed to report; by default the mean speed of the run.
    """
    env_steps = progress.env_steps
    rate = progress.env_steps_per_second if env_steps_per_second is None else env_steps_per_second
    return [
        {
            "kind": kind,
            "seed": seed,
            "iteration": progress.iteration,
            "env_steps": env_steps,
            "model_steps": env_steps * algorithm.model_steps_per_env_step,
            "network_evaluations": env_steps * algorithm.network_evaluations_per_env_step,
            "metrics": {name: float(values[seed]) for name, values in metrics.items() if np.isfinite(values[seed])},
            "time": {"wall_seconds": progress.wall_seconds, "env_steps_per_second": rate},
        }
        for seed in range(len(progress.best_scores))
    ]


def check_metric_names(task: Task) -> None:
    """Raises ValueError if a metric of the environments has a reserved name: it would replace the number itself."""
    for environment in (task.train, task.evaluation):
        _, timestep = jax.eval_shape(environment.reset, abstract_key())
        if reserved := sorted(RESERVED_METRICS & timestep.metrics.keys()):
            raise ValueError(
                f"The environment {environment.name} has a metric called {reserved[0]!r}, which is a number of every "
                "record: give it another name in TimeStep.metrics."
            )


#: Prefixes of the metrics of episodes: sums of rewards, lengths, and the environment's own metrics.
_OF_EPISODES = ("episode/", "greedy/", "drawn/", "policy_only/", "last/")
#: Most metrics that an error names.
_NAMED = 4


def check_finite(metrics: dict[str, np.ndarray], when: str, *, discrete_actions: bool = False) -> None:
    """Raises NonFiniteError that names the metrics which are infinite or NaN for any seed, those of episodes first.

    A number of an episode comes from the environment. With continuous actions it can also follow from actions that are
    NaN, if the losses are NaN as well.
    """
    bad = [name for name in sorted(metrics) if not np.all(np.isfinite(metrics[name]))]
    if not bad:
        return
    bad.sort(key=lambda name: not name.startswith(_OF_EPISODES))
    of_episodes = [name for name in bad if name.startswith(_OF_EPISODES)]
    values = metrics[bad[0]]
    seed = int(np.argmin(np.isfinite(values)))
    others = [*bad[1:_NAMED], *([f"{len(bad) - _NAMED} more"] if len(bad) > _NAMED else [])]
    also = f", and so did {format_list(others)}" if others else ""
    text = f"{bad[0]} became {values[seed]} {when} (seed {seed}){also}."
    from_environment = bool(of_episodes) and (discrete_actions or len(of_episodes) == len(bad))
    if from_environment:
        text += (
            " The environment returned a reward or a metric that is not finite: "
            "`spo.check_environment(env, num_steps=500)` looks for it with random actions, and `jax.debug.print` in "
            "its step shows the values."
        )
    raise NonFiniteError(text, from_environment)


def mean_metrics(records: Sequence[Record]) -> dict[str, float]:
    """Returns means over seeds, with the names of `Callback`. Metrics that a seed lacks are left out."""
    means: dict[str, float] = {}
    for kind, prefix in (("train", ""), ("evaluation", "evaluation/")):
        per_seed = [record["metrics"] for record in records if record["kind"] == kind]
        for name in per_seed[0] if per_seed else ():
            values = [metrics[name] for metrics in per_seed if name in metrics]
            if len(values) == len(per_seed):
                means[prefix + name.removeprefix("episode/" if prefix else "")] = statistics.fmean(values)
    return means | {"env_steps": max(record["env_steps"] for record in records)}


def divide_by_episode_count(metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Turns the sums over episodes of a training interval into means; NaN where no episode has ended."""
    count = metrics["episode/count"]
    with np.errstate(invalid="ignore"):
        return {
            name: value / count if name.startswith("episode/") and name != "episode/count" else value
            for name, value in metrics.items()
        }


def episode_metrics(prefix: str, episodes: Episodes) -> dict[str, np.ndarray]:
    """Returns means over the episodes [seed, episode] of each seed, with their number and the spread of returns."""
    num_seeds, count = episodes.returns.shape
    values = {"return": episodes.returns, "length": episodes.lengths, **episodes.metrics}
    means = {f"{prefix}/{name}": np.mean(value, axis=1, dtype=np.float64) for name, value in values.items()}
    deviation = np.std(episodes.returns, axis=1, dtype=np.float64)
    return means | {f"{prefix}/return_deviation": deviation, f"{prefix}/count": np.full(num_seeds, count)}
