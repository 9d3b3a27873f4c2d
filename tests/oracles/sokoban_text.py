"""Levels of Sokoban as text."""

import numpy as np
from jaxtyping import UInt8

from spo.environments.sokoban import CELL_CHARACTERS


def level_to_text(level: UInt8[np.ndarray, "size size"]) -> list[str]:
    """Converts cell codes to rows of the public text format, the inverse of `level_from_text`."""
    return ["".join(CELL_CHARACTERS[code] for code in row) for row in np.asarray(level).tolist()]
