"""Fetching splits of the public levels and checking every file."""

import http.client
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from spo.environments.boxoban.manifest import PublicFile, check_public_file, public_files, sha256, split_names
from spo.environments.boxoban.splits import boxoban_folder, write_atomically

BASE_URL = "https://raw.githubusercontent.com/google-deepmind/boxoban-levels/master"

#: One connection fetches at most about ten files per second. The full set has 1505 files.
NUM_CONNECTIONS = 8
#: After this many failed files the network or the server is at fault, and the rest is not tried.
MAX_FAILED_FILES = 5
TIMEOUT_SECONDS = 30.0
#: File with the hashes of the files that were only checked by format, in the format of sha256sum.
UNVERIFIED = "unverified.sha256"
MAX_SHOWN_HASHES = 10
MAX_WAIT_SECONDS = 60.0


class DownloadReport(NamedTuple):
    """Result for each requested file. `present`, `fetched`, `failed` and `not_tried` have no file in common."""

    folder: Path
    present: tuple[str, ...]  # valid before the download
    fetched: tuple[str, ...]
    verified: tuple[str, ...]  # present or fetched, with the SHA-256 of the manifest
    unverified: dict[str, str]  # present or fetched without a hash in the manifest, with their SHA-256
    failed: dict[str, str]  # with the reason
    not_tried: tuple[str, ...]
    set_aside: tuple[str, ...]  # paths that hold invalid content

    @property
    def complete(self) -> bool:
        return not self.failed and not self.not_tried


class _Attempts(NamedTuple):
    """Attempts per file, with waits of `first_wait_seconds`, twice that, and so on between them."""

    number: int
    first_wait_seconds: float


def download(
    splits: Sequence[str],
    folder: Path | str | None = None,
    base_url: str = BASE_URL,
    *,
    num_attempts: int = 5,
    first_wait_seconds: float = 1.0,
) -> DownloadReport:
    """Fetches splits of the public levels with a progress bar and prints a summary.

    Every file is checked before it gets its name. The check is by SHA-256; where the manifest has none, it is by
    format, and the hash is printed. Valid files in the folder are kept, so an interrupted download can be continued.
    Failures are reported, not raised: see `DownloadReport.complete`.

    Args:
        splits: names of the splits.
        folder: root of the data set. Default: `boxoban` in `data_folder()`.
        base_url: address of the data set.
        num_attempts: attempts per file.
        first_wait_seconds: wait after the first failed attempt. It doubles with every further one.
    """
    if isinstance(splits, str) or not splits:
        raise ValueError(f"Give a list of splits to download, such as ['hard']; there are {', '.join(split_names())}.")
    if not base_url.startswith(("http://", "https://")):
        raise ValueError(f"base_url must start with http:// or https://, got {base_url!r}.")
    if num_attempts < 1:
        raise ValueError(f"num_attempts must be at least 1, got {num_attempts}.")
    root = boxoban_folder(folder)
    files = [file for split in dict.fromkeys(splits) for file in public_files(split)]
    report = _report(root, _obtain_all(files, root, base_url, _Attempts(num_attempts, first_wait_seconds)))
    _record_unverified(report)
    print(_summary(report))
    return report


# --- Files -----------------------------------------------------------------------------------------------------------


class _Outcome(NamedTuple):
    """Result for one file: valid if it has a hash, failed if it has a reason, otherwise not tried."""

    file: PublicFile
    sha256: str | None = None
    fetched: bool = False
    failure: str | None = None
    set_aside: tuple[str, ...] = ()


def _obtain_all(files: Sequence[PublicFile], root: Path, base_url: str, attempts: _Attempts) -> list[_Outcome]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    stop = threading.Event()
    outcomes: list[_Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
        bar = progress.add_task("Boxoban levels", total=len(files))
        futures = [pool.submit(_obtain, file, root, base_url, attempts, stop) for file in files]
        try:
            for future in as_completed(futures):
                outcomes.append(future.result())
                progress.advance(bar)
                if sum(outcome.failure is not None for outcome in outcomes) >= MAX_FAILED_FILES:
                    stop.set()
        except BaseException:
            stop.set()  # an interrupt does not wait for the remaining files
            pool.shutdown(cancel_futures=True)
            raise
    return outcomes


def _obtain(file: PublicFile, folder: Path, base_url: str, attempts: _Attempts, stop: threading.Event) -> _Outcome:
    """Fetches one file unless a valid copy is in the folder. Invalid content is moved to a name ending in .corrupt."""
    if stop.is_set():
        return _Outcome(file)
    path = folder / file.path
    aside = path.with_name(f"{path.name}.corrupt")
    set_aside: tuple[str, ...] = ()
    if path.is_file():
        text = path.read_bytes()
        try:
            check_public_file(file, text, str(path))
            return _Outcome(file, sha256(text))
        except ValueError:
            os.replace(path, aside)
            set_aside = (str(aside),)
    text, failure = _fetch(file, f"{base_url.rstrip('/')}/{file.path}", attempts, stop)
    if failure is None:
        write_atomically(path, text)
        return _Outcome(file, sha256(text), fetched=True, set_aside=set_aside)
    if text:
        write_atomically(aside, text)
        set_aside = (str(aside),)
    return _Outcome(file, failure=failure, set_aside=set_aside)


def _fetch(file: PublicFile, url: str, attempts: _Attempts, stop: threading.Event) -> tuple[bytes, str | None]:
    """Returns the last content received and the reason why it is invalid, or None if it is valid.

    A truncated file is fetched again from the start. It has 117 kB at most, and parts of two versions are never joined.
    """
    text = b""
    reason = f"{url}: not tried, because too many other files failed"
    wait = 0.0
    for attempt in range(attempts.number):
        if stop.wait(wait):
            break
        wait = attempts.first_wait_seconds * 2.0**attempt
        try:
            text = _request(url)
            check_public_file(file, text, url)
            return text, None
        except ValueError as error:
            reason = str(error)
        except (OSError, http.client.HTTPException) as error:
            text, reason = b"", f"{url}: {type(error).__name__}: {error}"
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if not _is_temporary(error):
                break
            wait = min(max(wait, _retry_after_seconds(error)), MAX_WAIT_SECONDS)
    return text, reason


def _request(url: str) -> bytes:
    """Returns the whole body. Raises OSError or HTTPException if the connection ends before the body."""
    request = urllib.request.Request(url, headers={"User-Agent": "spo-jax"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        return response.read()


def _is_temporary(error: Exception) -> bool:
    """True if the same request may succeed later."""
    return not isinstance(error, urllib.error.HTTPError) or error.code in (408, 425, 429) or error.code >= 500


def _retry_after_seconds(error: Exception) -> float:
    """The server's Retry-After header, or 0."""
    header = error.headers.get("Retry-After", "") if isinstance(error, urllib.error.HTTPError) else ""
    return float(header) if header.isdigit() else 0.0


# --- Report ----------------------------------------------------------------------------------------------------------


def _report(folder: Path, outcomes: Iterable[_Outcome]) -> DownloadReport:
    ordered = sorted(outcomes, key=lambda outcome: outcome.file.path)
    valid = [outcome for outcome in ordered if outcome.sha256 is not None]
    return DownloadReport(
        folder=folder,
        present=tuple(outcome.file.path for outcome in valid if not outcome.fetched),
        fetched=tuple(outcome.file.path for outcome in valid if outcome.fetched),
        verified=tuple(outcome.file.path for outcome in valid if outcome.file.sha256 is not None),
        unverified={outcome.file.path: str(outcome.sha256) for outcome in valid if outcome.file.sha256 is None},
        failed={outcome.file.path: outcome.failure for outcome in ordered if outcome.failure is not None},
        not_tried=tuple(outcome.file.path for outcome in ordered if outcome.sha256 is None and outcome.failure is None),
        set_aside=tuple(path for outcome in ordered for path in outcome.set_aside),
    )


def _record_unverified(report: DownloadReport) -> None:
    """Writes the hashes of files that were only checked by format: a later change of one of them can be found."""
    path = report.folder / UNVERIFIED
    known: dict[str, str] = {}
    if path.is_file():
        pairs = (line.split("  ", 1) for line in path.read_text("utf-8").splitlines() if "  " in line)
        known = {name: digest for digest, name in pairs}
    known |= report.unverified
    if known and report.unverified:
        write_atomically(path, "".join(f"{known[name]}  {name}\n" for name in sorted(known)).encode())


def _name_ranges(paths: Sequence[str]) -> str:
    """Returns names of files with the first and the last one of each folder."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return ", ".join(
        files[0] if len(files) == 1 else f"{files[0]} to {files[-1].rpartition('/')[2]} ({len(files)} files)"
        for files in folders.values()
    )


def _summary(report: DownloadReport) -> str:
    lines = []
    if report.unverified:
        lines.append(
            f"{len(report.unverified)} files were only checked by format, because no public checksum of them is known: "
            f"{_name_ranges(tuple(report.unverified))}. Their SHA-256 is"
        )
        shown = list(report.unverified.items())[:MAX_SHOWN_HASHES]
        lines += [f"  {digest}  {path}" for path, digest in shown]
        if len(report.unverified) > MAX_SHOWN_HASHES:
            lines.append(f"  and so on: {report.folder / UNVERIFIED} has all of them, for `sha256sum --check`")
    if report.set_aside:
        lines.append("Invalid content was moved to:")
        lines += [f"  {path}" for path in report.set_aside]
    if report.failed:
        lines.append("Failed:")
        lines += [f"  {reason}" for reason in report.failed.values()]  # starts with the address
    lines.append(
        f"{report.folder}: {len(report.present)} files already present, {len(report.fetched)} fetched; "
        f"{len(report.verified)} verified by checksum, {len(report.unverified)} only checked by format; "
        f"{len(report.failed)} failed, {len(report.not_tried)} not tried."
    )
    if not report.complete:
        lines.append("Run the same command again to continue: valid files are not fetched twice.")
    return "\n".join(lines)
