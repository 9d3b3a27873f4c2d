"""Pictures of a board of 2048."""

import jax
import numpy as np
import pytest

pytest.importorskip("PIL")

from spo import environments
from spo.environments._power_board import draw_powers


def cells(picture):
    return picture.reshape(4, len(picture) // 4, 4, len(picture) // 4, 3).swapaxes(1, 2)


def test_each_number_has_a_tile_of_its_own_and_its_place():
    shown = cells(draw_powers(np.arange(16).reshape(4, 4)))
    assert len({tile.tobytes() for tile in shown.reshape(16, -1)}) == 16
    (tile,) = cells(draw_powers(np.full((4, 4), 3)))[:1, 0]
    (row,), (column,) = np.nonzero([[(one == tile).all() for one in line] for line in shown])
    assert (row, column) == (0, 3)


def test_the_number_is_written():
    """Above 2^17 all tiles have one colour, and only their numbers differ."""
    assert (draw_powers(np.full((1, 1), 18)) != draw_powers(np.full((1, 1), 19))).any()


@pytest.mark.parametrize("exponent", [1, 4, 7, 10, 14, 17])
def test_a_number_stands_out_and_fits_into_its_tile(exponent):
    tile = draw_powers(np.full((1, 1), exponent)).astype(int)
    colour = tile[8, len(tile) // 2]
    written = np.abs(tile - colour).sum(axis=-1) > 150
    inside = written[6:-6]
    assert 30 < inside[:, 4:-4].sum() < 1500
    assert not inside[:, [4, 5, -6, -5]].any()


@pytest.mark.parametrize(("name", "library"), [("jumanji/game_2048", "jumanji"), ("pgx/2048", "pgx")])
def test_a_new_game_shows_its_tiles(name, library):
    pytest.importorskip(library)
    environment = environments.make(name).train
    state, _ = environment.reset(jax.random.key(0))
    shown = cells(environment.render(state))
    empty = cells(draw_powers(np.zeros((4, 4), int)))[0, 0]
    filled = sum((tile != empty).any() for tile in shown.reshape(16, *empty.shape))
    assert filled == (1 if library == "jumanji" else 2)
