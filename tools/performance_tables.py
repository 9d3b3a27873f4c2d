"""Writes the tables between marks in README.md and two pages of docs/ from the files under results/.

python tools/performance_tables.py            # rewrite
python tools/performance_tables.py --check    # fail if a page and the files differ
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from spo.reports.runs import latest_per_seed, load_run

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "results" / "benchmarks"
RUNS = ROOT / "results" / "runs"
README = ROOT / "README.md"
LIVE = ROOT / "docs" / "inspect_live.md"
SPEED = "env_steps_per_second"
#: Condition of a row in the README's table, by algorithm and task.
CONDITIONS = {
    ("spo", "rubiks_cube"): "float32",
    ("spo", "brax/ant"): "our physics is one fused kernel, the reference uses Brax",
    ("ppo", "brax/ant"): "our physics is one fused kernel, the reference uses Brax",
    ("alphazero", "rubiks_cube"): "both timed with an untrained network",
}

Row = dict
Columns = list[tuple[str, str]]  # heading, key of a row


# Rows.


def stored(name: str) -> list[Row]:
    """Returns the rows of all files that match this name, a glob pattern."""
    return [row for path in sorted(FIGURES.glob(f"{name}.json")) for row in json.loads(path.read_text())]


def training(hardware: str) -> list[Row]:
    return newest(stored(f"{hardware}/training*"))


def newest(rows: list[Row]) -> list[Row]:
    """Returns the newest row of each measured thing, sorted by task and algorithm, SPO first."""

    def measured(row: Row) -> tuple:
        # The fused physics is the default of Ant.
        options = sorted((name, value) for name, value in row["task_options"].items() if value != "fused")
        task, algorithm = (row["task"], row["settings"]), (row["algorithm"] != "spo", row["algorithm"])
        return (*task, *algorithm, str(options), row["dtype"], row["num_seeds"], row.get("deterministic", False))

    kept: dict[tuple, Row] = {}
    for row in sorted(rows, key=lambda row: (row["date"], row.get("time", ""))):
        kept[measured(row)] = row
    return [kept[key] for key in sorted(kept)]


def cube_runs() -> list[Row]:
    """Returns one row per run on the cube: the share of cubes solved with the best parameters.

    A run without a summary shows its last evaluation.
    """
    rows = []
    for run in map(load_run, sorted((RUNS / "h200").glob("*rubiks_cube*"))):
        row = {"run": run.folder.name, "algorithm": run.config["algorithm"], "seeds": run.config["num_seeds"]}
        if run.summary is not None:
            low, high = run.summary["final_solve_rate_interval"]
            row |= {"steps": run.summary["env_steps"], "cubes": run.summary["final_solve_rate_episodes"]}
            row |= {"solved": run.summary["final_solve_rate"], "low": low, "high": high}
            row |= {"policy_only": run.summary["final_solve_rate_policy_only"]}
        else:
            last = latest_per_seed(run.records, "evaluation")[-1]
            row |= {"steps": last["env_steps"], "cubes": int(last["metrics"]["episode/count"])}
            row |= {"solved": last["metrics"]["episode/solved"]}
        rows.append(row)
    return rows


def last_evaluations(name: str) -> list[Row]:
    """Returns the last row of each implementation."""
    return list({row["implementation"]: row for row in stored(name)}.values())


def environments() -> list[Row]:
    """Returns our rows, each with the time of the original library for the same environment and batch."""

    def measured(row: Row) -> tuple:
        return row["environment"], row["batch"]

    rows = stored("h200/environments")
    originals = {measured(row): row for row in rows if row["implementation"] != "ours"}
    joined = []
    for row in rows:
        if row["implementation"] == "ours":
            original = originals[measured(row)]
            joined.append(
                row
                | {"original": original["implementation"], "original_microseconds": original["microseconds_per_step"]}
            )
    return joined


def scaling() -> list[Row]:
    """Returns one row per sweep: its times, the exponent of its last step and the memory at its largest size."""
    sweeps: dict[str, list[Row]] = {}
    for row in stored("h200/scaling"):
        sweeps.setdefault(row["sweep"], []).append(row)
    return [
        rows[-1] | {"times": ", ".join(f"{cell(row['size'])}: {cell(row['milliseconds'])}" for row in rows)}
        for rows in sweeps.values()
    ]


# Tables.

#: mark in the page -> its rows and columns
TABLES: dict[str, tuple[Callable[[], list[Row]], Columns]] = {
    "h200/cube_runs": (
        cube_runs,
        [
            ("run", "run"),
            ("algorithm", "algorithm"),
            ("seeds", "seeds"),
            ("environment steps", "steps"),
            ("cubes", "cubes"),
            ("solved", "solved"),
            ("95 % interval from", "low"),
            ("to", "high"),
            ("solved by the policy alone", "policy_only"),
        ],
    ),
    "training": (
        lambda: [
            row
            for hardware in ("h200", "cpu")
            for row in sorted(training(hardware), key=lambda row: row["num_seeds"] > 1)
        ],
        [
            ("hardware", "device"),
            ("algorithm", "algorithm"),
            ("task", "task"),
            ("settings", "settings"),
            ("physics", "task_options.physics"),
            ("network in", "dtype"),
            ("deterministic", "deterministic"),
            ("seeds", "num_seeds"),
            ("environments", "num_envs"),
            ("environment steps per second", SPEED),
            ("±", "spread"),
            ("reference", "reference_env_steps_per_second"),
            ("model steps per environment step", "model_steps_per_env_step"),
        ],
    ),
    "first_update": (
        lambda: [row for hardware in ("h200", "cpu") for row in stored(f"{hardware}/first_update")],
        [
            ("hardware", "device"),
            ("preset", "preset"),
            ("environments", "num_envs"),
            ("GPU shared", "side_by_side"),
            ("empty cache: evaluated, s", "judged_with_an_empty_cache"),
            ("first update, s", "seconds_with_an_empty_cache"),
            ("filled cache: evaluated, s", "judged_with_a_full_cache"),
            ("first update, s", "seconds_with_a_full_cache"),
        ],
    ),
    "h200/search": (
        lambda: stored("h200/search"),
        [
            ("roots", "batch"),
            ("particles", "num_particles"),
            ("horizon", "horizon"),
            ("network in", "dtype"),
            ("floor, ms", "floor_ms"),
            ("search, ms", "search_ms"),
            ("search / floor", "over_floor"),
            ("with a resample in the middle, ms", "search_with_mid_resample_ms"),
            ("tree search: floor, ms", "tree_floor_ms"),
            ("Gumbel, ms", "tree_gumbel_ms"),
            ("MuZero, ms", "tree_muzero_ms"),
            ("mctx Gumbel, ms", "mctx_gumbel_ms"),
            ("mctx MuZero, ms", "mctx_muzero_ms"),
            ("search / mctx", "over_mctx"),
        ],
    ),
    "h200/scaling": (
        scaling,
        [
            ("grows", "sweep"),
            ("size: milliseconds", "times"),
            ("exponent of the last step", "exponent"),
            ("temporary memory at the largest size, MB", "temporary_megabytes"),
        ],
    ),
    "h200/environments": (
        environments,
        [
            ("environment", "environment"),
            ("batch", "batch"),
            ("µs per batched step", "microseconds_per_step"),
            ("original", "original"),
            ("µs of the original", "original_microseconds"),
            ("speed ratio", "ratio_to_peer"),
            ("steps per second", "steps_per_second"),
        ],
    ),
    "h200/ppo_ant": (
        lambda: last_evaluations("h200/ppo_ant"),
        [
            ("implementation", "implementation"),
            ("environment steps", "env_steps"),
            ("return", "return"),
            ("seconds, all included", "wall_seconds"),
        ],
    ),
}
#: Columns of the page LIVE.
LATENCY: Columns = [
    ("agent", "agent"),
    ("particles", "num_particles"),
    ("horizon", "horizon"),
    ("median, ms", "milliseconds"),
    ("95 % within, ms", "milliseconds_95"),
    ("search alone, ms", "search_milliseconds"),
]
#: Tables whose rows come from runs: the folder of a run has its settings and its commit.
SOURCES_ELSEWHERE = {"h200/cube_runs"}


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return "" if value is None else str(value)


def find(row: dict, key: str) -> object:
    """Returns a value by its dotted name."""
    value: object = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def table(rows: list[Row], columns: Columns) -> str:
    """Returns the rows as a Markdown table, without the columns that are empty in all rows."""
    if not rows:
        return "Not measured yet."
    columns = [(heading, key) for heading, key in columns if any(cell(find(row, key)) for row in rows)]
    lines = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell(find(row, key)) for _, key in columns) + " |" for row in rows]
    return "\n".join(lines)


def sources(rows: list[Row]) -> str:
    """Returns one paragraph with the commands of the rows, by machine and day."""
    typed: dict[str, dict[str, None]] = {}
    for row in rows:
        where = f"{row['device']}, jax {row['jax']}, {row['date']}"
        typed.setdefault(where, {})[f"`{row['command']}`"] = None
    return "\n\n" + "; ".join(f"{where}: {', '.join(commands)}" for where, commands in typed.items())


def headline(rows: list[Row]) -> str:
    """Returns the README's table: the fastest float32 row of each algorithm and task that has a reference."""
    best: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row[SPEED]):
        if row["reference_env_steps_per_second"] and row["dtype"] == "float32":
            best[row["algorithm"], row["task"]] = row
    lines = ["| | environment steps per second | reference | ratio | condition |", "|---|---|---|---|---|"]
    for (algorithm, task), row in sorted(best.items(), key=lambda item: (item[0][0] != "spo", -item[1][SPEED])):
        reference = row["reference_env_steps_per_second"]
        cells = [f"{algorithm} on {task}", f"{row[SPEED]:,.0f}", f"{reference:,}", f"{row[SPEED] / reference:.2f}"]
        lines.append("| " + " | ".join([*cells, CONDITIONS.get((algorithm, task), "")]) + " |")
    return "\n".join(lines)


def replace(page: str, mark: str, text: str) -> str:
    pattern = rf"(<!-- {mark} -->\n).*?(<!-- end -->)"
    page, count = re.subn(pattern, lambda match: f"{match[1]}{text}\n{match[2]}", page, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"The page needs one place between <!-- {mark} --> and <!-- end -->; it has {count}.")
    return page


def written(page: str) -> str:
    for name, (rows, columns) in TABLES.items():
        where_from = "" if name in SOURCES_ELSEWHERE else sources(rows())
        page = replace(page, f"table {name}", table(rows(), columns) + where_from)
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page and the files differ")
    check = parser.parse_args().check
    latency = stored("cpu/inspect")
    pages = {
        PAGE: written(PAGE.read_text()),
        README: replace(README.read_text(), "training", headline(training("h200"))),
        LIVE: replace(LIVE.read_text(), "latency", table(latency, LATENCY) + sources(latency)),
    }
    for path, text in pages.items():
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} does not show the figures under results/: run python tools/performance_tables.py.")
