"""Writes the tables of docs/performance.md and README.md from results/benchmarks: no figure there is typed by hand.

python tools/performance_tables.py            # rewrite
python tools/performance_tables.py --check    # fail if the page and the figures disagree
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "results" / "benchmarks"
README = ROOT / "README.md"
SPEED = "env_steps_per_second"

PHASES = [("phase", "phase"), ("milliseconds", "milliseconds"), ("kernels", "kernels")]
#: table -> file and columns (heading, key of a row)
TABLES = {
    "h200/search": [
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
    "h200/environments": [
        ("environment", "environment"),
        ("implementation", "implementation"),
        ("batch", "batch"),
        ("µs per batched step", "microseconds_per_step"),
        ("steps per second", "steps_per_second"),
        ("times its peer", "ratio_to_peer"),
    ],
    "h200/training": [
        ("algorithm", "algorithm"),
        ("task", "task"),
        ("physics", "task_options.physics"),
        ("environments", "num_envs"),
        ("env-steps per second", "env_steps_per_second"),
        ("±", "spread"),
        ("reference", "reference_env_steps_per_second"),
        ("imagined steps per step", "model_steps_per_env_step"),
        ("seconds to the first update", "seconds_to_first_update"),
    ],
    "h200/profile_cube": PHASES,
    "h200/profile_ant": PHASES,
    "h200/ppo_ant": [
        ("implementation", "implementation"),
        ("environment steps", "env_steps"),
        ("return", "return"),
        ("seconds, all included", "wall_seconds"),
    ],
}


def cell(value: object) -> str:
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


def table(name: str) -> str:
    rows = json.loads((FIGURES / f"{name}.json").read_text())
    columns = TABLES[name]
    lines = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell(find(row, key)) for _, key in columns) + " |" for row in rows]
    sources = dict.fromkeys(f"{row['device']}, jax {row['jax']}, {row['date']}: `{row['command']}`" for row in rows)
    lines += [line for source in sources for line in ("", source)]
    return "\n".join(lines)


def headline() -> str:
    """The README's table: what is compared with the reference, the fastest row of each."""
    best: dict[tuple[str, str], dict] = {}
    for row in json.loads((FIGURES / "h200" / "training.json").read_text()):
        key = (row["algorithm"], row["task"])
        if row["reference_env_steps_per_second"] and row["env_steps_per_second"] > best.get(key, row)[SPEED] - 1:
            best[key] = row
    lines = ["| | environment steps per second | reference | times |", "|---|---|---|---|"]
    for (algorithm, task), row in best.items():
        reference = row["reference_env_steps_per_second"]
        times = row[SPEED] / reference
        lines.append(f"| {algorithm} on {task} | {row[SPEED]:,.0f} | {reference:,} | {times:.2f} |")
    return "\n".join(lines)


def replace(page: str, mark: str, text: str) -> str:
    pattern = rf"(<!-- {mark} -->\n).*?(\n<!-- end -->)"
    page, count = re.subn(pattern, lambda match: match[1] + text + match[2], page, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"There must be one place between <!-- {mark} --> and <!-- end -->, and there are {count}.")
    return page


def written(page: str) -> str:
    for name in TABLES:
        page = replace(page, f"table {name}", table(name))
    return page


if __name__ == "__main__":
    pages = {PAGE: written(PAGE.read_text()), README: replace(README.read_text(), "training", headline())}
    for path, text in pages.items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} does not show the figures under results/: run python tools/performance_tables.py.")
