"""Files that are complete or absent, and their checksums."""

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

#: Ending of the names of files that are being written. What a process that was killed leaves is removed later.
DRAFT = ".draft"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Opens a new file that gets the name `path` at the end: readers never see a part of it.

    The draft has a name of its own and is never a link. It is on the disk before it is renamed.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}{DRAFT}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Writes a JSON file at once: readers never see a part of it."""
    with replacing(path) as file:
        file.write(json.dumps(data, indent=2).encode() + b"\n")


def check_target(path: Path) -> None:
    """Raises ValueError if no file can be written to this path, before the work whose result it receives."""
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent} for {path.name!r}: create it first.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} can't be written: change its permissions, or name another file.")


def sync_folder(path: Path) -> None:
    """Waits until the names in a folder are on the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def crc32(path: Path, end: int | None = None, start: int = 0, value: int = 0) -> int:
    """Returns the CRC-32 of a file's content up to `end`; of all of it by default. A shorter file gives that of less.

    Args:
      path: the file.
      end: number of bytes.
      start: number of bytes whose CRC-32 is `value`: the file is read from there.
      value: CRC-32 of the bytes before `start`.
    """
    with path.open("rb") as file:
        file.seek(start)
        left = float("inf") if end is None else end - start
        while left > 0 and (part := file.read(int(min(left, 1 << 20)))):
            value, left = zlib.crc32(part, value), left - len(part)
    return value


def remove_drafts(folder: Path) -> None:
    """Removes files that an earlier process was writing when it ended."""
    for path in folder.glob(f"*{DRAFT}"):
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
