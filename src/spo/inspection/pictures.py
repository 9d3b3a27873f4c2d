"""States as pictures, each stored once.

A cube or a Sokoban board is a sketch: its cells as text, which the page draws. Any other state is drawn by its
environment as a PNG. Drawing may be slow and pictures large, so the particles' states are drawn within a budget only.
"""

import base64
import functools
import hashlib
import io
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from spo.environments.rubiks_cube import NUM_FACES, RubiksCubeState
from spo.environments.sokoban import SokobanState
from spo.environments.wrappers import EpisodeLimitState
from spo.types import Environment, State

#: Longest side of a PNG in pixels.
MAX_SIDE = 320


class Budget(NamedTuple):
    """Limits of the pictures of simulated states. Sketches are free."""

    seconds: float
    characters: int


class Pictures:
    """Pictures by name, where the name is a digest of the content: the same state is stored once."""

    def __init__(self, environment: Environment, budget: Budget):
        """Starts without pictures. `budget` is that of all simulated states together."""
        self.by_name: dict[str, dict[str, Any]] = {}
        self.failure = ""
        self._environment = environment
        self._budget = budget

    def add(self, state: State) -> str | None:
        """Stores the picture of a state of the episode and returns its name. None: the environment can't draw it."""
        picture = sketch(state) or self._render(state)
        return None if picture is None else self._store(picture)

    def add_simulated(self, states: State, shape: tuple[int, ...]) -> Any:
        """Stores the pictures of states with leading axes `shape`. Returns names, nested like the axes, or None.

        None is returned as well once the budget is spent: either all states of a search have pictures, or none has.
        """
        num_states = int(np.prod(shape))
        if num_states == 0:
            return None
        flat = jax.tree.map(lambda x: np.asarray(x).reshape(num_states, *np.shape(x)[len(shape) :]), states)
        # The first state decides if the others are worth taking apart: that of thousands is slower than their search.
        first = jax.tree.map(lambda x: x[0], flat)
        if sketch(first) is None and not self._affords(first, num_states):
            return None
        rows = [jax.tree.map(lambda x, row=row: x[row], flat) for row in range(num_states)]
        start = time.perf_counter()
        added, names = {}, []
        for row in rows:
            picture = sketch(row) or self._render(row)
            if picture is None:
                return None
            names.append(_name(picture))
            added[names[-1]] = picture
        if sketch(first) is None:
            new = sum(len(picture["png"]) for name, picture in added.items() if name not in self.by_name)
            self._budget = Budget(self._budget.seconds - (time.perf_counter() - start), self._budget.characters - new)
            if self._budget.characters < 0:
                return None
        self.by_name |= added
        return np.asarray(names).reshape(shape).tolist()

    def _affords(self, state: State, num_states: int) -> bool:
        """Returns True if the budget is enough for as many pictures as slow and as large as that of one state."""
        if self._budget.seconds <= 0.0:
            return False
        start = time.perf_counter()
        picture = self._render(state)
        seconds = time.perf_counter() - start
        if picture is None:
            return False
        enough_time = seconds * num_states <= self._budget.seconds
        return enough_time and len(picture["png"]) <= self._budget.characters

    def _render(self, state: State) -> dict[str, Any] | None:
        if self._environment.render is None or self.failure:
            return None
        try:
            image = np.asarray(self._environment.render(state))
            return {"kind": "png", "png": to_png(image), "width": image.shape[1], "height": image.shape[0]}
        except Exception as error:  # any library may draw: without a picture, the page shows the observation
            self.failure = f"{type(error).__name__}: {error}"
            return None

    def _store(self, picture: dict[str, Any]) -> str:
        name = _name(picture)
        self.by_name[name] = picture
        return name


def sketch(state: State) -> dict[str, Any] | None:
    """Returns the cells of a state that the page draws itself; None for other states."""
    if isinstance(state, EpisodeLimitState):
        return sketch(state.inner)
    if isinstance(state, RubiksCubeState):
        stickers = np.asarray(state.stickers)
        size = round((stickers.size / NUM_FACES) ** 0.5)
        return {"kind": "cube", "size": size, "cells": _digits(stickers)}
    if isinstance(state, SokobanState):
        cells = np.asarray(state.cells)
        return {"kind": "sokoban", "size": len(cells), "cells": _digits(cells)}
    return None


def _digits(cells: np.ndarray) -> str:
    return "".join(map(str, cells.reshape(-1).tolist()))


def to_png(image: np.ndarray) -> str:
    """Returns an image as a PNG in base64, scaled down to `MAX_SIDE` and with few colours: a fraction of the size."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Pictures need Pillow: pip install pillow.") from error
    picture = Image.fromarray(np.ascontiguousarray(image[..., :3], np.uint8))
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    picture.quantize(64).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


@functools.lru_cache(maxsize=4096)
def _digest(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _name(picture: dict[str, Any]) -> str:
    return _digest(f"{picture['kind']}:{picture.get('png') or picture['cells']}")


__all__ = ["Budget", "Pictures", "sketch", "to_png"]
