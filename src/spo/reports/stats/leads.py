"""Comparison of two learning curves at every point: which one is above the other, and where that changes."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spo.reports.stats.aggregates import probability_of_improvement
from spo.reports.stats.bootstrapping import LEVEL
from spo.reports.stats.curves import on_common_grid
from spo.reports.stats.permutation import permutation_p_value

Run = tuple[np.ndarray, np.ndarray]
"""One run: points x [T] and values [T]."""


class Lead(NamedTuple):
    """A part of the x-axis in which one verdict applies at every point."""

    start: float
    end: float
    better: str | None
    """The curve that is above the other, or None if that is undecided."""


def leads(a: Sequence[Run], b: Sequence[Run], names: tuple[str, str], max_points: int = 51) -> list[Lead]:
    """Returns the parts of the common x-axis in which A is better, B is better, or neither.

    A is better at a point if P(A > B) is above 0.5 there and the permutation test has p <= 0.05. Points are tested one
    by one, without a correction: among equal curves a short lead appears by chance.
    """
    runs = [*a, *b]
    grid, values, _ = on_common_grid([x for x, _ in runs], [y for _, y in runs], max_points)
    better = [_better(row[: len(a)], row[len(a) :], names) for row in values]
    groups = itertools.groupby(zip(grid.tolist(), better, strict=True), key=lambda point: point[1])
    parts = [(name, [x for x, _ in points]) for name, points in groups]
    return [Lead(points[0], points[-1], name) for name, points in parts]


def _better(a: np.ndarray, b: np.ndarray, names: tuple[str, str]) -> str | None:
    probability = float(probability_of_improvement([a], [b]))
    if probability == 0.5 or permutation_p_value([a], [b]) > LEVEL:
        return None
    return names[0] if probability > 0.5 else names[1]
