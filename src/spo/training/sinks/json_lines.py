"""Records as lines of JSON: metrics.jsonl of a run folder, from which all reports are made."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from spo import files
from spo.reports.run_files import read_records
from spo.training.records import Record
from spo.training.sinks.base import RunInfo, Sink


class JsonLines(Sink):
    """Appends each record to a file and waits until it is on the disk."""

    def __init__(self, path: Path):
        self._path = path

    def start(self, info: RunInfo) -> None:
        """Removes lines that were written after the checkpoint: the resumed run writes them again."""
        progress = info.resumed_from
        num_bytes, checksum = (0, None) if progress is None else (progress.metrics_bytes, progress.metrics_crc32)
        self._path.touch()
        if self._path.stat().st_size < num_bytes:
            raise ValueError(
                f"{self._path} is shorter than it was at the checkpoint, so lines of it are lost: restore the file, or "
                "start a new run."
            )
        if checksum is not None and files.crc32(self._path, num_bytes) != checksum:
            raise ValueError(
                f"{self._path} was changed after the run wrote it, or is damaged: restore the file, or export the "
                "learner and start a new run from it."
            )
        os.truncate(self._path, num_bytes)
        self._check()

    def _check(self) -> None:
        """Raises ValueError for a damaged line: the results at the end of the run are made from all of them."""
        try:
            read_records(self._path)
        except ValueError as error:
            raise ValueError(f"{error} Restore the file, or export the learner and start a new run from it.") from None
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read())[1] != b"\n":
                raise ValueError(f"The last line of {self._path} is not complete: restore the file.")

    def log(self, records: Sequence[Record]) -> None:
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        try:
            with self._path.open("ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(f"Records can't be written to {self._path}: {error.strerror}.") from error
