"""The public Boxoban levels: their text files read, fetched, checked and kept as one array per split.

The data set (github.com/google-deepmind/boxoban-levels) is a tree of text files of up to 1000 levels. `download`
fetches splits of it, `load_split` turns one into `uint8[num_levels, 10, 10]` in the cell codes of `sokoban`, and
`boxoban` makes the task of the paper: train on unfiltered-train, be judged on hard.

Three counts of the hard split are in print: the data set's own page says 4000, the paper's table 50 000, the files hold
3332, and it is the files that count here.
"""

import functools
import hashlib
import http.client
import io
import json
import os
import re
import threading
import urllib.error
import urllib.request
import uuid
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from spo.environments.sokoban import (
    AGENT,
    AGENT_ON_TARGET,
    BOX,
    BOX_ON_TARGET,
    CELL_CHARACTERS,
    TARGET,
    WALL,
    sokoban,
)
from spo.types import Task

BASE_URL = "https://raw.githubusercontent.com/google-deepmind/boxoban-levels/master"

#: One connection fetches about ten files a second at best; the full set has 1505.
NUM_CONNECTIONS = 8
#: After so many lost files the trouble is with the network or the server: the rest is not tried.
MAX_FAILED_FILES = 5
TIMEOUT_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 60.0

SIZE = 10
NUM_BOXES = 4
_LINES_PER_LEVEL = SIZE + 2  # "; number", the rows, an empty line

#: What a level has to have: the word for it, the codes of the cells that show it, and how many there are.
_CENSUS = (
    ("agents", (AGENT, AGENT_ON_TARGET), 1),
    ("boxes", (BOX, BOX_ON_TARGET), NUM_BOXES),
    ("targets", (TARGET, AGENT_ON_TARGET, BOX_ON_TARGET), NUM_BOXES),
)
_NO_CODE = 255
_CODE_OF_CHARACTER = np.full(256, _NO_CODE, np.uint8)
_CODE_OF_CHARACTER[list(CELL_CHARACTERS.encode())] = np.arange(len(CELL_CHARACTERS))

Levels = UInt8[np.ndarray, "num_levels 10 10"]


class PublicFile(NamedTuple):
    """One file of the public data set, as the manifest knows it."""

    path: str  # relative to the root of the data set, such as "hard/000.txt"
    num_levels: int
    sha256: str | None  # None where the manifest's author never had the file


class DownloadReport(NamedTuple):
    """What became of every file of the splits asked for. `had`, `fetched`, `failed` and `not_tried` share no file."""

    folder: Path
    had: tuple[str, ...]  # there before, and in order
    fetched: tuple[str, ...]
    verified: tuple[str, ...]  # had or fetched, with the SHA-256 of the manifest
    unverified: dict[str, str]  # had or fetched, and its SHA-256: the manifest knows none, only the format was checked
    failed: dict[str, str]  # and why
    not_tried: tuple[str, ...]
    set_aside: tuple[str, ...]  # where bytes lie that were not what they should be

    @property
    def complete(self) -> bool:
        return not self.failed and not self.not_tried


# --- What there is ----------------------------------------------------------------------------------------------------


@functools.cache
def _manifest() -> dict[str, tuple[PublicFile, ...]]:
    text = resources.files("spo.environments").joinpath("boxoban_manifest.json").read_text(encoding="utf-8")
    return {
        split: tuple(
            PublicFile(f"{entry['folder']}/{name}", facts["num_levels"], facts["sha256"])
            for name, facts in entry["files"].items()
        )
        for split, entry in json.loads(text)["splits"].items()
    }


def split_names() -> tuple[str, ...]:
    return tuple(_manifest())


def public_files(split: str) -> tuple[PublicFile, ...]:
    """The files of a split in their order, which is also the order of its levels."""
    if split not in _manifest():
        raise ValueError(f"There is no Boxoban split {split!r}; choose one of {', '.join(split_names())}.")
    return _manifest()[split]


def data_folder() -> Path:
    """Where data lies unless told otherwise: the environment variable SPO_DATA, or ~/.cache/spo."""
    return Path(os.environ.get("SPO_DATA") or "~/.cache/spo").expanduser()


def _boxoban_folder(folder: Path | str | None) -> Path:
    """The root of the data set, laid out as in the public repository, so that a clone of it serves as well."""
    return data_folder() / "boxoban" if folder is None else Path(folder)


# --- Reading ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _frame(first_number: int, num_levels: int) -> tuple[np.ndarray, np.ndarray]:
    """A file's bytes with "?" for cells, and where those are: two files of a kind differ nowhere else."""
    level = (b"?" * SIZE + b"\n") * SIZE + b"\n"
    text = b"".join(b"; %d\n" % (first_number + i) + level for i in range(num_levels))
    frame = np.frombuffer(text, np.uint8)
    return frame, frame == ord("?")


def _are_levels(levels: Levels) -> bool:
    borders = (levels[:, 0], levels[:, -1], levels[:, :, 0], levels[:, :, -1])
    return (
        bool(np.all(levels != _NO_CODE))
        and all(bool(np.all(border == WALL)) for border in borders)
        and all(
            bool(np.all(sum(np.count_nonzero(levels == code, axis=(1, 2)) for code in codes) == wanted))
            for _, codes, wanted in _CENSUS
        )
    )


def parse_levels(text: bytes, name: str) -> Levels:
    """The levels of one text file. `name` is what to call the file in a complaint.

    A level is a line "; number", ten rows of ten characters and an empty line; numbers count up by one. It is closed in
    by walls, and has one agent, four boxes and four targets. Anything else raises a ValueError that says where.
    """
    first = re.match(rb"; (\d+)\n", text)
    if first is not None:
        frame, is_cell = _frame(int(first[1]), text.count(b";"))
        characters = np.frombuffer(text, np.uint8)
        if characters.size == frame.size and bool(np.all((characters == frame) | is_cell)):
            levels = _CODE_OF_CHARACTER[characters[is_cell]].reshape(-1, SIZE, SIZE)
            if _are_levels(levels):
                return levels
    raise ValueError(_first_fault(text, name))


def _first_fault(text: bytes, name: str) -> str:
    """What `parse_levels` dislikes, found line by line: slow, and only run when there is something to find."""
    *lines, unfinished = text.decode("latin-1").split("\n")
    if unfinished:
        lines.append(unfinished)
    first = re.fullmatch(r"; (\d+)", lines[0]) if lines else None
    if first is None:
        found = repr(lines[0][:40]) if lines else "nothing"
        return f'{name}, line 1: a file of levels starts with a line such as "; 0", this one with {found}.'
    for start in range(0, len(lines), _LINES_PER_LEVEL):
        number = int(first[1]) + start // _LINES_PER_LEVEL
        found_fault = _fault_of_level(lines[start : start + _LINES_PER_LEVEL], number)
        if found_fault is not None:
            offset, what = found_fault
            return f"{name}, level {number}, line {start + offset + 1}: {what}"
    raise AssertionError(f"{name} was refused and nothing is wrong with it: a defect of parse_levels.")


def _fault_of_level(lines: Sequence[str], number: int) -> tuple[int, str] | None:
    """(offset of the line, what is wrong with it), or None for a level in order."""
    header, *rows = lines[: SIZE + 1]
    if header != f"; {number}":
        return 0, f'expected the line "; {number}", found {header[:40]!r}.'
    for offset, row in enumerate(rows, start=1):
        if len(row) != SIZE:
            return offset, f"a row has {SIZE} characters, this one has {len(row)}: {row[:40]!r}."
        for character in row:
            if _CODE_OF_CHARACTER[ord(character)] == _NO_CODE:
                return offset, f"{character!r} stands for nothing; a cell is one of {CELL_CHARACTERS!r}."
        border = row if offset in (1, SIZE) else row[0] + row[-1]
        if set(border) != {"#"}:
            return offset, f"the outermost cells of a level must be walls, and here they are not: {row!r}."
    if len(lines) < _LINES_PER_LEVEL:
        return len(lines), f"the file ends after {len(lines)} of the {_LINES_PER_LEVEL} lines of a level."
    if lines[-1] != "":
        return _LINES_PER_LEVEL - 1, f"expected an empty line after the level, found {lines[-1][:40]!r}."
    for what, codes, wanted in _CENSUS:
        count = sum("".join(rows).count(CELL_CHARACTERS[code]) for code in codes)
        if count != wanted:
            return 0, f"the level has {count} {what} instead of {wanted}."
    return None


def _parse_public_file(file: PublicFile, text: bytes, name: str) -> Levels:
    levels = parse_levels(text, name)
    if len(levels) != file.num_levels:
        raise ValueError(f"{name} holds {len(levels)} levels, the public file {file.num_levels}.")
    return levels


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


class _Source(NamedTuple):
    """A text file of a split, whose hash is the public one where that is known. Its format is unchecked."""

    file: PublicFile
    text: bytes
    sha256: str


def _read_sources(split: str, folder: Path, allow_partial: bool) -> list[_Source]:
    files = public_files(split)
    command = f"spo download boxoban {split}" + ("" if folder == _boxoban_folder(None) else f" --folder {folder}")
    present = [file for file in files if (folder / file.path).is_file()]
    if not present:
        raise FileNotFoundError(
            f"No level of {split} is in {folder}. `{command}` downloads them. "
            'The task "sokoban/generated" makes its own levels and needs no download '
            "(`spo train --task sokoban/generated --network.channels 16` is of a size for a CPU)."
        )
    if len(present) < len(files) and not allow_partial:
        missing = next(file.path for file in files if file not in present)
        raise FileNotFoundError(
            f"{len(present)} of the {len(files)} files of {split} are in {folder}; the first one missing "
            f"is {missing}. `{command}` fetches the rest, and allow_partial=True makes do with what is there."
        )
    sources = []
    for file in present:
        text = (folder / file.path).read_bytes()
        sources.append(_Source(file, text, _sha256(text)))
        if file.sha256 not in (None, sources[-1].sha256):
            raise ValueError(
                f"{folder / file.path} is not the public file: its SHA-256 is {sources[-1].sha256}, the public one "
                f"{file.sha256}. `{command}` sets it aside and fetches it again."
            )
    return sources


def _parse_sources(sources: Iterable[_Source], folder: Path) -> Levels:
    return np.concatenate([_parse_public_file(file, text, str(folder / file.path)) for file, text, _ in sources])


def read_split(split: str, folder: Path | str | None = None, *, allow_partial: bool = False) -> Levels:
    """A split's levels from its text files; nothing is written."""
    root = _boxoban_folder(folder)
    return _parse_sources(_read_sources(split, root, allow_partial), root)


# --- The cache --------------------------------------------------------------------------------------------------------
#
# One byte a cell: 90 MB for the 900 000 levels of unfiltered-train. Four bits would do, but 45 MB matter to no disk and
# no GPU, and a plain .npy can be memory-mapped and sent to the device as it is.


def _write_atomically(path: Path, content: bytes) -> None:
    """`path` holds all of it or is as it was. Not flushed to the platter: whoever reads checks what it reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _cached_levels(array_path: Path, record_path: Path, made_from: dict[str, object]) -> Levels | None:
    """The cached array, memory-mapped; None where there is none, it was made from other files, or it is damaged.

    The record holds the hash of the array's file, so that the two need not be replaced in one go: an array beside the
    record of another one is a damaged cache.
    """
    try:
        record = json.loads(record_path.read_bytes())
        is_right = record == made_from | {"array_sha256": _sha256(array_path.read_bytes())}
        return np.load(array_path, mmap_mode="r") if is_right else None
    except (OSError, ValueError):
        return None


def load_split(split: str, folder: Path | str | None = None, *, allow_partial: bool = False) -> Levels:
    """A split's levels, memory-mapped from a cache under `folder` that the first call makes from the text files.

    The files are read and hashed each time (0.2 s for unfiltered-train): a cache made from others is made anew.
    `allow_partial` accepts a folder that holds only some of the split's files.
    """
    root = _boxoban_folder(folder)
    sources = _read_sources(split, root, allow_partial)
    made_from: dict[str, object] = {
        "characters_of_codes": CELL_CHARACTERS,
        "source_sha256": {source.file.path: source.sha256 for source in sources},
    }
    array_path, record_path = (root / "cache" / f"{split}{suffix}" for suffix in (".npy", ".json"))
    cached = _cached_levels(array_path, record_path, made_from)
    if cached is not None:
        return cached
    levels = _parse_sources(sources, root)
    buffer = io.BytesIO()
    np.save(buffer, levels)
    # The hash of what was meant: the file may already be another's, who loads other files of the split just now.
    record = made_from | {"array_sha256": _sha256(buffer.getvalue())}
    try:
        _write_atomically(array_path, buffer.getvalue())
        _write_atomically(record_path, json.dumps(record, indent=1).encode())
    except OSError as error:
        warnings.warn(f"The levels of {split} can't be cached and are parsed anew each time: {error}", stacklevel=2)
    return levels


# --- Fetching ---------------------------------------------------------------------------------------------------------


def _check(file: PublicFile, text: bytes, name: str) -> None:
    """Raise a ValueError unless `text` is the public file; where its hash is unknown, unless it has its format."""
    if file.sha256 is None:
        _parse_public_file(file, text, name)
    elif _sha256(text) != file.sha256:
        raise ValueError(f"{name} has SHA-256 {_sha256(text)}, the public file {file.sha256}.")


class _Outcome(NamedTuple):
    """What became of one file: fetched or had if there is a hash, failed if there is a reason, else not tried."""

    file: PublicFile
    sha256: str | None = None
    fetched: bool = False
    failure: str | None = None
    set_aside: tuple[str, ...] = ()


def _request(url: str) -> bytes:
    """The whole body, or an OSError or HTTPException: `read` raises if the connection ends before the body does."""
    request = urllib.request.Request(url, headers={"User-Agent": "spo-jax"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        return response.read()


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    return not isinstance(error, urllib.error.HTTPError) or error.code in (408, 425, 429) or error.code >= 500


def _seconds_asked_for(error: Exception) -> float:
    """How long the server asks us to stay away."""
    asked = error.headers.get("Retry-After", "") if isinstance(error, urllib.error.HTTPError) else ""
    return float(asked) if asked.isdigit() else 0.0


def _fetch(
    file: PublicFile, url: str, num_attempts: int, first_wait_seconds: float, stop: threading.Event
) -> tuple[bytes, str | None]:
    """(what came last, why it won't do): the reason is None when the file is as it should be.

    A cut file is fetched again whole, not continued: it is 117 kB at most, and halves of two versions never meet.
    """
    text = b""
    reason = f"{url}: not tried, because too many other files failed"
    wait = 0.0
    for attempt in range(num_attempts):
        if stop.wait(wait):
            break
        wait = first_wait_seconds * 2.0**attempt
        try:
            text = _request(url)
            _check(file, text, url)
            return text, None
        except ValueError as error:
            reason = str(error)
        except (OSError, http.client.HTTPException) as error:
            text, reason = b"", f"{url}: {type(error).__name__}: {error}"
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if not _may_pass(error):
                break
            wait = min(max(wait, _seconds_asked_for(error)), LONGEST_WAIT_SECONDS)
    return text, reason


def _obtain(
    file: PublicFile, folder: Path, base_url: str, num_attempts: int, first_wait_seconds: float, stop: threading.Event
) -> _Outcome:
    """See that one file is in the folder and in order."""
    if stop.is_set():
        return _Outcome(file)
    path = folder / file.path
    aside = path.with_name(f"{path.name}.corrupt")
    set_aside: tuple[str, ...] = ()
    if path.is_file():
        text = path.read_bytes()
        try:
            _check(file, text, str(path))
            return _Outcome(file, _sha256(text))
        except ValueError:
            os.replace(path, aside)
            set_aside = (str(aside),)
    text, failure = _fetch(file, f"{base_url.rstrip('/')}/{file.path}", num_attempts, first_wait_seconds, stop)
    if failure is None:
        _write_atomically(path, text)
        return _Outcome(file, _sha256(text), fetched=True, set_aside=set_aside)
    if text:
        _write_atomically(aside, text)
        set_aside = (str(aside),)
    return _Outcome(file, failure=failure, set_aside=set_aside)


def _report(folder: Path, outcomes: Iterable[_Outcome]) -> DownloadReport:
    ordered = sorted(outcomes, key=lambda outcome: outcome.file.path)
    good = [outcome for outcome in ordered if outcome.sha256 is not None]
    return DownloadReport(
        folder=folder,
        had=tuple(outcome.file.path for outcome in good if not outcome.fetched),
        fetched=tuple(outcome.file.path for outcome in good if outcome.fetched),
        verified=tuple(outcome.file.path for outcome in good if outcome.file.sha256 is not None),
        unverified={outcome.file.path: str(outcome.sha256) for outcome in good if outcome.file.sha256 is None},
        failed={outcome.file.path: outcome.failure for outcome in ordered if outcome.failure is not None},
        not_tried=tuple(outcome.file.path for outcome in ordered if outcome.sha256 is None and outcome.failure is None),
        set_aside=tuple(path for outcome in ordered for path in outcome.set_aside),
    )


def _in_words(report: DownloadReport) -> str:
    lines = []
    if report.unverified:
        lines.append("No public checksum is known here for these files; their format is right, and their SHA-256 is")
        lines += [f"  {sha256}  {path}" for path, sha256 in report.unverified.items()]
    if report.set_aside:
        lines.append("Not what they should be, and set aside:")
        lines += [f"  {path}" for path in report.set_aside]
    if report.failed:
        lines.append("Failed:")
        lines += [f"  {why}" for why in report.failed.values()]  # which starts with the address
    lines.append(
        f"{report.folder}: {len(report.had)} files were there, {len(report.fetched)} fetched; "
        f"{len(report.verified)} verified by checksum, {len(report.unverified)} unverified; "
        f"{len(report.failed)} failed, {len(report.not_tried)} not tried."
    )
    if not report.complete:
        lines.append("Run the same command again to go on: files that are in order are not fetched twice.")
    return "\n".join(lines)


def download(
    splits: Sequence[str],
    folder: Path | str | None = None,
    base_url: str = BASE_URL,
    *,
    num_attempts: int = 5,
    first_wait_seconds: float = 1.0,
) -> DownloadReport:
    """Fetch splits of the public levels, with a progress bar, and print in words what became of their files.

    Every file is checked before it gets its name: by its SHA-256, or, where the manifest knows none, by its format, and
    then its hash is printed. Files already there and in order are kept, so an interrupted download goes on where it
    stopped. Trouble with a file is reported, not raised: see `DownloadReport.complete`.

    `num_attempts` per file, with waits of `first_wait_seconds`, twice that, and so on between them.
    """
    if isinstance(splits, str) or not splits:
        raise ValueError(f"Give a list of splits to download, such as ['hard']; there are {', '.join(split_names())}.")
    if not base_url.startswith(("http://", "https://")):
        raise ValueError(f"base_url must start with http:// or https://, not be {base_url!r}.")
    if num_attempts < 1:
        raise ValueError(f"num_attempts must be at least 1, not {num_attempts}.")
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    root = _boxoban_folder(folder)
    files = [file for split in dict.fromkeys(splits) for file in public_files(split)]
    stop = threading.Event()
    outcomes: list[_Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
        bar = progress.add_task("Boxoban levels", total=len(files))
        futures = [pool.submit(_obtain, file, root, base_url, num_attempts, first_wait_seconds, stop) for file in files]
        try:
            for future in as_completed(futures):
                outcomes.append(future.result())
                progress.advance(bar)
                if sum(outcome.failure is not None for outcome in outcomes) >= MAX_FAILED_FILES:
                    stop.set()
        except BaseException:
            stop.set()  # an interrupt must not wait for files that nobody wants any more
            pool.shutdown(cancel_futures=True)
            raise
    report = _report(root, outcomes)
    print(_in_words(report))
    return report


# --- The task ---------------------------------------------------------------------------------------------------------


def boxoban(
    train: str = "unfiltered-train",
    evaluation: str = "hard",
    *,
    folder: Path | str | None = None,
    allow_partial: bool = False,
    time_limit: int = 120,
    time_limit_is_termination: bool = False,
) -> Task:
    """Sokoban on the public levels: episodes start in levels of `train`, evaluation in levels of `evaluation`.

    Args:
        train: Split of the levels to train on, such as unfiltered-train or medium-train.
        evaluation: Split of the levels to evaluate on, such as hard.
        folder: Folder of the downloaded levels. None: the folder that `spo download boxoban` uses.
        allow_partial: Accept a split of which only some files are downloaded.
        time_limit: Longest episode, in moves.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
    """
    return sokoban(
        load_split(train, folder, allow_partial=allow_partial),
        evaluation_levels=load_split(evaluation, folder, allow_partial=allow_partial),
        time_limit=time_limit,
        time_limit_is_termination=time_limit_is_termination,
    )
