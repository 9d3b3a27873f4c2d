"""The source code, the command and the processor that a run or a measurement comes from."""

import os
import shlex
import subprocess
import sys
from pathlib import Path


def git_commit() -> str | None:
    """Returns the commit of this package's source, with "-dirty" if files have changed since, or None.

    Files under results/ do not count, because measurements write them. A package that is installed inside the
    repository of another project is not part of that repository: None. The environment variable SPO_COMMIT names the
    commit of a copy without a repository, such as a container.
    """
    if named := os.environ.get("SPO_COMMIT"):
        return named
    try:
        if _git("ls-files", "--error-unmatch", Path(__file__).name).returncode != 0:
            return None
        commit = _git("rev-parse", "HEAD").stdout.strip()
        is_changed = _git("diff", "--quiet", "HEAD", "--", ":(top)", ":(top,exclude)results").returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        return None
    return f"{commit}-dirty" if is_changed else commit or None


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs git in the folder of this file."""
    return subprocess.run(["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)


def command_line() -> str:
    """Returns the command of this program without `--out FILE`: the place of its results is not part of them."""
    before = ["", *sys.argv]  # the word before each one
    words = [
        word
        for previous, word in zip(before, sys.argv, strict=False)
        if "--out" not in (previous, word) and not word.startswith("--out=")
    ]
    return shlex.join(["python", *words])


def num_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
