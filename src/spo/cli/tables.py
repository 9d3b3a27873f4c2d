"""Tables of the command line: aligned in a terminal, separated by tabs in a file or a pipe."""

import shutil
import sys
from collections.abc import Iterator, Sequence

from spo.checks import printable

GAP = 2
"""Spaces between two columns."""


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, cut: str | None = None) -> None:
    """Prints rows of text under a header.

    In a terminal, the columns are aligned. If they are wider than the terminal, the column named by `cut` is cut off,
    or else the first cell of each row gets a line of its own. In a file or a pipe, the cells of a row are separated by
    tabs, and nothing is cut off.
    """
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in (header, *rows)]
    if not sys.stdout.isatty():
        lines: Iterator[str] = ("\t".join(row) for row in cells)
    else:
        lines = _align(cells, shutil.get_terminal_size().columns, None if cut is None else header.index(cut))
    for line in lines:
        print(line)


def _align(cells: list[list[str]], width: int, cut: int | None) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    if excess > 0 and cut is not None:
        widths[cut] = max(12, widths[cut] - excess)
        cells = [[_cut(cell, widths[cut]) if i == cut else cell for i, cell in enumerate(row)] for row in cells]
    own_line = excess > 0 and cut is None
    for row in cells:
        padded = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        if own_line:
            yield row[0]
            yield (" " * 2 * GAP + (" " * GAP).join(padded[1:])).rstrip()
        else:
            yield (" " * GAP).join(padded).rstrip()


def _cut(cell: str, length: int) -> str:
    return cell if len(cell) <= length else f"{cell[: length - 3]}..."
