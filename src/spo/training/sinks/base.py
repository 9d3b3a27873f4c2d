"""The interface of a sink, and a group of sinks as one."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spo.training.experiment import Experiment
from spo.training.records import Record
from spo.training.run_state import Progress


class RunInfo(NamedTuple):
    """Facts about a run that a sink receives at its start."""

    experiment: Experiment
    #: the folder of the run; None: the run is in memory only
    folder: Path | None
    #: environment steps of each seed at the end
    total_env_steps: int
    #: progress at the checkpoint from which the run continues; None: the run is new
    resumed_from: Progress | None
    #: environment steps of each seed in one interval; a run ends with a whole one
    env_steps_per_interval: int = 1
    #: the environment draws pictures
    can_render: bool = True


class Sink:
    """Receives records and messages of a run. All methods do nothing here: override those that you need.

    The loop calls `start` first and `close` last, also after an error. Training waits for each call to return. Of
    several processes that train together, only process 0 calls its sinks.
    """

    def start(self, info: RunInfo) -> None:
        """Receives the settings and the length of the run."""

    def log(self, records: Sequence[Record]) -> None:
        """Receives the records of all seeds after an interval or an evaluation, see `spo.training.records`."""

    def message(self, text: str) -> None:
        """Receives a sentence for people. It may come before `start`."""

    def close(self) -> None:
        """Releases resources. It may come without `start`."""


class SinkGroup(Sink):
    """Several sinks as one. Each call is passed to them in order."""

    def __init__(self, sinks: Sequence[Sink]):
        self._sinks = tuple(sinks)

    def start(self, info: RunInfo) -> None:
        for sink in self._sinks:
            sink.start(info)

    def log(self, records: Sequence[Record]) -> None:
        for sink in self._sinks:
            sink.log(records)

    def message(self, text: str) -> None:
        for sink in self._sinks:
            sink.message(text)

    def close(self) -> None:
        """Closes all sinks in reverse order, even if one of them raises an error."""
        with contextlib.ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)
