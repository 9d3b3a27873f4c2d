"""Adapter to Jumanji (https://github.com/instadeepai/jumanji): "snake", "game_2048", ...

Names are Jumanji's in snake case and without the version. None of Jumanji's wrappers is used; nothing resets by itself.

- Actions. A vector of several choices becomes one index in row-major order: `np.unravel_index(index, num_values)` is
  Jumanji's action. Environments with several agents are refused.
- Observations are a dictionary of Jumanji's fields, without the action mask, which is a field of the time step. An
  environment without a mask allows every action. After the end of a game Jumanji may allow none; the mask is then all
  True, because a policy needs at least one action and none has an effect any more.
- Keys. Jumanji stores a key in its state and draws the future from it. The adapter's state holds `None` instead, and
  `step` inserts its own key. A search therefore draws its own future and cannot see the real one. Minesweeper is an
  exception: its state holds the mines, and a search that steps this state sees them.
- Ends. Jumanji reports time limits as termination. Where an environment has a `time_limit` (cube, maze, Pac-Man,
  sliding tiles, snake, Sokoban, Tetris), the adapter removes it from Jumanji's environment and truncates instead.
  `time_limit_is_termination=True` restores Jumanji's behaviour. The other environments end when nothing is left to do.
"""

import copy
import inspect
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import cast_like, check_options, jit_foreign, require, specs_of, unknown_name
from spo.environments._power_board import draw_powers
from spo.host import abstract_key
from spo.types import Array, Bool, DiscreteActions, Environment, Integer, PRNGKey, State, Task, TimeStep

# Environments with several agents, or machines, that act at once. `jumanji` recognises them by the shape of mask and
# reward, but only after building them. `names` does not build them.
_SEVERAL_AGENTS = frozenset(
    {
        "cleaner",
        "connector",
        "job_shop",
        "level_based_foraging",
        "mmst",
        "multi_cvrp",
        "robot_warehouse",
        "search_and_rescue",
    }
)
#: What a state holds and its observation does not show.
_HIDDEN = {"minesweeper": "the mines"}
#: Environments whose actions are directions, in this order.
_DIRECTIONS = ("up", "right", "down", "left")
_WITH_DIRECTIONS = frozenset({"game_2048", "maze", "snake"})
_NO_LIMIT = np.iinfo(np.int32).max


def names() -> list[str]:
    """Names of all supported environments."""
    return sorted(set(_registered()) - _SEVERAL_AGENTS)


def jumanji(name: str, *, time_limit_is_termination: bool = False, **jumanji_options: Any) -> Task:
    """A single-agent environment of Jumanji, such as "snake".

    Args:
        name: Name of the environment in Jumanji, in snake case and without its version.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
        **jumanji_options: Arguments of the constructor of Jumanji's environment.
    """
    env = _build(name, jumanji_options)
    num_values = _num_values(name, env)
    time_limit = getattr(env, "time_limit", _NO_LIMIT)
    if time_limit != _NO_LIMIT:
        env = copy.copy(env)
        env.time_limit = _NO_LIMIT
    jumanji_reset, jumanji_step = jit_foreign(env.reset), jit_foreign(env.step)
    start_state, start = jax.eval_shape(jumanji_reset, abstract_key())
    _check_single_agent(name, num_values, start)
    state_spec, observation_spec, extras_spec = map(
        specs_of, (_with_key(start_state, None), _without_mask(start.observation), start.extras)
    )

    def split(jumanji_state: Any, jumanji_timestep: Any) -> tuple[State, TimeStep]:
        state = cast_like(state_spec, _with_key(jumanji_state, None))
        last = jumanji_timestep.last()
        terminated = last & (jumanji_timestep.discount == 0)
        out_of_time = state.step_count >= time_limit if time_limit != _NO_LIMIT else jnp.zeros((), bool)
        if time_limit_is_termination:
            terminated |= out_of_time
        timestep = TimeStep(
            observation=cast_like(observation_spec, _without_mask(jumanji_timestep.observation)),
            reward=jnp.asarray(jumanji_timestep.reward, jnp.float32),
            terminated=terminated,
            truncated=(last | out_of_time) & ~terminated,
            action_mask=_action_mask(jumanji_timestep.observation, num_values),
            metrics=cast_like(extras_spec, jumanji_timestep.extras),
        )
        return state, timestep

    def reset(key: PRNGKey) -> tuple[State, TimeStep]:
        return split(*jumanji_reset(key))

    def step(key: PRNGKey, state: State, action: Integer[Array, ""]) -> tuple[State, TimeStep]:
        return split(*jumanji_step(_with_key(state, key), _unflatten(action, num_values)))

    environment = Environment(
        name=f"jumanji/{name}",
        reset=reset,
        step=step,
        observation_spec=observation_spec,
        action_spec=DiscreteActions(int(np.prod(num_values))),
        render=lambda state: draw_powers(np.asarray(state.board)) if name == "game_2048" else _draw(env, state),
        hidden=_HIDDEN.get(name, ""),
        action_names=_DIRECTIONS if name in _WITH_DIRECTIONS else (),
    )
    return Task(train=environment, evaluation=environment, model=environment)


def time_limit(name: str, **jumanji_options: Any) -> int | None:
    """Jumanji's own time limit for `name`, or None."""
    return getattr(_build(name, jumanji_options), "time_limit", None)


def offline_options(name: str) -> dict[str, Any]:
    """Options of `jumanji` that prevent the environment `name` from downloading data."""
    if name != "sokoban":
        return {}
    generator = require("jumanji.environments.routing.sokoban.generator", extra="envs")
    return {"generator": generator.SimpleSolveGenerator()}


def _registered() -> dict[str, str]:
    """Jumanji's identifier of each name, with the newest version."""
    package = require("jumanji", extra="envs")
    parse = require("jumanji.registration", extra="envs").parse_env_id
    identifiers = sorted(package.registered_environments(), key=lambda identifier: parse(identifier)[1])
    return {_snake_case(parse(identifier)[0]): identifier for identifier in identifiers}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", name).replace("-", "_").lower()


def _build(name: str, options: dict[str, Any]) -> Any:
    registration = require("jumanji.registration", extra="envs")
    registered = _registered()
    if name not in registered:
        raise unknown_name("Jumanji", "jumanji", name, names())
    spec = registration._REGISTRY[registered[name]]
    constructor = registration.load(spec.entry_point)
    allowed = set(inspect.signature(constructor).parameters) | {"time_limit_is_termination"}
    check_options(f"jumanji/{name}", options, allowed)
    return constructor(**{**spec.kwargs, **options})


def _num_values(name: str, env: Any) -> tuple[int, ...]:
    """Number of values of each component of the action."""
    specs = require("jumanji.specs", extra="envs")
    if isinstance(env.action_spec, specs.DiscreteArray):
        return (int(env.action_spec.num_values),)
    if isinstance(env.action_spec, specs.MultiDiscreteArray) and env.action_spec.num_values.ndim == 1:
        return tuple(int(num) for num in env.action_spec.num_values)
    raise ValueError(
        f"jumanji/{name} takes actions of the kind {type(env.action_spec).__name__}{env.action_spec.shape}. "
        "Supported are one discrete action or one vector of discrete choices."
    )


def _check_single_agent(name: str, num_values: tuple[int, ...], start: Any) -> None:
    mask = getattr(start.observation, "action_mask", None)
    # One agent with several choices has a mask over all combinations. Several agents have one mask each.
    if start.reward.shape != () or (mask is not None and mask.shape != num_values):
        raise ValueError(
            f"jumanji/{name} moves several agents at once. Supported are environments with a single agent."
        )


def _unflatten(action: Integer[Array, ""], num_values: tuple[int, ...]) -> Integer[Array, "..."]:
    if len(num_values) == 1:
        return action
    return jnp.stack(jnp.unravel_index(action, num_values)).astype(jnp.int32)


def _with_key(state: Any, key: PRNGKey | None) -> Any:
    """Replaces the key in a state of Jumanji. `None` is not a leaf of the pytree."""
    return state._replace(key=key) if hasattr(state, "_replace") else state.replace(key=key)


def _without_mask(observation: Any) -> dict[str, Any]:
    return {field: value for field, value in observation._asdict().items() if field != "action_mask"}


def _action_mask(observation: Any, num_values: tuple[int, ...]) -> Bool[Array, " A"]:
    if not hasattr(observation, "action_mask"):
        return jnp.ones(int(np.prod(num_values)), bool)
    mask = observation.action_mask.reshape(-1).astype(bool)
    return mask | ~mask.any()


def _draw(env: Any, state: State) -> UInt8[np.ndarray, "height width 3"]:
    """Draws with Jumanji's own viewer, into a figure that is never shown and then closed."""
    pyplot = require("matplotlib.pyplot", extra="envs")
    backend = pyplot.get_backend()
    pyplot.switch_backend("agg")
    try:
        with pyplot.ion():  # otherwise the viewer calls `show`, which needs a window
            env.render(state)
        figure = pyplot.gcf()
        figure.canvas.draw()
        picture = np.array(figure.canvas.buffer_rgba())[..., :3]
        pyplot.close(figure)
    finally:
        pyplot.switch_backend(backend)
    return picture
