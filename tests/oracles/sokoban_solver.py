"""A simple Sokoban solver: best-first search over pushes, on sets of (row, column) cells.

It implements the rules independently of the package, to check both the levels and the environment.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

Cell = tuple[int, int]

DIRECTIONS: tuple[Cell, ...] = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


def solve(rows: Sequence[str], max_expansions: int = 200_000) -> list[int] | None:
    """Returns moves (0 up, 1 right, 2 down, 3 left) that solve a level in text form, or None if there are none.

    Raises RuntimeError if `max_expansions` boards are not enough to decide.
    """
    cells = {(row, column): mark for row, text in enumerate(rows) for column, mark in enumerate(text)}
    floor = {cell for cell, mark in cells.items() if mark != "#"}
    targets = {cell for cell, mark in cells.items() if mark in ".*+"}
    start_boxes = frozenset(cell for cell, mark in cells.items() if mark in "$*")
    (start_agent,) = (cell for cell, mark in cells.items() if mark in "@+")
    pushes_to_go = _pushes_to_nearest_target(floor, targets)

    def estimate(boxes: Iterable[Cell]) -> int:
        return sum(pushes_to_go[box] for box in boxes)

    if any(box not in pushes_to_go for box in start_boxes):
        return None
    # Boards are equal if their boxes and the cells that the agent can reach are equal.
    seen = {(start_boxes, min(_walks(start_agent, floor - start_boxes)))}
    queue = [(estimate(start_boxes), 0, start_boxes, start_agent, ())]
    num_queued = 1
    for _ in range(max_expansions):
        if not queue:
            return None
        _, _, boxes, agent, pushes = heapq.heappop(queue)
        if boxes <= targets:
            return _moves_of(pushes, start_agent, start_boxes, floor)
        walks = _walks(agent, floor - boxes)
        for box in boxes:
            for direction in range(4):
                stand, goal = _neighbour(box, (direction + 2) % 4), _neighbour(box, direction)
                # A box in a cell from which no target can be reached is lost.
                if stand not in walks or goal in boxes or goal not in pushes_to_go:
                    continue
                next_boxes = boxes - {box} | {goal}
                board = (next_boxes, min(_walks(box, floor - next_boxes)))
                if board in seen:
                    continue
                seen.add(board)
                # A larger weight on the estimate finds some solution quickly, not the shortest one.
                priority = len(pushes) + 1 + 3 * estimate(next_boxes)
                heapq.heappush(queue, (priority, num_queued, next_boxes, box, (*pushes, (box, direction))))
                num_queued += 1
    raise RuntimeError(f"Undecided after {max_expansions} boards.")


def _neighbour(cell: Cell, direction: int) -> Cell:
    return cell[0] + DIRECTIONS[direction][0], cell[1] + DIRECTIONS[direction][1]


def _pushes_to_nearest_target(floor: set[Cell], targets: set[Cell]) -> dict[Cell, int]:
    """Pushes from each cell to a target, for a single box. Cells without a way to a target are missing."""
    distances = dict.fromkeys(targets, 0)
    queue = deque(targets)
    while queue:
        cell = queue.popleft()
        for direction in range(4):
            before, stand = _neighbour(cell, direction), _neighbour(_neighbour(cell, direction), direction)
            if before in floor and stand in floor and before not in distances:
                distances[before] = distances[cell] + 1
                queue.append(before)
    return distances


def _walks(start: Cell, free: set[Cell]) -> dict[Cell, tuple[int, ...]]:
    """A shortest sequence of moves to every cell that the agent can reach."""
    walks: dict[Cell, tuple[int, ...]] = {start: ()}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for direction in range(4):
            neighbour = _neighbour(cell, direction)
            if neighbour in free and neighbour not in walks:
                walks[neighbour] = (*walks[cell], direction)
                queue.append(neighbour)
    return walks


def _moves_of(pushes: Iterable[tuple[Cell, int]], agent: Cell, boxes: frozenset[Cell], floor: set[Cell]) -> list[int]:
    """The agent's moves for `pushes`, including the walks between them."""
    moves: list[int] = []
    for box, direction in pushes:
        moves += _walks(agent, floor - boxes)[_neighbour(box, (direction + 2) % 4)]
        moves.append(direction)
        agent, boxes = box, boxes - {box} | {_neighbour(box, direction)}
    return moves
