"""The times at which a run is saved, and the latest state that can be saved."""

import time
from collections.abc import Callable
from pathlib import Path

import jax

from spo import files
from spo.algorithms.base import TrainState
from spo.training import checkpoints, processes
from spo.training.run_state import Progress, RunState

#: Time between two checkpoints, unless the caller chooses it.
SECONDS_BETWEEN = 60.0
#: Largest share of the time that checkpoints after evaluations take.
_LARGEST_SHARE = 0.05
#: Guess of the time for a checkpoint before the first is written: seconds for the files, and bytes in a second.
_FILES_SECONDS, _BYTES_PER_SECOND = 0.5, 2e8


class Checkpointer:
    """Saves the states of a run, at most one in `seconds_between`, and the last one.

    If `seconds_between` is None, one is saved every `SECONDS_BETWEEN`, and after each evaluation that is so long after
    the last checkpoint that writing takes at most 5 % of the time.

    The latest complete state is kept, so that an interrupted run can save it. Without a folder, nothing is saved.
    """

    def __init__(
        self,
        folder: Path | None,
        metrics_path: Path | None,
        seconds_between: float | None,
        message: Callable[[str], None],
    ):
        self.latest: RunState | None = None
        self.saved: checkpoints.Saved | None = None  # the last checkpoint that this object has written
        self._folder = folder
        self._metrics_path = metrics_path
        self._seconds_between = seconds_between
        self._message = message
        self._last_time = time.perf_counter()
        self._saved_iteration: int | None = None

    def restore(self, abstract: TrainState, num_devices: int) -> RunState | None:
        """Returns the state of the last checkpoint, or None if there is none."""
        if self._folder is not None:
            self.latest = checkpoints.restore(self._folder, abstract, num_devices, self._message)
            self._saved_iteration = None if self.latest is None else self.latest.progress.iteration
            path = self._metrics_path
            if self.latest is None and path is not None and path.exists() and path.stat().st_size > 0:
                self._message(f"{self._folder} holds no checkpoint: the run starts again from its beginning.")
        return self.latest

    def update(self, state: RunState, is_last: bool = False, is_evaluated: bool = False) -> None:
        """Receives the state after an interval, when all its records are written. Saves it if it is time.

        Args:
          state: the complete state.
          is_last: True at the end of the run.
          is_evaluated: True if an evaluation ends the interval.
        """
        if self._metrics_path is not None and processes.is_first():
            state = state._replace(progress=_with_metrics(state.progress, self.latest, self._metrics_path))
        self.latest = state
        if processes.broadcast_from_process_0(is_last or self._is_due(state, is_evaluated)):
            self.save_latest()

    def _is_due(self, state: RunState, is_evaluated: bool) -> bool:
        seconds = time.perf_counter() - self._last_time
        if self._seconds_between is not None:
            return seconds >= self._seconds_between
        cost = _guess_seconds(state) if self.saved is None else self.saved.seconds
        is_worth_it = is_evaluated and state.progress.iteration > 0 and cost <= _LARGEST_SHARE * seconds
        return is_worth_it or seconds >= SECONDS_BETWEEN

    def save_latest(self) -> None:
        """Saves the latest complete state, unless it is saved already."""
        if self._folder is None or self.latest is None or self.latest.progress.iteration == self._saved_iteration:
            return
        self.saved = checkpoints.save(self._folder, self.latest)
        self._saved_iteration = self.latest.progress.iteration
        self._last_time = time.perf_counter()
        self._message(
            f"Checkpoint after iteration {self._saved_iteration}: {self.saved.num_bytes / 1e6:.1f} MB in "
            f"{self.saved.seconds:.1f} s."
        )


def _guess_seconds(state: RunState) -> float:
    """Returns the time that a first checkpoint may take."""
    arrays = (state.train_state, state.best_learner)
    return _FILES_SECONDS + sum(leaf.nbytes for leaf in jax.tree.leaves(arrays)) / _BYTES_PER_SECOND


def _with_metrics(progress: Progress, before: RunState | None, path: Path) -> Progress:
    """Returns the progress with length and checksum of the metrics. Only what was added since `before` is read."""
    length, start, value = path.stat().st_size, 0, 0
    if before is not None and before.progress.metrics_crc32 is not None:
        start, value = before.progress.metrics_bytes, before.progress.metrics_crc32
    return progress._replace(metrics_bytes=length, metrics_crc32=files.crc32(path, length, start, value))
