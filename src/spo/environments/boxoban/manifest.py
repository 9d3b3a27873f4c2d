"""The files of the public data set: names, numbers of levels and hashes, from `manifest.json`."""

import functools
import hashlib
import json
from importlib import resources
from typing import NamedTuple

from spo.environments.boxoban.levels import Levels, parse_levels


class PublicFile(NamedTuple):
    """One file of the public data set, as recorded in the manifest."""

    path: str  # relative to the root of the data set, such as "hard/000.txt"
    num_levels: int
    sha256: str | None  # None: the manifest has no hash of this file


def split_names() -> tuple[str, ...]:
    return tuple(_manifest())


def public_files(split: str) -> tuple[PublicFile, ...]:
    """The files of a split, in the order of its levels."""
    if split not in _manifest():
        raise ValueError(f"There is no Boxoban split {split!r}; choose one of {', '.join(split_names())}.")
    return _manifest()[split]


def check_public_file(file: PublicFile, text: bytes, name: str) -> None:
    """Raises ValueError unless `text` has the hash of the public file or, without a known hash, its format."""
    if file.sha256 is None:
        parse_public_file(file, text, name)
    elif sha256(text) != file.sha256:
        raise ValueError(f"{name} has SHA-256 {sha256(text)}, the public file {file.sha256}.")


def parse_public_file(file: PublicFile, text: bytes, name: str) -> Levels:
    """Parses a file and checks its number of levels."""
    levels = parse_levels(text, name)
    if len(levels) != file.num_levels:
        raise ValueError(f"{name} holds {len(levels)} levels, the public file {file.num_levels}.")
    return levels


def sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


@functools.cache
def _manifest() -> dict[str, tuple[PublicFile, ...]]:
    """The files of each split."""
    text = resources.files("spo.environments.boxoban").joinpath("manifest.json").read_text(encoding="utf-8")
    return {
        split: tuple(
            PublicFile(f"{entry['folder']}/{name}", facts["num_levels"], facts["sha256"])
            for name, facts in entry["files"].items()
        )
        for split, entry in json.loads(text)["splits"].items()
    }
