"""Files that are complete or absent, and their checksums."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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


def remove_drafts(folder: Path) -> None:
    """Removes files that an earlier process was writing when it ended."""
    for path in folder.glob(f"*{DRAFT}"):
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
