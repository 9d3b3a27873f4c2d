"""Pictures of a board of 2048: each tile has its number and a colour of its own."""

import functools

import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import require
from spo.types import Integer

_TILE, _GAP, _CORNER = 60, 3, 6  # pixels of a cell, of its border, and of the radius of its corners
_BACKGROUND, _EMPTY = (136, 146, 160), (186, 195, 206)
_DARK, _LIGHT = (52, 58, 68), (255, 255, 255)
#: Colours at some exponents; those between are mixed. The last one is that of all above.
_COLOURS = {
    1: (240, 238, 230),
    3: (250, 214, 160),
    6: (232, 108, 70),
    8: (222, 170, 40),
    11: (88, 150, 72),
    14: (62, 84, 168),
    17: (60, 44, 90),
}


def draw_powers(exponents: Integer[np.ndarray, "size size"]) -> UInt8[np.ndarray, "height width 3"]:
    """Draws a board: a cell with exponent n has the tile 2^n, and one with 0 is empty."""
    rows = [np.concatenate([_tile(exponent) for exponent in row], axis=1) for row in exponents.tolist()]
    return np.concatenate(rows, axis=0)


@functools.cache
def _tile(exponent: int) -> UInt8[np.ndarray, "tile tile 3"]:
    image_module, draw_module, font_module = (
        require(f"PIL.{name}", extra="envs") for name in ("Image", "ImageDraw", "ImageFont")
    )
    image = image_module.new("RGB", (_TILE, _TILE), _BACKGROUND)
    pen = draw_module.Draw(image)
    colour = _colour(exponent) if exponent > 0 else _EMPTY
    pen.rounded_rectangle([_GAP, _GAP, _TILE - 1 - _GAP, _TILE - 1 - _GAP], radius=_CORNER, fill=colour)
    if exponent > 0:
        number = str(2**exponent)
        font = font_module.load_default({1: 30, 2: 28, 3: 24, 4: 19, 5: 16}.get(len(number), 13))
        pen.text((_TILE / 2, _TILE / 2), number, fill=_DARK if exponent < 5 else _LIGHT, font=font, anchor="mm")
    return np.asarray(image)


def _colour(exponent: int) -> tuple[int, ...]:
    channels = zip(*_COLOURS.values(), strict=True)
    return tuple(round(float(np.interp(exponent, list(_COLOURS), channel))) for channel in channels)
