"""The place of each number of an environment in the rows that the kernel reads and writes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from spo.environments.spring.groups import Group, group_width
from spo.environments.spring.joints import driven_dofs, num_positions, num_velocities
from spo.environments.spring.system import System


class Layout(NamedTuple):
    """Index maps between the numbers of an environment and rows of `width` members, one row per number of a group.

    Numbers in: those of the bodies, then the action. Numbers out: those of the bodies, then q, then qd.
    """

    width: int
    rows_from_numbers: Int[np.ndarray, "rows_in width"]  # the index of the number at each place of the rows
    numbers_from_rows: Int[np.ndarray, " numbers_out"]  # the place of each number, counted through the rows
    num_rows_out: int
    num_q: int  # joint positions of all links


def make_layout(system: System, groups: Sequence[Group], numbers_per_body: int) -> Layout:
    width = group_width(groups)
    num_links = len(system.links)

    def repeat(numbers: list[int]) -> list[int]:
        """One number per member; a group of one member is repeated."""
        return numbers * (width // len(numbers))

    rows_from_numbers = [
        repeat([numbers_per_body * link + number for link in group.members])
        for group in groups
        for number in range(numbers_per_body)
    ]
    rows_from_numbers += [
        repeat([numbers_per_body * num_links + system.driven_dofs.index((link, dof)) for link in group.members])
        for group in groups
        for dof in driven_dofs(group.link.joint)
    ]

    place = {link: (index, member) for index, group in enumerate(groups) for member, link in enumerate(group.members)}
    rows_per_group = (
        [numbers_per_body] * len(groups),
        [num_positions(group.link.joint) for group in groups],
        [num_velocities(group.link.joint) for group in groups],
    )
    numbers_from_rows: list[int] = []
    row = 0
    for counts in rows_per_group:
        first_rows = row + np.cumsum([0, *counts])
        for index, member in (place[link] for link in range(num_links)):
            numbers_from_rows += [width * (first_rows[index] + number) + member for number in range(counts[index])]
        row = first_rows[-1]
    num_q = sum(num_positions(link.joint) for link in system.links)
    return Layout(width, np.array(rows_from_numbers), np.array(numbers_from_rows), int(row), num_q)
