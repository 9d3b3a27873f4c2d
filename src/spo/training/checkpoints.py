"""Checkpoints of a run: named arrays in the format of Orbax, and JSON. Reading one executes nothing stored in it.

Orbax is imported when the first checkpoint is written or read: training in memory does not need it.
"""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from spo.algorithms.base import TrainState
from spo.training import named_arrays, processes
from spo.training.run_log import without_orbax_logs
from spo.training.run_state import Progress, RunState

#: Number of checkpoints to keep. The last but one serves if the last one is damaged.
NUM_KEPT = 2


class Saved(NamedTuple):
    """Size and duration of a checkpoint that was written."""

    num_bytes: int
    seconds: float


class DeviceCountError(ValueError):
    """A checkpoint of another number of devices: its replay can't be split anew."""


class Checkpointer:
    """Saves the states of a run, at most one in `seconds_between`, and the last one.

    It keeps the latest complete state, so that an interrupted run can save it. Without a folder, nothing is saved.
    """

    def __init__(
        self,
        folder: Path | None,
        metrics_path: Path | None,
        seconds_between: float,
        message: Callable[[str], None],
    ):
        self.latest: RunState | None = None
        self.saved: Saved | None = None  # the last checkpoint that this object has written
        self._folder = folder
        self._metrics_path = metrics_path
        self._seconds_between = seconds_between
        self._message = message
        self._last_time = time.perf_counter()
        self._saved_iteration: int | None = None

    def restore(self, abstract: TrainState, num_devices: int) -> RunState | None:
        """Returns the state of the last checkpoint, or None if there is none."""
        if self._folder is not None:
            self.latest = restore(self._folder, abstract, num_devices, self._message)
            self._saved_iteration = None if self.latest is None else self.latest.progress.iteration
        return self.latest

    def update(self, state: RunState, is_last: bool = False) -> None:
        """Receives the state after an interval, when all its records are written. Saves it if it is time."""
        if self._metrics_path is not None and processes.is_first():
            progress = state.progress._replace(metrics_bytes=self._metrics_path.stat().st_size)
            state = state._replace(progress=progress)
        self.latest = state
        due = is_last or time.perf_counter() - self._last_time >= self._seconds_between
        if processes.broadcast_from_process_0(due):
            self.save_latest()

    def save_latest(self) -> None:
        """Saves the latest complete state, unless it is saved already."""
        if self._folder is None or self.latest is None or self.latest.progress.iteration == self._saved_iteration:
            return
        self.saved = save(self._folder, self.latest)
        self._saved_iteration = self.latest.progress.iteration
        self._last_time = time.perf_counter()
        self._message(
            f"Checkpoint after iteration {self._saved_iteration}: {self.saved.num_bytes / 1e6:.1f} MB in "
            f"{self.saved.seconds:.1f} s."
        )


# --- Writing ----------------------------------------------------------------------------------------------------------


def save(folder: Path, state: RunState) -> Saved:
    """Writes a checkpoint, named after its iteration, and removes the oldest ones.

    Orbax writes it under another name and renames it when it is complete. Raises OSError if it can't be written;
    earlier checkpoints are then unchanged.
    """
    start = time.perf_counter()
    folder = folder.absolute()
    target = folder / str(state.progress.iteration)
    _remove_leftovers(folder)
    try:
        _save_items(target, state)
    except Exception as error:  # a full disk is an OSError, a ValueError or a RuntimeError, by who notices it first
        _remove_leftovers(folder)
        kept = iterations(folder)
        intact = f"The checkpoint of iteration {kept[-1]} is intact." if kept else "There is no earlier one."
        raise OSError(f"The checkpoint {target} can't be written: {_reason(error)}. {intact}") from error
    if processes.is_first():
        for iteration in iterations(folder)[:-NUM_KEPT]:
            _remove(folder / str(iteration))
    num_bytes = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return Saved(num_bytes, time.perf_counter() - start)


def iterations(folder: Path) -> list[int]:
    """Returns the iterations of the complete checkpoints, in order."""
    if not folder.exists():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())


def _save_items(target: Path, state: RunState) -> None:
    import orbax.checkpoint as ocp

    with without_orbax_logs():
        ocp.Checkpointer(ocp.CompositeCheckpointHandler()).save(
            target,
            args=ocp.args.Composite(
                learner=ocp.args.StandardSave(named_arrays.flatten(state.train_state.learner)),
                worker=ocp.args.StandardSave(named_arrays.flatten(state.train_state.worker)),
                best_learner=ocp.args.StandardSave(named_arrays.flatten(state.best_learner)),
                progress=ocp.args.JsonSave(state.progress._asdict()),
            ),
        )


# --- Reading ----------------------------------------------------------------------------------------------------------


def restore(folder: Path, abstract: TrainState, num_devices: int, message: Callable[[str], None]) -> RunState | None:
    """Returns the state of the last checkpoint that can be read; None if there is no checkpoint.

    Damaged checkpoints after it are renamed. If none can be read, a ValueError names the reasons and nothing changes.

    Args:
      folder: the folder of the checkpoints.
      abstract: shapes, types and shardings of the training state.
      num_devices: number of devices of this run; it must be that of the checkpoint.
      message: receives a sentence about each damaged checkpoint.
    """
    folder = folder.absolute()
    damaged: dict[int, str] = {}
    for iteration in reversed(iterations(folder)):
        try:
            state = _restore_state(folder / str(iteration), abstract, num_devices)
        except DeviceCountError:
            raise
        except Exception as error:  # Orbax and its storage libraries raise errors of many types
            if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
                raise  # the device is too small, and the checkpoint may be good
            if jax.process_count() > 1:  # other processes may have read it, and all must use the same one
                raise ValueError(
                    f"The checkpoint {folder / str(iteration)} is damaged ({_reason(error)}): move it away, and the "
                    "run is resumed from the one before."
                ) from error
            damaged[iteration] = _reason(error)
            continue
        for spoiled, reason in damaged.items():
            message(f"The checkpoint of iteration {spoiled} is damaged ({reason}). It is not used.")
            _set_aside(folder / str(spoiled))
        return state
    if damaged:
        reasons = "; ".join(f"iteration {iteration}: {reason}" for iteration, reason in damaged.items())
        raise ValueError(f"No checkpoint in {folder} can be read ({reasons}): start a new run in another folder.")
    return None


def restore_learner(folder: Path, abstract: Any, which: Literal["best", "last"]) -> Any:
    """Returns a learner of the last checkpoint. The replay is not read."""
    return _restore_item(_last_checkpoint(folder), "best_learner" if which == "best" else "learner", abstract)


def restore_progress(folder: Path) -> Progress:
    """Returns the progress of the last checkpoint."""
    return _restore_progress(_last_checkpoint(folder))


def _last_checkpoint(folder: Path) -> Path:
    found = iterations(folder)
    if not found:
        raise ValueError(f"There is no checkpoint in {folder} yet.")
    return folder.absolute() / str(found[-1])


def _restore_state(path: Path, abstract: TrainState, num_devices: int) -> RunState:
    progress = _restore_progress(path)
    if progress.num_devices != num_devices:
        raise DeviceCountError(
            f"The run uses {progress.num_devices} devices and here are {num_devices}: each has its own share of the "
            "replay, so resume it on as many; or export its learner and start a new run from it "
            "(`spo train --from FILE`)."
        )
    return RunState(
        train_state=TrainState(
            learner=_restore_item(path, "learner", abstract.learner),
            worker=_restore_item(path, "worker", abstract.worker),
        ),
        best_learner=_restore_item(path, "best_learner", abstract.learner),
        progress=progress,
    )


def _restore_item(path: Path, item: str, abstract: Any) -> Any:
    """Reads one part of a checkpoint onto the devices of `abstract`."""
    import orbax.checkpoint as ocp

    with without_orbax_logs():
        arguments = ocp.args.Composite(**{item: ocp.args.StandardRestore(named_arrays.flatten_abstract(abstract))})
        arrays = ocp.Checkpointer(ocp.CompositeCheckpointHandler()).restore(path, args=arguments)[item]
    return named_arrays.unflatten(abstract, arrays)


def _restore_progress(path: Path) -> Progress:
    import orbax.checkpoint as ocp

    with without_orbax_logs():
        arguments = ocp.args.Composite(progress=ocp.args.JsonRestore())
        data = ocp.Checkpointer(ocp.CompositeCheckpointHandler()).restore(path, args=arguments).progress
    tuples = {name: tuple(data[name]) for name in ("best_scores", "best_iterations")}
    return Progress(**{**data, **tuples})


# --- Files ------------------------------------------------------------------------------------------------------------


def _remove_leftovers(folder: Path) -> None:
    """Removes what an earlier process was writing or removing when it ended."""
    if processes.is_first() and folder.exists():
        for path in folder.iterdir():
            if path.name.endswith((".orbax-checkpoint-tmp", ".removed")):
                shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    # Renamed first: a part of a checkpoint must not have the name of a complete one.
    removed = path.with_name(f"{path.name}.removed")
    os.replace(path, removed)
    shutil.rmtree(removed, ignore_errors=True)


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)


def _reason(error: BaseException) -> str:
    """Returns the operating system's message ("No space left on device"), or else the first line of the error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    words, system_code, _ = first_line.partition(" [os_error_code")
    return words.rsplit(": ", 1)[-1] if system_code else words
