"""The log of a run: warnings and errors that other libraries report, which would clutter the terminal.

with run_log.collecting() as log:
    ...  # kept in memory: the folder of the run does not exist yet
    log.write_to(folder.log_path)
    ...  # appended to the file
"""

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

#: Parts of the paths of installed packages.
_INSTALLED = ("site-packages", "dist-packages")

_active: "RunLog | None" = None


class RunLog(logging.Handler):
    """Keeps lines in memory until it has a file, then appends them to it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._path: Path | None = None
        self._waiting: list[str] = []

    def write_to(self, path: Path) -> None:
        """Appends the lines so far, and all later ones, to this file."""
        self._path = path
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._append(line)

    def add(self, text: str) -> None:
        """Adds a text with the current time."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}\n"
        if self._path is None:
            self._waiting.append(line)
        else:
            self._append(line)

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a record of the module `logging`, with its traceback."""
        try:
            self.add(self.format(record))
        except Exception:  # as all handlers of `logging`
            self.handleError(record)

    def _append(self, line: str) -> None:
        assert self._path is not None
        # A log that can't be written (a full disk) does not stop a run: its own files report that.
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)


@contextlib.contextmanager
def collecting() -> Iterator[RunLog]:
    """Sends log records and warnings of other libraries to a `RunLog` instead of the terminal.

    Handlers that the program has set itself still receive the records. Warnings of code that is not an installed
    package are shown as well. Inside another call, this yields the same log.
    """
    global _active
    if _active is not None:
        yield _active
        return
    log, root, show = RunLog(), logging.getLogger(), warnings.showwarning

    def show_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        log.add(warnings.formatwarning(message, category, filename, lineno, line))
        if file is not None or not any(part in filename for part in _INSTALLED):
            show(message, category, filename, lineno, file, line)

    libraries = logging.getLogger("spo.libraries")  # what libraries print, which is no log record of theirs
    libraries.addHandler(log)
    root.addHandler(log)  # a root logger without a handler writes to the terminal
    warnings.showwarning = show_warning
    _active = log
    try:
        yield log
    finally:
        _active = None
        warnings.showwarning = show
        root.removeHandler(log)
        libraries.removeHandler(log)


@contextlib.contextmanager
def without_orbax_logs() -> Iterator[None]:
    """Silences Orbax, which logs each error with the stacks of its threads, unless a run's log receives them."""
    logger = logging.getLogger("absl")
    level = logger.level
    if _active is None:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
