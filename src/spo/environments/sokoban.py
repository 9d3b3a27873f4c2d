"""Sokoban on a square board, with the rules and rewards of Jumanji's.

A board is an array of cell codes; levels, states and observations share them:

    0 floor   1 wall   2 target   3 agent   4 box   5 agent on target   6 box on target

Whoever stands on a cell adds to its code: 3 for the agent, 4 for a box, whether the ground is floor (0) or target (2).

Actions 0, 1, 2, 3 move the agent up, right, down, left. A box in the way is pushed if the cell behind it is free. A
move against a wall, the edge of the board or a box that can't move only lets a step pass. No action is masked.

A step costs 0.1. A box pushed on a target earns 1, one pushed off loses 1, and the last one in place earns 10 more.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int32, UInt8

from spo.types import Array, Bool, DiscreteActions, Environment, Integer, PRNGKey, Task, TimeStep

FLOOR, WALL, TARGET, AGENT, BOX, AGENT_ON_TARGET, BOX_ON_TARGET = range(7)
NUM_CELL_CODES = 7
CELL_CHARACTERS = " #.@$+*"  # the character of each code in the public text format

MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)  # (row, column) change of each action

STEP_REWARD = -0.1
BOX_REWARD = 1
SOLVED_REWARD = 10

_TILE = 24  # pixels; the patterns below are drawn for this size


class SokobanState(NamedTuple):
    """`agent` is the agent's cell, counted row by row: it could be read from `cells`, but not for free."""

    cells: UInt8[Array, "size size"]
    agent: Int32[Array, ""]
    step_count: Int32[Array, ""]


def level_from_text(rows: Sequence[str]) -> UInt8[np.ndarray, "size size"]:
    """Cell codes of a level in the public format: '#' wall, ' ' floor, '.' target, '$' box, '@' agent, '*' box on
    target, '+' agent on target; one string per row."""
    if not rows or any(len(row) != len(rows) for row in rows):
        raise ValueError(
            f"A level is square: pass as many rows as a row has characters, got {len(rows)} rows of lengths "
            f"{[len(row) for row in rows]}."
        )
    unknown = sorted(set("".join(rows)) - set(CELL_CHARACTERS))
    if unknown:
        raise ValueError(f"A level is written with the characters {CELL_CHARACTERS!r}: replace {unknown}.")
    return np.array([[CELL_CHARACTERS.index(character) for character in row] for row in rows], np.uint8)


def level_to_text(level: UInt8[np.ndarray, "size size"]) -> list[str]:
    """The rows that `level_from_text` reads back as `level`."""
    return ["".join(CELL_CHARACTERS[code] for code in row) for row in np.asarray(level).tolist()]


def check_levels(levels: UInt8[np.ndarray, "levels size size"]) -> None:
    """Raise with the first thing that is wrong, if anything is."""
    if levels.ndim != 3 or levels.shape[0] == 0 or levels.shape[1] != levels.shape[2]:
        raise ValueError(
            f"Levels are an array [num_levels, size, size] of at least one level, got shape {levels.shape}: stack "
            "square boards of one size."
        )
    if levels.dtype != np.uint8:
        raise ValueError(f"Levels hold cell codes as uint8, got {levels.dtype}: convert them with astype(numpy.uint8).")
    if levels.max() >= NUM_CELL_CODES:
        raise ValueError(f"Cell codes are 0 to {NUM_CELL_CODES - 1}, got {levels.max()}: translate the levels first.")

    def count(*codes: int) -> Integer[np.ndarray, " levels"]:
        return sum(((levels == code).sum(axis=(1, 2)) for code in codes), start=np.zeros(len(levels), np.int64))

    agents = count(AGENT, AGENT_ON_TARGET)
    boxes = count(BOX, BOX_ON_TARGET)
    targets = count(TARGET, AGENT_ON_TARGET, BOX_ON_TARGET)
    for wrong, sentence in (
        (agents != 1, "has {agents} agents: put exactly one on the board"),
        (boxes != targets, "has {boxes} boxes and {targets} targets: give every box a target"),
        (boxes == 0, "has no boxes: put at least one on the board"),
        (count(BOX) == 0, "is solved from the start: put at least one box beside the targets"),
    ):
        if wrong.any():
            index = int(np.argmax(wrong))
            what = sentence.format(agents=agents[index], boxes=boxes[index], targets=targets[index])
            raise ValueError(f"Level {index} {what}.")


def make_sokoban(
    levels: UInt8[np.ndarray, "levels size size"], *, time_limit: int, time_limit_is_termination: bool
) -> Environment:
    """A world whose episodes start on one of `levels`, drawn uniformly."""
    levels = np.asarray(levels)
    check_levels(levels)
    if time_limit < 1:
        raise ValueError(f"An episode needs at least one step, got time_limit={time_limit}: use 1 or more.")
    num_levels, size, _ = levels.shape
    # A JAX array and not a NumPy one: the compiler then takes it as an argument instead of baking 90 MB into a program.
    device_levels = jnp.asarray(levels)

    def neighbour(cell: Int32[Array, ""], action: Integer[Array, ""]) -> Int32[Array, ""]:
        # The neighbour of a cell at the edge is that cell. It is taken, by who wants to move out of it: it blocks.
        move = jnp.asarray(MOVES)[action]
        row = jnp.clip(cell // size + move[0], 0, size - 1)
        column = jnp.clip(cell % size + move[1], 0, size - 1)
        return row * size + column

    def make_timestep(
        state: SokobanState, reward: Array, solved: Bool[Array, ""], timed_out: Bool[Array, ""]
    ) -> TimeStep:
        out_of_time = timed_out & ~solved
        never = jnp.zeros_like(solved)
        num_placed = jnp.sum(state.cells == BOX_ON_TARGET)
        num_boxes = num_placed + jnp.sum(state.cells == BOX)
        return TimeStep(
            observation=state.cells,
            reward=reward.astype(jnp.float32),
            terminated=solved | out_of_time if time_limit_is_termination else solved,
            truncated=never if time_limit_is_termination else out_of_time,
            action_mask=jnp.ones(len(MOVES), bool),
            metrics={
                "solved": solved.astype(jnp.float32),
                "fraction_of_boxes_on_targets": num_placed.astype(jnp.float32) / num_boxes,
            },
        )

    def reset(key: PRNGKey) -> tuple[SokobanState, TimeStep]:
        cells = device_levels[jax.random.randint(key, (), 0, num_levels)]
        agent = jnp.argmax((cells == AGENT) | (cells == AGENT_ON_TARGET)).astype(jnp.int32)
        state = SokobanState(cells=cells, agent=agent, step_count=jnp.zeros((), jnp.int32))
        no = jnp.zeros((), bool)
        return state, make_timestep(state, jnp.zeros(()), solved=no, timed_out=no)

    def step(
        key: PRNGKey,  # noqa: ARG001 (Sokoban is deterministic)
        state: SokobanState,
        action: Integer[Array, ""],
    ) -> tuple[SokobanState, TimeStep]:
        cells = state.cells.reshape(-1)
        ahead = neighbour(state.agent, action)
        behind_box = neighbour(ahead, action)
        here_code, ahead_code, behind_code = cells[state.agent], cells[ahead], cells[behind_box]

        pushes = ((ahead_code == BOX) | (ahead_code == BOX_ON_TARGET)) & is_free(behind_code)
        moves = is_free(ahead_code) | pushes

        # Three comparisons per cell instead of three scatters: all of the step then is one small fused loop.
        box = jnp.where(pushes, BOX, 0).astype(jnp.uint8)
        position = jnp.arange(size * size)
        moved = jnp.where(position == behind_box, behind_code + box, cells)
        moved = jnp.where(position == ahead, ahead_code - box + AGENT, moved)
        moved = jnp.where(position == state.agent, here_code - AGENT, moved)
        next_state = SokobanState(
            cells=jnp.where(moves, moved, cells).reshape(size, size),
            agent=jnp.where(moves, ahead, state.agent),
            step_count=state.step_count + 1,
        )

        solved = ~jnp.any(next_state.cells == BOX)
        boxes_gained = (pushes & (behind_code == TARGET)).astype(jnp.int32) - (
            pushes & (ahead_code == BOX_ON_TARGET)
        ).astype(jnp.int32)
        reward = BOX_REWARD * boxes_gained + SOLVED_REWARD * solved + STEP_REWARD
        return next_state, make_timestep(next_state, reward, solved, next_state.step_count >= time_limit)

    return Environment(
        name="sokoban",
        reset=reset,
        step=step,
        observation_spec=jax.ShapeDtypeStruct((size, size), jnp.uint8),
        action_spec=DiscreteActions(len(MOVES)),
        render=render,
    )


def is_free(code: UInt8[Array, ""]) -> Bool[Array, ""]:
    return (code == FLOOR) | (code == TARGET)


def sokoban(
    levels: UInt8[np.ndarray, "levels size size"],
    *,
    evaluation_levels: UInt8[np.ndarray, "evaluation_levels size size"] | None = None,
    time_limit: int = 120,
    time_limit_is_termination: bool = False,
) -> Task:
    """Train on `levels`, evaluate on `evaluation_levels` (on `levels` too, if None). Both are arrays of cell codes.

    Reaching `time_limit` truncates an episode; `time_limit_is_termination=True` ends it as Jumanji does.
    """

    def make(some_levels: UInt8[np.ndarray, "some_levels size size"]) -> Environment:
        return make_sokoban(some_levels, time_limit=time_limit, time_limit_is_termination=time_limit_is_termination)

    train = make(levels)
    if evaluation_levels is None:
        return Task(train=train, evaluation=train, model=train)
    evaluation = make(evaluation_levels)
    if evaluation.observation_spec != train.observation_spec:
        raise ValueError(
            f"Training and evaluation share one board size, got {levels.shape[1:]} and {evaluation_levels.shape[1:]}: "
            "pass levels of the same size."
        )
    return Task(train=train, evaluation=evaluation, model=train)


# --- Drawing ----------------------------------------------------------------------------------------------------------


def _tiles() -> UInt8[np.ndarray, "codes tile tile 3"]:
    """One picture per cell code."""
    floor_colour, mortar, brick = (222, 214, 202), (70, 72, 82), (116, 120, 134)
    wood, dark_wood, green, dark_green = (196, 138, 72), (128, 82, 36), (92, 168, 86), (46, 104, 48)
    red, skin, blue = (206, 62, 58), (244, 204, 164), (48, 98, 190)

    pixel_row, pixel_column = np.mgrid[:_TILE, :_TILE]
    from_middle_row, from_middle_column = pixel_row - (_TILE - 1) / 2, pixel_column - (_TILE - 1) / 2
    radius = np.hypot(from_middle_row, from_middle_column)

    def disc(row: float, column: float, reach: float) -> Bool[np.ndarray, "tile tile"]:
        return np.hypot(from_middle_row - row, from_middle_column - column) < reach

    floor = np.full((_TILE, _TILE, 3), floor_colour, np.uint8)
    floor[[0, -1], :] = floor[:, [0, -1]] = (210, 201, 187)

    wall = np.full((_TILE, _TILE, 3), brick, np.uint8)
    course = pixel_row // 8
    wall[(pixel_row % 8 == 7) | ((pixel_column + 6 * (course % 2)) % 12 == 11)] = mortar

    target = floor.copy()
    target[((radius < 8.5) & (radius > 6)) | (radius < 2.5)] = red

    def with_agent(ground: UInt8[np.ndarray, "tile tile 3"]) -> UInt8[np.ndarray, "tile tile 3"]:
        tile = ground.copy()
        tile[disc(5.5, 0, 6.5)] = blue
        tile[disc(-3.5, 0, 5.2)] = skin
        tile[disc(-3.5, -2, 1.1) | disc(-3.5, 2, 1.1)] = (40, 40, 48)
        return tile

    def with_box(
        ground: UInt8[np.ndarray, "tile tile 3"], face: tuple[int, int, int], frame: tuple[int, int, int]
    ) -> UInt8[np.ndarray, "tile tile 3"]:
        tile = ground.copy()
        reach = np.maximum(abs(from_middle_row), abs(from_middle_column))
        braces = abs(abs(from_middle_row) - abs(from_middle_column)) < 1.2
        tile[reach < 10] = face
        tile[(reach < 10) & ((reach > 7.5) | braces)] = frame
        return tile

    return np.stack(
        [
            floor,
            wall,
            target,
            with_agent(floor),
            with_box(floor, wood, dark_wood),
            with_agent(target),
            with_box(floor, green, dark_green),
        ]
    )


def render(state: SokobanState) -> UInt8[np.ndarray, "height width 3"]:
    """The board as tiles: brick walls, red rings for targets, wooden boxes that turn green on a target."""
    cells = np.asarray(state.cells)
    size = len(cells)
    return _tiles()[cells].transpose(0, 2, 1, 3, 4).reshape(size * _TILE, size * _TILE, 3)
