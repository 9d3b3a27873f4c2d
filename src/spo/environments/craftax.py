"""Adapter to Craftax (https://github.com/MichaelTMatthews/Craftax): "classic" and "full".

"classic" is Craftax-Classic, a fast version of Crafter; "full" is Craftax itself. Observations are the symbolic ones.
The classes without automatic reset are used.

- Hidden state. The observation shows the surroundings of the player. The state holds the whole map, and a search that
  steps this state sees all of it.
- Keys. Craftax stores a key in its state. The adapter's state holds `None` instead, and `step` inserts its own key. A
  search therefore draws its own future and cannot see the real one.
- Ends. Craftax reports its time limit as an end like death, with a discount of 0. The adapter removes the limit from
  Craftax's parameters, compares the clock itself, and truncates.
- Memory. A state has 21 kB (classic) and 273 kB (full). A search carries one for each particle of each environment.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import cast_like, check_options, jit_foreign, require, specs_of, unknown_name
from spo.environments.wrappers import check_time_limit
from spo.host import abstract_key
from spo.types import Array, DiscreteActions, Environment, Integer, PRNGKey, State, Task, TimeStep

_NAMES = {"classic": "Craftax-Classic-Symbolic-v1", "full": "Craftax-Symbolic-v1"}
_PACKAGES = {"classic": "craftax.craftax_classic", "full": "craftax.craftax"}
_NO_LIMIT = np.iinfo(np.int32).max
_PIXELS_PER_BLOCK = 6
_PLAYER, _MOB = (255, 255, 255), (220, 40, 40)
#: Colours of the most common blocks. The others are grey.
_COLOURS = {
    "GRASS": (90, 160, 70),
    "WATER": (60, 110, 220),
    "STONE": (120, 120, 120),
    "TREE": (30, 90, 40),
    "PATH": (180, 150, 110),
    "SAND": (230, 210, 150),
    "COAL": (40, 40, 40),
    "IRON": (210, 160, 120),
    "DIAMOND": (170, 240, 250),
    "CRAFTING_TABLE": (140, 90, 40),
    "FURNACE": (90, 70, 70),
    "LAVA": (250, 120, 20),
    "PLANT": (140, 220, 90),
    "DARKNESS": (10, 10, 20),
}


def names() -> list[str]:
    """Names of all environments of Craftax."""
    require("craftax", extra="craftax")
    return sorted(_NAMES)


def craftax(name: str, *, time_limit: int | None = None, **craftax_options: Any) -> Task:
    """An environment of Craftax: "classic" or "full".

    Args:
        name: Name of the environment.
        time_limit: Longest episode, in steps. None: Craftax's own limit (`max_timesteps`).
        **craftax_options: Fields of the environment's parameters, such as `day_length`.
    """
    env, params, limit = _build(name, time_limit, craftax_options)
    craftax_reset, craftax_step = jit_foreign(env.reset_env), jit_foreign(env.step_env)
    observation_like, state_like = jax.eval_shape(lambda key: craftax_reset(key, params), abstract_key())
    observation_spec, state_spec = specs_of(observation_like), specs_of(state_like.replace(state_rng=None))

    def split(observation: Any, craftax_state: Any, reward: Any, terminated: Any) -> tuple[State, TimeStep]:
        timestep = TimeStep(
            observation=cast_like(observation_spec, observation),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=(craftax_state.timestep >= limit) & ~jnp.asarray(terminated, bool),
            action_mask=jnp.ones(env.num_actions, bool),
            metrics={"achievements": jnp.sum(craftax_state.achievements, dtype=jnp.float32)},
        )
        return cast_like(state_spec, craftax_state.replace(state_rng=None)), timestep

    def reset(key: PRNGKey) -> tuple[State, TimeStep]:
        observation, state = craftax_reset(key, params)
        return split(observation, state, 0.0, False)

    def step(key: PRNGKey, state: State, action: Integer[Array, ""]) -> tuple[State, TimeStep]:
        observation, state, reward, terminated, _ = craftax_step(key, state.replace(state_rng=key), action, params)
        return split(observation, state, reward, terminated)

    environment = Environment(
        name=f"craftax/{name}",
        reset=reset,
        step=step,
        observation_spec=observation_spec,
        action_spec=DiscreteActions(env.num_actions),
        render=lambda state: _draw(name, state),
        hidden="the map beyond the view",
    )
    return Task(train=environment, evaluation=environment, model=environment)


def time_limit(name: str) -> int:
    """Craftax's own time limit for `name`."""
    return _build(name, None, {})[2]


def _build(name: str, time_limit: int | None, options: dict[str, Any]) -> tuple[Any, Any, int]:
    """Returns the environment, its parameters without a time limit, and the time limit."""
    if name not in names():
        raise unknown_name("Craftax", "craftax", name, names())
    env = require("craftax.craftax_env", extra="craftax").make_craftax_env_from_name(_NAMES[name], auto_reset=False)
    params = env.default_params
    check_options(f"craftax/{name}", options, {*params.__dataclass_fields__, "time_limit"} - {"max_timesteps"})
    limit = int(params.max_timesteps) if time_limit is None else time_limit
    check_time_limit(limit)
    return env, params.replace(**options, max_timesteps=_NO_LIMIT), limit


def _draw(name: str, state: State) -> UInt8[np.ndarray, "height width 3"]:
    """Draws the map of the player's level from above, one colour for each kind of block.

    Craftax's own renderer prepares its textures for half a minute and writes them into the installed package.
    """
    kinds = require(f"{_PACKAGES[name]}.constants", extra="craftax").BlockType
    colours = np.array([_COLOURS.get(kind.name, (150, 150, 160)) for kind in kinds], np.uint8)
    level = () if name == "classic" else (int(state.player_level),)
    picture = colours[np.asarray(state.map)[level]]
    picture[np.asarray(state.mob_map)[level]] = _MOB
    row, column = np.asarray(state.player_position)
    picture[row, column] = _PLAYER
    return picture.repeat(_PIXELS_PER_BLOCK, axis=0).repeat(_PIXELS_PER_BLOCK, axis=1)
