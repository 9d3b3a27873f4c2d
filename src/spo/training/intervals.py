"""Training as a chain of intervals, the same for every algorithm. Nothing here touches a file.

Each interval is one call of one compiled program, and what the next one needs is a `Checkpoint`: between two intervals
a run can end, in whichever way, and go on as if it had not. `loop` runs the chain in a folder, `library` in memory.

What happens is told in records, one per seed, the same for all algorithms:

    kind         "train" (an interval), "evaluation" (during training; the first is of untrained parameters) or "final"
    seed         which of the seeds; env_steps, model_steps (imagined by the search), network_evaluations (states looked
                 at to decide) and iteration are each seed's own
    metrics      name -> number. "episode/..." are means over "episode/count" finished episodes; a "final" record has
                 "policy_only/..." beside them, of the policy without search
    time         wall_seconds of the run so far, and env_steps_per_second of all seeds together: the only numbers that a
                 second run with the same seed does not repeat
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.acting import Episodes
from spo.algorithms.base import TrainState
from spo.training import checkpoints
from spo.training.checkpoints import Checkpoint, Progress
from spo.training.experiment import Built, Experiment
from spo.training.processes import place_keys, to_host
from spo.training.program import shardings
from spo.types import PRNGKey

Record = dict[str, Any]
#: Hears the records of all seeds at once.
Log = Callable[[list[Record]], None]


class NonFiniteError(RuntimeError):
    """A number that training stands on became infinite or not a number."""


class Schedule(NamedTuple):
    """When things happen. All intervals are equally long: one program is compiled for all of them."""

    iterations_per_interval: int
    num_intervals: int
    num_evaluations: int

    @property
    def num_iterations(self) -> int:
        return self.num_intervals * self.iterations_per_interval

    def evaluates_after(self, interval: int) -> bool:
        """Whether interval 1 .. num_intervals ends with an evaluation. They are spread evenly; the last one does."""
        due = interval * self.num_evaluations // self.num_intervals
        return due > (interval - 1) * self.num_evaluations // self.num_intervals


def make_schedule(experiment: Experiment, env_steps_per_iteration: int) -> Schedule:
    """At least `experiment.steps` steps: the last interval is finished, which adds less than one interval to them."""
    num_evaluations, logs = experiment.evaluation.num_evaluations, experiment.logs_per_evaluation
    for name, value in (
        ("steps", experiment.steps),
        ("num_seeds", experiment.num_seeds),
        ("logs_per_evaluation", logs),
        ("evaluation.num_evaluations", num_evaluations),
        ("evaluation.episodes", experiment.evaluation.episodes),
        ("evaluation.final_episodes", experiment.evaluation.final_episodes),
    ):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    num_iterations = -(-round(experiment.steps) // env_steps_per_iteration)
    length = -(-num_iterations // (num_evaluations * logs))
    num_intervals = -(-num_iterations // length)
    return Schedule(length, num_intervals, min(num_evaluations, num_intervals))


# --- The chain --------------------------------------------------------------------------------------------------------
class Chain(NamedTuple):
    """What a chain of intervals is made of."""

    experiment: Experiment
    built: Built
    schedule: Schedule
    programs: "Programs"
    clock: "Clock"


def make_chain(experiment: Experiment, built: Built, clock: "Clock", deterministic: bool = False) -> Chain:
    schedule = make_schedule(experiment, built.algorithm.env_steps_per_iteration)
    return Chain(experiment, built, schedule, Programs(built, experiment, schedule, clock, deterministic), clock)


def begin(chain: Chain, log: Log, learner: Any = None) -> Checkpoint:
    """The state before the first interval, with this learner if one is given, and how good it is untrained."""
    state = chain.programs.init(_keys(chain.experiment).init)
    if learner is not None:
        state = state._replace(learner=learner)
    metrics = _evaluate(chain, state.learner, iteration=0)
    log(_records(chain, "evaluation", 0, metrics, env_steps_per_second=0.0))
    progress = Progress(
        iteration=0,
        env_steps_per_iteration=chain.built.algorithm.env_steps_per_iteration,
        best_scores=tuple(metrics["episode/return"].tolist()),
        best_iterations=(0,) * chain.experiment.num_seeds,
        metrics_bytes=0,
        num_devices=chain.built.program.mesh.devices.size,
        wall_seconds=0.0,
        compile_seconds=0.0,
        training_seconds=0.0,
        time_to_first_update=None,
    )
    return Checkpoint(state, state.learner, chain.clock.stamp(progress))


def go_on(chain: Chain, log: Log, position: Checkpoint) -> Iterator[Checkpoint]:
    """The intervals that are left: yields where the run stands after each."""
    experiment, built, schedule, programs, clock = chain
    first_interval = position.progress.iteration // schedule.iterations_per_interval + 1
    for interval in range(first_interval, schedule.num_intervals + 1):
        state, best_learner, progress = position
        state, metrics, seconds = programs.run(state)
        iteration = interval * schedule.iterations_per_interval
        _check_finite(metrics, f"in iterations {progress.iteration + 1} to {iteration}")
        clock.trained(seconds, iterations=schedule.iterations_per_interval)
        env_steps = schedule.iterations_per_interval * built.algorithm.env_steps_per_iteration * experiment.num_seeds
        log(_records(chain, "train", iteration, _episode_means(metrics), env_steps / seconds))
        progress = progress._replace(iteration=iteration)
        if schedule.evaluates_after(interval):
            metrics = _evaluate(chain, state.learner, iteration)
            log(_records(chain, "evaluation", iteration, metrics, clock.average_rate(progress, experiment)))
            best_learner, progress = keep_best(state, best_learner, progress, metrics["episode/return"])
        position = Checkpoint(state, best_learner, clock.stamp(progress))
        yield position


def evaluate_finally(chain: Chain, log: Log, position: Checkpoint) -> None:
    """Many episodes with each seed's best parameters: as in training, and by the policy alone."""
    judged, evaluate = chain.experiment.evaluation, chain.programs.evaluate
    key = _keys(chain.experiment).final
    searches = judged.use_search and chain.built.algorithm.model_steps_per_env_step > 0
    policy_only = evaluate(position.best_learner, key, judged.final_episodes, False)
    episodes = evaluate(position.best_learner, key, judged.final_episodes, True) if searches else policy_only
    metrics = _episode_metrics("episode", episodes) | _episode_metrics("policy_only", policy_only)
    _check_finite(metrics, "in the final evaluation")
    rate = chain.clock.average_rate(position.progress, chain.experiment)
    log(_records(chain, "final", position.progress.iteration, metrics, rate))


def keep_best(state: TrainState, best_learner: Any, progress: Progress, scores: np.ndarray) -> tuple[Any, Progress]:
    """Each seed's best learner so far, by mean return. Of equals the later one: it has seen more."""
    better = scores >= np.array(progress.best_scores)
    best_learner = _choose(better, state.learner, best_learner)
    return best_learner, progress._replace(
        best_scores=tuple(np.where(better, scores, progress.best_scores).tolist()),
        best_iterations=tuple(np.where(better, progress.iteration, progress.best_iterations).tolist()),
    )


@jax.jit
def _choose(first: jax.Array, if_true: Any, if_false: Any) -> Any:
    """Per seed, the leading axis of every leaf."""

    def choose(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(first.reshape(first.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, if_true, if_false)


def _evaluate(chain: Chain, learner: Any, iteration: int) -> dict[str, np.ndarray]:
    judged = chain.experiment.evaluation
    # The key depends on the iteration alone, so an evaluation is the same in a run that was resumed before it.
    key = jax.random.fold_in(_keys(chain.experiment).evaluation, iteration)
    episodes = chain.programs.evaluate(learner, key, judged.episodes, judged.use_search)
    metrics = _episode_metrics("episode", episodes)
    _check_finite(metrics, f"in the evaluation after iteration {iteration}")
    return metrics


class _Keys(NamedTuple):
    init: PRNGKey
    evaluation: PRNGKey
    final: PRNGKey


def _keys(experiment: Experiment) -> _Keys:
    return _Keys(*jax.random.split(jax.random.key(experiment.seed), 3))


class Programs:
    """The compiled programs. Compiling is apart from running, so that each can be timed."""

    def __init__(self, built: Built, experiment: Experiment, schedule: Schedule, clock: "Clock", deterministic: bool):
        self._program = built.program
        self._schedule = schedule
        self._greedy = experiment.evaluation.greedy
        self._deterministic = deterministic
        self._clock = clock
        self._shardings = shardings(built.program.mesh)
        self.abstract_state = checkpoints.abstract_state(built.program.init, self._shardings)
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def init(self, key: PRNGKey) -> TrainState:
        key = self._replicated(key)

        def init(key: PRNGKey) -> TrainState:
            # A restored array has no weak type. With one here, a resumed run would be another program.
            return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), self._program.init(key))

        return self._compile("init", jax.jit(init, out_shardings=self._shardings), key)(key)

    def run(self, state: TrainState) -> tuple[TrainState, dict[str, np.ndarray], float]:
        """One interval: the state after it, its metrics per seed, and the seconds it took."""
        run = self._compile("run", self._program.run, state, self._schedule.iterations_per_interval)
        start = time.perf_counter()
        state, metrics = jax.block_until_ready(run(state))
        return state, to_host(metrics), time.perf_counter() - start

    def evaluate(self, learner: Any, key: PRNGKey, num_episodes: int, use_search: bool) -> Episodes:
        key = self._replicated(key)
        static = (num_episodes, use_search, self._greedy)
        evaluate = self._compile(("evaluate", *static), self._program.evaluate, learner, key, *static)
        return to_host(evaluate(learner, key))

    def _replicated(self, key: PRNGKey) -> PRNGKey:
        return place_keys(np.asarray(jax.random.key_data(key)), self._shardings.learner)

    def _compile(self, name: Any, function: Any, *arguments: Any) -> Callable[..., Any]:
        if name not in self._compiled:
            start = time.perf_counter()
            options = None
            if self._deterministic and jax.default_backend() == "gpu":
                # Also keeps XLA from choosing kernels by their speed, which differs from one compilation to the next.
                options = {"xla_gpu_deterministic_ops": True}
            self._compiled[name] = function.lower(*arguments).compile(compiler_options=options)
            self._clock.compile_seconds += time.perf_counter() - start
        return self._compiled[name]


# --- Numbers ----------------------------------------------------------------------------------------------------------
def _records(
    chain: Chain, kind: str, iteration: int, metrics: dict[str, np.ndarray], env_steps_per_second: float
) -> list[Record]:
    """One per seed. A metric without a value (of episodes, when none has ended) is left out."""
    algorithm, wall_seconds = chain.built.algorithm, chain.clock.wall_seconds()
    env_steps = iteration * algorithm.env_steps_per_iteration
    return [
        {
            "kind": kind,
            "seed": seed,
            "iteration": iteration,
            "env_steps": env_steps,
            "model_steps": env_steps * algorithm.model_steps_per_env_step,
            "network_evaluations": env_steps * algorithm.network_evaluations_per_env_step,
            "metrics": {name: float(values[seed]) for name, values in metrics.items() if np.isfinite(values[seed])},
            "time": {"wall_seconds": wall_seconds, "env_steps_per_second": env_steps_per_second},
        }
        for seed in range(chain.experiment.num_seeds)
    ]


def _check_finite(metrics: dict[str, np.ndarray], when: str) -> None:
    for name, values in sorted(metrics.items()):
        if not np.all(np.isfinite(values)):
            seed = int(np.argmin(np.isfinite(values)))
            raise NonFiniteError(f"{name} became {values[seed]} {when} (seed {seed}).")


def _episode_means(metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sums over episodes turned into means; NaN where no episode ended."""
    count = metrics["episode/count"]
    with np.errstate(invalid="ignore"):
        return {
            name: value / count if name.startswith("episode/") and name != "episode/count" else value
            for name, value in metrics.items()
        }


def _episode_metrics(prefix: str, episodes: Episodes) -> dict[str, np.ndarray]:
    """Means over a seed's episodes, [seed]."""
    num_seeds, count = episodes.returns.shape
    values = {"return": episodes.returns, "length": episodes.lengths, **episodes.metrics}
    means = {f"{prefix}/{name}": np.mean(value, axis=1, dtype=np.float64) for name, value in values.items()}
    deviation = np.std(episodes.returns, axis=1, dtype=np.float64)
    return means | {f"{prefix}/return_deviation": deviation, f"{prefix}/count": np.full(num_seeds, count)}


class Clock:
    """Seconds of this run, those before it was resumed included."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._wall_seconds_before = 0.0
        self.compile_seconds = 0.0
        self.training_seconds = 0.0
        self.time_to_first_update: float | None = None

    def go_on_from(self, progress: Progress) -> None:
        self._wall_seconds_before = progress.wall_seconds
        self.compile_seconds += progress.compile_seconds
        self.training_seconds = progress.training_seconds
        self.time_to_first_update = progress.time_to_first_update

    def wall_seconds(self) -> float:
        return self._wall_seconds_before + time.perf_counter() - self._start

    def trained(self, seconds: float, iterations: int) -> None:
        self.training_seconds += seconds
        if self.time_to_first_update is None:
            self.time_to_first_update = self.wall_seconds() - seconds * (1 - 1 / iterations)

    def average_rate(self, progress: Progress, experiment: Experiment) -> float:
        """Environment steps of all seeds per second of training."""
        env_steps = progress.iteration * progress.env_steps_per_iteration * experiment.num_seeds
        return env_steps / self.training_seconds if self.training_seconds else 0.0

    def stamp(self, progress: Progress) -> Progress:
        return progress._replace(
            wall_seconds=self.wall_seconds(),
            compile_seconds=self.compile_seconds,
            training_seconds=self.training_seconds,
            time_to_first_update=self.time_to_first_update,
        )
