"""Checksums of the files of a checkpoint: a checkpoint with one changed bit is not taken for a good one.

The format of the arrays does not notice all damage by itself: a flipped bit can load as other parameters.
"""

import json
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spo import files

#: Name of the file with the checksums of all others.
MANIFEST = "checksums.json"


def write(folder: Path) -> None:
    """Writes the SHA-256 of every file below a folder to `checksums.json` in it."""
    paths = _files_below(folder)
    manifest = {"sha256": dict(zip(paths, _hash_all(folder, paths), strict=True))}
    files.write_json(folder / MANIFEST, manifest)


def exist(folder: Path) -> bool:
    """Returns True if the folder has checksums. Those of earlier versions have none."""
    return (folder / MANIFEST).exists()


def check(folder: Path, parts: Collection[str]) -> None:
    """Raises ValueError if a file is missing, added or changed, in the folder itself or in these folders below it.

    Other parts are not read: who loads a learner need not read the replay.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))["sha256"]
        expected = {str(path): digest for path, digest in manifest.items() if _belongs_to(path, parts)}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder / MANIFEST} is damaged") from None
    found = {path for path in _files_below(folder) if _belongs_to(path, parts)}
    for path in sorted(expected.keys() - found):
        raise ValueError(f"{folder / path} is missing")
    for path in sorted(found - expected.keys()):
        raise ValueError(f"{folder / path} is not in {MANIFEST}")
    for path, digest in zip(expected, _hash_all(folder, list(expected)), strict=True):
        if digest != expected[path]:
            raise ValueError(f"{folder / path} differs from its checksum")


def _belongs_to(path: str, parts: Collection[str]) -> bool:
    first, slash, _ = path.partition("/")
    return not slash or first in parts


def _files_below(folder: Path) -> list[str]:
    """Returns the names of all files, without hidden ones, which file systems and file managers add."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix() for path in paths if path.name != MANIFEST)


def _hash_all(folder: Path, paths: list[str]) -> list[str]:
    with ThreadPoolExecutor(8) as pool:  # the hash of a large file does not block other threads
        return list(pool.map(lambda path: files.sha256(folder / path), paths))
