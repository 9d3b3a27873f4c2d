"""The text format of the public levels."""

import functools
import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from spo.environments.sokoban import (
    AGENT,
    AGENT_ON_TARGET,
    BOX,
    BOX_ON_TARGET,
    CELL_CHARACTERS,
    TARGET,
    WALL,
)

SIZE = 10
NUM_BOXES = 4
_LINES_PER_LEVEL = SIZE + 2  # "; number", the rows, an empty line

#: Counts that every level has: name, codes of the cells that count, number.
_REQUIRED_COUNTS = (
    ("agents", (AGENT, AGENT_ON_TARGET), 1),
    ("boxes", (BOX, BOX_ON_TARGET), NUM_BOXES),
    ("targets", (TARGET, AGENT_ON_TARGET, BOX_ON_TARGET), NUM_BOXES),
)
_NO_CODE = 255
_CODE_OF_CHARACTER = np.full(256, _NO_CODE, np.uint8)
_CODE_OF_CHARACTER[list(CELL_CHARACTERS.encode())] = np.arange(len(CELL_CHARACTERS))

Levels = UInt8[np.ndarray, "num_levels 10 10"]


def parse_levels(text: bytes, name: str) -> Levels:
    """Parses one text file.

    A level is a line "; number", ten rows of ten characters and an empty line. Numbers increase by one. A level is
    enclosed by walls and has one agent, four boxes and four targets.

    Args:
        text: content of the file.
        name: name of the file in error messages.

    Raises:
        ValueError: the text has another format. The message names the level, the line and the fault.
    """
    first = re.match(rb"; (\d+)\n", text)
    if first is not None:
        template, is_cell = _template(int(first[1]), text.count(b";"))
        characters = np.frombuffer(text, np.uint8)
        if characters.size == template.size and bool(np.all((characters == template) | is_cell)):
            levels = _CODE_OF_CHARACTER[characters[is_cell]].reshape(-1, SIZE, SIZE)
            if _are_valid(levels):
                return levels
    raise ValueError(_first_fault(text, name))


@functools.lru_cache(maxsize=8)
def _template(first_number: int, num_levels: int) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a file with "?" for cells, and a mask of the cells. Files of one size differ only in the cells."""
    level = (b"?" * SIZE + b"\n") * SIZE + b"\n"
    text = b"".join(b"; %d\n" % (first_number + i) + level for i in range(num_levels))
    template = np.frombuffer(text, np.uint8)
    return template, template == ord("?")


def _are_valid(levels: Levels) -> bool:
    borders = (levels[:, 0], levels[:, -1], levels[:, :, 0], levels[:, :, -1])
    return (
        bool(np.all(levels != _NO_CODE))
        and all(bool(np.all(border == WALL)) for border in borders)
        and all(
            bool(np.all(sum(np.count_nonzero(levels == code, axis=(1, 2)) for code in codes) == required))
            for _, codes, required in _REQUIRED_COUNTS
        )
    )


def _first_fault(text: bytes, name: str) -> str:
    """Describes the first fault of a file that `parse_levels` refused. Reads line by line, which is slow."""
    *lines, unfinished = text.decode("latin-1").split("\n")
    if unfinished:
        lines.append(unfinished)
    first = re.fullmatch(r"; (\d+)", lines[0]) if lines else None
    if first is None:
        found = repr(lines[0][:40]) if lines else "nothing"
        return f'{name}, line 1: a file of levels starts with a line such as "; 0", this one with {found}.'
    for start in range(0, len(lines), _LINES_PER_LEVEL):
        number = int(first[1]) + start // _LINES_PER_LEVEL
        fault = _fault_of_level(lines[start : start + _LINES_PER_LEVEL], number)
        if fault is not None:
            offset, sentence = fault
            return f"{name}, level {number}, line {start + offset + 1}: {sentence}"
    raise AssertionError(f"{name} was refused without a fault: this is a defect of parse_levels.")


def _fault_of_level(lines: Sequence[str], number: int) -> tuple[int, str] | None:
    """Offset of the faulty line and a sentence on the fault. None for a valid level."""
    header, *rows = lines[: SIZE + 1]
    if header != f"; {number}":
        return 0, f'expected the line "; {number}", found {header[:40]!r}.'
    for offset, row in enumerate(rows, start=1):
        if len(row) != SIZE:
            return offset, f"a row has {SIZE} characters, this one has {len(row)}: {row[:40]!r}."
        for character in row:
            if _CODE_OF_CHARACTER[ord(character)] == _NO_CODE:
                return offset, f"{character!r} is not a cell; a cell is one of {CELL_CHARACTERS!r}."
        border = row if offset in (1, SIZE) else row[0] + row[-1]
        if set(border) != {"#"}:
            return offset, f"the outermost cells of a level must be walls, which is not so in {row!r}."
    if len(lines) < _LINES_PER_LEVEL:
        return len(lines), f"the file ends after {len(lines)} of the {_LINES_PER_LEVEL} lines of a level."
    if lines[-1] != "":
        return _LINES_PER_LEVEL - 1, f"expected an empty line after the level, found {lines[-1][:40]!r}."
    for kind, codes, required in _REQUIRED_COUNTS:
        count = sum("".join(rows).count(CELL_CHARACTERS[code]) for code in codes)
        if count != required:
            return 0, f"the level has {count} {kind} instead of {required}."
    return None
