"""Tests that docs/departures.md lists its departures in order, and that its numbers are those of the code."""

import inspect
import re
from pathlib import Path

import optax
import pytest

from spo.algorithms.updates import adam
from spo.environments.rubiks_cube import rubiks_cube
from spo.environments.sokoban_generator import generated_sokoban
from spo.networks.heads import GaussianHead

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def rows() -> dict[int, list[str]]:
    """Returns the cells of the table by number."""
    lines = (ROOT / "docs" / "departures.md").read_text("utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if re.match(r"\| \d+ \|", line)]
    assert [int(row[0]) for row in cells] == list(range(1, len(cells) + 1))
    return {int(row[0]): row for row in cells}


def test_every_row_has_all_its_cells(rows):
    assert {len(row) for row in rows.values()} == {5}
    assert all(cell for row in rows.values() for cell in row)


def test_departures_that_the_source_names_exist(rows):
    named = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        for match in re.findall(r"[Dd]epartures? (\d+(?:(?:, | and )\d+)*)", path.read_text("utf-8")):
            named |= {int(number) for number in re.findall(r"\d+", match)}
    assert named
    assert named <= rows.keys()


def test_the_numbers_are_those_of_the_code(rows):
    limits = [inspect.signature(maker).parameters["time_limit"].default for maker in (rubiks_cube, generated_sokoban)]
    assert "{} moves for the cube, {} for Sokoban".format(*limits) in rows[20][3]
    head = GaussianHead(size=1)
    assert f"softplus(x) + {head.min_scale:g} and starts at {head.initial_scale:g}" in rows[21][3]
    # The first update of Adam is -rate * g / (|g| + ε): a tiny gradient shows ε.
    changes, _ = adam(1.0, None).update(1e-8, adam(1.0, None).init(1e-8))
    assert float(changes) == pytest.approx(-0.5, rel=1e-4)
    assert rows[24][3].startswith("1e-8")
    assert inspect.signature(optax.adam).parameters["eps"].default == 1e-8
