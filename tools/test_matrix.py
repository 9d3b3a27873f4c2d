"""Runs the tests with every Python found and every supported series of JAX, and prints a table.

    python tools/test_matrix.py                                      # everything
    python tools/test_matrix.py --only 3.12/0.12                     # one cell; may be repeated; 3.12 selects a row
    python tools/test_matrix.py --tests tests/search tests/test_docs.py

Each cell has its own virtual environment under .matrix/, which later calls use again. Versions are those of
constraints.txt, except JAX and packages whose pins exclude that JAX. This program needs the standard library only.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".matrix"
OLDEST_PYTHON = (3, 11)
#: Supported series of JAX -> the oldest Python to test it with, and the first Python not to test it with.
JAX_SERIES = {
    "0.10": ((3, 11), (3, 12)),
    "0.11": ((3, 12), (4, 0)),
    "0.12": ((3, 12), (4, 0)),
}
#: Packages that the cell pins itself.
UNPINNED = ("jax", "jaxlib")


class Cell(NamedTuple):
    """A Python and a series of JAX to test together."""

    python: str  # "3.12"
    interpreter: str
    jax: str  # "0.11"

    @property
    def name(self) -> str:
        return f"{self.python}/{self.jax}"

    @property
    def venv(self) -> Path:
        return FOLDER / f"python{self.python}-jax{self.jax}"


class Result(NamedTuple):
    cell: Cell
    jax: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str

    @property
    def good(self) -> bool:
        return self.failed == 0 and self.passed > 0 and not self.note


def candidates() -> Iterator[Path]:
    """Yields possible Python commands: those on the PATH and those of pyenv."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if Path(folder).is_dir():
            yield from sorted(path for path in Path(folder).iterdir() if re.fullmatch(r"python3(\.\d+)?", path.name))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/*/bin/python3"))


def find_pythons() -> dict[str, str]:
    """Returns minor version -> first interpreter that runs and can create a virtual environment."""
    question = "import sys, ensurepip, venv; print(*sys.version_info[:2], sys.prefix == sys.base_prefix)"
    pythons: dict[str, str] = {}
    for path in candidates():
        try:
            answer = subprocess.run([path, "-c", question], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode != 0:
            continue
        major, minor, is_installation = answer.stdout.split()
        if is_installation == "True" and (int(major), int(minor)) >= OLDEST_PYTHON:
            pythons.setdefault(f"{major}.{minor}", str(path))
    return dict(sorted(pythons.items(), key=lambda item: tuple(map(int, item[0].split(".")))))


def cells(pythons: dict[str, str], only: Sequence[str]) -> list[Cell]:
    every = [
        Cell(version, interpreter, series)
        for version, interpreter in pythons.items()
        for series, (first, end) in JAX_SERIES.items()
        if first <= tuple(map(int, version.split("."))) < end
    ]
    return [cell for cell in every if not only or cell.name in only or cell.python in only]


def constraints_for(cell: Cell, without: frozenset[str]) -> Path:
    """Writes constraints.txt for this cell: any patch of its JAX, and no pins of the packages in `without`."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    dropped = {*UNPINNED, *without}
    kept = [line for line in lines if not line.startswith("#") and line.partition("==")[0] not in dropped]
    path = cell.venv / "constraints.txt"
    path.write_text("\n".join([*kept, f"jax=={cell.jax}.*", f"jaxlib=={cell.jax}.*"]) + "\n", "utf-8")
    return path


def install(cell: Cell) -> str:
    """Creates the environment of the cell. Returns an error message, or an empty string.

    pip installs the newest patch of the series for this Python. Pins that exclude this JAX are dropped: pip names them
    in its error message.
    """
    if not (cell.venv / "bin" / "python").exists():
        subprocess.run([cell.interpreter, "-m", "venv", cell.venv], check=True)
    dropped: frozenset[str] = frozenset()
    for _ in range(5):
        command = [cell.venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--upgrade"]
        command += ["--disable-pip-version-check", "--constraint", constraints_for(cell, dropped)]
        command += ["--editable", f"{ROOT}[test,docs]"]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if process.returncode == 0:
            return ""
        log = process.stdout + process.stderr
        (cell.venv / "install.log").write_text(log, "utf-8")
        conflicts = frozenset(re.findall(r"The user requested \(constraint\) ([\w-]+)==", log))
        conflicts |= frozenset(re.findall(r"^\s*([\w-]+) [\w.]+ depends on jax(?:lib)?\b", log, re.MULTILINE))
        if not conflicts - dropped - set(UNPINNED):
            break
        dropped |= conflicts
    return f"install failed: see {(cell.venv / 'install.log').relative_to(ROOT)}"


def test(cell: Cell, arguments: Sequence[str], jobs: int) -> Result:
    print(f"{cell.name}: installing", flush=True)
    note = install(cell)
    if note:
        return Result(cell, "", 0, 0, 0, 0.0, note)
    python = cell.venv / "bin" / "python"
    version = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('jax'))"], capture_output=True, text=True
    ).stdout.strip()
    print(f"{cell.name}: testing with jax {version}", flush=True)
    report = cell.venv / "report.xml"
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "worksteal", "-p", "no:cacheprovider"]
    start = time.monotonic()
    with (cell.venv / "tests.log").open("w", encoding="utf-8") as log:
        process = subprocess.run([*command, f"--junit-xml={report}", *arguments], cwd=ROOT, stdout=log, stderr=log)
    seconds = time.monotonic() - start
    log_name = (cell.venv / "tests.log").relative_to(ROOT)
    if not report.exists():
        return Result(cell, version, 0, 0, 0, seconds, f"pytest stopped: see {log_name}")
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failures, errors, skipped = (int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped"))
    failed = failures + errors
    note = f"see {log_name}" if failed or process.returncode != 0 else ""
    return Result(cell, version, total - failed - skipped, failed, skipped, seconds, note)


def print_table(results: Sequence[Result]) -> None:
    print(f"\n{'python':8s}{'jax':10s}{'':6s}{'passed':>8s}{'failed':>8s}{'skipped':>9s}{'seconds':>9s}")
    for result in results:
        verdict = "ok" if result.good else "FAIL"
        counts = f"{result.passed:8d}{result.failed:8d}{result.skipped:9d}{result.seconds:9.0f}"
        print(f"{result.cell.python:8s}{result.jax or result.cell.jax:10s}{verdict:6s}{counts}  {result.note}".rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="PYTHON[/JAX]", help="such as 3.12/0.12 or 3.12")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="test files or folders; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="number of test processes")
    parser.add_argument("--fresh", action="store_true", help="create the environments again")
    options = parser.parse_args()
    pythons = find_pythons()
    chosen = cells(pythons, options.only)
    if not chosen:
        print(f"Nothing to test: found Python {', '.join(pythons) or 'nowhere'}; --only was {options.only}.")
        return 2
    if options.fresh:
        for cell in chosen:
            shutil.rmtree(cell.venv, ignore_errors=True)
    results = [test(cell, options.tests, options.jobs) for cell in chosen]
    print_table(results)
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
