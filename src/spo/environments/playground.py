"""Adapter to MuJoCo Playground (https://github.com/google-deepmind/mujoco_playground): "CheetahRun", ...

Supported are the tasks of the DeepMind Control Suite. The robots need a repository of models that Playground downloads.
The physics is MJX in JAX (`impl="jax"`), which runs on every device.

- None of Playground's wrappers is used: no automatic reset, no stored start state, no action repeat.
- States. Playground's state holds the results of the whole physics, 2 to 30 kB. The adapter's state keeps what the next
  step reads (positions, velocities, targets, the solver's warm start), and `info`. Playground writes into the
  dictionaries `info` and `metrics` of the state that it is given. `step` makes new ones for each call.
- Keys. Playground stores a key in `info["rng"]` for noise. The adapter's state does not have it, and `step` inserts its
  own key. A search therefore draws its own future and cannot see the real one.
- Ends. Playground's `done` is `terminated`: in these tasks, a NaN in the physics. The time limit, `episode_length` of
  the task, truncates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments._adapters import (
    cast_like,
    check_options,
    jit_foreign,
    mujoco_warnings_to_log,
    output_to_log,
    require,
    specs_of,
    unknown_name,
)
from spo.environments._mujoco_drawing import draw
from spo.environments.wrappers import check_time_limit, episode_limit
from spo.host import abstract_key, on_host
from spo.types import Array, ContinuousActions, Environment, Float, PRNGKey, Task, TimeStep

_MODULE = "mujoco_playground"
#: Fields of MJX's data that a step reads. The others it computes again, or they keep their initial values.
_READ = ("time", "qpos", "qvel", "act", "history", "qacc_warmstart", "mocap_pos", "mocap_quat")
#: Tasks of Playground 0.2.0 that edit their model with a function that MuJoCo has removed.
_UNSUPPORTED = {"ReacherEasy", "ReacherHard"}


class PlaygroundState(NamedTuple):
    """The part of a state of Playground that the next step reads, without the key."""

    physics: dict[str, Array]
    info: dict[str, Array]


def names() -> list[str]:
    """Names of all supported tasks."""
    return sorted(set(_suite().ALL_ENVS) - _UNSUPPORTED)


def playground(name: str, *, time_limit: int | None = None, **playground_options: Any) -> Task:
    """A task of the DeepMind Control Suite in MuJoCo Playground, such as "CartpoleBalance".

    Args:
        name: Name of the task in Playground.
        time_limit: Longest episode, in steps. None: Playground's own limit (`episode_length`).
        **playground_options: Fields of the task's configuration, such as `sim_dt`.
    """
    with on_host():
        env, limit = _build(name, time_limit, playground_options)
    playground_reset, playground_step = jit_foreign(env.reset), jit_foreign(env.step)
    start = jax.eval_shape(playground_reset, abstract_key())
    specs, state_type = specs_of(start), type(start)
    with on_host():
        initial = cast_like(specs.data, require("mujoco.mjx", extra="playground").make_data(env.mj_model, impl="jax"))
    read = [field for field in _READ if getattr(specs.data, field, np.zeros(0)).size > 0]

    def split(playground_state: Any) -> tuple[PlaygroundState, TimeStep]:
        cast = cast_like(_without_key(specs), _without_key(playground_state))
        timestep = TimeStep(
            observation=cast.obs,
            reward=cast.reward,
            terminated=cast.done.astype(bool),
            truncated=jnp.zeros((), bool),
            metrics=cast.metrics,
        )
        return PlaygroundState({field: getattr(cast.data, field) for field in read}, cast.info), timestep

    def reset(key: PRNGKey) -> tuple[PlaygroundState, TimeStep]:
        return split(playground_reset(key))

    def step(key: PRNGKey, state: PlaygroundState, action: Float[Array, " D"]) -> tuple[PlaygroundState, TimeStep]:
        unread = {"obs": specs.obs, "reward": specs.reward, "done": specs.done, "metrics": specs.metrics}
        zeros = jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype), unread)
        info = {**state.info, "rng": key} if "rng" in specs.info else dict(state.info)
        before = state_type(data=initial.replace(**state.physics), info=info, **zeros)
        return split(playground_step(before, action))

    environment = Environment(
        name=f"playground/{name}",
        reset=reset,
        step=step,
        observation_spec=specs.obs,
        action_spec=ContinuousActions(env.action_size),
        render=lambda state: draw(env.mj_model, np.asarray(state.physics["qpos"])),
    )
    environment = episode_limit(environment, limit)
    return Task(train=environment, evaluation=environment, model=environment)


def time_limit(name: str) -> int:
    """Playground's own time limit for `name`."""
    _check_name(name)
    return int(_suite().get_default_config(name).episode_length)


def _suite() -> Any:
    return require(_MODULE, extra="playground").dm_control_suite


def _check_name(name: str) -> None:
    if name in names():
        return
    if name in _UNSUPPORTED:
        raise ValueError(f"playground/{name} uses a function that MuJoCo has removed: choose another task.")
    package = require(_MODULE, extra="playground")
    if name in (*package.locomotion.ALL_ENVS, *package.manipulation.ALL_ENVS):
        raise ValueError(
            f"playground/{name} is a robot, whose model Playground downloads: supported are the tasks of the DeepMind "
            "Control Suite, which `spo envs playground` lists."
        )
    raise unknown_name("MuJoCo Playground", "playground", name, names())


def _build(name: str, time_limit: int | None, options: dict[str, Any]) -> tuple[Any, int]:
    """Returns the environment and the time limit."""
    _check_name(name)
    config = _suite().get_default_config(name)
    fixed = {"impl", "episode_length", "action_repeat", "vision", "vision_config"}
    check_options(f"playground/{name}", options, {*config.keys(), "time_limit"} - fixed)
    limit = int(config.episode_length) if time_limit is None else time_limit
    check_time_limit(limit)
    with (
        mujoco_warnings_to_log(),
        output_to_log(_MODULE),
    ):  # MuJoCo reports what it would like to see changed in Playground's files
        return _suite().load(name, config_overrides={**options, "impl": "jax"}), limit


def _without_key(playground_state: Any) -> Any:
    info = {field: value for field, value in playground_state.info.items() if field != "rng"}
    return playground_state.replace(info=info)
