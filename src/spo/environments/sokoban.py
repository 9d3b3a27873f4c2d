"""Sokoban on a square board, with the rules and rewards of Jumanji's.

A board is an array of cell codes. Levels, states and observations use the same codes:

    0 floor   1 wall   2 target   3 agent   4 box   5 agent on target   6 box on target

The code of a cell is that of its ground, floor (0) or target (2), plus 3 for the agent or 4 for a box on it.

Actions 0, 1, 2, 3 move the agent up, right, down, left. A box in front of the agent is pushed if the cell behind it is
free. A move against a wall, the edge of the board or a blocked box changes nothing but the step count. No action is
masked.

A step costs 0.1. Pushing a box onto a target earns 1, pushing one off loses 1, and solving the level earns 10 more.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int32, UInt8

from spo.environments.wrappers import check_time_limit
from spo.types import Array, Bool, DiscreteActions, Environment, Integer, PRNGKey, Starts, Task, TimeStep

FLOOR, WALL, TARGET, AGENT, BOX, AGENT_ON_TARGET, BOX_ON_TARGET = range(7)
NUM_CELL_CODES = 7
CELL_CHARACTERS = " #.@$+*"  # the character of each code in the public text format

MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)  # (row, column) change of each action
MOVE_NAMES = ("up", "right", "down", "left")

STEP_REWARD = -0.1
BOX_REWARD = 1
SOLVED_REWARD = 10

_TILE = 24  # pixels; the patterns of `_tiles` are drawn for this size


class SokobanState(NamedTuple):
    """Board, agent and time."""

    cells: UInt8[Array, "size size"]
    agent: Int32[Array, ""]  # the agent's cell, counted row by row; finding it in `cells` would cost time
    step_count: Int32[Array, ""]


def sokoban(
    levels: UInt8[np.ndarray, "levels size size"],
    *,
    evaluation_levels: UInt8[np.ndarray, "evaluation_levels size size"] | None = None,
    time_limit: int = 120,
    time_limit_is_termination: bool = False,
) -> Task:
    """Sokoban on given levels. Every episode starts on a level that is drawn uniformly.

    Args:
        levels: Cell codes of the levels to train on.
        evaluation_levels: Cell codes of the levels to evaluate on. None: the training levels.
        time_limit: Longest episode, in moves.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
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


def make_sokoban(
    levels: UInt8[np.ndarray, "levels size size"], *, time_limit: int, time_limit_is_termination: bool
) -> Environment:
    """Makes one environment. Arguments are those of `sokoban`."""
    levels = np.asarray(levels)
    check_levels(levels)
    check_time_limit(time_limit)
    num_levels, size, _ = levels.shape
    # A JAX array, which the compiler takes as an argument. A NumPy array would be a constant of 90 MB in the program.
    device_levels = jnp.asarray(levels)

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
        return start(key, jax.random.randint(key, (), 0, num_levels))

    def start(key: PRNGKey, level: Integer[Array, ""]) -> tuple[SokobanState, TimeStep]:
        del key  # a level has one start
        cells = device_levels[level]
        agent = jnp.argmax((cells == AGENT) | (cells == AGENT_ON_TARGET)).astype(jnp.int32)
        state = SokobanState(cells=cells, agent=agent, step_count=jnp.zeros((), jnp.int32))
        no = jnp.zeros((), bool)
        return state, make_timestep(state, jnp.zeros(()), solved=no, timed_out=no)

    def step(
        key: PRNGKey,  # noqa: ARG001 (Sokoban is deterministic)
        state: SokobanState,
        action: Integer[Array, ""],
    ) -> tuple[SokobanState, TimeStep]:
        next_state, boxes_gained = _move(state, action)
        solved = ~jnp.any(next_state.cells == BOX)
        reward = BOX_REWARD * boxes_gained + SOLVED_REWARD * solved + STEP_REWARD
        return next_state, make_timestep(next_state, reward, solved, next_state.step_count >= time_limit)

    return Environment(
        name="sokoban",
        reset=reset,
        step=step,
        observation_spec=jax.ShapeDtypeStruct((size, size), jnp.uint8),
        action_spec=DiscreteActions(len(MOVES)),
        render=render,
        action_names=MOVE_NAMES,
        starts=Starts("Level", 0, num_levels - 1, start),
    )


def _move(state: SokobanState, action: Integer[Array, ""]) -> tuple[SokobanState, Int32[Array, ""]]:
    """The state after an action, and the change in the number of boxes on targets."""
    size = state.cells.shape[0]
    cells = state.cells.reshape(-1)
    ahead = _neighbour(size, state.agent, action)
    behind_box = _neighbour(size, ahead, action)
    here_code, ahead_code, behind_code = cells[state.agent], cells[ahead], cells[behind_box]

    pushes = ((ahead_code == BOX) | (ahead_code == BOX_ON_TARGET)) & _is_free(behind_code)
    moves = _is_free(ahead_code) | pushes

    # Three comparisons per cell instead of three scatters: the whole step is then one small fused loop.
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
    boxes_gained = (pushes & (behind_code == TARGET)).astype(jnp.int32) - (
        pushes & (ahead_code == BOX_ON_TARGET)
    ).astype(jnp.int32)
    return next_state, boxes_gained


def _neighbour(size: int, cell: Int32[Array, ""], action: Integer[Array, ""]) -> Int32[Array, ""]:
    """The next cell in the direction of an action. At the edge it is the cell itself, which is occupied and blocks."""
    move = jnp.asarray(MOVES)[action]
    row = jnp.clip(cell // size + move[0], 0, size - 1)
    column = jnp.clip(cell % size + move[1], 0, size - 1)
    return row * size + column


def _is_free(code: UInt8[Array, ""]) -> Bool[Array, ""]:
    return (code == FLOOR) | (code == TARGET)


# --- Levels -----------------------------------------------------------------------------------------------------------


def level_from_text(rows: Sequence[str]) -> UInt8[np.ndarray, "size size"]:
    """Converts a level from the public text format to cell codes.

    The characters are '#' wall, ' ' floor, '.' target, '$' box, '@' agent, '*' box on target, '+' agent on target.

    Args:
        rows: one string per row of the board.
    """
    if not rows or any(len(row) != len(rows) for row in rows):
        raise ValueError(
            f"A level is square: pass as many rows as a row has characters, got {len(rows)} rows of lengths "
            f"{[len(row) for row in rows]}."
        )
    unknown = sorted(set("".join(rows)) - set(CELL_CHARACTERS))
    if unknown:
        raise ValueError(f"A level is written with the characters {CELL_CHARACTERS!r}: replace {unknown}.")
    return np.array([[CELL_CHARACTERS.index(character) for character in row] for row in rows], np.uint8)


def check_levels(levels: UInt8[np.ndarray, "levels size size"]) -> None:
    """Raises ValueError with the first fault of the levels."""
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


# --- Drawing ----------------------------------------------------------------------------------------------------------


def render(state: SokobanState) -> UInt8[np.ndarray, "height width 3"]:
    """Draws the board as tiles: brick walls, red rings for targets, wooden boxes that turn green on a target."""
    cells = np.asarray(state.cells)
    size = len(cells)
    return _tiles()[cells].transpose(0, 2, 1, 3, 4).reshape(size * _TILE, size * _TILE, 3)


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
