"""The table of probes in the documentation agrees with the tests. Run as a script, this file writes the table."""

import importlib
from pathlib import Path

from spo.algorithms.registry import ALGORITHMS

PAGE = Path(__file__).parents[2] / "docs" / "algorithms" / "index.md"
START, END = "<!-- probes -->\n", "<!-- end -->\n"
FILES = {"spo": "spo_learns", "gumbel_alphazero": "alphazero"}
LISTS = {"gumbel_alphazero": "GUMBEL_PROBES"}
#: Tried and not learnt. The page gives the reasons.
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
    tasks = list(dict.fromkeys(task for of_algorithm in probes.values() for task in of_algorithm))
    tasks.sort(key=lambda task: (task.startswith("continuous") or task == "lqr", task))

    def cell(task: str, algorithm: str) -> str:
        if algorithm in NOT_LEARNT.get(task, ()):
            return "✗"
        return "✓" if task in probes[algorithm] else "·"

    rows = [["Environment", *ORDER], ["---"] * (1 + len(ORDER))]
    rows += [[task, *(cell(task, algorithm) for algorithm in ORDER)] for task in tasks]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_every_algorithm_has_a_column():
    assert set(ORDER) == set(ALGORITHMS)


def test_the_page_has_the_table():
    assert START + table() + END in PAGE.read_text("utf-8"), "run python tests/algorithms/test_probe_table.py"


def test_no_probe_is_both_learnt_and_not_learnt():
    for task, algorithms in NOT_LEARNT.items():
        for algorithm in algorithms:
            assert task not in probes_of(algorithm)


if __name__ == "__main__":
    before, rest = PAGE.read_text("utf-8").split(START)
    PAGE.write_text(before + START + table() + END + rest.split(END, 1)[1], "utf-8")
