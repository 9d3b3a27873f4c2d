"""The table of probes in the docs is that of the tests. Run as a script, this file writes it."""

import importlib
from pathlib import Path

from spo.algorithms.registry import ALGORITHMS

PAGE = Path(__file__).parents[2] / "docs" / "algorithms" / "index.md"
START, END = "<!-- probes -->\n", "<!-- end -->\n"
FILES = {"spo": "spo_learns", "gumbel_alphazero": "alphazero"}
LISTS = {"gumbel_alphazero": "GUMBEL_PROBES"}
#: Tried, and not learnt. Why is said on the page.
NOT_LEARNT = {
    "gamble": {"spo", "vmpo", "alphazero", "gumbel_alphazero"},
    "slippery": {"gumbel_alphazero"},
    "chain": {"alphazero", "gumbel_alphazero", "sampled_alphazero"},
}
ORDER = ["spo", "ppo", "mpo", "vmpo", "alphazero", "gumbel_alphazero", "sampled_alphazero", "smc_ent"]


def probes_of(algorithm: str) -> dict:
    module = importlib.import_module(f"algorithms.test_{FILES.get(algorithm, algorithm)}")
    return getattr(module, LISTS.get(algorithm, "PROBES"))


def table() -> str:
    probes = {algorithm: probes_of(algorithm) for algorithm in ORDER}
    worlds = list(dict.fromkeys(world for of_algorithm in probes.values() for world in of_algorithm))
    worlds.sort(key=lambda world: (world.startswith("continuous") or world == "lqr", world))

    def cell(world: str, algorithm: str) -> str:
        if algorithm in NOT_LEARNT.get(world, ()):
            return "✗"
        return "✓" if world in probes[algorithm] else "·"

    rows = [["World", *ORDER], ["---"] * (1 + len(ORDER))]
    rows += [[world, *(cell(world, algorithm) for algorithm in ORDER)] for world in worlds]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_every_algorithm_has_a_column():
    assert set(ORDER) == set(ALGORITHMS)


def test_the_page_has_the_table():
    assert START + table() + END in PAGE.read_text("utf-8"), "run python tests/algorithms/test_probe_table.py"


def test_what_is_not_learnt_is_not_among_what_is():
    for world, algorithms in NOT_LEARNT.items():
        for algorithm in algorithms:
            assert world not in probes_of(algorithm)


if __name__ == "__main__":
    before, rest = PAGE.read_text("utf-8").split(START)
    PAGE.write_text(before + START + table() + END + rest.split(END, 1)[1], "utf-8")
