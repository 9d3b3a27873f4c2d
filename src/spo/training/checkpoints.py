"""Checkpoints of a run: named arrays in the format of Orbax, and JSON. Reading one executes nothing stored in it.

Orbax is imported when the first checkpoint is written or read: training in memory does not need it.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from spo import files
from spo.algorithms.base import TrainState
from spo.reports.run_files import LATEST, METRICS_CHECKSUM
from spo.training import checksums, named_arrays, processes
from spo.training.memory import is_out_of_memory
from spo.training.run_log import without_orbax_logs
from spo.training.run_state import Progress, RunState

#: Number of checkpoints to keep. The last but one serves if the last one is damaged.
NUM_KEPT = 2

_ITEMS = ("learner", "worker", "best_learner", "progress")
#: Errors of the operating system by which a checkpoint is damaged: a part is missing or of another kind. Other errors
#: (of the disk or the network, too many open files) are none about its content.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
#: Endings of the names of checkpoints that are being written or removed.
_UNSEALED, _REMOVED = ".unsealed", ".removed"
#: Entry of the progress in a file: without it, an earlier version wrote the checkpoint, which has no checksums.
_HAS_CHECKSUMS = "has_checksums"


class Saved(NamedTuple):
    """Size and duration of a checkpoint that was written."""

    num_bytes: int
    seconds: float


class DeviceCountError(ValueError):
    """A checkpoint of another number of devices: its replay can't be split anew."""


# --- Writing ----------------------------------------------------------------------------------------------------------


def save(folder: Path, state: RunState) -> Saved:
    """Writes a checkpoint, named after its iteration, and removes the oldest ones.

    Orbax writes it under another name. It gets its own when it is complete and has its checksums. Raises OSError if it
    can't be written; earlier checkpoints are then unchanged.
    """
    start = time.perf_counter()
    folder = folder.absolute()
    target = folder / str(state.progress.iteration)
    unsealed = target.with_name(f"{target.name}{_UNSEALED}")
    remove_leftovers(folder)
    try:
        _save_items(unsealed, state)
        _seal(unsealed, target, state.progress)
    except Exception as error:  # a full disk is an OSError, a ValueError or a RuntimeError, by who notices it first
        remove_leftovers(folder)
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
        # With all processes named, Orbax waits for them without the devices, which may run a program that was given up.
        everyone = None if jax.process_count() == 1 else set(range(jax.process_count()))
        options = ocp.options.MultiprocessingOptions(active_processes=everyone)
        handler = ocp.CompositeCheckpointHandler(
            composite_options=ocp.CompositeOptions(multiprocessing_options=options)
        )
        ocp.Checkpointer(handler, multiprocessing_options=options).save(
            target,
            args=ocp.args.Composite(
                learner=ocp.args.StandardSave(named_arrays.flatten(state.train_state.learner)),
                worker=ocp.args.StandardSave(named_arrays.flatten(state.train_state.worker)),
                best_learner=ocp.args.StandardSave(named_arrays.flatten(state.best_learner)),
                progress=ocp.args.JsonSave({**state.progress._asdict(), _HAS_CHECKSUMS: True}),
            ),
        )


def _seal(unsealed: Path, target: Path, progress: Progress) -> None:
    """Adds the checksums of all files and renames the folder, in process 0. All processes receive the outcome."""
    failure: OSError | None = None
    if processes.is_first():
        try:
            checksums.write(unsealed)
            unsealed.rename(target)
            files.sync_folder(target.parent)
            with contextlib.suppress(OSError):  # a full disk: the checkpoint itself is complete
                _store_latest(target.parent, progress)
        except OSError as error:
            failure = error
    if not processes.broadcast_from_process_0(failure is None):
        raise failure or OSError("process 0 can't write its checksums")


# --- Reading ----------------------------------------------------------------------------------------------------------


def restore(folder: Path, abstract: TrainState, num_devices: int, message: Callable[[str], None]) -> RunState | None:
    """Returns the state of the last checkpoint that can be read; None if there is no checkpoint.

    Damaged checkpoints after it are renamed. If none can be read, a ValueError names the reasons and nothing changes.
    An error of the operating system while one is read is no damage: it is raised as an OSError.

    Args:
      folder: the folder of the checkpoints.
      abstract: shapes, types and shardings of the training state.
      num_devices: number of devices of this run; it must be that of the checkpoint.
      message: receives a sentence about each damaged checkpoint, and about one without checksums.
    """
    folder = folder.absolute()
    damaged = _missing(folder)
    for iteration in reversed(iterations(folder)):
        path = folder / str(iteration)
        try:
            _check_in_process_0(path)
            state, has_checksums = _restore_state(path, abstract, num_devices)
        except (DeviceCountError, UnreadableError):
            raise
        except Exception as error:  # Orbax and its storage libraries raise errors of many types
            if isinstance(explained := _explain(path, error), UnreadableError):
                raise explained from error
            if is_out_of_memory(error):
                raise  # the device is too small, and the checkpoint may be good
            if jax.process_count() > 1 and not isinstance(error, _DamagedError):
                # Other processes may have read it, and all must use the same one.
                raise ValueError(
                    f"The checkpoint {path} is damaged ({_reason(error)}): move it away, and the run is resumed from "
                    "the one before."
                ) from error
            damaged[iteration] = _reason(error)
            continue
        _report(damaged, iteration, has_checksums, message)
        if damaged and processes.is_first():
            for spoiled in damaged:
                _set_aside(folder / str(spoiled))
            _store_latest(folder, state.progress)
        return state
    if damaged:
        raise _no_checkpoint(folder, damaged)
    return None


def restore_learner(
    folder: Path, abstract: Any, which: Literal["best", "last"], message: Callable[[str], None]
) -> tuple[Any, Progress]:
    """Returns a learner of the last checkpoint that can be read, and its progress. The replay is not read.

    Nothing in the folder changes. The run may be in training: a checkpoint that is removed meanwhile is passed over.
    """
    folder, item = folder.absolute(), "best_learner" if which == "best" else "learner"
    missing = _missing(folder)
    damaged: dict[int, str] = {}
    while untried := [iteration for iteration in iterations(folder) if iteration not in damaged]:
        path = folder / str(untried[-1])
        try:
            if checksums.exist(path):
                checksums.check(path, (item, "progress"))
            progress, has_checksums = _restore_progress(path)
            learner = _restore_item(path, item, abstract)
        except Exception as error:
            if isinstance(explained := _explain(path, error), UnreadableError) and path.exists():
                raise explained from error
            if is_out_of_memory(error):
                raise
            damaged[untried[-1]] = _reason(error)
            continue
        still_there = {iteration: reason for iteration, reason in damaged.items() if (folder / str(iteration)).exists()}
        _report(missing | still_there, progress.iteration, has_checksums, message)
        return learner, progress
    if missing | damaged:
        raise _no_checkpoint(folder, missing | damaged)
    raise ValueError(f"There is no checkpoint in {folder} yet.")


def _report(damaged: dict[int, str], used: int, has_checksums: bool, message: Callable[[str], None]) -> None:
    for iteration, reason in damaged.items():
        message(f"The checkpoint of iteration {iteration} is damaged ({reason}): that of iteration {used} is used.")
    if not has_checksums:
        message(
            f"The checkpoint of iteration {used} has no checksums, because an earlier version wrote it: damage to it "
            "may not be noticed."
        )


def _no_checkpoint(folder: Path, damaged: dict[int, str]) -> ValueError:
    reasons = "; ".join(f"iteration {iteration}: {reason}" for iteration, reason in damaged.items())
    return ValueError(f"No checkpoint in {folder} can be read ({reasons}): start a new run in another folder.")


class _DamagedError(ValueError):
    """A file of a checkpoint differs from its checksum. All processes raise it together."""


class UnreadableError(OSError):
    """The operating system can't read a checkpoint now, which may be good."""


def _explain(path: Path, error: BaseException) -> UnreadableError | _DamagedError:
    """Returns the error about a checkpoint: it is damaged, unless the operating system has failed to read it."""
    number = error.errno if isinstance(error, OSError) else None
    if found := re.search(r"\[os_error_code='(\d+)'", str(error)):  # of the library that stores the arrays
        number = int(found[1])
    if number is None or number in _MISSING:
        return _DamagedError(_reason(error))
    return UnreadableError(
        f"The checkpoint {path} can't be read ({os.strerror(number)}), and nothing was changed: try again when that is "
        "mended, or move it away to use the one before."
    )


def _check_in_process_0(path: Path) -> None:
    """Checks all files of a checkpoint in process 0. All processes receive the outcome."""
    failure: Exception | None = None
    if processes.is_first():
        try:
            if checksums.exist(path):
                checksums.check(path, _ITEMS)
        except (ValueError, OSError) as error:
            failure = _explain(path, error)
    if not processes.broadcast_from_process_0(not isinstance(failure, UnreadableError)):
        raise failure or UnreadableError(f"The checkpoint {path} can't be read: process 0 names the reason.")
    if not processes.broadcast_from_process_0(failure is None):
        raise failure or _DamagedError("process 0 has found it so")


def _restore_state(path: Path, abstract: TrainState, num_devices: int) -> tuple[RunState, bool]:
    """Returns the state, and True if the checkpoint has checksums."""
    progress, has_checksums = _restore_progress(path)
    if progress.num_devices != num_devices:
        raise DeviceCountError(
            f"The run uses {progress.num_devices} devices and here are {num_devices}: each has its own share of the "
            "replay, so resume it on as many; or export its learner and start a new run from it "
            "(`spo train --from FILE`)."
        )
    state = RunState(
        train_state=TrainState(
            learner=_restore_item(path, "learner", abstract.learner),
            worker=_restore_item(path, "worker", abstract.worker),
        ),
        best_learner=_restore_item(path, "best_learner", abstract.learner),
        progress=progress,
    )
    return state, has_checksums


def _restore_item(path: Path, item: str, abstract: Any) -> Any:
    """Reads one part of a checkpoint onto the devices of `abstract`."""
    import orbax.checkpoint as ocp

    with without_orbax_logs():
        arguments = ocp.args.Composite(**{item: ocp.args.StandardRestore(named_arrays.flatten_abstract(abstract))})
        arrays = ocp.Checkpointer(ocp.CompositeCheckpointHandler()).restore(path, args=arguments)[item]
    return named_arrays.unflatten(abstract, arrays)


def _restore_progress(path: Path) -> tuple[Progress, bool]:
    """Returns the progress, and True if the checkpoint has checksums."""
    import orbax.checkpoint as ocp

    with without_orbax_logs():
        arguments = ocp.args.Composite(progress=ocp.args.JsonRestore())
        data = ocp.Checkpointer(ocp.CompositeCheckpointHandler()).restore(path, args=arguments).progress
    has_checksums = data.pop(_HAS_CHECKSUMS, False)
    if has_checksums and not checksums.exist(path):
        raise ValueError(f"{path / checksums.MANIFEST} is missing")
    tuples = {name: tuple(data[name]) for name in ("best_scores", "best_iterations")}
    progress = Progress(**{**data, **tuples})
    if str(progress.iteration) != path.name:
        raise ValueError(f"{path} holds iteration {progress.iteration}")
    return progress, has_checksums


# --- Files ------------------------------------------------------------------------------------------------------------


def remove_leftovers(folder: Path) -> None:
    """Removes what an earlier process was writing or removing when it ended. No other process may be writing there."""
    if processes.is_first() and folder.exists():
        for path in folder.iterdir():
            if ".orbax-checkpoint-tmp" in path.name or path.name.endswith((_UNSEALED, _REMOVED)):
                shutil.rmtree(path, ignore_errors=True)
        files.remove_drafts(folder)


def _remove(path: Path) -> None:
    # Renamed first: a part of a checkpoint must not have the name of a complete one.
    removed = path.with_name(f"{path.name}{_REMOVED}")
    os.replace(path, removed)
    shutil.rmtree(removed, ignore_errors=True)


def _store_latest(folder: Path, progress: Progress) -> None:
    """Stores the iteration of the last checkpoint, so that it is missed when its folder is lost.

    Reports compare metrics.jsonl with the checksum that is stored beside it.
    """
    names = ("iteration", "metrics_bytes", METRICS_CHECKSUM)
    files.write_json(folder / LATEST.name, {name: getattr(progress, name) for name in names})


def _missing(folder: Path) -> dict[int, str]:
    """Returns the last checkpoint and a reason if its folder is not there. Earlier versions did not store its name."""
    try:
        latest = int(json.loads((folder / LATEST.name).read_text("utf-8"))["iteration"])
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    is_lost = latest > max(iterations(folder), default=-1)
    return {latest: f"{folder / str(latest)} is missing"} if is_lost else {}


def _set_aside(path: Path) -> None:
    if not path.exists():
        return
    aside = path.with_name(f"{path.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)


def _reason(error: BaseException) -> str:
    """Returns the operating system's message ("No space left on device"), or else the first line of the error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip() or type(error).__name__
    if found := re.search(r": ([^:\n]+) \[os_error_code", text):
        return found[1]
    return text.splitlines()[0]
