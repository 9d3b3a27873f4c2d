"""Pictures of a MuJoCo model without a graphics driver."""

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import require
from spo.types import Float

_WIDTH, _HEIGHT = 320, 240
_OVERSAMPLING = 2  # the picture is drawn larger and then shrunk, for smooth edges
_AZIMUTH, _ELEVATION = np.deg2rad(20.0), np.deg2rad(25.0)  # of the camera, relative to a view along the y axis
_SKY, _FLOOR_LINE, _OUTLINE = (236, 241, 247), (196, 206, 218), (60, 60, 70)

Points = list[tuple[float, float]]


class _View(NamedTuple):
    """Parallel projection onto a picture of `size` pixels with `centre` in its middle."""

    size: np.ndarray
    scale: float
    centre: np.ndarray

    def project(self, points: np.ndarray) -> Points:
        right, up = (_camera()[:2] @ (np.atleast_2d(points) - self.centre).T) * self.scale
        return list(zip(self.size[0] / 2 + right, self.size[1] / 2 - up, strict=True))


def draw(mj_model: Any, q: Float[np.ndarray, " q"]) -> UInt8[np.ndarray, "height width 3"]:
    """Draws the bodies at the joint positions `q`, from far to near. The camera follows the first body."""
    mujoco = require("mujoco", extra="envs")
    image_module, draw_module = require("PIL.Image", extra="envs"), require("PIL.ImageDraw", extra="envs")
    kinds = mujoco.mjtGeom
    solid = ~np.isin(mj_model.geom_type, [int(kinds.mjGEOM_PLANE), int(kinds.mjGEOM_HFIELD)])
    data = mujoco.MjData(mj_model)

    # The scale comes from the resting pose, so it is the same in every picture of an episode.
    mujoco.mj_kinematics(mj_model, data)
    reach = np.stack([data.geom_xpos + sign * mj_model.geom_rbound[:, None] for sign in (-1, 1)])[:, solid]
    low, high = reach[0].min(axis=0), reach[1].max(axis=0)
    extent = (high - low).max()

    data.qpos[:] = q
    mujoco.mj_kinematics(mj_model, data)
    size = np.array([_WIDTH, _HEIGHT]) * _OVERSAMPLING
    view = _View(size, 0.7 * size[1] / extent, np.array([*data.xpos[1][:2], (low[2] + high[2]) / 2]))

    image = image_module.new("RGB", tuple(size), _SKY)
    pen = draw_module.Draw(image)
    _draw_floor(pen, view, extent)
    far_to_near = sorted(map(int, np.flatnonzero(solid)), key=lambda geom: data.geom_xpos[geom] @ _camera()[2])
    for shade, geom in zip(np.linspace(0.8, 1.25, len(far_to_near)), far_to_near, strict=True):
        _draw_geometry(pen, view, mj_model, data, geom, shade)
    return np.asarray(image.resize((_WIDTH, _HEIGHT), image_module.Resampling.LANCZOS))


@functools.cache
def _camera() -> np.ndarray:
    """Rows: to the right, up, and towards the viewer."""
    right = np.array([np.cos(_AZIMUTH), np.sin(_AZIMUTH), 0.0])
    towards = np.array(
        [np.sin(_AZIMUTH) * np.cos(_ELEVATION), -np.cos(_AZIMUTH) * np.cos(_ELEVATION), np.sin(_ELEVATION)]
    )
    return np.stack([right, np.cross(towards, right), towards])


def _draw_floor(pen: Any, view: _View, extent: float) -> None:
    """Draws lines at round distances. Without them, running would look like standing."""
    spacing = 10.0 ** np.round(np.log10(extent / 2))
    nearest_crossing = np.round(view.centre[:2] / spacing) * spacing
    for offset in np.arange(-12, 13) * spacing:
        for axis in (0, 1):
            ends = np.zeros((2, 3))
            ends[:, axis] = nearest_crossing[axis] + offset
            ends[:, 1 - axis] = nearest_crossing[1 - axis] + 12 * spacing * np.array([-1.0, 1.0])
            pen.line(view.project(ends), fill=_FLOOR_LINE, width=_OVERSAMPLING)


def _draw_geometry(pen: Any, view: _View, mj_model: Any, data: Any, geom: int, shade: float) -> None:
    """Draws a capsule, cylinder or box. Other shapes are drawn as spheres."""
    kinds = require("mujoco", extra="envs").mjtGeom
    kind, sizes, position = kinds(mj_model.geom_type[geom]), mj_model.geom_size[geom], data.geom_xpos[geom]
    rotation = data.geom_xmat[geom].reshape(3, 3)
    colour = tuple(min(255, int(255 * shade * channel)) for channel in mj_model.geom_rgba[geom][:3])
    if kind in (kinds.mjGEOM_CAPSULE, kinds.mjGEOM_CYLINDER):
        tips = view.project(position + np.outer([-1.0, 1.0], rotation[:, 2] * sizes[1]))
        for tip in tips:
            _draw_disc(pen, tip, sizes[0] * view.scale, colour)
        pen.line(tips, fill=colour, width=max(1, round(2 * sizes[0] * view.scale)))
    elif kind == kinds.mjGEOM_BOX:
        corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3, indexing="ij")).reshape(3, -1).T * sizes @ rotation.T
        for axis in range(3):
            side = 1 if rotation[:, axis] @ _camera()[2] > 0 else 0  # the visible one of two opposite faces
            face = [corner for corner in range(8) if (corner >> (2 - axis)) & 1 == side]
            outline = view.project(position + corners[[face[i] for i in (0, 1, 3, 2)]])
            pen.polygon(outline, fill=colour, outline=_OUTLINE)
    else:
        _draw_disc(pen, view.project(position)[0], mj_model.geom_rbound[geom] * view.scale, colour)


def _draw_disc(pen: Any, centre: tuple[float, float], radius: float, colour: tuple[int, ...]) -> None:
    x, y = centre
    pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour, outline=_OUTLINE)
