"""Writes the tables of docs/performance.md and README.md that stand between marks, from the files under results/.

python tools/performance_tables.py            # rewrite
python tools/performance_tables.py --check    # fail if the page and the figures disagree
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "results" / "benchmarks"
RUNS = ROOT / "results" / "runs"
README = ROOT / "README.md"
SPEED = "env_steps_per_second"
#: Steps at which trials on the cube are compared. They were evaluated at different ones.
TRIAL_MILLIONS = (2, 3, 4, 6, 10, 12, 15, 20)

Row = dict
Columns = list[tuple[str, str]]  # heading, key of a row


# Rows.


def stored(name: str) -> list[Row]:
    """The rows of the files of this name, in which * may stand for anything."""
    return [row for path in sorted(FIGURES.glob(f"{name}.json")) for row in json.loads(path.read_text())]


def training(hardware: str) -> list[Row]:
    return newest(stored(f"{hardware}/training*"))


def newest(rows: list[Row]) -> list[Row]:
    """One row for each thing that was measured, by task and algorithm, SPO first; of two, the later one."""

    def measured(row: Row) -> tuple:
        # The fused physics is what Ant has if nothing is said.
        options = sorted((name, value) for name, value in row["task_options"].items() if value != "fused")
        task, algorithm = (row["task"], row["settings"]), (row["algorithm"] != "spo", row["algorithm"])
        return (*task, *algorithm, str(options), row["dtype"], row["num_seeds"], row.get("deterministic", False))

    kept: dict[tuple, Row] = {}
    for row in sorted(rows, key=lambda row: (row["date"], row.get("time", ""))):
        kept[measured(row)] = row
    return [kept[key] for key in sorted(kept)]


def compiled_alone(hardware: str) -> list[Row]:
    """Those whose time to the first update says something."""
    return [row for row in stored(f"{hardware}/training*") if row["seconds_to_first_update"]]


def one_seed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["num_seeds"] == 1]


def seeds_at_once(rows: list[Row]) -> list[Row]:
    """Rows of several seeds, with their time in that many runs of a single seed, where such a one was measured."""

    def same(row: Row) -> tuple:
        return tuple(row[name] for name in ("task", "settings", "task_options", "algorithm", "dtype"))

    together = []
    for row in rows:
        if row["num_seeds"] > 1:
            single = next((other[SPEED] for other in one_seed(rows) if same(other) == same(row)), None)
            together.append(row | {"time_of_single_runs": single and single / row[SPEED]})
    return together


def cube_trials() -> list[Row]:
    """SPO on the cube with one thing or another changed: what, and the share of cubes solved after so many steps."""
    plain = RUNS / "h200" / "spo_rubiks_cube"
    # What later versions can change and this run could not.
    paper = {"search.readout": "last", "correct_root_exploration": False} | settings_of(plain)
    tuned = (RUNS / "h200").glob("spo_rubiks_cube_tuned*")
    trials = {
        start: sorted((RUNS / "h200" / "cube_trials" / folder).iterdir())
        for start, folder in (("anywhere", "critic_starts_anywhere"), ("near 0", "critic_starts_near_0"))
    }
    starts = {plain: "anywhere"} | dict.fromkeys(tuned, "near 0")
    starts |= {run: start for start, runs in trials.items() for run in runs}
    rows = []
    for folder, start in starts.items():
        changed = [f"{name} {value}" for name, value in settings_of(folder).items() if paper.get(name) != value]
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        solved = {
            round(record["env_steps"] / 1e6): record["metrics"]["episode/solved"]
            for record in records
            if record["kind"] == "evaluation"
        }
        summary_path = folder / "summary.json"  # a run that was stopped on its way has none
        summary = json.loads(summary_path.read_text()) if summary_path.exists() else {}
        rows.append(
            {
                "start": start,
                "changed": ", ".join(changed) or "nothing (128 cubes)",
                **{f"at_{millions}": solved.get(millions) for millions in TRIAL_MILLIONS},
                "alone": summary.get("final_solve_rate_policy_only"),
            }
        )
    return sorted(rows, key=lambda row: (row["start"], row["changed"]))


def test_time() -> list[Row]:
    """What the tuned runs have learned, played with other searches than they were trained with."""
    rows = []
    for path in (RUNS / "h200").glob("spo_rubiks_cube_tuned*/evaluate_*"):
        trained = settings_of(path.parent)
        played = json.loads(path.read_text())
        rows.append(
            {
                "trained": f"{trained['search.num_particles']} × {trained['search.horizon']}",
                "width": trained["network.width"] or "512",
                "particles": played["search"]["num_particles"],
                "horizon": played["search"]["horizon"],
                "episodes": played["episodes"],
                **played["solved"],
            }
        )
    return sorted(rows, key=lambda row: (row["trained"], row["particles"], row["horizon"]))


def settings_of(folder: Path) -> Row:
    """The settings of a run that decide how it learns, by their names on the command line."""
    config = json.loads((folder / "config.json").read_text())
    search = config["config"].pop("search")
    named = config["config"] | {f"search.{name}": value for name, value in search.items()}
    named |= {f"task.{name}": value for name, value in config["task_options"].items()}
    if named.get("decay_learning_rates"):
        named["steps"] = f"{config['steps']:g}"  # rates fall over the whole run
    return named | {f"network.{name}": value for name, value in config["network"].items()}


# Tables.

PHASES = [("phase", "phase"), ("milliseconds", "milliseconds"), ("kernels", "kernels")]
EXPERIMENT = [
    ("algorithm", "algorithm"),
    ("task", "task"),
    ("settings", "settings"),
    ("physics", "task_options.physics"),
    ("network in", "dtype"),
    ("deterministic", "deterministic"),
]
TRAINING = [
    *EXPERIMENT,
    ("environments", "num_envs"),
    ("env-steps per second", SPEED),
    ("±", "spread"),
    ("reference", "reference_env_steps_per_second"),
    ("imagined steps per step", "model_steps_per_env_step"),
]
#: mark in the page -> its rows and columns
TABLES: dict[str, tuple[Callable[[], list[Row]], Columns]] = {
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
            ("mctx Gumbel, ms", "mctx_gumbel_ms"),
            ("mctx MuZero, ms", "mctx_muzero_ms"),
            ("search / mctx", "over_mctx"),
        ],
    ),
    "h200/environments": (
        lambda: stored("h200/environments"),
        [
            ("environment", "environment"),
            ("implementation", "implementation"),
            ("batch", "batch"),
            ("µs per batched step", "microseconds_per_step"),
            ("steps per second", "steps_per_second"),
            ("times its peer", "ratio_to_peer"),
        ],
    ),
    "h200/training": (lambda: one_seed(training("h200")), TRAINING),
    "h200/seeds": (
        lambda: seeds_at_once(training("h200")),
        [
            *EXPERIMENT,
            ("seeds", "num_seeds"),
            ("env-steps per second, all seeds", SPEED),
            ("time / that of as many single runs", "time_of_single_runs"),
        ],
    ),
    "cpu/training": (lambda: one_seed(training("cpu")), TRAINING),
    "first_update": (
        lambda: [row for where in ("h200", "cpu") for row in one_seed(newest(compiled_alone(where)))],
        [("hardware", "device"), *EXPERIMENT, ("seconds to the first update", "seconds_to_first_update")],
    ),
    "first_update_of_presets": (
        lambda: [row for where in ("h200", "cpu") for row in stored(f"{where}/first_update")],
        [
            ("hardware", "device"),
            ("preset", "preset"),
            ("environments", "num_envs"),
            ("beside others", "side_by_side"),
            ("empty cache: judged after, s", "judged_with_an_empty_cache"),
            ("first update after, s", "seconds_with_an_empty_cache"),
            ("second start: judged after, s", "judged_with_a_full_cache"),
            ("first update after, s", "seconds_with_a_full_cache"),
        ],
    ),
    "h200/profile_cube": (lambda: stored("h200/profile_cube"), PHASES),
    "h200/profile_ant": (lambda: stored("h200/profile_ant"), PHASES),
    "h200/ppo_ant": (
        lambda: stored("h200/ppo_ant"),
        [
            ("implementation", "implementation"),
            ("environment steps", "env_steps"),
            ("return", "return"),
            ("seconds, all included", "wall_seconds"),
        ],
    ),
}
TABLES["h200/cube_trials"] = (
    cube_trials,
    [
        ("changed", "changed"),
        ("critic starts", "start"),
        *((f"solved at {millions}e6", f"at_{millions}") for millions in TRIAL_MILLIONS),
        ("policy alone, end", "alone"),
    ],
)
TABLES["h200/test_time"] = (
    test_time,
    [("trained with", "trained"), ("width", "width")]
    + [(name, name) for name in ("particles", "horizon", "episodes")]
    + [("solved", "mean"), ("95 % interval from", "low"), ("to", "high")],
)
TABLES["h200/scaling"] = (
    lambda: stored("h200/scaling"),
    [
        ("grows", "sweep"),
        ("to", "size"),
        ("milliseconds", "milliseconds"),
        ("exponent", "exponent"),
        ("temporary memory, MB", "temporary_megabytes"),
    ],
)
#: Tables whose rows come from runs, or from other tables on the page, and have their source there.
SOURCES_ELSEWHERE = {"first_update", "h200/cube_trials", "h200/test_time"}


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return "" if value is None else str(value)


def find(row: dict, key: str) -> object:
    """A value by its dotted name."""
    value: object = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def table(rows: list[Row], columns: Columns) -> str:
    """The rows in Markdown. A column that no row has anything for is left out."""
    if not rows:
        return "Not measured yet."
    columns = [(heading, key) for heading, key in columns if any(cell(find(row, key)) for row in rows)]
    lines = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell(find(row, key)) for _, key in columns) + " |" for row in rows]
    return "\n".join(lines)


def sources(rows: list[Row]) -> str:
    """Where the rows come from: a line for each machine and day, with what was typed there."""
    typed: dict[str, dict[str, None]] = {}
    for row in rows:
        where = f"{row['device']}, jax {row['jax']}, {row['date']}"
        typed.setdefault(where, {})[f"`{row['command']}`"] = None
    return "".join(f"\n\n{where}: {', '.join(commands)}" for where, commands in typed.items())


def headline(rows: list[Row]) -> str:
    """The README's table: what is compared with the reference, at its precision, the fastest row of each."""
    best: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row[SPEED]):
        if row["reference_env_steps_per_second"] and row["dtype"] == "float32":
            best[row["algorithm"], row["task"]] = row
    lines = ["| | environment steps per second | reference | times |", "|---|---|---|---|"]
    for (algorithm, task), row in sorted(best.items(), key=lambda item: (item[0][0] != "spo", -item[1][SPEED])):
        reference = row["reference_env_steps_per_second"]
        times = row[SPEED] / reference
        lines.append(f"| {algorithm} on {task} | {row[SPEED]:,.0f} | {reference:,} | {times:.2f} |")
    return "\n".join(lines)


def replace(page: str, mark: str, text: str) -> str:
    pattern = rf"(<!-- {mark} -->\n).*?(<!-- end -->)"
    page, count = re.subn(pattern, lambda match: f"{match[1]}{text}\n{match[2]}", page, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"There must be one place between <!-- {mark} --> and <!-- end -->, and there are {count}.")
    return page


def written(page: str) -> str:
    for name, (rows, columns) in TABLES.items():
        where_from = "" if name in SOURCES_ELSEWHERE else sources(rows())
        page = replace(page, f"table {name}", table(rows(), columns) + where_from)
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page and the figures disagree")
    check = parser.parse_args().check
    pages = {
        PAGE: written(PAGE.read_text()),
        README: replace(README.read_text(), "training", headline(training("h200"))),
    }
    for path, text in pages.items():
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} does not show the figures under results/: run python tools/performance_tables.py.")
