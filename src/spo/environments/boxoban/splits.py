"""A split of the public levels as one array, read from its text files or from a cache.

The cache has one byte per cell: 90 MB for the 900 000 levels of unfiltered-train. A plain .npy file can be
memory-mapped and copied to the device as it is, which is worth more than packing cells into four bits.
"""

import io
import json
import os
import uuid
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spo.environments.boxoban.levels import Levels
from spo.environments.boxoban.manifest import PublicFile, parse_public_file, public_files, sha256
from spo.environments.sokoban import CELL_CHARACTERS


def load_split(split: str, folder: Path | str | None = None, *, allow_partial: bool = False) -> Levels:
    """Returns a split's levels, memory-mapped from a cache in `folder`. The first call makes the cache.

    The text files are read and hashed in every call (0.2 s for unfiltered-train). A cache made from other files is
    replaced.

    Args:
        split: name of the split.
        folder: root of the data set. Default: `boxoban` in `data_folder()`.
        allow_partial: accept a folder that holds only some of the split's files.
    """
    root = boxoban_folder(folder)
    sources = _read_sources(split, root, allow_partial)
    made_from: dict[str, object] = {
        "characters_of_codes": CELL_CHARACTERS,
        "source_sha256": {source.file.path: source.sha256 for source in sources},
    }
    array_path, record_path = (root / "cache" / f"{split}{suffix}" for suffix in (".npy", ".json"))
    cached = _read_cache(array_path, record_path, made_from)
    if cached is not None:
        return cached
    levels = _parse_sources(sources, root)
    try:
        _write_cache(array_path, record_path, made_from, levels)
    except OSError as error:
        warnings.warn(f"The levels of {split} cannot be cached and are parsed in every run: {error}", stacklevel=2)
    return levels


def read_split(split: str, folder: Path | str | None = None, *, allow_partial: bool = False) -> Levels:
    """Returns a split's levels from its text files, without a cache. Arguments are those of `load_split`."""
    root = boxoban_folder(folder)
    return _parse_sources(_read_sources(split, root, allow_partial), root)


def data_folder() -> Path:
    """The default folder for data: the environment variable SPO_DATA, or ~/.cache/spo."""
    return Path(os.environ.get("SPO_DATA") or "~/.cache/spo").expanduser()


def boxoban_folder(folder: Path | str | None) -> Path:
    """The root of the data set. It has the layout of the public repository, so a clone of that can be used."""
    return data_folder() / "boxoban" if folder is None else Path(folder)


# --- Text files ------------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """A text file of a split. Its hash is the public one where that is known. Its format is not checked."""

    file: PublicFile
    text: bytes
    sha256: str


def _read_sources(split: str, folder: Path, allow_partial: bool) -> list[_Source]:
    files = public_files(split)
    command = f"spo download boxoban {split}" + ("" if folder == boxoban_folder(None) else f" --folder {folder}")
    present = [file for file in files if (folder / file.path).is_file()]
    if not present:
        raise FileNotFoundError(
            f"{folder} has no level of {split}. `{command}` downloads them. "
            'The task "sokoban/generated" makes its own levels and needs no download '
            "(`spo train --task sokoban/generated --network.channels 16` is small enough for a CPU)."
        )
    if len(present) < len(files) and not allow_partial:
        missing = next(file.path for file in files if file not in present)
        raise FileNotFoundError(
            f"{len(present)} of the {len(files)} files of {split} are in {folder}; the first one missing "
            f"is {missing}. `{command}` fetches the rest; allow_partial=True uses the files that are there."
        )
    sources = []
    for file in present:
        text = (folder / file.path).read_bytes()
        sources.append(_Source(file, text, sha256(text)))
        if file.sha256 not in (None, sources[-1].sha256):
            raise ValueError(
                f"{folder / file.path} is not the public file: its SHA-256 is {sources[-1].sha256}, the public one "
                f"{file.sha256}. `{command}` moves it aside and fetches it again."
            )
    return sources


def _parse_sources(sources: Iterable[_Source], folder: Path) -> Levels:
    return np.concatenate([parse_public_file(file, text, str(folder / file.path)) for file, text, _ in sources])


# --- Cache -----------------------------------------------------------------------------------------------------------


def _read_cache(array_path: Path, record_path: Path, made_from: dict[str, object]) -> Levels | None:
    """Memory-maps the cached array. Returns None if it is missing, damaged, or made from other files.

    The record holds the hash of the array's file, so the two files need not be replaced at the same time. An array next
    to the record of another one counts as damaged.
    """
    try:
        record = json.loads(record_path.read_bytes())
        is_valid = record == made_from | {"array_sha256": sha256(array_path.read_bytes())}
        return np.load(array_path, mmap_mode="r") if is_valid else None
    except (OSError, ValueError):
        return None


def _write_cache(array_path: Path, record_path: Path, made_from: dict[str, object], levels: Levels) -> None:
    buffer = io.BytesIO()
    np.save(buffer, levels)
    # The hash is of the intended content. Another process may replace the file with other levels in the meantime.
    record = made_from | {"array_sha256": sha256(buffer.getvalue())}
    write_atomically(array_path, buffer.getvalue())
    write_atomically(record_path, json.dumps(record, indent=1).encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that `path` holds all of `content` or is unchanged.

    The data is not flushed to the disk: readers check the hash.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
