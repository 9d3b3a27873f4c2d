"""The finder of run folders, for all commands that read runs."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from spo.reports.run_files import read_config

#: Files of a run beside config.json.
_OTHER_FILES = ("metrics.jsonl", "environment.json", "summary.json", "checkpoints", "run.lock")
#: Folders inside a run, which contain no other run.
_INSIDE_RUNS = ("checkpoints", "tensorboard")


def find_runs(path: str | Path) -> list[Path]:
    """Returns the folders of runs that a path names: that run, or all below it, in order.

    Args:
      path: a folder. Its name may contain * and ?.
    """
    if is_run(Path(path)):
        return [Path(path)]
    if glob.has_magic(str(path)) and not Path(path).exists():
        return [folder for match in sorted(glob.glob(str(path))) for folder in find_runs(match)]
    if not Path(path).is_dir():
        raise ValueError(f"{path} is no folder: name folders that `spo train` wrote, or one above them.")
    return sorted(runs_below(Path(path)))


def runs_below(root: Path) -> Iterator[Path]:
    """Yields the folders of all runs below a folder, and that folder itself if it is one."""
    seen = set()
    for folder, below, names in os.walk(root, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:  # by a link
            below.clear()
            continue
        seen.add(real)
        below[:] = [name for name in below if not name.endswith(".draft")]  # runs that are being created
        if "config.json" in names and is_run(Path(folder)):
            yield Path(folder)
            below[:] = [name for name in below if name not in _INSIDE_RUNS]


def is_run(folder: Path) -> bool:
    """Returns True if the folder has the config.json of a run, or a damaged one beside other files of a run.

    A config.json of another program is not one.
    """
    path = Path(folder) / "config.json"
    try:
        read_config(folder)
    except (ValueError, OSError):
        return path.exists() and any((path.parent / name).exists() for name in _OTHER_FILES)
    return True
