"""Rubik's Cube of any size, with the moves, colours and rewards of Jumanji's. A move is one gather.

Faces, in order: up, front, right, back, left, down. A face is stored row by row as seen from outside. Its top row
borders the up face; the top row of up borders back, and that of down borders front. A solved cube has colour f on all
of face f.

Action `(face * (size // 2) + depth) * 3 + amount` turns the layer `depth` below `face`, seen from outside that face:
amount 0 clockwise, 1 anticlockwise, 2 by a half turn. This is Jumanji's (face, depth, amount) in row-major order.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Int8, Int32, UInt8

from spo.environments.wrappers import check_time_limit
from spo.types import Array, Bool, DiscreteActions, Environment, Integer, PRNGKey, Starts, Task, TimeStep

NUM_FACES = 6
#: Largest cube, and most turns of a scramble: their tables and arrays must fit into memory.
MAX_SIZE, MAX_SCRAMBLES = 32, 10_000
#: Most turns of a scramble that a person can choose when looking at an agent.
MAX_CHOSEN_SCRAMBLES = 30
#: Turns of a scramble that are compiled without a loop.
UNROLLED_TURNS = 16
NUM_AMOUNTS = 3
QUARTER_TURNS = (1, 3, 2)  # clockwise quarter turns per amount: clockwise, anticlockwise, half

# Right-handed axes: x to the right face, y to the up face, z to the front face.
_FACE_NORMALS = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, -1], [-1, 0, 0], [0, -1, 0]])
# Direction from the middle of a face to its top row.
_FACE_TOPS = np.array([[0, 0, -1], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])

_COLOURS = np.array(
    [[245, 245, 245], [0, 155, 72], [200, 20, 45], [0, 75, 180], [255, 100, 0], [255, 213, 0]], np.uint8
)
_NET = ((1, 0), (1, 1), (2, 1), (3, 1), (0, 1), (1, 2))  # (column, row) of each face in the unfolded net
_TILE, _GAP = 24, 2  # pixels


class RubiksCubeState(NamedTuple):
    """Cube and time."""

    stickers: Int8[Array, " stickers"]  # colours of all faces, each row by row
    step_count: Int32[Array, ""]


def rubiks_cube(
    *,
    size: int = 3,
    time_limit: int = 20,
    min_scrambles: int = 3,
    max_scrambles: int = 7,
    eval_scrambles: int = 7,
    time_limit_is_termination: bool = False,
) -> Task:
    """Rubik's Cube as in the paper: training from 3 to 7 scrambles, evaluation from 7. The reward is 1 for solving it.

    Args:
        size: Stickers along one edge of the cube: 3 is the usual cube, 2 the pocket cube.
        time_limit: Longest episode, in moves.
        min_scrambles: Fewest random turns that scramble the cube at the start of a training episode.
        max_scrambles: Most random turns that scramble the cube at the start of a training episode.
        eval_scrambles: Random turns that scramble the cube at the start of an evaluation episode.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
    """

    def make(fewest: int, most: int) -> Environment:
        return make_rubiks_cube(
            size=size,
            time_limit=time_limit,
            min_scrambles=fewest,
            max_scrambles=most,
            time_limit_is_termination=time_limit_is_termination,
        )

    train = make(min_scrambles, max_scrambles)
    return Task(train=train, evaluation=make(eval_scrambles, eval_scrambles), model=train)


def make_rubiks_cube(
    *, size: int, time_limit: int, min_scrambles: int, max_scrambles: int, time_limit_is_termination: bool
) -> Environment:
    """Makes one environment. Arguments are those of `rubiks_cube`.

    Every move of a scramble is drawn uniformly and independently, as in Jumanji. Moves may undo each other, so a start
    can be closer to the solved cube than its number of scrambles, or be the solved cube itself.
    """
    _check_sizes(size, time_limit, min_scrambles, max_scrambles)
    table = move_table(size)
    # One more row, which moves nothing. It pads a scramble that is shorter than max_scrambles.
    do_nothing = len(table)
    table_with_identity = np.concatenate([table, np.arange(table.shape[1], dtype=np.int32)[None]])

    def turn(stickers: Int8[Array, " stickers"], move: Integer[Array, ""]) -> Int8[Array, " stickers"]:
        source = jnp.asarray(table_with_identity).at[move].get(mode="promise_in_bounds")
        return stickers.at[source].get(mode="promise_in_bounds")

    def make_timestep(state: RubiksCubeState, solved: Bool[Array, ""], timed_out: Bool[Array, ""]) -> TimeStep:
        out_of_time = timed_out & ~solved
        never = jnp.zeros_like(solved)
        return TimeStep(
            observation=state.stickers.reshape(NUM_FACES, size, size),
            reward=solved.astype(jnp.float32),
            terminated=solved | out_of_time if time_limit_is_termination else solved,
            truncated=never if time_limit_is_termination else out_of_time,
            action_mask=jnp.ones(len(table), bool),
            metrics={"solved": solved.astype(jnp.float32)},
        )

    def reset(key: PRNGKey) -> tuple[RubiksCubeState, TimeStep]:
        return scramble(draw_scramble(key, min_scrambles, max_scrambles, do_nothing))

    def start(key: PRNGKey, count: Integer[Array, ""]) -> tuple[RubiksCubeState, TimeStep]:
        moves = jax.random.randint(key, (MAX_CHOSEN_SCRAMBLES,), 0, len(table))
        return scramble(jnp.where(jnp.arange(MAX_CHOSEN_SCRAMBLES) < count, moves, do_nothing))

    def scramble(moves: Integer[Array, " moves"]) -> tuple[RubiksCubeState, TimeStep]:
        stickers = jnp.asarray(solved_stickers(size))[trace_back(table_with_identity, moves)]
        state = RubiksCubeState(stickers=stickers, step_count=jnp.zeros((), jnp.int32))
        # A start has no reward and is not an end, even if the scramble undid itself.
        timestep = make_timestep(state, is_solved(stickers), jnp.zeros((), bool))
        return state, timestep._replace(reward=jnp.zeros((), jnp.float32), terminated=jnp.zeros((), bool))

    def step(
        key: PRNGKey,  # noqa: ARG001 (the cube is deterministic)
        state: RubiksCubeState,
        action: Integer[Array, ""],
    ) -> tuple[RubiksCubeState, TimeStep]:
        state = RubiksCubeState(stickers=turn(state.stickers, action), step_count=state.step_count + 1)
        return state, make_timestep(state, is_solved(state.stickers), state.step_count >= time_limit)

    return Environment(
        name="rubiks_cube",
        reset=reset,
        step=step,
        observation_spec=jax.ShapeDtypeStruct((NUM_FACES, size, size), jnp.int8),
        action_spec=DiscreteActions(len(table)),
        render=render,
        cheap_reset=True,
        action_names=move_names(size),
        starts=Starts("Scrambles", 0, MAX_CHOSEN_SCRAMBLES, start),
    )


def draw_scramble(key: PRNGKey, fewest: int, most: int, do_nothing: int) -> Integer[Array, " moves"]:
    """Draws `fewest` to `most` moves below `do_nothing`, which pads them. One draw has their number as well."""
    smallest, end = np.zeros(1 + most, np.int32), np.full(1 + most, do_nothing, np.int32)
    smallest[0], end[0] = fewest, most + 1
    drawn = jax.random.randint(key, end.shape, smallest, end)
    return jnp.where(jnp.arange(most) < drawn[0], drawn[1:], do_nothing)


def trace_back(
    table: Int32[np.ndarray, "moves stickers"], moves: Integer[Array, " moves"]
) -> Integer[Array, " stickers"]:
    """Returns the place that each sticker had before the moves, of which the last one is undone first.

    So each lookup is the index of the next one. Without a loop, XLA joins them to one kernel of a GPU.
    """
    sources, num_stickers = jnp.asarray(table).ravel(), table.shape[1]

    def before(place: Integer[Array, " stickers"], move: Integer[Array, ""]) -> tuple[Array, None]:
        return sources.at[move * num_stickers + place].get(mode="promise_in_bounds"), None

    unroll = max(1, min(len(moves), UNROLLED_TURNS))
    return jax.lax.scan(before, jnp.arange(num_stickers, dtype=jnp.int32), moves, reverse=True, unroll=unroll)[0]


def _check_sizes(size: int, time_limit: int, min_scrambles: int, max_scrambles: int) -> None:
    if size < 2:
        raise ValueError(f"A cube has at least 2 cubies to an edge, got size={size}: use size=2 or more.")
    if size > MAX_SIZE:
        raise ValueError(f"A cube has at most {MAX_SIZE} cubies to an edge, got size={size}: use a smaller one.")
    check_time_limit(time_limit)
    if not 0 <= min_scrambles <= max_scrambles:
        raise ValueError(
            "The number of scrambles is drawn from [min_scrambles, max_scrambles] and cannot be negative, got "
            f"[{min_scrambles}, {max_scrambles}]: use 0 <= min_scrambles <= max_scrambles."
        )
    if max_scrambles > MAX_SCRAMBLES:
        raise ValueError(f"A cube has at most {MAX_SCRAMBLES} scrambles, got {max_scrambles}: use fewer.")


def num_moves(size: int) -> int:
    return NUM_FACES * (size // 2) * NUM_AMOUNTS


def move_names(size: int) -> tuple[str, ...]:
    """Names of the moves in the usual notation: U, F, R, B, L, D for the faces, U' anticlockwise, U2 a half turn.

    The layer below a face is 2U, the next one 3U.
    """
    return tuple(
        f"{depth + 1 if depth else ''}{face}{amount}"
        for face in "UFRBLD"
        for depth in range(size // 2)
        for amount in ("", "'", "2")
    )


def sticker_positions(size: int) -> Int[np.ndarray, "stickers 3"]:
    """Position in space of each sticker of the flat array.

    Lengths are in half cubies, so every coordinate is an integer. Cubie centres have the coordinates
    -(size - 1), ..., size - 3, size - 1. Stickers lie on the surface, at -size or size along their normal.
    """
    offsets = 2 * np.arange(size) - (size - 1)
    faces = []
    for normal, top in zip(_FACE_NORMALS, _FACE_TOPS, strict=True):
        right = np.cross(top, normal)
        faces.append(size * normal - offsets[:, None, None] * top + offsets[None, :, None] * right)
    return np.stack(faces).reshape(-1, 3)


def move_table(size: int) -> Int32[np.ndarray, "moves stickers"]:
    """Source of each sticker for each move: `stickers[table[m]]` is the cube after move m."""
    positions = sticker_positions(size)
    index_of = {tuple(position): index for index, position in enumerate(positions.tolist())}
    table = np.tile(np.arange(len(positions), dtype=np.int32), (num_moves(size), 1))
    for face, normal in enumerate(_FACE_NORMALS):
        height = positions @ normal
        # Clockwise as seen from outside: a left-handed quarter turn about the normal.
        turned = np.cross(positions, normal) + height[:, None] * normal
        clockwise = np.array([index_of[tuple(position)] for position in turned.tolist()])
        # The stickers of the face itself lie half a cubie above its outer layer. They belong to depth 0.
        layer_height = np.clip(height, -(size - 1), size - 1)
        for depth in range(size // 2):
            layer = np.flatnonzero(layer_height == size - 1 - 2 * depth)
            for amount, quarter_turns in enumerate(QUARTER_TURNS):
                destination = layer
                for _ in range(quarter_turns):
                    destination = clockwise[destination]
                table[(face * (size // 2) + depth) * NUM_AMOUNTS + amount, destination] = layer
    return table


def solved_stickers(size: int) -> Int8[np.ndarray, " stickers"]:
    return np.repeat(np.arange(NUM_FACES, dtype=np.int8), size * size)


def is_solved(stickers: Int8[Array, " stickers"]) -> Bool[Array, ""]:
    """True if every face has a single colour, for any orientation of the cube."""
    faces = stickers.reshape(NUM_FACES, -1)
    return jnp.all(faces == faces[:, :1])


def render(state: RubiksCubeState) -> UInt8[np.ndarray, "height width 3"]:
    """Draws the unfolded net: up, then left, front, right and back in a row, then down."""
    stickers = np.asarray(state.stickers)
    size = round((stickers.size / NUM_FACES) ** 0.5)
    width = size * _TILE + 2 * _GAP
    image = np.full((3 * width, 4 * width, 3), 225, np.uint8)
    for face, (net_column, net_row) in zip(stickers.reshape(NUM_FACES, size, size), _NET, strict=True):
        pixels = np.zeros((size, _TILE, size, _TILE, 3), np.uint8)
        pixels[:, _GAP:-_GAP, :, _GAP:-_GAP] = _COLOURS[face][:, None, :, None]
        top, left = net_row * width, net_column * width
        image[top : top + width, left : left + width] = 0
        image[top + _GAP : top + width - _GAP, left + _GAP : left + width - _GAP] = pixels.reshape(
            size * _TILE, size * _TILE, 3
        )
    return image
