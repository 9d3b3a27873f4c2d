"""Tests of the page's colours: they can be told apart by readers with each kind of colour blindness."""

import itertools
import re

import numpy as np
import pytest

from spo.inspection.html import read_asset

NAMES = (*(f"--colour-{index}" for index in range(7)), "--colour-other")
#: Least distance of two colours in CIE Lab. A difference of 2 is just noticeable side by side.
LEAST = 18.0
#: How linear RGB looks, after Machado, Oliveira and Fernandes (2009), with full severity.
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def palettes() -> list[dict[str, np.ndarray]]:
    """Returns the colours of the light theme and of the dark one, which the style sheet has twice: linear RGB."""
    blocks = [block.split("}")[0] for block in read_asset("style.css").split("--paper:")[1:]]
    found = [dict(re.findall(r"(--[\w-]+): #(\w{6})", block)) for block in blocks]
    assert len(found) == 3
    assert found[1] == found[2]
    return [{name: to_linear(colours[name]) for name in NAMES} for colours in found[:2]]


def to_linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[index : index + 2], 16) / 255 for index in (0, 2, 4)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def to_lab(linear: np.ndarray) -> np.ndarray:
    ratios = TO_XYZ @ linear / WHITE
    x, y, z = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_can_be_told_apart(sight: str):
    for palette in palettes():
        seen = {name: to_lab(np.clip(SIGHTS[sight] @ colour, 0, 1)) for name, colour in palette.items()}
        for first, second in itertools.combinations(NAMES, 2):
            assert np.linalg.norm(seen[first] - seen[second]) >= LEAST, (first, second)
