"""Records as TensorBoard events, in one folder for each seed."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2, summary_pb2

from spo.training.records import Record
from spo.training.sinks.base import RunInfo, Sink


class TensorBoard(Sink):
    """Writes an event file for each seed.

    It uses the events writer of tensorboardX directly. The library's summary writer works in a thread, which ends
    silently when the disk is full.
    """

    def __init__(self, path: Path):
        self._path = path
        self._writers: list[EventsWriter] = []

    def start(self, info: RunInfo) -> None:
        first_step = 0
        if info.resumed_from is not None:
            first_step = info.resumed_from.env_steps + info.resumed_from.env_steps_per_iteration
        for seed in range(info.experiment.num_seeds):
            seed_path = self._path / f"seed_{seed}"
            seed_path.mkdir(parents=True, exist_ok=True)
            writer = EventsWriter(str(seed_path / "events"), filename_suffix=f".{first_step}")
            # Hides the events from this step on that an earlier start of the run has written.
            restart = event_pb2.SessionLog(status=event_pb2.SessionLog.SessionStatus.Value("START"))
            writer.write_event(event_pb2.Event(wall_time=time.time(), step=first_step, session_log=restart))
            self._writers.append(writer)

    def log(self, records: Sequence[Record]) -> None:
        try:
            for writer, record in zip(self._writers, records, strict=True):
                writer.write_event(_to_event(record))
                writer.flush()
        except OSError as error:
            raise OSError(f"Records can't be written to {self._path}: {error.strerror}.") from error

    def close(self) -> None:
        for writer in self._writers:
            with contextlib.suppress(OSError):  # the disk is full, which `log` has reported
                writer.close()


def _to_event(record: Record) -> event_pb2.Event:
    numbers = record["metrics"] | {f"time/{name}": value for name, value in record["time"].items()}
    values = [
        summary_pb2.Summary.Value(tag=f"{record['kind']}/{name}", simple_value=value) for name, value in numbers.items()
    ]
    summary = summary_pb2.Summary(value=values)
    return event_pb2.Event(wall_time=time.time(), step=record["env_steps"], summary=summary)
