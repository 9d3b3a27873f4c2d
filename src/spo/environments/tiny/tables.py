"""The tabular environments. Each function returns the tables of one; its arguments are the task's options."""

from collections.abc import Callable

import numpy as np

from spo.environments.tiny.tabular import Table, TabularMDP

#: Largest size of a table. Its arrays grow with the square of it.
MAX_SIZE = 4096


def constant_reward() -> Table:
    """One step that pays 1, for each of two actions."""
    return bandit(rewards=(1.0, 1.0))


def observation_reward() -> Table:
    """One step that pays -1 from the first state and 1 from the second, for each of two actions."""
    return Table(_deterministic([[2, 2], [2, 2]], [[-1.0, -1.0], [1.0, 1.0]], starts=[0, 1]))


def delayed_reward(delay: int = 2) -> Table:
    """A reward of 1 on the last step, for every sequence of actions.

    Args:
        delay: Number of steps.
    """
    _check_sizes(delay=delay)
    return Table(
        _deterministic([[k + 1] * 2 for k in range(delay)], [[float(k == delay - 1)] * 2 for k in range(delay)])
    )


def bandit(rewards: tuple[float, ...] = (0.0, 0.5, 1.0)) -> Table:
    """One step whose reward depends on the action alone.

    Args:
        rewards: Reward of each action.
    """
    _check_sizes(num_arms=len(rewards))
    return Table(_deterministic([[1] * len(rewards)], [list(rewards)]))


def context(num_actions: int = 3) -> Table:
    """One step that pays 1 for the action with the same number as the state, otherwise 0.

    Args:
        num_actions: Number of actions, and of states to start from.
    """
    _check_sizes(num_actions=num_actions)
    rewards = np.eye(num_actions).tolist()
    return Table(_deterministic([[num_actions] * num_actions] * num_actions, rewards, starts=list(range(num_actions))))


def credit() -> Table:
    """Two steps. Action 0 pays 0.5 at once, and then nothing pays. Action 1 leads to a state where action 1 pays 1."""
    return Table(_deterministic([[1, 2], [3, 3], [3, 3]], [[0.5, 0.0], [0.0, 0.0], [0.0, 1.0]]))


def chain(length: int = 5, exit_reward: float = 0.1) -> Table:
    """A row of states. Action 0 ends the episode; action 1 moves on, and pays 1 from the last state.

    Args:
        length: Number of states before the end.
        exit_reward: Reward of action 0.
    """
    _check_sizes(length=length)
    next_states = [[length, k + 1] for k in range(length)]
    return Table(_deterministic(next_states, [[exit_reward, float(k == length - 1)] for k in range(length)]))


def tree(depth: int = 3, num_actions: int = 3, seed: int = 8) -> Table:
    """A tree with random rewards. At each node one action ends the episode, and at the last depth all do.

    With the default seed the best path has the full depth, and its first reward is not the highest.

    Args:
        depth: Number of steps of the longest path.
        num_actions: Number of actions at each node.
        seed: Random seed of the rewards, which are multiples of 0.1 between -1 and 1.
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
    return Table(_deterministic(rows, rewards.tolist()))


def cliff(width: int = 5, height: int = 3, time_limit: int = 50) -> Table:
    """A grid to cross from the lower left to the lower right cell. A step costs 1, and falling off the cliff costs 10.

    The cliff is the bottom row between the two cells. Actions are up, right, down, left. A step against the border
    leaves the position unchanged.

    Args:
        width: Number of columns of the grid.
        height: Number of rows of the grid.
        time_limit: Longest episode, in steps.
    """
    _check_sizes(minimum=2, width=width, height=height)
    num_cells = width * height
    # All cells of the bottom row but the first are ends, so the order of states is the order of cells.
    first_end = num_cells - width + 1
    next_states, rewards = [], []
    for cell in range(first_end):
        row, column = divmod(cell, width)
        moves = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        inside = [min(max(r, 0), height - 1) * width + min(max(c, 0), width - 1) for r, c in moves]
        next_states.append(inside)
        rewards.append([-10.0 if first_end <= target < num_cells - 1 else -1.0 for target in inside])
    mdp = _deterministic(next_states, rewards, starts=[first_end - 1], num_ends=width - 1)
    return Table(mdp, time_limit, num_columns=width)


def masked() -> Table:
    """Two states with one invalid action each, which pays 10: more than all valid actions together."""
    mdp = _deterministic([[2, 1, 2], [2, 2, 2]], [[0.3, 0.0, 10.0], [10.0, 0.5, 1.0]])
    mask = np.array([[True, True, False], [False, True, True], [True, True, True]])
    return Table(mdp._replace(mask=mask))


def gamble(safe_reward: float = 0.6, win_probability: float = 0.5) -> Table:
    """A choice between a safe reward and a gamble. Action 1 leads by chance to a state that pays 1 or one that pays 0.

    With the default odds the safe action is best. A planner that can see the outcome of chance gambles half of the time
    and expects 0.8.

    Args:
        safe_reward: Reward of action 0, which ends the episode.
        win_probability: Probability that action 1 leads to the state that pays 1.
    """
    mdp = _deterministic([[3, 1], [3, 3], [3, 3]], [[safe_reward, 0.0], [1.0, 1.0], [0.0, 0.0]])
    mdp.transition_probabilities[0, 1] = [0.0, win_probability, 1.0 - win_probability, 0.0]
    return Table(mdp)


def lottery(win_probability: float = 0.4, num_steps: int = 1) -> Table:
    """A safe action that pays 0, and a lottery that pays 1 or -1. With the default odds its mean is -0.2.

    A search that weighs trajectories by their luck prefers the lottery. With the temperature 0.25 it puts 95.6 % on it,
    and a risk-neutral one 31 %.

    Args:
        win_probability: Probability of winning.
        num_steps: 1: the lottery pays at once. 2: it leads to a state in which any action is paid.
    """
    if num_steps not in (1, 2):
        raise ValueError(f"num_steps must be 1 or 2, got {num_steps}.")
    chances = [win_probability, 1.0 - win_probability]
    if num_steps == 2:
        mdp = _deterministic([[3, 1], [3, 3], [3, 3]], [[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]])
        mdp.transition_probabilities[0, 1] = [0.0, *chances, 0.0]
        return Table(mdp)
    mdp = _deterministic([[1, 2]], [[0.0, 0.0]], num_ends=3)
    mdp.transition_probabilities[0, 1] = [0.0, 0.0, *chances]
    return Table(mdp._replace(entry_rewards=np.array([0.0, 0.0, 1.0, -1.0])))


def slippery(length: int = 4, slip_probability: float = 0.2, time_limit: int = 50) -> Table:
    """A walk along a row of cells. A step costs 0.1, and every action in the last cell pays 1 and ends the episode.

    Args:
        length: Number of cells.
        slip_probability: Probability that the opposite of the chosen action, left or right, happens.
        time_limit: Longest episode, in steps.
    """
    _check_sizes(length=length)
    next_states = [[max(k - 1, 0), k + 1] for k in range(length - 1)] + [[length, length]]
    mdp = _deterministic(next_states, [[-0.1, -0.1]] * (length - 1) + [[1.0, 1.0]])
    straight = mdp.transition_probabilities
    slipping = (1.0 - slip_probability) * straight + slip_probability * straight[:, ::-1]
    return Table(mdp._replace(transition_probabilities=slipping), time_limit)


TABLES: dict[str, Callable[..., Table]] = {
    maker.__name__: maker
    for maker in (
        constant_reward,
        observation_reward,
        delayed_reward,
        bandit,
        context,
        credit,
        chain,
        tree,
        cliff,
        masked,
        gamble,
        lottery,
        slippery,
    )
}


def _deterministic(
    next_states: list[list[int]], rewards: list[list[float]], starts: list[int] | None = None, num_ends: int = 1
) -> TabularMDP:
    """Tables without chance.

    Args:
        next_states: for each state that is not terminal, the next state of each action.
        rewards: for each state that is not terminal, the reward of each action.
        starts: states to start from, with equal probability. Default: state 0.
        num_ends: number of terminal states. They follow the other states.
    """
    num_live, num_actions = len(next_states), len(next_states[0])
    num_states = num_live + num_ends
    absorbing = [[state] * num_actions for state in range(num_live, num_states)]
    start_probabilities = np.zeros(num_states)
    start_probabilities[starts or [0]] = 1.0 / len(starts or [0])
    return TabularMDP(
        transition_probabilities=np.eye(num_states)[np.array(next_states + absorbing)],
        rewards=np.array(rewards + [[0.0] * num_actions] * num_ends, np.float64),
        terminal=np.arange(num_states) >= num_live,
        mask=np.ones((num_states, num_actions), bool),
        start_probabilities=start_probabilities,
    )


def _check_sizes(minimum: int = 1, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < minimum:
            raise ValueError(f"{name}={size} is too small: use {minimum} or more.")
        if size > MAX_SIZE:
            raise ValueError(f"{name}={size} is too large for a table: use {MAX_SIZE} or less.")
