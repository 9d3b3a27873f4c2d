"""Writes the tables of docs/performance.md from the figures under results/benchmarks: no figure there is typed by hand.

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
}


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)


def table(name: str) -> str:
    rows = json.loads((FIGURES / f"{name}.json").read_text())
    columns = TABLES[name]
    lines = ["| " + " | ".join(heading for heading, _ in columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell(row.get(key)) for _, key in columns) + " |" for row in rows]
    source = rows[0]
    lines += ["", f"{source['device']}, jax {source['jax']}, {source['date']}: `{source['command']}`"]
    return "\n".join(lines)


def written(page: str) -> str:
    for name in TABLES:
        pattern = rf"(<!-- table {name} -->\n).*?(\n<!-- end -->)"
        page, count = re.subn(pattern, lambda m, n=name: m[1] + table(n) + m[2], page, flags=re.DOTALL)
        if count != 1:
            sys.exit(f"{PAGE.name} must hold the table {name} once, between <!-- table {name} --> and <!-- end -->.")
    return page


if __name__ == "__main__":
    page = PAGE.read_text()
    if "--check" not in sys.argv:
        PAGE.write_text(written(page))
    elif written(page) != page:
        sys.exit(
            "docs/performance.md does not show the figures under results/: run python tools/performance_tables.py."
        )
