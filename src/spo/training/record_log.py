"""The log of the training loop: records of each interval and evaluation, with the times of the run."""

import time

import numpy as np

from spo.training.records import Record, make_records
from spo.training.run_state import Progress
from spo.training.sinks.base import Sink
from spo.training.trainer import Trainer


class RecordLog:
    """Sends records to a sink, with the times of the run, which include earlier starts of a resumed run."""

    def __init__(self, trainer: Trainer, sink: Sink, started_at: float | None, resumed_from: Progress | None):
        self._trainer = trainer
        self._sink = sink
        self.records: list[Record] = []  # of the latest interval and of the evaluation at its end
        self._wall_zero = time.perf_counter() if started_at is None else started_at
        self._compile_zero = trainer.compile_seconds
        if resumed_from is not None:
            self._wall_zero -= resumed_from.wall_seconds
            self._compile_zero -= resumed_from.compile_seconds

    def stamp(self, progress: Progress) -> Progress:
        """Returns the progress with the current times."""
        return progress._replace(
            wall_seconds=time.perf_counter() - self._wall_zero,
            compile_seconds=self._trainer.compile_seconds - self._compile_zero,
        )

    def write(
        self,
        kind: str,
        progress: Progress,
        metrics: dict[str, np.ndarray],
        env_steps_per_second: float | None = None,
    ) -> None:
        """Sends one record for each seed."""
        records = make_records(self._trainer.algorithm, kind, progress, metrics, env_steps_per_second)
        self._sink.log(records)
        self.records = records if kind == "train" else [*self.records, *records]
