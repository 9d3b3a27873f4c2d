"""Brax's worlds (https://github.com/google/brax) behind our contract: continuous control by simulated physics.

Nothing of Brax's wrappers is used: no automatic reset, no start state kept for the next episode, no action repeat. What
Brax calls `done` is our `terminated`; the time limit is ours and truncates.

A Brax state holds observation, reward, metrics and more. Ours keeps what the next step reads, the physics and `info`,
because a search carries one state per particle.

Sizes today, against the paper's table: Ant 27 observations and 8 actions (the same), HalfCheetah 18 and 6 (the same;
Brax leaves the first observation out unless asked, so we ask), Humanoid 244 and 17 (the paper has 376, the size of
Gym's Humanoid, which also sees contact forces).

Physics can blow up. A NaN is passed on as it is, and most Brax worlds don't count it as an end: their health checks are
comparisons, which a NaN fails on both sides.

MuJoCo Playground continues these worlds. Its states have the same fields (the physics is called `data`), so an adapter
would be this one with `mujoco_playground.registry.load(name)` for the environment, and with the key which it keeps in
`state.info["rng"]` replaced by the one given to `step`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from spo.checks import suggest_names
from spo.environments._adapters import check_options, hold_to, on_its_own_terms, require, specs_of
from spo.environments.spring_physics import fused_environment
from spo.environments.wrappers import EpisodeLimitState, episode_limit
from spo.types import Array, ContinuousActions, Environment, Float, PRNGKey, PyTree, Task, TimeStep

BACKENDS = ("generalized", "mjx", "positional", "spring")

# What makes a world the one of the paper where Brax's default is another one.
_PAPER_OPTIONS: Mapping[str, dict[str, Any]] = {"halfcheetah": {"exclude_current_positions_from_observation": False}}
_LEFT_OUT: Mapping[str, str] = {
    "fast": "it is a stub for Brax's own tests, without physics",
    "swimmer": "it runs on the generalized backend alone, whose fluid forces call JAX in a way that JAX has removed",
}


class BraxState(NamedTuple):
    """What a Brax world needs to step: the physics, and the entries of `info`, if it has any."""

    pipeline_state: PyTree[Array]
    info: dict[str, Array]


def names() -> list[str]:
    """The names of the worlds this module can make."""
    return sorted(require("brax.envs", extra="envs")._envs.keys() - _LEFT_OUT)


def brax(
    name: str,
    *,
    backend: str = "spring",
    physics: Literal["auto", "brax", "fused"] = "auto",
    time_limit: int = 1000,
    **brax_options: Any,
) -> Task:
    """The Brax world `name`, such as "ant". `brax_options` go to the constructor of Brax's environment.

    `physics="fused"` computes the same spring physics by `spo.environments.spring_physics`: one kernel on a GPU, some
    twenty times as fast, equal to rounding (closer to Brax in float64 than Brax's own, which multiplies in TF32 there),
    a state of a fifth of the size, and not to be differentiated. It refuses the worlds it can't do; it can do "ant".
    "auto" takes it where it can, and Brax's own elsewhere.

    Args:
        name: Name of the environment in Brax.
        backend: Physics engine of Brax: spring, positional, generalized or mjx.
        physics: Implementation of the spring engine. "fused" is this package's GPU kernel, about twenty times as fast.
            "brax" is Brax's own. "auto" uses "fused" for the environments that it supports.
        time_limit: Longest episode, in steps.
        **brax_options: Arguments of the constructor of Brax's environment.
    """
    brax_env = _build(name, backend, brax_options)
    world, view = _with_physics(physics, name, brax_env)
    brax_reset, brax_step = on_its_own_terms(world.reset), on_its_own_terms(world.step)
    start = jax.eval_shape(brax_reset, jax.random.key(0))
    specs = specs_of(start)
    brax_state_type = type(start)

    def split(brax_state: Any) -> tuple[BraxState, TimeStep]:
        held = hold_to(specs, brax_state)
        timestep = TimeStep(
            observation=held.obs,
            reward=held.reward,
            terminated=held.done.astype(bool),
            truncated=jnp.zeros((), bool),
            metrics=held.metrics,
        )
        return BraxState(held.pipeline_state, held.info), timestep

    def reset(key: PRNGKey) -> tuple[BraxState, TimeStep]:
        return split(brax_reset(key))

    def step(key: PRNGKey, state: BraxState, action: Float[Array, " D"]) -> tuple[BraxState, TimeStep]:
        del key  # the physics draws nothing
        unread = {"obs": specs.obs, "reward": specs.reward, "done": specs.done, "metrics": specs.metrics}
        zeros = jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype), unread)
        before = brax_state_type(pipeline_state=state.pipeline_state, info=dict(state.info), **zeros)
        return split(brax_step(before, action))

    environment = Environment(
        name=f"brax/{name}",
        reset=reset,
        step=step,
        observation_spec=specs.obs,
        action_spec=ContinuousActions(brax_env.action_size),
        render=lambda state: _draw(brax_env.sys.mj_model, np.asarray(view(state.pipeline_state).q)),
    )
    environment = episode_limit(environment, time_limit)
    return Task(train=environment, evaluation=environment, model=environment)


def render_html(
    name: str,
    states: Sequence[EpisodeLimitState],
    *,
    backend: str = "spring",
    physics: Literal["auto", "brax", "fused"] = "auto",
    **brax_options: Any,
) -> str:
    """An episode as a page with Brax's own viewer: turn it, zoom, play. The page loads the viewer from the web.

    `states` are those of the task made with the same arguments, one after the other.
    """
    if not states:
        raise ValueError("There is nothing to show: give at least one state.")
    html = require("brax.io.html", extra="envs")
    brax_env = _build(name, backend, brax_options)
    _, view = _with_physics(physics, name, brax_env)
    return html.render(brax_env.sys, [view(state.inner.pipeline_state) for state in states], colab=False)


def _with_physics(physics: str, name: str, brax_env: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The environment with the physics asked for, and how its states look to Brax."""
    if physics not in ("auto", "brax", "fused"):
        raise ValueError(f"Physics is computed by 'brax' or 'fused', or 'auto' chooses: it can't be {physics!r}.")
    if physics != "brax":
        try:
            fused = fused_environment(brax_env)
            return fused, fused.view
        except ValueError as error:
            if physics == "fused":
                raise ValueError(f"brax/{name} has no fused physics: {error} Take physics='brax'.") from error
    return brax_env, lambda pipeline_state: pipeline_state


def _build(name: str, backend: str, options: Mapping[str, Any]) -> Any:
    brax_envs = require("brax.envs", extra="envs")
    if name in _LEFT_OUT:
        raise ValueError(f"Brax's {name!r} can't be made: {_LEFT_OUT[name]}.")
    if name not in names():
        raise ValueError(f"Brax has no environment {name!r}. {suggest_names(name, names())}")
    if backend not in BACKENDS:
        raise ValueError(f"Brax has no backend {backend!r}: choose one of {', '.join(BACKENDS)}.")
    constructors = (brax_envs._envs[name], brax_envs.PipelineEnv)
    allowed = {parameter for constructor in constructors for parameter in _named_parameters(constructor)}
    check_options(f"brax/{name}", options, allowed - {"sys"} | {"time_limit", "backend", "physics"})
    try:
        return brax_envs.get_environment(name, backend=backend, **{**_PAPER_OPTIONS.get(name, {}), **options})
    except ValueError as error:
        raise ValueError(
            f"Brax can't make {name!r} on the backend {backend!r} ({error}): try another one of {', '.join(BACKENDS)}."
        ) from error


def _named_parameters(constructor: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(constructor).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


# --- A picture without a graphics driver -----------------------------------------------------------------------------

_WIDTH, _HEIGHT = 320, 240
_OVERSAMPLING = 2  # draw larger, then shrink: smooth edges
_AZIMUTH, _ELEVATION = np.deg2rad(20.0), np.deg2rad(25.0)  # of the camera, away from a view along the y axis
_SKY, _FLOOR_LINE, _OUTLINE = (236, 241, 247), (196, 206, 218), (60, 60, 70)


@functools.cache
def _camera() -> np.ndarray:
    """Rows: to the right, up and towards the viewer. Parallel projection, so a picture is a matrix product."""
    right = np.array([np.cos(_AZIMUTH), np.sin(_AZIMUTH), 0.0])
    towards = np.array(
        [np.sin(_AZIMUTH) * np.cos(_ELEVATION), -np.cos(_AZIMUTH) * np.cos(_ELEVATION), np.sin(_ELEVATION)]
    )
    return np.stack([right, np.cross(towards, right), towards])


def _draw(mj_model: Any, q: Float[np.ndarray, " q"]) -> UInt8[np.ndarray, "height width 3"]:
    """The bodies where MuJoCo's kinematics puts them, drawn far to near; the camera keeps the first body in view."""
    mujoco = require("mujoco", extra="envs")
    image_module, draw_module = require("PIL.Image", extra="envs"), require("PIL.ImageDraw", extra="envs")
    kinds = mujoco.mjtGeom
    solid = ~np.isin(mj_model.geom_type, [int(kinds.mjGEOM_PLANE), int(kinds.mjGEOM_HFIELD)])
    data = mujoco.MjData(mj_model)

    # The scale comes from the resting pose, so that it is the same in every picture of an episode.
    mujoco.mj_kinematics(mj_model, data)
    reach = np.stack([data.geom_xpos + sign * mj_model.geom_rbound[:, None] for sign in (-1, 1)])[:, solid]
    low, high = reach[0].min(axis=0), reach[1].max(axis=0)
    extent = (high - low).max()

    data.qpos[:] = q
    mujoco.mj_kinematics(mj_model, data)

    size = np.array([_WIDTH, _HEIGHT]) * _OVERSAMPLING
    scale = 0.7 * size[1] / extent
    centre = np.array([*data.xpos[1][:2], (low[2] + high[2]) / 2])

    def project(points: np.ndarray) -> list[tuple[float, float]]:
        right, up = (_camera()[:2] @ (np.atleast_2d(points) - centre).T) * scale
        return list(zip(size[0] / 2 + right, size[1] / 2 - up, strict=True))

    image = image_module.new("RGB", tuple(size), _SKY)
    pen = draw_module.Draw(image)

    # Floor lines at round distances: without them, running looks like standing.
    spacing = 10.0 ** np.round(np.log10(extent / 2))
    nearest_crossing = np.round(centre[:2] / spacing) * spacing
    for offset in np.arange(-12, 13) * spacing:
        for axis in (0, 1):
            ends = np.zeros((2, 3))
            ends[:, axis] = nearest_crossing[axis] + offset
            ends[:, 1 - axis] = nearest_crossing[1 - axis] + 12 * spacing * np.array([-1.0, 1.0])
            pen.line(project(ends), fill=_FLOOR_LINE, width=_OVERSAMPLING)

    def disc(centre_point: tuple[float, float], radius: float, colour: tuple[int, ...]) -> None:
        x, y = centre_point
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour, outline=_OUTLINE)

    far_to_near = sorted(np.flatnonzero(solid), key=lambda geom: data.geom_xpos[geom] @ _camera()[2])
    for shade, geom in zip(np.linspace(0.8, 1.25, len(far_to_near)), far_to_near, strict=True):
        kind, sizes, position = kinds(mj_model.geom_type[geom]), mj_model.geom_size[geom], data.geom_xpos[geom]
        rotation = data.geom_xmat[geom].reshape(3, 3)
        colour = tuple(min(255, int(255 * shade * channel)) for channel in mj_model.geom_rgba[geom][:3])
        if kind in (kinds.mjGEOM_CAPSULE, kinds.mjGEOM_CYLINDER):
            tips = project(position + np.outer([-1.0, 1.0], rotation[:, 2] * sizes[1]))
            for tip in tips:
                disc(tip, sizes[0] * scale, colour)
            pen.line(tips, fill=colour, width=max(1, round(2 * sizes[0] * scale)))
        elif kind == kinds.mjGEOM_BOX:
            corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3, indexing="ij")).reshape(3, -1).T * sizes @ rotation.T
            for axis in range(3):
                side = 1 if rotation[:, axis] @ _camera()[2] > 0 else 0  # of the two opposite faces, the visible one
                face = [corner for corner in range(8) if (corner >> (2 - axis)) & 1 == side]
                pen.polygon(project(position + corners[[face[i] for i in (0, 1, 3, 2)]]), fill=colour, outline=_OUTLINE)
        else:
            disc(project(position)[0], mj_model.geom_rbound[geom] * scale, colour)

    return np.asarray(image.resize((_WIDTH, _HEIGHT), image_module.Resampling.LANCZOS))
