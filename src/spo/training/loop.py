"""The loop, the same for every algorithm: intervals of training, evaluations, records, checkpoints.

A run is a chain of intervals. Each is one call of one compiled program, and what the next one needs is a `Checkpoint`:
between two intervals a run can end, in whichever way, and go on as if it had not.

metrics.jsonl has one record per line, the same for all algorithms:

    kind         "train" (an interval), "evaluation" (during training; the first is of untrained parameters) or "final"
    seed         which of the seeds; env_steps, model_steps (imagined by the search), network_evaluations (states looked
                 at to decide) and iteration are each seed's own
    metrics      name -> number. "episode/..." are means over "episode/count" finished episodes; a "final" record has
                 "policy_only/..." beside them, of the policy without search
    time         wall_seconds of the run so far, and env_steps_per_second of all seeds together (see `train`): the only
                 numbers that a second run with the same seed does not repeat
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2, summary_pb2

from spo._version import __version__
from spo.algorithms.base import Algorithm, TrainState
from spo.evaluation import Episodes
from spo.training import checkpoints
from spo.training.checkpoints import Checkpoint, Progress
from spo.training.experiment import Built, Experiment, build
from spo.training.program import shardings
from spo.training.report import read_records
from spo.training.run_folder import RunFolder, read_config, write_json
from spo.training.summary import summarise
from spo.types import PRNGKey

Record = dict[str, Any]


class Reporter(Protocol):
    """Tells people how a run goes. Called between intervals."""

    def start(self, experiment: Experiment, folder: RunFolder, total_env_steps: int, resumed_at: int) -> None: ...

    def log(self, record: Record) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


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


def train(
    experiment: Experiment,
    folder: Path,
    *,
    reporter: Reporter | None = None,
    resume: bool = False,
    start_from: Path | None = None,
    checkpoint_seconds: float = 60.0,
    deterministic: bool = False,
) -> dict[str, Any]:
    """Runs an experiment in `folder` to its end and returns its summary, as summary.json has it.

    Args:
        experiment: what to run.
        folder: where; a new one, or with `resume` that of a run of the same experiment.
        reporter: hears what happens.
        resume: go on from the last checkpoint. On the same machine the run ends with the same bits as one that was
            never interrupted.
        start_from: an exported learner to begin with. The replay begins empty.
        checkpoint_seconds: the least time between two checkpoints.
        deterministic: on a GPU, use operations only that give the same bits every time. They are slower. A CPU gives
            the same bits anyway.

    In the summary, `env_steps_per_second` is environment steps of all seeds over the seconds that compiled training
    intervals took (`training_seconds`): programs are compiled beforehand (`compile_seconds`), and evaluations and
    checkpoints don't count. `time_to_first_update` is the seconds from the call to the end of the first iteration, for
    which the first interval's time is shared out evenly. `wall_seconds` is all of it, over all starts of the run.
    """
    clock = _Clock()
    reporter = SilentReporter() if reporter is None else reporter
    run_folder = _open(experiment, folder, resume, start_from)
    if run_folder.summary_path.exists():
        reporter.message(f"The run in {run_folder.path} is finished: there is nothing to resume.")
        return json.loads(run_folder.summary_path.read_text())
    enable_compilation_cache()
    built = build(experiment)
    schedule = make_schedule(experiment, built.algorithm.env_steps_per_iteration)
    programs = _Programs(built, experiment, schedule, deterministic, clock)
    start = position = checkpoints.restore(
        run_folder.checkpoints_path, programs.abstract_state, built.program.mesh.devices.size, reporter.message
    )
    resumed_at = 0 if position is None else position.progress.iteration
    if position is not None:
        clock.go_on_from(position.progress)
    per_iteration = built.algorithm.env_steps_per_iteration
    if jax.process_index() == 0:
        run_folder.record_start(iteration=resumed_at, deterministic=deterministic)
    log = _Log(run_folder, experiment, built.algorithm, reporter, position)
    reporter.start(experiment, run_folder, schedule.num_iterations * per_iteration, resumed_at * per_iteration)
    if jax.default_backend() == "gpu" and not deterministic:
        reporter.message("On a GPU the bits of two runs may differ: `--deterministic` makes them the same, and slower.")
    saver = _Saver(run_folder, reporter, checkpoint_seconds, saved_at=None if position is None else resumed_at)
    how_to_go_on = f"go on with `spo train --resume {run_folder.path}`."
    try:
        for position in _positions(start, built, experiment, schedule, programs, run_folder, log, clock):
            saver.save_if_due(position, is_last=position.progress.iteration == schedule.num_iterations)
        assert position is not None  # a run has one interval at least
        _evaluate_finally(position, built, experiment, programs, log, clock)
    except KeyboardInterrupt:
        saver.save(position)
        reporter.message(f"Interrupted: {how_to_go_on}")
        raise
    except NonFiniteError as error:
        saver.save(position)
        raise NonFiniteError(
            f"{error} Training has stopped, and the state before that is kept. To go on from there with other settings "
            f"(a smaller learning rate, say): `spo export {run_folder.path} FILE --which last`, then "
            "`spo train --from FILE`."
        ) from None
    except OSError as error:
        raise OSError(f"{error} Once that is put right, {how_to_go_on}") from error
    finally:
        log.close()
        reporter.stop()
    summary = _summary(run_folder, experiment, built.algorithm, position.progress, saver.last, clock)
    if jax.process_index() == 0:
        write_json(run_folder.summary_path, summary)
    return summary


def enable_compilation_cache() -> None:
    """Keeps compiled programs in $SPO_CACHE, or ~/.cache/spo/jax, so that a second start of a run need not compile.

    A folder that was set in JAX's own way is left alone.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        path = Path(os.environ.get("SPO_CACHE") or "~/.cache/spo/jax").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(path))


# --- The chain of intervals -------------------------------------------------------------------------------------------
def _positions(
    position: Checkpoint | None,
    built: Built,
    experiment: Experiment,
    schedule: Schedule,
    programs: "_Programs",
    run_folder: RunFolder,
    log: "_Log",
    clock: "_Clock",
) -> Iterator[Checkpoint]:
    """Yields where the run stands: at its start, unless it is resumed, and after each interval."""
    per_iteration = built.algorithm.env_steps_per_iteration
    if position is None:
        position = _begin(built, experiment, programs, run_folder, log, clock)
        yield position
    first_interval = position.progress.iteration // schedule.iterations_per_interval + 1
    for interval in range(first_interval, schedule.num_intervals + 1):
        state, best_learner, progress = position
        state, metrics, seconds = programs.run(state)
        iteration = interval * schedule.iterations_per_interval
        _check_finite(metrics, f"in iterations {progress.iteration + 1} to {iteration}")
        clock.trained(seconds, iterations=schedule.iterations_per_interval)
        rate = schedule.iterations_per_interval * per_iteration * experiment.num_seeds / seconds
        log.write("train", iteration, _episode_means(metrics), clock.wall_seconds(), rate)
        progress = progress._replace(iteration=iteration)
        if schedule.evaluates_after(interval):
            metrics = _evaluate(programs, state.learner, iteration, experiment)
            log.write("evaluation", iteration, metrics, clock.wall_seconds(), clock.average_rate(progress, experiment))
            best_learner, progress = _keep_best(state, best_learner, progress, metrics["episode/return"])
        position = Checkpoint(state, best_learner, clock.stamp(progress._replace(metrics_bytes=log.num_bytes)))
        yield position


def _begin(
    built: Built, experiment: Experiment, programs: "_Programs", run_folder: RunFolder, log: "_Log", clock: "_Clock"
) -> Checkpoint:
    """The state before the first interval, and how good it is untrained."""
    state = programs.init(_keys(experiment).init)
    if run_folder.start_path.exists():
        learner = checkpoints.read_learner(run_folder.start_path, programs.abstract_state.learner)
        state = state._replace(learner=learner)
    metrics = _evaluate(programs, state.learner, 0, experiment)
    log.write("evaluation", 0, metrics, clock.wall_seconds(), 0.0)
    progress = Progress(
        iteration=0,
        env_steps_per_iteration=built.algorithm.env_steps_per_iteration,
        best_scores=tuple(metrics["episode/return"].tolist()),
        best_iterations=(0,) * experiment.num_seeds,
        metrics_bytes=log.num_bytes,
        num_devices=built.program.mesh.devices.size,
        wall_seconds=0.0,
        compile_seconds=0.0,
        training_seconds=0.0,
        time_to_first_update=None,
    )
    return Checkpoint(state, state.learner, clock.stamp(progress))


def _keep_best(state: TrainState, best_learner: Any, progress: Progress, scores: np.ndarray) -> tuple[Any, Progress]:
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


def _evaluate(programs: "_Programs", learner: Any, iteration: int, experiment: Experiment) -> dict[str, np.ndarray]:
    judged = experiment.evaluation
    # The key depends on the iteration alone, so an evaluation is the same in a run that was resumed before it.
    key = jax.random.fold_in(_keys(experiment).evaluation, iteration)
    episodes = programs.evaluate(learner, key, judged.episodes, judged.use_search)
    metrics = _episode_metrics("episode", episodes)
    _check_finite(metrics, f"in the evaluation after iteration {iteration}")
    return metrics


def _evaluate_finally(
    position: Checkpoint, built: Built, experiment: Experiment, programs: "_Programs", log: "_Log", clock: "_Clock"
) -> None:
    """Many episodes with each seed's best parameters: as in training, and by the policy alone."""
    judged = experiment.evaluation
    key = _keys(experiment).final
    searches = judged.use_search and built.algorithm.model_steps_per_env_step > 0
    policy_only = programs.evaluate(position.best_learner, key, judged.final_episodes, False)
    episodes = programs.evaluate(position.best_learner, key, judged.final_episodes, True) if searches else policy_only
    metrics = _episode_metrics("episode", episodes) | _episode_metrics("policy_only", policy_only)
    _check_finite(metrics, "in the final evaluation")
    rate = clock.average_rate(position.progress, experiment)
    log.write("final", position.progress.iteration, metrics, clock.wall_seconds(), rate)


class _Programs:
    """The compiled programs. Compiling is apart from running, so that each can be timed."""

    def __init__(self, built: Built, experiment: Experiment, schedule: Schedule, deterministic: bool, clock: "_Clock"):
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
        return state, _to_host(metrics), time.perf_counter() - start

    def evaluate(self, learner: Any, key: PRNGKey, num_episodes: int, use_search: bool) -> Episodes:
        key = self._replicated(key)
        static = (num_episodes, use_search, self._greedy)
        evaluate = self._compile(("evaluate", *static), self._program.evaluate, learner, key, *static)
        return _to_host(evaluate(learner, key))

    def _replicated(self, key: PRNGKey) -> PRNGKey:
        return jax.device_put(key, self._shardings.learner)

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
def _to_host(tree: Any) -> Any:
    """NumPy arrays of all of it, also of what other processes hold."""

    def fetch(x: jax.Array) -> np.ndarray:
        if x.is_fully_addressable or x.is_fully_replicated:
            return np.asarray(x)
        return np.asarray(multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(fetch, tree)


class _Keys(NamedTuple):
    init: PRNGKey
    evaluation: PRNGKey
    final: PRNGKey


def _keys(experiment: Experiment) -> _Keys:
    return _Keys(*jax.random.split(jax.random.key(experiment.seed), 3))


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


class _Clock:
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


# --- What is written --------------------------------------------------------------------------------------------------
class _Log:
    """Records, to metrics.jsonl, TensorBoard and the reporter. Only the first of several processes writes files."""

    def __init__(
        self,
        folder: RunFolder,
        experiment: Experiment,
        algorithm: Algorithm,
        reporter: Reporter,
        position: Checkpoint | None,
    ):
        self._path = folder.metrics_path
        self._algorithm = algorithm
        self._reporter = reporter
        self._boards: list[_Board] = []
        self.num_bytes = 0 if position is None else position.progress.metrics_bytes
        if jax.process_index() > 0:
            return
        self._path.touch()
        if self._path.stat().st_size < self.num_bytes:
            raise ValueError(f"{self._path} is shorter than when the checkpoint was written: lines of it are lost.")
        os.truncate(self._path, self.num_bytes)  # what came after the checkpoint comes again
        iteration = 0 if position is None else position.progress.iteration + 1
        self._boards = [
            _Board(folder.tensorboard_path / f"seed_{seed}", iteration * algorithm.env_steps_per_iteration)
            for seed in range(experiment.num_seeds)
        ]

    def write(
        self, kind: str, iteration: int, metrics: dict[str, np.ndarray], wall_seconds: float, rate: float
    ) -> None:
        """One record per seed. A metric without a value (of episodes, when none has ended) is left out."""
        env_steps = iteration * self._algorithm.env_steps_per_iteration
        num_seeds = len(metrics["episode/count"])
        records = [
            {
                "kind": kind,
                "seed": seed,
                "iteration": iteration,
                "env_steps": env_steps,
                "model_steps": env_steps * self._algorithm.model_steps_per_env_step,
                "network_evaluations": env_steps * self._algorithm.network_evaluations_per_env_step,
                "metrics": {name: float(values[seed]) for name, values in metrics.items() if np.isfinite(values[seed])},
                "time": {"wall_seconds": wall_seconds, "env_steps_per_second": rate},
            }
            for seed in range(num_seeds)
        ]
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        self.num_bytes += len(lines)
        if jax.process_index() == 0:
            try:
                self._append(lines)
                for board, record in zip(self._boards, records, strict=True):
                    board.write(record)
            except OSError as error:
                raise OSError(f"Records can't be written to {self._path.parent}: {error.strerror}.") from error
        for record in records:
            self._reporter.log(record)

    def _append(self, lines: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for board in self._boards:
            board.close()


class _Board:
    """TensorBoard events of one seed, written at once: tensorboardX's own writer does so in a thread of its own, which
    a full disk ends in silence."""

    def __init__(self, folder: Path, first_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{first_step}")
        # Whatever an earlier start of this run wrote from here on is not shown.
        restart = event_pb2.SessionLog(status=event_pb2.SessionLog.SessionStatus.Value("START"))
        self._writer.write_event(event_pb2.Event(wall_time=time.time(), step=first_step, session_log=restart))

    def write(self, record: Record) -> None:
        numbers = record["metrics"] | {f"time/{name}": value for name, value in record["time"].items()}
        values = [
            summary_pb2.Summary.Value(tag=f"{record['kind']}/{name}", simple_value=value)
            for name, value in numbers.items()
        ]
        summary = summary_pb2.Summary(value=values)
        self._writer.write_event(event_pb2.Event(wall_time=time.time(), step=record["env_steps"], summary=summary))
        self._writer.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full: that was said already
            self._writer.close()


class _Saver:
    """Checkpoints, not more often than asked for."""

    def __init__(self, folder: RunFolder, reporter: Reporter, seconds_between: float, saved_at: int | None):
        self._path = folder.checkpoints_path
        self._reporter = reporter
        self._seconds_between = seconds_between
        self._last_time = time.perf_counter()
        self._saved_at = saved_at
        self.last: checkpoints.Saved | None = None

    def save_if_due(self, position: Checkpoint, is_last: bool) -> None:
        due = is_last or time.perf_counter() - self._last_time >= self._seconds_between
        if jax.process_count() > 1:
            # Clocks differ, and a checkpoint is written by all processes or by none.
            due = bool(multihost_utils.broadcast_one_to_all(np.array(due)))
        if due:
            self.save(position)

    def save(self, position: Checkpoint | None) -> None:
        if position is None or position.progress.iteration == self._saved_at:
            return
        self.last = checkpoints.save(self._path, position)
        self._saved_at = position.progress.iteration
        self._last_time = time.perf_counter()
        self._reporter.message(
            f"Checkpoint after iteration {self._saved_at}: {self.last.num_bytes / 1e6:.1f} MB in "
            f"{self.last.seconds:.1f} s."
        )


class SilentReporter:
    """Says nothing."""

    def start(self, experiment: Experiment, folder: RunFolder, total_env_steps: int, resumed_at: int) -> None:
        pass

    def log(self, record: Record) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


def _open(experiment: Experiment, folder: Path, resume: bool, start_from: Path | None) -> RunFolder:
    if not resume:
        return RunFolder.create(folder, experiment, start_from)
    if start_from is not None:
        raise ValueError("A run that is resumed goes on from its own checkpoint: leave start_from (--from) out.")
    run_folder = RunFolder.open(folder)
    run_folder.check_same(experiment)
    return run_folder


def _summary(
    folder: RunFolder,
    experiment: Experiment,
    algorithm: Algorithm,
    progress: Progress,
    saved: checkpoints.Saved | None,
    clock: "_Clock",
) -> dict[str, Any]:
    env_steps = progress.iteration * progress.env_steps_per_iteration
    device = jax.devices()[0]
    return {
        "task": experiment.task,
        "algorithm": experiment.algorithm,
        "seed": experiment.seed,
        "num_seeds": experiment.num_seeds,
        "env_steps": env_steps,
        "model_steps": env_steps * algorithm.model_steps_per_env_step,
        "network_evaluations": env_steps * algorithm.network_evaluations_per_env_step,
        "iterations": progress.iteration,
        "best_env_steps_per_seed": [i * progress.env_steps_per_iteration for i in progress.best_iterations],
        **summarise(read_records(folder.metrics_path)),
        "wall_seconds": clock.wall_seconds(),
        "compile_seconds": clock.compile_seconds,
        "training_seconds": clock.training_seconds,
        "env_steps_per_second": clock.average_rate(progress, experiment),
        "time_to_first_update": clock.time_to_first_update,
        "checkpoint_bytes": None if saved is None else saved.num_bytes,
        "checkpoint_seconds": None if saved is None else saved.seconds,
        "device": device.device_kind,
        "num_devices": progress.num_devices,
        "start_from": read_config(folder.path)["start_from"],
        "spo_version": __version__,
    }
