"""The state of a run between two intervals, as plain data: nothing else is needed to continue it."""

from typing import Any, NamedTuple

import jax
import numpy as np

from spo.algorithms.base import TrainState
from spo.trees import select


class Progress(NamedTuple):
    """Numbers of a run so far. Times include earlier starts of a resumed run."""

    iteration: int
    env_steps_per_iteration: int
    best_scores: tuple[float, ...]  # per seed: mean return of its best evaluation
    best_iterations: tuple[int, ...]  # per seed: iteration of that evaluation
    metrics_bytes: int = 0  # length of metrics.jsonl; a resumed run removes what follows and writes it again
    metrics_crc32: int | None = None  # CRC-32 of these bytes; None: an earlier version, which stored none
    num_devices: int = 1
    wall_seconds: float = 0.0
    compile_seconds: float = 0.0
    training_seconds: float = 0.0  # of the intervals: without compilation, evaluations and checkpoints
    time_to_first_update: float | None = None  # seconds from the start to the end of the first iteration
    stopped: bool = False  # by a callback: a resumed run does not train on

    @property
    def env_steps(self) -> int:
        """Environment steps of each seed."""
        return self.iteration * self.env_steps_per_iteration

    @property
    def env_steps_per_second(self) -> float:
        """Environment steps of all seeds in each second of training."""
        env_steps = self.env_steps * len(self.best_scores)
        return env_steps / self.training_seconds if self.training_seconds else 0.0


class RunState(NamedTuple):
    """State of a run after an interval: its training state, the best learner so far, and its progress."""

    train_state: TrainState
    best_learner: Any
    progress: Progress


def keep_best(state: RunState, scores: np.ndarray) -> RunState:
    """Replaces the best learner of each seed whose score is at least its best one. Later learners win ties.

    Args:
      state: the state that was evaluated.
      scores: mean return of each seed, [seed].
    """
    progress = state.progress
    better = scores >= np.array(progress.best_scores)
    learner = state.train_state.learner
    best_learner = learner if better.all() else _select_seeds(better, learner, state.best_learner)
    progress = progress._replace(
        best_scores=tuple(np.where(better, scores, progress.best_scores).tolist()),
        best_iterations=tuple(np.where(better, progress.iteration, progress.best_iterations).tolist()),
    )
    return state._replace(best_learner=best_learner, progress=progress)


#: Selects between two trees for each seed, the leading axis of every leaf.
_select_seeds = jax.jit(select)
