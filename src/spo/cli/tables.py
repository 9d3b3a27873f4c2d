"""Tables of the command line: aligned in a terminal, separated by tabs in a file or a pipe."""

import shutil
import sys
from collections.abc import Iterator, Sequence

from spo.checks import printable

GAP = 2
"""Spaces between two columns."""
MINIMUM = 8
"""Characters of a column that is cut off."""


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, cut: Sequence[str], own_line: bool = False
) -> None:
    """Prints rows of text under a header.

    In a terminal, the columns are aligned. If they are wider than the terminal, the first cell of each row gets a line
    of its own, with `own_line`, and the columns named by `cut` are cut off, the first of them first. In a file or a
    pipe, the cells of a row are separated by tabs, and nothing is cut off.
    """
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in (header, *rows)]
    if sys.stdout.isatty():
        lines = _align(cells, shutil.get_terminal_size().columns, [header.index(name) for name in cut], own_line)
    else:
        lines = ("\t".join(row) for row in cells)
    for line in lines:
        print(line)


def _align(cells: list[list[str]], width: int, cut: list[int], own_line: bool) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    own_line = own_line and sum(widths) + GAP * (len(widths) - 1) > width
    excess = sum(widths[own_line:]) + GAP * (len(widths) - 1 + own_line) - width
    for column in cut:
        shorter = max(min(MINIMUM, widths[column]), widths[column] - max(0, excess))
        excess -= widths[column] - shorter
        widths[column] = shorter
    for row in cells:
        padded = [_cut(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True)]
        if own_line:
            yield row[0]
            padded[0] = " " * GAP
        yield (" " * GAP).join(padded).rstrip()


def _cut(cell: str, length: int) -> str:
    return cell if len(cell) <= length else f"{cell[: length - 3]}..."
