"""A run in a folder: what `spo train` does with the chain of intervals. Records, checkpoints, and what to say."""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, Protocol

import jax
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2, summary_pb2

from spo._version import __version__
from spo.reports.runs import read_records
from spo.reports.summary import summarise
from spo.training import checkpoints, processes
from spo.training.checkpoints import Checkpoint, Progress
from spo.training.experiment import Experiment, build
from spo.training.intervals import Chain, Clock, NonFiniteError, Record, begin, evaluate_finally, go_on, make_chain
from spo.training.run_folder import RunFolder, read_config, write_json


class Reporter(Protocol):
    """Tells people how a run goes. Called between intervals."""

    def start(self, experiment: Experiment, folder: RunFolder, total_env_steps: int, resumed_at: int) -> None: ...

    def log(self, record: Record) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


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
    clock = Clock()
    reporter = reporter if reporter is not None and processes.is_first() else SilentReporter()
    run_folder = RunFolder.open(folder) if resume else RunFolder.unused(folder)
    if resume:
        _check_resumed(run_folder, experiment, start_from)
        if run_folder.summary_path.exists():
            reporter.message(f"The run in {run_folder.path} is finished: there is nothing to resume.")
            return json.loads(run_folder.summary_path.read_text())
    enable_compilation_cache()
    built = build(experiment)
    chain = make_chain(experiment, built, clock, deterministic)
    abstract, num_devices = chain.programs.abstract_state, built.program.mesh.devices.size
    if not resume:  # not before here: settings that are refused leave no folder behind
        if start_from is not None:
            checkpoints.read_learner(start_from, abstract.learner)
        run_folder.create(experiment, start_from)
    position = checkpoints.restore(run_folder.checkpoints_path, abstract, num_devices, reporter.message)
    resumed_at = 0 if position is None else position.progress.iteration
    if position is not None:
        clock.go_on_from(position.progress)
    if processes.is_first():
        run_folder.record_start(iteration=resumed_at, deterministic=deterministic)
    log = _Log(run_folder, chain, reporter, position)
    saver = _Saver(run_folder, reporter, checkpoint_seconds, saved_at=None if position is None else resumed_at)
    per_iteration, num_iterations = built.algorithm.env_steps_per_iteration, chain.schedule.num_iterations
    reporter.start(experiment, run_folder, num_iterations * per_iteration, resumed_at * per_iteration)
    if jax.default_backend() == "gpu" and not deterministic:
        reporter.message("On a GPU the bits of two runs may differ: `--deterministic` makes them the same, and slower.")
    how_to_go_on = f"go on with `spo train --resume {run_folder.path}`."
    try:
        if position is None:
            from_file = run_folder.start_path.exists()
            learner = checkpoints.read_learner(run_folder.start_path, abstract.learner) if from_file else None
            position = log.mark(begin(chain, log.write, learner))
            saver.save_if_due(position, is_last=False)
        for reached in go_on(chain, log.write, position):
            position = log.mark(reached)
            saver.save_if_due(position, is_last=position.progress.iteration == num_iterations)
        evaluate_finally(chain, log.write, position)
    except KeyboardInterrupt:
        if jax.process_count() == 1:  # all write a checkpoint, or none: who knows whether the others were interrupted
            saver.save(position)
        reporter.message(f"Interrupted: {how_to_go_on}")
        raise
    except NonFiniteError as error:
        if position is None:
            raise NonFiniteError(
                f"{error} That is before the first update: look at the world and its rewards."
            ) from None
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
    if processes.is_first():
        write_json(run_folder.summary_path, _summary(run_folder, chain, position.progress, saver.last))
    processes.wait_for_all("the summary is written")
    return json.loads(run_folder.summary_path.read_text())


def enable_compilation_cache() -> None:
    """Keeps compiled programs in $SPO_CACHE, or ~/.cache/spo/jax, so that a second start of a run need not compile.

    A folder that was set in JAX's own way is left alone.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        path = Path(os.environ.get("SPO_CACHE") or "~/.cache/spo/jax").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(path))


# --- What is written --------------------------------------------------------------------------------------------------
class _Log:
    """Records, to metrics.jsonl, TensorBoard and the reporter. Only the first of several processes writes files."""

    def __init__(self, folder: RunFolder, chain: Chain, reporter: Reporter, position: Checkpoint | None):
        self._path = folder.metrics_path
        self._reporter = reporter
        self._boards: list[_Board] = []
        self._num_bytes = 0 if position is None else position.progress.metrics_bytes
        if not processes.is_first():
            return
        self._path.touch()
        if self._path.stat().st_size < self._num_bytes:
            raise ValueError(f"{self._path} is shorter than when the checkpoint was written: lines of it are lost.")
        os.truncate(self._path, self._num_bytes)  # what came after the checkpoint comes again
        iteration = 0 if position is None else position.progress.iteration + 1
        self._boards = [
            _Board(folder.tensorboard_path / f"seed_{seed}", iteration * chain.built.algorithm.env_steps_per_iteration)
            for seed in range(chain.experiment.num_seeds)
        ]

    def write(self, records: list[Record]) -> None:
        if processes.is_first():
            lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
            try:
                self._append(lines)
                for board, record in zip(self._boards, records, strict=True):
                    board.write(record)
            except OSError as error:
                raise OSError(f"Records can't be written to {self._path.parent}: {error.strerror}.") from error
            self._num_bytes += len(lines)
        for record in records:
            self._reporter.log(record)

    def mark(self, position: Checkpoint) -> Checkpoint:
        """The position, which knows from here on how many bytes of records lead to it."""
        return position._replace(progress=position.progress._replace(metrics_bytes=self._num_bytes))

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
        if processes.as_the_first_says(due):
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


def _check_resumed(folder: RunFolder, experiment: Experiment, start_from: Path | None) -> None:
    if start_from is not None:
        raise ValueError("A run that is resumed goes on from its own checkpoint: leave start_from (--from) out.")
    folder.check_same(experiment)


def _summary(folder: RunFolder, chain: Chain, progress: Progress, saved: checkpoints.Saved | None) -> dict[str, Any]:
    experiment, algorithm, clock = chain.experiment, chain.built.algorithm, chain.clock
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
