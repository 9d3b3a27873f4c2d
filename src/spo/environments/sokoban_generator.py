"""Generated Sokoban levels, which need no download.

A level is made backwards. A random walk carves a room, boxes are placed on their targets, and the game is played in
reverse: the agent walks freely and pulls boxes away. The reverse of a pull is a push, so the level can be solved. Of
all boards on the way the hardest one is kept. Its score is the distance of the boxes from their targets times the
number of changes from one box to another.

A board is a few integers whose bit `row * size + column` stands for a cell, so a set of cells is moved by a shift. The
outermost ring is always wall. This keeps a shift from crossing the edge of a row.
"""

import functools
from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt8

from spo.environments.sokoban import AGENT, BOX, FLOOR, TARGET, WALL, sokoban
from spo.types import Task

#: Cells carved around a walker, as (row, column) offsets.
_BRUSHES = (
    ((0, 0), (0, 1), (0, 2)),
    ((0, 0), (1, 0), (2, 0)),
    ((0, 0), (0, 1), (1, 0)),
    ((0, 0), (0, 1), (1, 1)),
    ((0, 0), (0, 1), (1, 0), (1, 1)),
)
_TURN_PROBABILITY = 0.35
_FLOOR_SHARE = (0.4, 0.75)  # of the cells inside the outer wall

#: Failed attempts in a row before an error. Single failures are common; a thousand mean that the request is impossible.
_MAX_TRIES = 1000


def generated_sokoban(
    *,
    seed: int = 0,
    num_levels: int = 1000,
    num_evaluation_levels: int = 200,
    size: int = 10,
    num_boxes: int = 4,
    num_pulls: int = 60,
    time_limit: int = 120,
    time_limit_is_termination: bool = False,
) -> Task:
    """Sokoban on generated levels.

    Args:
        seed: Random seed of the training levels; the evaluation levels use the next seed.
        num_levels: Number of training levels.
        num_evaluation_levels: Number of evaluation levels.
        size: Cells along one side of the square level, walls included.
        num_boxes: Boxes in each level.
        num_pulls: Random pulls that move the boxes away from their targets: more pulls make harder levels.
        time_limit: Longest episode, in moves.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
    """
    generate = functools.partial(generate_levels, size=size, num_boxes=num_boxes, num_pulls=num_pulls)
    return sokoban(
        generate(seed, num_levels),
        evaluation_levels=generate(seed + 1, num_evaluation_levels),
        time_limit=time_limit,
        time_limit_is_termination=time_limit_is_termination,
    )


def generate_levels(
    seed: int, num_levels: int, *, size: int = 10, num_boxes: int = 4, num_pulls: int = 60
) -> UInt8[np.ndarray, "num_levels size size"]:
    """Generates distinct solvable levels as cell codes. No box and no agent starts on a target.

    The same arguments give the same levels. A larger `num_levels` appends levels and keeps the first ones.

    Args:
        seed: random seed.
        num_levels: number of levels.
        size: cells along one side of the square board, walls included.
        num_boxes: boxes in each level.
        num_pulls: length of the reverse game; more pulls make harder levels.
    """
    if num_levels < 1:
        raise ValueError(f"Ask for at least one level, got num_levels={num_levels}: use 1 or more.")
    if size < 5:
        raise ValueError(f"A board needs room to push inside its outer wall, got size={size}: use size=5 or more.")
    if num_boxes < 1:
        raise ValueError(f"A level needs a box, got num_boxes={num_boxes}: use 1 or more.")
    if num_pulls < num_boxes:
        raise ValueError(
            f"Every box is pulled off its target, which takes a pull each, got num_pulls={num_pulls} for "
            f"num_boxes={num_boxes}: use num_pulls >= num_boxes."
        )
    rng = np.random.default_rng(seed)
    levels: dict[bytes, UInt8[np.ndarray, "size size"]] = {}  # in order of insertion, without duplicates
    tries = 0
    while len(levels) < num_levels:
        level = _try_level(rng, size, num_boxes, num_pulls)
        tries += 1
        if level is not None and level.tobytes() not in levels:
            levels[level.tobytes()] = level
            tries = 0
        if tries == _MAX_TRIES:
            raise ValueError(
                f"Found {len(levels)} distinct levels and no other in {_MAX_TRIES} tries: ask for fewer levels or "
                f"boxes, a larger board or more pulls (size={size}, num_boxes={num_boxes}, num_pulls={num_pulls})."
            )
    return np.stack(list(levels.values()))


def _try_level(
    rng: np.random.Generator, size: int, num_boxes: int, num_pulls: int
) -> UInt8[np.ndarray, "size size"] | None:
    """Generates one level. Returns None if the room is too small or the reverse game gives no board."""
    room = _carve_room(rng, size)
    cells = list(_bits(room))
    if len(cells) < num_boxes + 2:
        return None
    chosen = rng.permutation(cells)[: num_boxes + 1].tolist()
    targets, agent = chosen[:num_boxes], chosen[num_boxes]
    best = _pull_boxes_away(rng, size, room, targets, agent, num_pulls)
    if best is None:
        return None
    boxes, agent = best

    level = np.full(size * size, WALL, np.uint8)
    level[cells] = FLOOR
    level[targets] = TARGET
    level[boxes] = BOX
    level[agent] = AGENT
    return level.reshape(size, size)


def _carve_room(rng: np.random.Generator, size: int) -> int:
    """Floor of a connected room, as a set of bits."""
    inside = range(1, size - 1)
    num_floor = round(rng.uniform(*_FLOOR_SHARE) * len(inside) ** 2)
    row, column = rng.integers(1, size - 1, size=2).tolist()
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    direction = moves[rng.integers(4)]
    room = 0
    while room.bit_count() < num_floor:
        for brush_row, brush_column in _BRUSHES[rng.integers(len(_BRUSHES))]:
            if row + brush_row in inside and column + brush_column in inside:
                room |= 1 << ((row + brush_row) * size + column + brush_column)
        if rng.random() < _TURN_PROBABILITY:
            direction = moves[rng.integers(4)]
        if row + direction[0] in inside and column + direction[1] in inside:
            row, column = row + direction[0], column + direction[1]
        else:
            direction = moves[rng.integers(4)]
    return room


def _pull_boxes_away(
    rng: np.random.Generator, size: int, room: int, targets: list[int], agent: int, num_pulls: int
) -> tuple[list[int], int] | None:
    """Plays in reverse from boxes on `targets`. Returns boxes and agent of the hardest valid board, or None.

    A board is valid if no box is on a target and the agent has a free cell to start from that is not a target.
    """
    boxes = list(targets)
    target_bits = sum(1 << target for target in targets)
    last_pulled = None
    num_switches = 0
    best_score, best = 0, None
    for _ in range(num_pulls):
        box_bits = sum(1 << box for box in boxes)
        free = room & ~box_bits
        reach = _reachable(size, free, agent)
        # A pull moves a box onto the agent's cell and the agent to the cell behind it. Both must be free.
        pulls = [
            (index, shift)
            for index, box in enumerate(boxes)
            for shift in (-size, 1, size, -1)
            if reach >> (box + shift) & 1 and free >> (box + 2 * shift) & 1
        ]
        if not pulls:
            break
        index, shift = pulls[rng.integers(len(pulls))]
        boxes[index] += shift
        agent = boxes[index] + shift
        num_switches += index != last_pulled
        last_pulled = index

        box_bits = sum(1 << box for box in boxes)
        score = num_switches * sum(_distance(size, box, target) for box, target in zip(boxes, targets, strict=True))
        if score > best_score and not box_bits & target_bits:
            starts = list(_bits(_reachable(size, room & ~box_bits, agent) & ~target_bits))
            if starts:
                best_score, best = score, (list(boxes), starts)
    if best is None:
        return None
    boxes, starts = best
    return boxes, starts[rng.integers(len(starts))]


def _reachable(size: int, free: int, start: int) -> int:
    """Cells of `free` that the agent can reach from `start`."""
    reach, before = 1 << start, 0
    while reach != before:
        before = reach
        reach |= (reach << 1 | reach >> 1 | reach << size | reach >> size) & free
    return reach


def _distance(size: int, cell: int, other: int) -> int:
    return abs(cell // size - other // size) + abs(cell % size - other % size)


def _bits(cells: int) -> Iterator[int]:
    while cells:
        lowest = cells & -cells
        yield lowest.bit_length() - 1
        cells ^= lowest
