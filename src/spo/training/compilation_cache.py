"""The folder of compiled programs: later starts of a run need not compile.

A compiled program is code that this process executes. So the folder belongs to one user, and nobody else may write to
it. JAX reads an entry only if it can be decompressed. It compiles again if it can't, with a warning, but leaves the
entry as it is. Damaged entries are deleted here: at the start, by a checksum that the first later start has stored; and
when JAX reports one.
"""

import contextlib
import json
import os
import stat
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax

from spo import files

#: Name of the file with the checksums of the entries.
CHECKSUMS = "checksums.json"
_ENTRIES = "*-cache"
#: Seconds after which an entry that seems unchanged is read again.
_SECONDS_BETWEEN = 24 * 60 * 60.0
#: JAX's option for the seconds that a program must take to compile to be stored, and the default. A user may set it.
_LEAST_SECONDS, _DEFAULT_LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs", 1.0
#: First bytes of an entry that Zstandard has compressed. Other entries are compressed by zlib.
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


def enable_compilation_cache() -> None:
    """Stores compiled programs in $SPO_CACHE, or in ~/.cache/spo/jax: later starts of a run need not compile.

    A cache that is configured in JAX's own way is kept. A folder of another user, or one to which others may write, is
    not used: a warning names it.
    """
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = Path(os.environ.get("SPO_CACHE") or "~/.cache/spo/jax").expanduser()
    try:
        make_private(folder)
    except OSError as error:
        warnings.warn(f"Compiled programs are not stored: {error}", stacklevel=2)
        return
    remove_damaged(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # By default, JAX stores no program that took less than a second: those of a start, one by one, take seconds.
    if _LEAST_SECONDS.upper() not in os.environ and getattr(jax.config, _LEAST_SECONDS) == _DEFAULT_LEAST_SECONDS:
        jax.config.update(_LEAST_SECONDS, 0.0)


def make_private(folder: Path) -> None:
    """Creates a folder that only this user can read and write. Raises OSError if it can't be such a folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise OSError(f"the folder {folder} can't be used ({error.strerror}): set SPO_CACHE to another one.") from error
    if status.st_uid != os.getuid():
        raise PermissionError(f"the folder {folder} belongs to another user: set SPO_CACHE to a folder of your own.")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise PermissionError(
            f"other users may write to the folder {folder}: `chmod 700 {folder}` if you trust what is in it, or set "
            "SPO_CACHE to another folder."
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)


class _Known(NamedTuple):
    """The facts that are stored about an entry."""

    checksum: int
    size: int
    modified: int  # in nanoseconds
    checked: float  # seconds since 1970


def remove_damaged(folder: Path, read_all: bool = False) -> list[str]:
    """Deletes entries that differ from their checksum or can't be decompressed, and returns their names.

    Entries without a checksum, which were written since the last call, get one. An entry of the same size and time is
    read again after a day.

    Args:
      folder: the folder of compiled programs.
      read_all: read every entry.
    """
    stored, now = _read_checksums(folder), time.time()
    known, removed = {}, []
    for path in sorted(folder.glob(_ENTRIES)):
        try:
            before, status = stored.get(path.name), path.stat()
            is_same = before is not None and (before.size, before.modified) == (status.st_size, status.st_mtime_ns)
            if before is not None and is_same and not read_all and 0 <= now - before.checked < _SECONDS_BETWEEN:
                known[path.name] = before
                continue
            content = path.read_bytes()
        except OSError:  # another process has deleted it
            continue
        checksum = zlib.crc32(content)
        if not _is_whole(content) if before is None else before.checksum != checksum:
            path.unlink(missing_ok=True)
            removed.append(path.name)
        else:
            known[path.name] = _Known(checksum, status.st_size, status.st_mtime_ns, now)
    if known != stored:
        with contextlib.suppress(OSError):
            files.write_json(folder / CHECKSUMS, known)
    return removed


@contextlib.contextmanager
def removing_damaged() -> Iterator[None]:
    """Deletes damaged entries when JAX reports one, so that the program it then compiles is stored."""
    show = warnings.showwarning

    def show_warning(message: Warning | str, *arguments: object, **options: object) -> None:
        folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        if folder is not None and str(message).startswith("Error reading persistent compilation cache entry"):
            remove_damaged(Path(folder), read_all=True)
        show(message, *arguments, **options)  # type: ignore[arg-type]

    warnings.showwarning = show_warning
    try:
        yield
    finally:
        warnings.showwarning = show


def _read_checksums(folder: Path) -> dict[str, _Known]:
    try:
        stored = json.loads((folder / CHECKSUMS).read_text("utf-8"))
        return {name: _Known(*entry) for name, entry in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, damaged, or of an earlier version
        return {}


def _is_whole(content: bytes) -> bool:
    """Returns True if an entry can be decompressed, as far as this can be found out without Zstandard."""
    if content.startswith(_ZSTANDARD):
        return True
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True
