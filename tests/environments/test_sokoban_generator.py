"""Generated levels are solvable, varied and reproducible, and the solver used as the oracle is correct."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles.sokoban_solver import solve
from oracles.sokoban_text import level_to_text
from spo.environments import sokoban_generator
from spo.environments.sokoban import (
    AGENT,
    BOX,
    FLOOR,
    TARGET,
    WALL,
    SokobanState,
    check_levels,
    sokoban,
)
from spo.environments.sokoban_generator import generate_levels


@pytest.fixture(scope="module")
def levels():
    return generate_levels(0, 300)


# --- The solver ------------------------------------------------------------------------------------------------------


def test_the_solver_finds_the_only_way():
    assert solve(["#####", "#@$.#", "#####", "#####", "#####"]) == [1]
    # Round the box, then up.
    assert solve(["#####", "#@. #", "# $ #", "#   #", "#####"]) == [2, 2, 1, 0]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(["#####", "#$ .#", "#@  #", "#   #", "#####"], id="in a corner"),
        pytest.param(["#####", "#@  #", "#$  #", "#  .#", "#####"], id="along the wrong wall"),
        pytest.param(["#####", "#@#.#", "###$#", "#   #", "#####"], id="out of reach"),
        pytest.param(["######", "#@$$.#", "#   .#", "######", "######", "######"], id="boxes block each other"),
    ],
)
def test_the_solver_returns_none_for_lost_levels(rows):
    assert solve(rows) is None


# --- The generator ---------------------------------------------------------------------------------------------------


def test_levels_can_be_solved_in_the_game_itself(levels):
    """An independent solver finds a solution. In the environment it solves the level within the time limit."""
    some = levels[:64]
    solutions = [solve(level_to_text(level)) for level in some]
    assert all(solutions)
    lengths = np.array([len(moves) for moves in solutions])
    assert lengths.min() >= 10  # none is solved in a few moves
    moves_of = np.zeros((lengths.max(), len(some)), np.int32)
    for column, moves in enumerate(solutions):
        moves_of[: len(moves), column] = moves

    step = jax.jit(jax.vmap(sokoban(levels).model.step, in_axes=(None, 0, 0)))
    agents = (some == AGENT).reshape(len(some), -1).argmax(axis=1)
    states = SokobanState(jnp.asarray(some), jnp.asarray(agents, jnp.int32), jnp.zeros(len(some), jnp.int32))
    returns, solved_at = np.zeros(len(some)), np.zeros(len(some), int)
    for count, moves in enumerate(moves_of, start=1):
        states, timesteps = step(jax.random.key(0), states, jnp.asarray(moves))
        playing = count <= lengths
        returns += np.where(playing, timesteps.reward, 0.0)
        solved_at[playing & np.asarray(timesteps.terminated)] = count
    np.testing.assert_array_equal(solved_at, lengths)
    np.testing.assert_allclose(returns, 4 + 10 - 0.1 * lengths, rtol=1e-5)


def test_levels_are_well_formed(levels):
    check_levels(levels)
    assert levels.shape == (300, 10, 10)
    # No box and no agent starts on a target, as in the public levels.
    assert set(np.unique(levels)) == {FLOOR, WALL, TARGET, AGENT, BOX}
    assert ((levels == BOX).sum(axis=(1, 2)) == 4).all()
    for edge in (levels[:, 0], levels[:, -1], levels[:, :, 0], levels[:, :, -1]):
        assert (edge == WALL).all()


def test_levels_are_distinct_and_varied(levels):
    assert len({level.tobytes() for level in levels}) == len(levels)
    walls = levels == WALL
    assert len({layout.tobytes() for layout in walls}) > 0.95 * len(levels)
    open_cells = (~walls).sum(axis=(1, 2))
    assert open_cells.min() < 32 < 42 < open_cells.max()
    # Every inner cell occurs as wall, floor, target and start. Boxes occur everywhere but in the four corners.
    inside = levels[:, 1:-1, 1:-1]
    for code in (WALL, FLOOR, TARGET, BOX):
        share = (inside == code).mean(axis=0)
        assert share.max() < 1
        assert (share == 0).sum() == (4 if code == BOX else 0)
    assert ((inside == AGENT).any(axis=0)).mean() > 0.9


def test_the_same_seed_gives_the_same_levels_and_more_of_them_on_demand(levels):
    np.testing.assert_array_equal(generate_levels(0, 40), levels[:40])
    others = {level.tobytes() for level in generate_levels(1, 40)}
    assert not others & {level.tobytes() for level in levels}


def test_more_pulls_make_longer_games():
    def total_length(num_pulls):
        return sum(len(solve(level_to_text(level))) for level in generate_levels(5, 20, num_pulls=num_pulls))

    assert total_length(60) > 1.3 * total_length(8)


@pytest.mark.parametrize(("size", "num_boxes"), [(5, 1), (7, 2), (8, 3), (13, 5)])
def test_other_sizes_and_numbers_of_boxes(size, num_boxes):
    levels = generate_levels(0, 10, size=size, num_boxes=num_boxes)
    check_levels(levels)
    assert levels.shape == (10, size, size)
    assert ((levels == BOX).sum(axis=(1, 2)) == num_boxes).all()
    for level in levels:
        assert solve(level_to_text(level))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_levels": 0}, "at least one level"),
        ({"num_levels": 1, "size": 4}, "room to push"),
        ({"num_levels": 1, "num_boxes": 0}, "needs a box"),
        ({"num_levels": 1, "num_pulls": 3}, "num_pulls >= num_boxes"),
        ({"num_levels": 1, "size": 5, "num_boxes": 7}, "ask for fewer levels or boxes"),
        ({"num_levels": 10**5, "size": 5, "num_boxes": 1, "num_pulls": 1}, "ask for fewer levels or boxes"),
    ],
)
def test_requests_that_cannot_be_met_raise_with_a_sentence(arguments, sentence, monkeypatch):
    monkeypatch.setattr(sokoban_generator, "_MAX_TRIES", 200)
    with pytest.raises(ValueError, match=sentence):
        generate_levels(0, **arguments)
