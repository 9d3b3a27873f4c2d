"""Adapter to XLand-MiniGrid (https://github.com/dunnolab/xland-minigrid): "MiniGrid-DoorKey-5x5", ...

- Observations. XLand-MiniGrid shows the cells in front of the player as numbers, kind and colour. The adapter gives
  Boolean channels, [view, view, kinds + colours]: a network can't add numbers of kinds. The player's own cell, bottom
  middle, shows what the player carries, as in MiniGrid.
- Hidden state. The observation shows the cells in front of the player. The state holds the whole grid, and a search
  that steps this state sees all of it.
- Keys. XLand-MiniGrid stores a key in its state, which `step` does not use: moves have no chance. The adapter's state
  holds `None` instead, and `step` inserts its own key.
- Ends. The discount is 0 at the goal and 1 at the time limit. The limit truncates. The reward of the goal is
  1 - 0.9 · steps / limit.
- The environments "XLand-MiniGrid-..." have no goal without a ruleset. `benchmark` names a set of them, which
  XLand-MiniGrid downloads, and `ruleset` one of the set.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import cast_like, check_options, jit_foreign, require, specs_of, unknown_name
from spo.environments.wrappers import check_time_limit
from spo.host import abstract_key
from spo.types import Array, Bool, DiscreteActions, Environment, Integer, PRNGKey, State, Task, TimeStep

_WITHOUT_GOAL = "MiniGrid-Playground"


def names() -> list[str]:
    """Names of all environments that have a goal, or get one from a ruleset."""
    return sorted(set(require("xminigrid", extra="xminigrid").registered_environments()) - {_WITHOUT_GOAL})


def xminigrid(
    name: str,
    *,
    time_limit: int | None = None,
    benchmark: str | None = None,
    ruleset: int = 0,
    **xminigrid_options: Any,
) -> Task:
    """An environment of XLand-MiniGrid, such as "MiniGrid-DoorKey-5x5".

    Args:
        name: Name of the environment in XLand-MiniGrid.
        time_limit: Longest episode, in steps. None: XLand-MiniGrid's own limit (`max_steps`).
        benchmark: Set of rulesets for the environments "XLand-MiniGrid-...", such as "trivial-21k". It is downloaded.
        ruleset: Number of the ruleset within the set.
        **xminigrid_options: Fields of the environment's parameters, such as `view_size`.
    """
    env, params = _build(name, time_limit, xminigrid_options)
    if name.startswith("XLand-"):
        params = params.replace(ruleset=_load_ruleset(name, benchmark, ruleset))
    return _make_task(name, env, params)


def preview(name: str) -> Environment:
    """Returns an environment with the same specs, without a download."""
    return _make_task(name, *_build(name, None, {})).train


def time_limit(name: str) -> int:
    """XLand-MiniGrid's own time limit for `name`."""
    return _build(name, None, {})[1].max_steps


def _make_task(name: str, env: Any, params: Any) -> Task:
    xminigrid_reset, xminigrid_step = jit_foreign(env.reset), jit_foreign(env.step)
    start = jax.eval_shape(lambda key: xminigrid_reset(params, key), abstract_key())
    state_spec, num_actions = specs_of(start.state.replace(key=None)), env.num_actions(params)

    def split(xminigrid_timestep: Any) -> tuple[State, TimeStep]:
        state = cast_like(state_spec, xminigrid_timestep.state.replace(key=None))
        terminated = jax.lax.convert_element_type(xminigrid_timestep.discount == 0, bool)
        timestep = TimeStep(
            observation=_channels(xminigrid_timestep.observation, state.agent.pocket),
            reward=jax.lax.convert_element_type(xminigrid_timestep.reward, jnp.float32),
            terminated=terminated,
            truncated=(state.step_num >= params.max_steps) & ~terminated,
            action_mask=jnp.ones(num_actions, bool),
        )
        return state, timestep

    def reset(key: PRNGKey) -> tuple[State, TimeStep]:
        return split(xminigrid_reset(params, key))

    def step(key: PRNGKey, state: State, action: Integer[Array, ""]) -> tuple[State, TimeStep]:
        before = start.replace(state=state.replace(key=key), step_type=None, reward=None, discount=None)
        return split(xminigrid_step(params, before.replace(observation=None), action))

    def render(state: State) -> UInt8[np.ndarray, "height width 3"]:
        draw = require("xminigrid.rendering.rgb_render", extra="xminigrid").render
        return np.asarray(draw(np.asarray(state.grid), jax.device_get(state.agent), params.view_size), np.uint8)

    environment = Environment(
        name=f"xminigrid/{name}",
        reset=reset,
        step=step,
        observation_spec=specs_of(jax.eval_shape(_channels, start.observation, start.state.agent.pocket)),
        action_spec=DiscreteActions(num_actions),
        render=render,
        hidden="the grid beyond the view",
    )
    return Task(train=environment, evaluation=environment, model=environment)


def _channels(
    view: Integer[Array, "view view 2"], pocket: Integer[Array, "2"]
) -> Bool[Array, "view view kinds_and_colours"]:
    """Returns kind and colour of each cell as Boolean channels, with the carried object in the player's cell."""
    constants = require("xminigrid.core.constants", extra="xminigrid")
    row, column = view.shape[0] - 1, view.shape[1] // 2
    carries = pocket[0] != constants.Tiles.EMPTY
    view = view.at[row, column].set(jnp.where(carries, pocket, view[row, column]))
    channels = [
        view[..., index, None] == jnp.arange(number, dtype=view.dtype)[None, None]
        for index, number in enumerate((constants.NUM_TILES, constants.NUM_COLORS))
    ]
    return jnp.concatenate(channels, axis=-1)


def _build(name: str, time_limit: int | None, options: dict[str, Any]) -> tuple[Any, Any]:
    package = require("xminigrid", extra="xminigrid")
    if name == _WITHOUT_GOAL:
        raise ValueError(f"xminigrid/{name} has no goal and no reward: choose another one, `spo envs` lists them.")
    if name not in names():
        raise unknown_name("XLand-MiniGrid", "xminigrid", name, names())
    env, params = package.make(name)
    fields = set(params.__dataclass_fields__) - {"max_steps", "render_mode", "ruleset", "grid_type"}
    check_options(f"xminigrid/{name}", options, {*fields, "time_limit", "benchmark", "ruleset"})
    if time_limit is not None:
        check_time_limit(time_limit)
        options = {**options, "max_steps": time_limit}
    return env, params.replace(**options)


def _load_ruleset(name: str, benchmark: str | None, number: int) -> Any:
    package = require("xminigrid", extra="xminigrid")
    known = package.registered_benchmarks()
    if benchmark not in known:
        raise ValueError(
            f"xminigrid/{name} has no goal without a ruleset: set benchmark to one of {', '.join(known)}, which is "
            "downloaded."
        )
    rulesets = package.load_benchmark(benchmark)
    if not 0 <= number < rulesets.num_rulesets():
        raise ValueError(f"ruleset must lie between 0 and {rulesets.num_rulesets() - 1} in {benchmark}, got {number}.")
    return rulesets.get_ruleset(number)
