"""Tiny worlds with known answers: probes for algorithms, and small enough to enumerate what a search should find.

`tiny(name)` is the task and `known_answer(name, gamma)` what there is to learn in it: for each observation the optimal
value and action. The tabular ones are tables (`TabularMDP`, by `tiny_mdp(name)`), solved exactly by `solve`; the
continuous ones have closed forms. A wrong algorithm fails on the one that probes its fault:

    constant_reward     is the value learnt at all?             masked    are invalid actions, which pay best, left out?
    observation_reward  does it depend on the observation?      gamble    does the search leave the real future unseen?
    delayed_reward      does it discount, once per step?        slippery  is chance in the transitions averaged?
    bandit              is the best action found?               chain     is a far reward worth passing a near one?
    context             per observation?                        cliff     is the best path next to a bad end found?
    credit              does a reward reach an earlier action?  tree      (for enumeration: ends at every depth)

`continuous_bandit`, `continuous_context` and `continuous_credit` ask the same of continuous actions, and `lqr` is a
linear-quadratic regulator.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.wrappers import episode_limit
from spo.types import (
    Array,
    Bool,
    ContinuousActions,
    DiscreteActions,
    Environment,
    Float,
    Integer,
    PRNGKey,
    Task,
    TimeStep,
)

# --- Tables ----------------------------------------------------------------------------------------------------------


class TabularMDP(NamedTuple):
    """A world as tables over S states and A actions. Reaching a terminal state ends the episode.

    What an action outside the mask does is in the tables too, for nothing else keeps anyone from taking it.
    """

    transition_probabilities: Float[np.ndarray, "S A S"]
    rewards: Float[np.ndarray, "S A"]
    terminal: Bool[np.ndarray, " S"]
    mask: Bool[np.ndarray, "S A"]
    start_probabilities: Float[np.ndarray, " S"]


class TabularState(NamedTuple):
    """Which row of the tables we are in."""

    row: Integer[Array, ""]


def solve(mdp: TabularMDP, gamma: float) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S A"]]:
    """Optimal values V[S] and Q[S, A] by value iteration (64 bit); Q is -inf outside the mask.

    A time limit has no part in them: a truncated episode goes on, as far as values are concerned.
    """
    values = np.zeros(len(mdp.terminal))
    for _ in range(100_000):
        q_values = np.where(mdp.mask, mdp.rewards + gamma * mdp.transition_probabilities @ values, -np.inf)
        new_values = np.where(mdp.terminal, 0.0, q_values.max(axis=1))
        if np.max(np.abs(new_values - values)) <= 1e-13 * max(1.0, np.max(np.abs(new_values))):
            return new_values, q_values
        values = new_values
    raise ValueError(f"Value iteration did not converge with gamma={gamma}: use a smaller gamma.")


def tabular(mdp: TabularMDP, name: str, time_limit: int | None = None, num_columns: int | None = None) -> Task:
    """The task of a table, the same world in all three roles. Observations are one-hot vectors of the state.

    `render` draws one cell per state, `num_columns` of them in a row (all of them unless told).
    """
    _check(mdp)
    num_states, num_actions = mdp.rewards.shape

    def say(state: TabularState, reward: Float[Array, ""]) -> tuple[TabularState, TimeStep]:
        return state, TimeStep(
            observation=jax.nn.one_hot(state.row, num_states, dtype=jnp.float32),
            reward=reward,
            terminated=jnp.asarray(mdp.terminal)[state.row],
            truncated=jnp.zeros((), bool),
            action_mask=jnp.asarray(mdp.mask)[state.row],
        )

    def draw(key: PRNGKey, probabilities: Float[Array, " S"]) -> TabularState:
        # A categorical draw by the Gumbel trick never takes a state of probability 0, whatever the rounding.
        return TabularState(jax.random.categorical(key, jnp.log(probabilities)).astype(jnp.int32))

    def reset(key: PRNGKey) -> tuple[TabularState, TimeStep]:
        return say(draw(key, jnp.asarray(mdp.start_probabilities, jnp.float32)), jnp.zeros((), jnp.float32))

    def step(key: PRNGKey, state: TabularState, action: Integer[Array, ""]) -> tuple[TabularState, TimeStep]:
        probabilities = jnp.asarray(mdp.transition_probabilities, jnp.float32)[state.row, action]
        return say(draw(key, probabilities), jnp.asarray(mdp.rewards, jnp.float32)[state.row, action])

    def render(state: TabularState) -> np.ndarray:
        return _draw_cells(int(state.row), mdp.terminal, num_columns or num_states)

    env = Environment(
        name=name,
        reset=reset,
        step=step,
        observation_spec=jax.ShapeDtypeStruct((num_states,), jnp.float32),
        action_spec=DiscreteActions(num_actions),
        render=render,
    )
    return _same_in_all_roles(env, time_limit)


def _same_in_all_roles(env: Environment, time_limit: int | None) -> Task:
    if time_limit is not None:
        env = episode_limit(env, time_limit)
    return Task(train=env, evaluation=env, model=env)


def _check(mdp: TabularMDP) -> None:
    num_states, num_actions = mdp.rewards.shape
    shapes = {
        "transition_probabilities": (num_states, num_actions, num_states),
        "terminal": (num_states,),
        "mask": (num_states, num_actions),
        "start_probabilities": (num_states,),
    }
    for field, shape in shapes.items():
        if getattr(mdp, field).shape != shape:
            raise ValueError(f"Beside rewards[S, A] of shape {mdp.rewards.shape}, {field} must have shape {shape}.")
    for field in ("transition_probabilities", "start_probabilities"):
        table = getattr(mdp, field)
        if np.any(table < 0) or not np.allclose(table.sum(axis=-1), 1.0):
            raise ValueError(f"{field} must not be negative and must sum to 1 over the last axis.")
    if not mdp.mask.any(axis=1).all():
        raise ValueError("Every state, terminal ones too, needs at least one valid action in the mask.")
    stays = mdp.transition_probabilities[mdp.terminal][:, :, mdp.terminal].sum(axis=-1)
    if not np.allclose(stays, 1.0) or np.any(mdp.rewards[mdp.terminal] != 0):
        raise ValueError("Nothing may happen after an end: let terminal states lead to terminal ones, with reward 0.")
    if mdp.start_probabilities[mdp.terminal].any():
        raise ValueError("An episode can't start in a terminal state: give those a start probability of 0.")


def _draw_cells(current: int, terminal: Bool[np.ndarray, " S"], num_columns: int) -> np.ndarray:
    """One cell per state: white, grey where terminal, with a blue square in the current one."""
    cell, gap = 20, 2
    num_rows = -(-len(terminal) // num_columns)
    image = np.full((num_rows * cell, num_columns * cell, 3), 60, np.uint8)
    for state, is_terminal in enumerate(terminal):
        row, column = divmod(state, num_columns)
        square = image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell]
        square[gap:-gap, gap:-gap] = 150 if is_terminal else 255
        if state == current:
            square[3 * gap : -3 * gap, 3 * gap : -3 * gap] = (30, 90, 200)
    return image


# --- The tables themselves -------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    mdp: TabularMDP
    time_limit: int | None = None
    num_columns: int | None = None


def _deterministic(
    next_states: list[list[int]], rewards: list[list[float]], starts: list[int] | None = None, num_ends: int = 1
) -> TabularMDP:
    """Tables of a world without chance. Rows are the states that go on; `num_ends` terminal states come after them."""
    num_going_on, num_actions = len(next_states), len(next_states[0])
    num_states = num_going_on + num_ends
    absorbing = [[state] * num_actions for state in range(num_going_on, num_states)]
    start_probabilities = np.zeros(num_states)
    start_probabilities[starts or [0]] = 1.0 / len(starts or [0])
    return TabularMDP(
        transition_probabilities=np.eye(num_states)[np.array(next_states + absorbing)],
        rewards=np.array(rewards + [[0.0] * num_actions] * num_ends, np.float64),
        terminal=np.arange(num_states) >= num_going_on,
        mask=np.ones((num_states, num_actions), bool),
        start_probabilities=start_probabilities,
    )


def _check_sizes(minimum: int = 1, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < minimum:
            raise ValueError(f"{name}={size} is too small: use {minimum} or more.")


def _bandit(rewards: tuple[float, ...] = (0.0, 0.5, 1.0)) -> _Table:
    _check_sizes(num_arms=len(rewards))
    return _Table(_deterministic([[1] * len(rewards)], [list(rewards)]))


def _observation_reward() -> _Table:
    return _Table(_deterministic([[2, 2], [2, 2]], [[-1.0, -1.0], [1.0, 1.0]], starts=[0, 1]))


def _delayed_reward(delay: int = 2) -> _Table:
    """Reward 1 on the last of `delay` steps, whatever is done."""
    _check_sizes(delay=delay)
    return _Table(
        _deterministic([[k + 1] * 2 for k in range(delay)], [[float(k == delay - 1)] * 2 for k in range(delay)])
    )


def _context(num_actions: int = 3) -> _Table:
    """Reward 1 for the action of the same number as the state."""
    _check_sizes(num_actions=num_actions)
    rewards = np.eye(num_actions).tolist()
    return _Table(_deterministic([[num_actions] * num_actions] * num_actions, rewards, starts=list(range(num_actions))))


def _credit() -> _Table:
    """Action 0 pays 0.5 now and leads to a room where nothing pays; action 1 leads to one where action 1 pays 1."""
    return _Table(_deterministic([[1, 2], [3, 3], [3, 3]], [[0.5, 0.0], [0.0, 0.0], [0.0, 1.0]]))


def _chain(length: int = 5, exit_reward: float = 0.1) -> _Table:
    """Action 0 leaves at once for `exit_reward`; action 1 moves on, and pays 1 from the last state."""
    _check_sizes(length=length)
    next_states = [[length, k + 1] for k in range(length)]
    return _Table(_deterministic(next_states, [[exit_reward, float(k == length - 1)] for k in range(length)]))


def _tree(depth: int = 3, num_actions: int = 3, seed: int = 8) -> _Table:
    """Every action leads to a node of its own; at each node one of them ends the episode, and so do all at `depth`.

    With the default seed the best path is a longest one, and the first reward on it is not the best there is.
    """
    _check_sizes(depth=depth, num_actions=num_actions)
    next_states: list[list[int]] = []
    level, num_nodes = [0], 1
    for remaining in reversed(range(depth)):
        children = []
        for node in level:
            ends = [remaining == 0 or action == node % num_actions for action in range(num_actions)]
            row = [-1 if end else num_nodes + sum(not e for e in ends[:action]) for action, end in enumerate(ends)]
            next_states.append(row)
            children += [child for child in row if child >= 0]
            num_nodes += len([child for child in row if child >= 0])
        level = children
    rewards = np.random.default_rng(seed).integers(-10, 11, (num_nodes, num_actions)) / 10
    rows = [[num_nodes if child < 0 else child for child in row] for row in next_states]
    return _Table(_deterministic(rows, rewards.tolist()))


def _cliff(width: int = 5, height: int = 3, time_limit: int = 50) -> _Table:
    """From the lower left to the lower right in steps that cost 1; the cells between are a cliff that costs 10.

    Actions are up, right, down, left; a step against the border stays where it is.
    """
    _check_sizes(minimum=2, width=width, height=height)
    num_cells = width * height
    # The cells of the bottom row but the first are the ends, so the order of states is the order of cells.
    first_end = num_cells - width + 1
    next_states, rewards = [], []
    for cell in range(first_end):
        row, column = divmod(cell, width)
        moves = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        inside = [min(max(r, 0), height - 1) * width + min(max(c, 0), width - 1) for r, c in moves]
        next_states.append(inside)
        rewards.append([-10.0 if first_end <= target < num_cells - 1 else -1.0 for target in inside])
    mdp = _deterministic(next_states, rewards, starts=[first_end - 1], num_ends=width - 1)
    return _Table(mdp, time_limit, num_columns=width)


def _masked() -> _Table:
    """In each of two states the invalid action pays 10, more than all the valid ones together."""
    mdp = _deterministic([[2, 1, 2], [2, 2, 2]], [[0.3, 0.0, 10.0], [10.0, 0.5, 1.0]])
    mask = np.array([[True, True, False], [False, True, True], [True, True, True]])
    return _Table(mdp._replace(mask=mask))


def _gamble(safe_reward: float = 0.6, win_probability: float = 0.5) -> _Table:
    """Action 0 pays `safe_reward` and ends; action 1 leads to a room that pays 1 or one that pays 0, as chance decides.

    With the default odds the safe action is right. A planner that sees which room chance will choose gambles half of
    the time, and expects 0.8.
    """
    mdp = _deterministic([[3, 1], [3, 3], [3, 3]], [[safe_reward, 0.0], [1.0, 1.0], [0.0, 0.0]])
    mdp.transition_probabilities[0, 1] = [0.0, win_probability, 1.0 - win_probability, 0.0]
    return _Table(mdp)


def _slippery(length: int = 4, slip_probability: float = 0.2, time_limit: int = 50) -> _Table:
    """A walk along `length` cells in steps that cost 0.1; actions are left and right, and at times the other happens.

    From the last cell every action pays 1 and ends.
    """
    _check_sizes(length=length)
    next_states = [[max(k - 1, 0), k + 1] for k in range(length - 1)] + [[length, length]]
    mdp = _deterministic(next_states, [[-0.1, -0.1]] * (length - 1) + [[1.0, 1.0]])
    straight = mdp.transition_probabilities
    slipping = (1.0 - slip_probability) * straight + slip_probability * straight[:, ::-1]
    return _Table(mdp._replace(transition_probabilities=slipping), time_limit)


_TABLES: dict[str, Callable[..., _Table]] = {
    "constant_reward": lambda: _bandit(rewards=(1.0, 1.0)),
    "observation_reward": _observation_reward,
    "delayed_reward": _delayed_reward,
    "bandit": _bandit,
    "context": _context,
    "credit": _credit,
    "chain": _chain,
    "tree": _tree,
    "cliff": _cliff,
    "masked": _masked,
    "gamble": _gamble,
    "slippery": _slippery,
}


# --- Known answers ---------------------------------------------------------------------------------------------------


class KnownAnswer(NamedTuple):
    """What there is to learn, for K observations: the value and what to do."""

    observations: Float[np.ndarray, "K ..."]
    values: Float[np.ndarray, " K"]
    #: Discrete actions: `bool[K, A]`, True for each optimal one. Continuous ones: `float[K, D]`, the optimal one.
    actions: np.ndarray


def _tabular_answer(mdp: TabularMDP, gamma: float) -> KnownAnswer:
    values, q_values = solve(mdp, gamma)
    going_on = ~mdp.terminal
    return KnownAnswer(
        observations=np.eye(len(values), dtype=np.float32)[going_on],
        values=values[going_on],
        actions=np.isclose(q_values, values[:, None], rtol=0.0, atol=1e-9)[going_on],
    )


# --- Continuous actions ----------------------------------------------------------------------------------------------


class VectorState(NamedTuple):
    """A state that is all in one vector, which is the observation too."""

    vector: Float[Array, " n"]


class _Outcome(NamedTuple):
    vector: Float[Array, " n"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class _ContinuousWorld(NamedTuple):
    """A continuous task before it is one. Actions lie in [-1, 1]; what is outside is clipped."""

    start: Callable[[PRNGKey], Float[Array, " n"]]
    advance: Callable[[PRNGKey, Float[Array, " n"], Float[Array, " D"]], _Outcome]
    answer: Callable[[float], KnownAnswer]
    size: int
    num_action_dimensions: int
    time_limit: int | None = None


def _continuous_task(world: _ContinuousWorld, name: str) -> Task:
    def say(outcome: _Outcome) -> tuple[VectorState, TimeStep]:
        timestep = TimeStep(
            observation=outcome.vector,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=jnp.zeros((), bool),
        )
        return VectorState(outcome.vector), timestep

    def reset(key: PRNGKey) -> tuple[VectorState, TimeStep]:
        return say(_Outcome(world.start(key), jnp.zeros((), jnp.float32), jnp.zeros((), bool)))

    def step(key: PRNGKey, state: VectorState, action: Float[Array, " D"]) -> tuple[VectorState, TimeStep]:
        return say(world.advance(key, state.vector, jnp.clip(action, -1.0, 1.0)))

    def render(state: VectorState) -> np.ndarray:
        return _draw_dots(np.asarray(state.vector))

    env = Environment(
        name=name,
        reset=reset,
        step=step,
        observation_spec=jax.ShapeDtypeStruct((world.size,), jnp.float32),
        action_spec=ContinuousActions(world.num_action_dimensions),
        render=render,
    )
    return _same_in_all_roles(env, world.time_limit)


def _draw_dots(vector: Float[np.ndarray, " n"]) -> np.ndarray:
    """A line from -1 to 1 for each entry of the vector, with a dot where it is."""
    height, width, margin = 24, 160, 8
    image = np.full((height * len(vector), width, 3), 255, np.uint8)
    for row, value in enumerate(np.clip(vector, -1.0, 1.0)):
        middle = height * row + height // 2
        image[middle, margin:-margin] = 150
        image[middle - 4 : middle + 5, width // 2] = 150
        column = margin + round((float(value) + 1.0) / 2.0 * (width - 2 * margin - 1))
        image[middle - 3 : middle + 4, column - 3 : column + 4] = (30, 90, 200)
    return image


def _continuous_bandit(target: float = 0.3, num_action_dimensions: int = 1) -> _ContinuousWorld:
    """One step, reward 1 - |action - target|². The observation is 1, and 0 after the end."""

    def advance(_key: PRNGKey, vector: Array, action: Array) -> _Outcome:
        reward = vector[0] * (1.0 - jnp.sum(jnp.square(action - target)))
        return _Outcome(jnp.zeros_like(vector), reward, jnp.ones((), bool))

    def answer(_gamma: float) -> KnownAnswer:
        return KnownAnswer(np.ones((1, 1), np.float32), np.ones(1), np.full((1, num_action_dimensions), target))

    return _ContinuousWorld(lambda _key: jnp.ones(1, jnp.float32), advance, answer, 1, num_action_dimensions)


def _continuous_context() -> _ContinuousWorld:
    """One step, reward 1 - (action - target)². The observation is (1, target), and (0, target) after the end."""

    def start(key: PRNGKey) -> Array:
        return jnp.stack([jnp.float32(1.0), jax.random.uniform(key, minval=-0.8, maxval=0.8)])

    def advance(_key: PRNGKey, vector: Array, action: Array) -> _Outcome:
        reward = vector[0] * (1.0 - jnp.square(action[0] - vector[1]))
        return _Outcome(vector.at[0].set(0.0), reward, jnp.ones((), bool))

    def answer(_gamma: float) -> KnownAnswer:
        targets = np.linspace(-0.8, 0.8, 9)
        observations = np.stack([np.ones(9), targets], axis=1).astype(np.float32)
        return KnownAnswer(observations, np.ones(9), targets[:, None])

    return _ContinuousWorld(start, advance, answer, 2, 1)


def _continuous_credit(target: float = 0.5) -> _ContinuousWorld:
    """Two steps. The first pays nothing, the second 1 - (first - target)² - (second - first)².

    The observation is (phase, first action): phase 0, then 1/2, then 1 after the end.
    """

    def advance(_key: PRNGKey, vector: Array, action: Array) -> _Outcome:
        phase, first = vector
        reward = 1.0 - jnp.square(first - target) - jnp.square(action[0] - first)
        vector = jnp.stack([jnp.minimum(phase + 0.5, 1.0), jnp.where(phase == 0.0, action[0], first)])
        return _Outcome(vector, jnp.where(phase == 0.5, reward, 0.0), phase >= 0.5)

    def answer(gamma: float) -> KnownAnswer:
        firsts = np.linspace(-1.0, 1.0, 9)
        observations = np.concatenate([np.zeros((1, 2)), np.stack([np.full(9, 0.5), firsts], axis=1)])
        values = np.concatenate([[gamma], 1.0 - (firsts - target) ** 2])
        actions = np.concatenate([[target], firsts])[:, None]
        return KnownAnswer(observations.astype(np.float32), values, actions)

    return _ContinuousWorld(lambda _key: jnp.zeros(2, jnp.float32), advance, answer, 2, 1)


def _lqr(noise: float = 0.0, time_limit: int = 50) -> _ContinuousWorld:
    """A mass on a line, pushed to rest at 0: x' = A x + B a + noise, reward -(x·Q x + a·R a). It only ever truncates.

    From the starts, |x| <= 0.5 in position and velocity, the optimal push stays within the bounds of actions, so that
    the Riccati equation is the whole answer (with noise, as far as noise seldom carries x far out).
    """
    seconds, velocity_cost, force_cost = 0.2, 0.1, 2.0
    dynamics = np.array([[1.0, seconds], [0.0, 1.0]])
    push = np.array([[0.5 * seconds**2], [seconds]])
    state_cost, action_cost = np.diag([1.0, velocity_cost]), np.diag([force_cost])

    def start(key: PRNGKey) -> Array:
        return jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)

    def advance(key: PRNGKey, vector: Array, action: Array) -> _Outcome:
        # Written out rather than as matrices: a product of matrices may lose precision on an accelerator.
        (position, velocity), (force,) = vector, action
        cost = position**2 + velocity_cost * velocity**2 + force_cost * force**2
        vector = jnp.stack([position + seconds * velocity + 0.5 * seconds**2 * force, velocity + seconds * force])
        return _Outcome(vector + noise * jax.random.normal(key, (2,)), -cost, jnp.zeros((), bool))

    def answer(gamma: float) -> KnownAnswer:
        if noise > 0 and gamma >= 1:
            raise ValueError("With noise the cost never ends: ask for the answer with gamma < 1.")
        cost_to_go, gain = _riccati(dynamics, push, state_cost, action_cost, gamma)
        grid = np.linspace(-0.5, 0.5, 5)
        states = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
        noise_cost = gamma / (1.0 - gamma) * noise**2 * np.trace(cost_to_go) if noise > 0 else 0.0
        values = -np.einsum("ki,ij,kj->k", states, cost_to_go, states) - noise_cost
        return KnownAnswer(states.astype(np.float32), values, -states @ gain.T)

    return _ContinuousWorld(start, advance, answer, 2, 1, time_limit)


def _riccati(
    dynamics: np.ndarray, push: np.ndarray, state_cost: np.ndarray, action_cost: np.ndarray, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Cost-to-go matrix P and gain K of the discounted regulator: the cost is x·P x, the optimal action -K x."""
    cost_to_go = state_cost
    for _ in range(100_000):
        gain = np.linalg.solve(action_cost + gamma * push.T @ cost_to_go @ push, gamma * push.T @ cost_to_go @ dynamics)
        new = state_cost + gamma * dynamics.T @ cost_to_go @ (dynamics - push @ gain)
        if np.max(np.abs(new - cost_to_go)) <= 1e-12 * np.max(np.abs(new)):
            return new, gain
        cost_to_go = new
    raise ValueError(f"The Riccati iteration did not converge with gamma={gamma}: use 0 < gamma <= 1.")


_CONTINUOUS: dict[str, Callable[..., _ContinuousWorld]] = {
    "continuous_bandit": _continuous_bandit,
    "continuous_context": _continuous_context,
    "continuous_credit": _continuous_credit,
    "lqr": _lqr,
}


# --- By name ---------------------------------------------------------------------------------------------------------

TINY_NAMES = (*_TABLES, *_CONTINUOUS)


def tiny(name: str, **options: Any) -> Task:
    """The tiny task called `name`, one of `TINY_NAMES`, the same world in all three roles."""
    made = _make(name, options)
    if isinstance(made, _Table):
        return tabular(made.mdp, f"tiny/{name}", made.time_limit, made.num_columns)
    return _continuous_task(made, f"tiny/{name}")


def tiny_mdp(name: str, **options: Any) -> TabularMDP:
    """The tables behind a tabular tiny task, to enumerate or `solve`."""
    made = _make(name, options)
    if not isinstance(made, _Table):
        raise ValueError(f"{name!r} has continuous actions and no tables: choose one of {', '.join(_TABLES)}.")
    return made.mdp


def known_answer(name: str, gamma: float, **options: Any) -> KnownAnswer:
    """Optimal values and actions of the tiny task `name` under discount `gamma`, with the options given to `tiny`."""
    made = _make(name, options)
    return _tabular_answer(made.mdp, gamma) if isinstance(made, _Table) else made.answer(gamma)


def option_names(name: str) -> list[str]:
    """What `tiny` takes for the task `name`."""
    return list(inspect.signature((_TABLES | _CONTINUOUS)[name]).parameters)


def _make(name: str, options: dict[str, Any]) -> _Table | _ContinuousWorld:
    if name not in TINY_NAMES:
        raise ValueError(f"There is no tiny task {name!r}: choose one of {', '.join(TINY_NAMES)}.")
    return _TABLES[name](**options) if name in _TABLES else _CONTINUOUS[name](**options)


__all__ = [
    "TINY_NAMES",
    "KnownAnswer",
    "TabularMDP",
    "TabularState",
    "VectorState",
    "known_answer",
    "option_names",
    "solve",
    "tabular",
    "tiny",
    "tiny_mdp",
]
