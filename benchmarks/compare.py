"""Small CPU benchmarks compared with the committed figures: `make bench`.

Times differ between machines, so only ratios are compared. Both times of a ratio come from the same run: a search and
its floor, our cube and Jumanji's, a search and one four times as large. A larger ratio is slower. Times are processor
times of our own threads, so that other programs on the machine disturb them little.

    python benchmarks/compare.py                     # measure, then compare
    python benchmarks/compare.py --update            # measure, compare, and store the new ratios
    python benchmarks/compare.py --rows FOLDER       # compare rows that were measured before
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "results" / "benchmarks" / "cpu" / "ratios.json"
#: Name of a benchmark -> its options. Each benchmark writes its rows to a file of its name.
SMALL_SET = {
    "search": ["--tiny", "--dtypes", "float32"],
    "environments": ["--tiny"],
    "physics": ["--tiny"],
    "training": ["--tiny", "--tasks", "paper/rubiks_cube", "--algorithms", "spo", "ppo"],
    "scaling": ["--tiny", "--only", "particles", "horizon", "roots", "--repeats", "20"],
}
#: Columns of a row that describe the measurement.
PROVENANCE = ("device", "processor", "jax", "python", "commit", "date")

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Times the small CPU set and compares its ratios with the committed ones."""

    rows: Path | None = None
    """Folder with stored rows of every benchmark of the set. They are compared, and nothing is timed."""
    tolerance: float = 1.5
    """Factor between a ratio and the committed one from which on the ratio counts as slower, or as faster."""
    strict: bool = False
    """Exit with 1 if a ratio is slower or missing."""
    update: bool = False
    """Store the measured ratios as the committed figures."""
    note: str = ""
    """Remark to store with the committed figures, with --update."""


class Line(NamedTuple):
    """One ratio, committed and measured now. A ratio that one side lacks is None there."""

    name: str
    committed: float | None
    now: float | None
    verdict: str  # same, slower, faster, new or missing


def measure(folder: Path) -> None:
    """Runs each benchmark of the set in its own process and stores its rows in the folder."""
    for name, arguments in SMALL_SET.items():
        print(f"{name} ...", flush=True)
        script = Path(__file__).parent / f"{name}.py"
        done = subprocess.run(
            [sys.executable, script, *arguments, "--out", folder / f"{name}.json"],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{done.stdout}\nbenchmarks/{name}.py {' '.join(arguments)} failed.")


def ratios(rows: dict[str, list[Row]]) -> dict[str, float]:
    """Returns all ratios by name, from the rows of each benchmark. A larger ratio is slower."""
    found = [*_search(rows["search"]), *_environments(rows["environments"]), *_physics(rows["physics"])]
    return dict([*found, *_training(rows["training"]), *_scaling(rows["scaling"])])


def _search(rows: list[Row]) -> Iterator[tuple[str, float]]:
    for row in rows:
        size = "{batch} x {num_particles} x {horizon}".format(**row)
        yield f"search {size} / its floor", row["search_ms"] / row["floor_ms"]
        yield f"search {size} with a resample / without", row["search_with_mid_resample_ms"] / row["search_ms"]
        yield f"search {size} / mctx Gumbel", row["search_ms"] / row["mctx_gumbel_ms"]


def _environments(rows: list[Row]) -> Iterator[tuple[str, float]]:
    for ours, peer in zip(rows[::2], rows[1::2], strict=True):
        name = f"{ours['environment']} x {ours['batch']}, {ours['implementation']} / {peer['implementation']}"
        yield name, ours["microseconds_per_step"] / peer["microseconds_per_step"]


def _physics(rows: list[Row]) -> Iterator[tuple[str, float]]:
    times = {(row["environment"], row["implementation"]): row for row in rows if "error" not in row}
    for (environment, implementation), row in times.items():
        if implementation == "xla":
            brax = times[environment, "brax"]
            name = f"fused physics of {environment} x {row['batch']}, XLA / brax"
            yield name, row["microseconds_per_step"] / brax["microseconds_per_step"]


def _training(rows: list[Row]) -> Iterator[tuple[str, float]]:
    times = {row["algorithm"]: row["processor_seconds_per_env_step"] for row in rows}
    yield "training step of SPO / of PPO", times["spo"] / times["ppo"]


def _scaling(rows: list[Row]) -> Iterator[tuple[str, float]]:
    by_sweep: dict[str, list[Row]] = {}
    for row in rows:
        by_sweep.setdefault(row["sweep"], []).append(row)
    for sweep, (small, *_, large) in by_sweep.items():
        sizes = f"{large['size']} / {small['size']} {sweep}"
        yield f"time of a search, {sizes}", large["milliseconds"] / small["milliseconds"]
        yield f"memory of a search, {sizes}", large["temporary_megabytes"] / small["temporary_megabytes"]


def compare(committed: dict[str, float], now: dict[str, float], tolerance: float) -> list[Line]:
    """Returns one line for every ratio of either side, the committed ones first."""

    def verdict(name: str) -> str:
        if name not in now:
            return "missing"
        if name not in committed:
            return "new"
        change = now[name] / committed[name]
        return "slower" if change > tolerance else "faster" if change < 1 / tolerance else "same"

    return [Line(name, committed.get(name), now.get(name), verdict(name)) for name in dict.fromkeys([*committed, *now])]


def show(lines: list[Line], tolerance: float) -> None:
    table = Table("ratio", title=f"Ratios of times; larger is slower; tolerance: factor {tolerance:g}")
    for column in ("committed", "now", "now / committed", "verdict"):
        table.add_column(column, justify="right")
    styles = {"slower": "bold red", "missing": "bold red", "faster": "green", "new": "yellow"}
    for line in lines:
        both = line.committed is not None and line.now is not None
        numbers = (line.committed, line.now, line.now / line.committed if both else None)
        cells = ("" if number is None else f"{number:.3g}" for number in numbers)
        table.add_row(line.name, *cells, line.verdict, style=styles.get(line.verdict))
    Console().print(table)


def main(options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if options.rows is None:
            measure(Path(folder))
        source = options.rows or Path(folder)
        rows = {name: json.loads((source / f"{name}.json").read_text()) for name in SMALL_SET}
    now = ratios(rows)
    committed = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {"ratios": {}}
    lines = compare(committed["ratios"], now, options.tolerance)
    show(lines, options.tolerance)

    where = {name: rows["search"][0][name] for name in PROVENANCE}
    if COMMITTED.exists():
        print(f"committed: {', '.join(str(committed.get(name)) for name in where)}")
    print(f"now: {', '.join(map(str, where.values()))}")
    if options.update:
        command = "python benchmarks/compare.py --update"
        COMMITTED.parent.mkdir(parents=True, exist_ok=True)
        COMMITTED.write_text(
            json.dumps({**where, "command": command, "note": options.note, "ratios": now}, indent=2) + "\n"
        )
        print(f"{len(now)} ratios written to {COMMITTED}")
    elif options.strict and any(line.verdict in ("slower", "missing") for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main(tyro.cli(Options))
