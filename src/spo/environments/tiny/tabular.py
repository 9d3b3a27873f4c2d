"""An environment from tables of transition probabilities and rewards."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.wrappers import episode_limit
from spo.types import Array, Bool, DiscreteActions, Environment, Float, Integer, PRNGKey, Task, TimeStep


class TabularMDP(NamedTuple):
    """Tables over S states and A actions. Reaching a terminal state ends the episode.

    The tables include the effect of actions outside the mask, because nothing prevents them from being taken.
    """

    transition_probabilities: Float[np.ndarray, "S A S"]
    rewards: Float[np.ndarray, "S A"]  # for taking the action
    terminal: Bool[np.ndarray, " S"]
    mask: Bool[np.ndarray, "S A"]
    start_probabilities: Float[np.ndarray, " S"]
    entry_rewards: Float[np.ndarray, " S"] | None = None  # for reaching the state, in addition; None: 0


class Table(NamedTuple):
    """Arguments of `tabular` without the name."""

    mdp: TabularMDP
    time_limit: int | None = None
    num_columns: int | None = None


class TabularState(NamedTuple):
    """The current row of the tables."""

    row: Integer[Array, ""]


def tabular(mdp: TabularMDP, name: str, time_limit: int | None = None, num_columns: int | None = None) -> Task:
    """Makes the task of a table: the same environment for training, evaluation and search.

    Observations are one-hot vectors of the state.

    Args:
        mdp: the tables.
        name: name of the environment.
        time_limit: number of steps after which an episode is truncated. Default: no limit.
        num_columns: states per row in the picture that `render` draws. Default: all of them.
    """
    _check(mdp)
    num_states, num_actions = mdp.rewards.shape

    def enter(state: TabularState, reward: Float[Array, ""]) -> tuple[TabularState, TimeStep]:
        return state, TimeStep(
            observation=jax.nn.one_hot(state.row, num_states, dtype=jnp.float32),
            reward=reward,
            terminated=jnp.asarray(mdp.terminal)[state.row],
            truncated=jnp.zeros((), bool),
            action_mask=jnp.asarray(mdp.mask)[state.row],
        )

    def draw(key: PRNGKey, probabilities: Float[Array, " S"]) -> TabularState:
        # The Gumbel trick never draws a state of probability 0, whatever the rounding.
        return TabularState(jax.random.categorical(key, jnp.log(probabilities)).astype(jnp.int32))

    def reset(key: PRNGKey) -> tuple[TabularState, TimeStep]:
        return enter(draw(key, jnp.asarray(mdp.start_probabilities, jnp.float32)), jnp.zeros((), jnp.float32))

    def step(key: PRNGKey, state: TabularState, action: Integer[Array, ""]) -> tuple[TabularState, TimeStep]:
        probabilities = jnp.asarray(mdp.transition_probabilities, jnp.float32)[state.row, action]
        reward = jnp.asarray(mdp.rewards, jnp.float32)[state.row, action]
        next_state = draw(key, probabilities)
        if mdp.entry_rewards is not None:
            entered = jnp.asarray(mdp.entry_rewards, jnp.float32)[next_state.row]
            reward = reward + jnp.where(jnp.asarray(mdp.terminal)[state.row], 0.0, entered)
        return enter(next_state, reward)

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
    return same_in_all_roles(env, time_limit)


def same_in_all_roles(env: Environment, time_limit: int | None) -> Task:
    """A task whose three roles are `env`, truncated after `time_limit` steps if there is a limit."""
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
            raise ValueError(f"With rewards[S, A] of shape {mdp.rewards.shape}, {field} must have shape {shape}.")
    for field in ("transition_probabilities", "start_probabilities"):
        table = getattr(mdp, field)
        if np.any(table < 0) or not np.allclose(table.sum(axis=-1), 1.0):
            raise ValueError(f"{field} must not be negative and must sum to 1 over the last axis.")
    if not mdp.mask.any(axis=1).all():
        raise ValueError("Every state, including terminal ones, needs at least one valid action in the mask.")
    stays = mdp.transition_probabilities[mdp.terminal][:, :, mdp.terminal].sum(axis=-1)
    if not np.allclose(stays, 1.0) or np.any(mdp.rewards[mdp.terminal] != 0):
        raise ValueError("Nothing may happen after an end: terminal states must lead to terminal ones, with reward 0.")
    if mdp.start_probabilities[mdp.terminal].any():
        raise ValueError("An episode cannot start in a terminal state: give those a start probability of 0.")


def _draw_cells(current: int, terminal: Bool[np.ndarray, " S"], num_columns: int) -> np.ndarray:
    """One cell per state: white, or grey if terminal, with a blue square in the current one."""
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
