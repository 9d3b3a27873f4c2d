"""The lock of a run folder: one run at a time trains in a folder.

The operating system holds the lock, and releases it when the process ends in any way. Network file systems pass it on
to other hosts as far as they support locks. A file system without locks gets a file that only one process can create;
it names the host and the process, so that the next one can see whether that process still runs.

Readers (`spo evaluate`, `spo render`, `spo export`, `spo runs`) need no lock.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from spo.training import processes

#: Name of the lock file in a run folder. It stays there: a file that is removed and made anew could be locked twice.
LOCK_NAME = "run.lock"
#: Name of the file that takes its place where the file system has no locks. It is removed at the end.
HOLDER_NAME = "run.lock.holder"
#: Errors of file systems without locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


class RunLock:
    """Lock of one run folder, which must exist.

    with RunLock(folder).acquire():
        ...
    """

    def __init__(self, folder: Path):
        self._folder = Path(folder)
        self._descriptor: int | None = None
        self._holder_path: Path | None = None

    def acquire(self) -> "RunLock":
        """Takes the lock and returns it. Raises ValueError that names its holder if another process has it.

        Of several processes that train together, process 0 takes it. All of them receive the outcome.
        """
        failure: Exception | None = None
        if processes.is_first():
            try:
                self.acquire_here()
            except (ValueError, OSError) as error:
                failure = error
        if not processes.broadcast_from_process_0(failure is None):
            raise failure or ValueError(f"{self._folder} is in use: process 0 names the process that uses it.")
        return self

    def release(self) -> None:
        """Releases the lock, if this object holds it."""
        if self._holder_path is not None:
            holder = _parse(_read(self._holder_path))
            if (holder.get("pid"), holder.get("born")) == (os.getpid(), _birth(os.getpid())):
                self._holder_path.unlink(missing_ok=True)
            self._holder_path = None
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)  # it names its holder no longer
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.release()

    def moved_to(self, folder: Path) -> None:
        """Receives the new path of the folder, which was renamed while it was locked."""
        self._folder = Path(folder)
        if self._holder_path is not None:
            self._holder_path = self._folder / HOLDER_NAME

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire_here(self) -> None:
        """Takes the lock in this process. Others that train with it receive nothing."""
        if self._descriptor is not None or self._holder_path is not None:
            raise ValueError(f"{self._folder} is locked by this run already.")
        path = self._folder / LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OSError(f"The lock {path} can't be opened: {error.strerror}.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _parse(os.pread(descriptor, 1 << 16, 0))
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise ValueError(_in_use(self._folder, holder)) from None
            if error.errno not in _NO_LOCKS:
                raise OSError(f"{path} can't be locked: {error.strerror}.") from error
            self._holder_path = _create_holder(self._folder)
            return
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # a full disk: the lock holds, and only the name of its holder is missing
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_this_process()).encode(), 0)


def _create_holder(folder: Path) -> Path:
    """Creates the file that stands for the lock. Takes the place of a process of this host that has ended."""
    path = folder / HOLDER_NAME
    if _create(path):
        return path
    holder = _parse(_read(path))
    if _has_ended(holder) and _replace_ended(path):
        return path
    raise ValueError(
        f"{_in_use(folder, holder)} This file system has no locks: if that process has ended, delete {path}."
    )


def _replace_ended(path: Path) -> bool:
    """Removes the file of a process that has ended and creates it anew. Returns False if another process was first.

    Only the process that has created a second file may remove the first one, and only if it finds the ended process in
    it after that. So it never removes the new file of another process that has found the same ended one.
    """
    guard = path.with_name(f"{path.name}.guard")
    if not _create(guard):
        if _has_ended(_parse(_read(guard))):  # killed here: the next process can try
            guard.unlink(missing_ok=True)
        return False
    try:
        if _has_ended(_parse(_read(path))):
            path.unlink(missing_ok=True)
        return _create(path)
    finally:
        guard.unlink(missing_ok=True)


def _create(path: Path) -> bool:
    """Creates a file that names this process. Returns False if the file is there already."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        json.dump(_this_process(), file)
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # removed meanwhile, or no file
        return b""


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "born": _birth(os.getpid()),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(sys.argv),
    }


def _parse(text: bytes) -> dict[str, Any]:
    """Returns the description of a holder. It is empty if another process is writing it."""
    try:
        holder = json.loads(text)
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _in_use(folder: Path, holder: dict[str, Any]) -> str:
    who = "another process"
    if holder:
        who = f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"
        who += f" (`{holder['command']}`)" if holder.get("command") else ""
    return f"{folder} is in use by {who}: wait until it ends, or stop it, or choose another folder."


def _has_ended(holder: dict[str, Any]) -> bool:
    """Returns True if the holder was a process of this host and does not run any more."""
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return holder.get("born") != _birth(pid)  # another process may have got the same number


def _birth(pid: int) -> str | None:
    """Returns the start of a process in ticks since the host's own start, where /proc exists."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
