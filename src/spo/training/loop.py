"""The training loop, the same for all algorithms, for the command line and for `spo.train`.

`run` trains to the end, in memory or in a run folder. `train` makes a folder for a new run, or opens that of an
interrupted one, and calls `run`.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from spo.host import on_host
from spo.reports.run_files import read_config, read_summary
from spo.reports.summary import untrained_sentence
from spo.training import exports, memory, processes, run_log, signals
from spo.training.agreement import Agreement
from spo.training.checkpointer import Checkpointer
from spo.training.compilation_cache import enable_compilation_cache, removing_damaged
from spo.training.ending import saving_on_failure, write_summary
from spo.training.evaluation import num_other_episodes, other_prefix
from spo.training.experiment import Experiment
from spo.training.record_log import RecordLog
from spo.training.records import (
    Record,
    check_finite,
    check_metric_names,
    divide_by_episode_count,
    episode_metrics,
    mean_metrics,
)
from spo.training.run_folder import RunFolder
from spo.training.run_state import Progress, RunState, keep_best
from spo.training.search_memory import check_search_memory, describe_search
from spo.training.sinks.base import RunInfo, Sink, SinkGroup
from spo.training.sinks.json_lines import JsonLines
from spo.training.sinks.tensorboard import TensorBoard
from spo.training.tasks import prepare_task
from spo.training.trainer import Trainer, split_episodes
from spo.types import Array, DiscreteActions, Integer, PRNGKey, Task

#: Steps of a run over those that were asked for, above which a sentence says so.
MOST_EXCESS = 1.25


class Handle:
    """The handle of a run that callbacks receive."""

    def __init__(self, records: Sequence[Record]):
        self.stopped = False
        self.records = tuple(records)  # of the interval and of the evaluation at its end, see `spo.training.records`

    def stop(self) -> None:
        """Ends training after this interval. The final evaluation and the summary follow, as at the end of a run."""
        self.stopped = True


#: (metrics, handle) -> None, called after each interval. `metrics` has the means over seeds of the training metrics,
#: those of the evaluation at its end, if any, as "evaluation/NAME", and "env_steps".
Callback = Callable[[dict[str, float], Handle], None]


def run(
    trainer: Trainer,
    folder: RunFolder | None = None,
    sinks: Sequence[Sink] = (),
    *,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float | None = None,
    started_at: float | None = None,
) -> RunState:
    """Trains to the end of the schedule, evaluates the best parameters and returns the final state.

    Args:
      trainer: the experiment to run.
      folder: the folder of the run, which must exist. It receives metrics, checkpoints and the summary. The run
        continues from the last checkpoint in it, if there is one. None: the run is in memory only.
      sinks: receivers of records and messages.
      callbacks: functions that are called after each interval, in process 0. Each can stop the run.
      checkpoint_seconds: the least time between two checkpoints. None: see `Checkpointer`.
      started_at: the value of `time.perf_counter()` from which the times of the run are counted; by default, now.
    """
    _check(trainer)
    # A checkpoint needs all processes: with several of them, a signal takes effect when they agree.
    with signals.listen(folder is not None, raises=jax.process_count() == 1) as listener:
        sink = SinkGroup([*_file_sinks(folder), *sinks] if processes.is_first() else [])
        checkpointer = _make_checkpointer(folder, checkpoint_seconds, sink)
        state = None if folder is None else checkpointer.restore(trainer.abstract_state, trainer.num_devices)
        progress = None if state is None else state.progress
        log = RecordLog(trainer, sink, started_at, progress)
        agreement = Agreement(listener, -1 if progress is None else progress.iteration)
        with (
            contextlib.closing(sink),
            saving_on_failure(folder, checkpointer, sink, listener),
            contextlib.closing(agreement),
        ):
            _start(trainer, folder, sink, progress)
            with memory.explaining(lambda: trainer.abstract_state):
                if state is None:
                    if jax.default_backend() == "gpu" and jax.process_count() == 1:
                        trainer.compile_ahead()  # during the first evaluation: GPU programs take long to compile
                    state = _init(trainer, folder)
                    state = _evaluate(trainer, state, log)
                    _save_state(checkpointer, state, agreement)
                state = _train_to_end(trainer, state, log, checkpointer, agreement, callbacks)
            with memory.explaining(lambda: trainer.abstract_state, _advice_at_end(trainer, folder)):
                state = _evaluate_final(trainer, state, log)
            loaded = folder is not None and folder.starts_from_learner
            if untrained := untrained_sentence(state.progress.best_iterations, loaded):
                sink.message(untrained)
        if folder is not None:
            with listener.postponed():
                write_summary(folder, trainer, state.progress, checkpointer.saved)
    return state


def train(
    experiment: Experiment,
    folder: Path,
    *,
    task: Task | None = None,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    start_from: Path | None = None,
    checkpoint_seconds: float | None = None,
    deterministic: bool = False,
) -> dict[str, Any]:
    """Runs an experiment in a folder to its end and returns the summary, which is also in summary.json.

    Args:
      experiment: the settings.
      folder: a new folder; with `resume`, the folder of a run of the same experiment.
      task: the environments, if they can't be made by name.
      sinks: receivers of records and messages, beside the files of the folder.
      callbacks: functions that are called after each interval, in process 0. Each can stop the run.
      resume: continue from the last checkpoint. On the same machine, the run ends with the same bits as a run that was
        never interrupted.
      start_from: an exported learner, whose parameters are the first ones. The replay is empty at first.
      checkpoint_seconds: the least time between two checkpoints. None: see `Checkpointer`.
      deterministic: use only those GPU operations that give the same bits every time. They are slower. A CPU always
        gives the same bits.

    Times in the summary: `wall_seconds` is the whole run, over all its starts. `compile_seconds` is compilation.
    `training_seconds` is the intervals, without compilation, evaluations and checkpoints. `env_steps_per_second` is
    environment steps of all seeds over `training_seconds`. `time_to_first_update` is the time from the call to the end
    of the first iteration; the iterations of an interval are taken to be equally long.
    """
    started_at = time.perf_counter()
    if not resume:
        run_folder = RunFolder.unused(folder)
    sink = SinkGroup(sinks if processes.is_first() else [])
    experiment, task = prepare_task(experiment, task, message=sink.message)
    if resume:
        run_folder = _open_to_resume(folder, experiment, start_from)
    if resume and (summary := read_summary(run_folder.path)) is not None:
        sink.message(f"The run in {run_folder.path} is finished: there is nothing to resume.")
        return summary
    with processes.leaving_on_failure(run_folder.path), run_log.collecting() as log, contextlib.ExitStack() as stack:
        stack.enter_context(removing_damaged())
        if resume:
            stack.enter_context(run_folder.open_to_train())
            if changes := run_folder.store_evaluation(experiment):
                sink.message(f"From now on, evaluations differ: {changes}.")
        enable_compilation_cache()
        trainer = Trainer(experiment, task, deterministic=deterministic)
        _check(trainer)
        if not resume:  # only here: settings that are refused must not leave a folder behind
            if start_from is not None:
                exports.read_learner(start_from, trainer.abstract_state.learner)
            stack.enter_context(run_folder.create(experiment, start_from))
        if processes.is_first():
            log.write_to(run_folder.log_path)
        run(
            trainer,
            run_folder,
            sinks,
            callbacks=callbacks,
            checkpoint_seconds=checkpoint_seconds,
            started_at=started_at,
        )
    summary = read_summary(run_folder.path)
    assert summary is not None  # `run` has written it
    return summary


# --- Steps of the loop ------------------------------------------------------------------------------------------------


def _check(trainer: Trainer) -> None:
    """Raises ValueError if the metrics of the task have bad names, or if the search needs more memory than there is."""
    check_metric_names(trainer.task)
    check_search_memory(trainer.experiment, trainer.task, trainer.num_devices)


def _init(trainer: Trainer, folder: RunFolder | None) -> RunState:
    """Returns the state before the first iteration, with the learner from which the folder's run starts, if any."""
    train_state = trainer.init(_make_keys(trainer.experiment.seed).init)
    if folder is not None and folder.starts_from_learner:
        learner = exports.read_learner(folder.start_path, trainer.abstract_state.learner)
        train_state = train_state._replace(learner=learner)
    progress = Progress(
        iteration=0,
        env_steps_per_iteration=trainer.algorithm.env_steps_per_iteration,
        best_scores=(-np.inf,) * trainer.experiment.num_seeds,
        best_iterations=(0,) * trainer.experiment.num_seeds,
        num_devices=trainer.num_devices,
    )
    return RunState(train_state, train_state.learner, progress)


def _train_to_end(
    trainer: Trainer,
    state: RunState,
    log: RecordLog,
    checkpointer: Checkpointer,
    agreement: Agreement,
    callbacks: Sequence[Callback],
) -> RunState:
    """Trains and evaluates to the end of the schedule, or until a callback stops the run."""
    schedule = trainer.schedule
    for interval in schedule.intervals_after(state.progress.iteration):
        if state.progress.stopped:
            break
        state = _train(trainer, state, log)
        is_evaluated = schedule.evaluates_after(interval)
        if is_evaluated:
            state = _evaluate(trainer, state, log)
        stopped = _call_back(callbacks, log)
        if stopped and not is_evaluated:
            state = _evaluate(trainer, state, log)
        state = state._replace(progress=state.progress._replace(stopped=stopped))
        is_last = stopped or interval == schedule.num_intervals
        _save_state(checkpointer, state, agreement, is_last, is_evaluated)
    return state


def _save_state(
    checkpointer: Checkpointer,
    state: RunState,
    agreement: Agreement,
    is_last: bool = False,
    is_evaluated: bool = False,
) -> None:
    """Saves a complete state if it is time. Raises the exception of a signal that any process has received."""
    listener = agreement.listener
    with agreement.completing(state.progress.iteration):
        with listener.postponed():
            checkpointer.update(state, is_last, is_evaluated)
        number = processes.max_over_processes(listener.number or 0)
        if number:
            listener.number, listener.may_stop = number, True
            listener.stop()


def _train(trainer: Trainer, state: RunState, log: RecordLog) -> RunState:
    """Trains for one interval."""
    train_state, metrics, seconds = trainer.run(state.train_state)
    progress, num_iterations = state.progress, trainer.schedule.iterations_per_interval
    iteration = progress.iteration + num_iterations
    _check_finite(trainer, metrics, f"in iterations {progress.iteration + 1} to {iteration}")
    progress = log.stamp(progress._replace(iteration=iteration, training_seconds=progress.training_seconds + seconds))
    if progress.time_to_first_update is None:
        seconds_after_first = seconds * (1 - 1 / num_iterations)
        progress = progress._replace(time_to_first_update=progress.wall_seconds - seconds_after_first)
    env_steps = num_iterations * progress.env_steps_per_iteration * trainer.experiment.num_seeds
    log.write("train", progress, divide_by_episode_count(metrics), env_steps / seconds)
    return state._replace(train_state=train_state, progress=progress)


def _check_finite(trainer: Trainer, metrics: dict[str, np.ndarray], when: str) -> None:
    """Raises NonFiniteError for metrics that are infinite or NaN."""
    check_finite(metrics, when, discrete_actions=isinstance(trainer.task.train.action_spec, DiscreteActions))


def _evaluate(trainer: Trainer, state: RunState, log: RecordLog) -> RunState:
    """Evaluates the current learner and keeps it where it is the best so far."""
    config, iteration = trainer.experiment.evaluation, state.progress.iteration
    # The key depends on the iteration alone: a resumed run repeats the evaluation of an uninterrupted one.
    key = _make_keys(trainer.experiment.seed, iteration).evaluation
    metrics = _play_both_kinds(
        trainer, state.train_state.learner, key=key, num_episodes=config.episodes, use_search=config.use_search
    )
    _check_finite(trainer, metrics, f"in the evaluation after iteration {iteration}")
    progress = log.stamp(state.progress)
    log.write("evaluation", progress, metrics)
    return keep_best(state._replace(progress=progress), metrics["episode/return"])


def _play_both_kinds(
    trainer: Trainer, learner: Any, *, key: PRNGKey, num_episodes: int, use_search: bool
) -> dict[str, np.ndarray]:
    """Returns the metrics of episodes with drawn actions and with the best ones, of which one kind has fewer."""
    greedy = trainer.experiment.evaluation.greedy
    num_other = num_other_episodes(num_episodes)
    episodes = trainer.evaluate(learner, key, num_episodes, use_search=use_search, greedy=greedy, num_other=num_other)
    configured, other = split_episodes(episodes, num_episodes)
    return episode_metrics("episode", configured) | episode_metrics(other_prefix(greedy), other)


def _evaluate_final(trainer: Trainer, state: RunState, log: RecordLog) -> RunState:
    """Evaluates the best learner of each seed with more episodes, as in training and by the policy alone.

    The last learner gets the same episodes, unless it is the best one. Its actions are those of `evaluation.greedy`.
    """
    config, key = trainer.experiment.evaluation, _make_keys(trainer.experiment.seed).final
    searches = config.use_search and trainer.algorithm.model_steps_per_env_step > 0
    play = functools.partial(_play_both_kinds, trainer, key=key, num_episodes=config.final_episodes)
    policy_only = play(state.best_learner, use_search=False)
    metrics = dict(play(state.best_learner, use_search=True) if searches else policy_only)
    # One program serves the best and the last parameters. Of the last ones, only the configured actions are recorded.
    best_is_last = set(state.progress.best_iterations) == {state.progress.iteration}
    last = metrics if best_is_last else play(state.train_state.learner, use_search=searches)
    for prefix, found in (("policy_only/", policy_only), ("last/", last)):
        metrics |= {prefix + name[len("episode/") :]: found[name] for name in found if name.startswith("episode/")}
    _check_finite(trainer, metrics, "in the final evaluation")
    progress = log.stamp(state.progress)
    log.write("final", progress, metrics)
    return state._replace(progress=progress)


def _advice_at_end(trainer: Trainer, folder: RunFolder | None) -> str:
    """Returns the sentence about too little memory for the final evaluation, when all training is saved."""
    if folder is None:
        return memory.LOWER
    fewer = max(1, trainer.experiment.evaluation.final_episodes // 4)
    return (
        "Training is complete and saved: finish the run with fewer episodes, "
        f"`spo train --resume {folder.path} --evaluation.final-episodes {fewer}`."
    )


def _call_back(callbacks: Sequence[Callback], log: RecordLog) -> bool:
    """Calls the callbacks with the records of the interval. Returns True if one of them has stopped the run."""
    if not callbacks:
        return False
    handle = Handle(log.records)
    if processes.is_first():
        for callback in callbacks:
            callback(mean_metrics(log.records), handle)
    return signals.interruptible(processes.broadcast_from_process_0, handle.stopped)


class _Keys(NamedTuple):
    """Random keys of a run."""

    init: PRNGKey
    evaluation: PRNGKey  # after an iteration of training
    final: PRNGKey


def _make_keys(seed: int, iteration: int = 0) -> _Keys:
    """Returns the keys of initialisation, of the evaluation after an iteration and of the final evaluation."""
    with on_host():
        return _derive_keys(np.uint32(seed), np.uint32(iteration))


@jax.jit
def _derive_keys(seed: Integer[Array, ""], iteration: Integer[Array, ""]) -> _Keys:
    key_init, key_evaluation, key_final = jax.random.split(jax.random.key(seed), 3)
    return _Keys(key_init, jax.random.fold_in(key_evaluation, iteration), key_final)


# --- The folder of a run ----------------------------------------------------------------------------------------------


def _open_to_resume(path: Path, experiment: Experiment, start_from: Path | None) -> RunFolder:
    folder = RunFolder.open(path)
    if start_from is not None:
        raise ValueError("A resumed run continues from its own checkpoint: leave start_from (--from) out.")
    folder.check_same(experiment)
    return folder


def _file_sinks(folder: RunFolder | None) -> list[Sink]:
    return [] if folder is None else [JsonLines(folder.metrics_path), TensorBoard(folder.tensorboard_path)]


def _make_checkpointer(folder: RunFolder | None, seconds_between: float | None, sink: Sink) -> Checkpointer:
    if folder is None:
        return Checkpointer(None, None, seconds_between, sink.message)
    return Checkpointer(folder.checkpoints_path, folder.metrics_path, seconds_between, sink.message)


def _start(trainer: Trainer, folder: RunFolder | None, sink: Sink, resumed_from: Progress | None) -> None:
    """Records this start of the run and starts the sinks."""
    if folder is not None and processes.is_first():
        iteration = 0 if resumed_from is None else resumed_from.iteration
        evaluation = dataclasses.asdict(trainer.experiment.evaluation)  # may differ from that of earlier starts
        folder.record_start(iteration=iteration, deterministic=trainer.deterministic, evaluation=evaluation)
    per_iteration, schedule = trainer.algorithm.env_steps_per_iteration, trainer.schedule
    info = RunInfo(
        trainer.experiment,
        folder=None if folder is None else folder.path,
        total_env_steps=schedule.num_iterations * per_iteration,
        resumed_from=resumed_from,
        env_steps_per_interval=schedule.iterations_per_interval * per_iteration,
        can_render=trainer.task.evaluation.render is not None,
    )
    sink.start(info)
    if resumed_from is None and folder is not None and folder.starts_from_learner:
        sink.message(_describe_start(folder))
    if resumed_from is None and info.total_env_steps > MOST_EXCESS * trainer.experiment.steps:
        sink.message(_describe_excess(info))
    sink.message(trainer.describe_network())
    for sentence in describe_search(trainer.experiment, trainer.task, trainer.num_devices):
        sink.message(sentence)
    if jax.default_backend() == "gpu" and not trainer.deterministic:
        sink.message("On a GPU the bits of two runs may differ: `--deterministic` makes them the same, and slower.")


def _describe_excess(info: RunInfo) -> str:
    """Returns a sentence about a run that is much longer than the steps that were asked for."""
    steps = info.experiment.steps
    return (
        f"The run has {info.total_env_steps / steps:.1f} times the {steps:,.0f} steps that were asked for, as it ends "
        f"with a whole interval, of {info.env_steps_per_interval:,} steps: lower num_envs or rollout_length."
    )


def _describe_start(folder: RunFolder) -> str:
    """Returns a sentence about the saved agent whose parameters are the first ones of the run."""
    header, file = exports.read_header(folder.start_path), read_config(folder.path)["start_from"]["file"]
    iterations = ", ".join(f"{iteration:,}" for iteration in sorted(set(header["iteration"])))
    steps = ", ".join(f"{env_steps:,}" for env_steps in sorted(set(header["env_steps"])))
    return f"Starts from {file}: the {header['which']} parameters of its run, iteration {iterations} ({steps} steps)."
