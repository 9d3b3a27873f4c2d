"""The source code that a run or a measurement comes from."""

import os
import subprocess
from pathlib import Path


def git_commit() -> str | None:
    """Returns the commit of this package's source, with "-dirty" if files have changed since, or None.

    A package that is installed inside the repository of another project is not part of that repository: None. The
    environment variable SPO_COMMIT names the commit of a copy without a repository, such as a container.
    """
    if named := os.environ.get("SPO_COMMIT"):
        return named
    is_tracked = ["git", "ls-files", "--error-unmatch", Path(__file__).name]
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        tracked, commit = (
            subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
            for command in (is_tracked, describe)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() or None if tracked.returncode == 0 else None
