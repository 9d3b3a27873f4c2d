"""Pictures of a MuJoCo model without a graphics driver.

Each pixel has one ray, parallel to the view. The nearest solid that the ray meets is shown, lit from above, with its
shadow on a chequered floor. A solid is computed only for the pixels near it.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from spo.environments._adapters import require
from spo.types import Float

_WIDTH, _HEIGHT = 320, 240
_OVERSAMPLING = 2  # the picture is drawn larger and then shrunk, for smooth edges
_MARGIN = 0.68  # share of the picture that the resting body may fill
_AZIMUTH, _ELEVATION = np.deg2rad(20.0), np.deg2rad(25.0)  # of the camera, relative to a view along the y axis
_LIGHT = np.array([-0.35, -0.25, 0.9]) / np.linalg.norm([-0.35, -0.25, 0.9])  # towards the light
_AMBIENT, _DIFFUSE = 0.8, 1.2  # together above 1, because the colours of most models are dark
_TILES = np.array([(223, 231, 240), (203, 214, 227)], np.float32)
_SHADOW = np.array([0.74, 0.76, 0.80], np.float32)  # factor on the colour of the floor

Vectors = Float[np.ndarray, "*rays 3"]
Plane = Float[np.ndarray, "rows columns"]
Window = tuple[slice, slice]  # rows and columns


class _Solid(NamedTuple):
    """A geometry of the model in space."""

    kind: str  # "capsule", "box" or "ellipsoid"
    centre: Float[np.ndarray, "3"]
    rotation: Float[np.ndarray, "3 3"]  # columns: its axes
    sizes: Float[np.ndarray, "3"]  # half the length along each axis; of a capsule: radius, radius, half its line
    colour: Float[np.ndarray, "3"]

    def half_extent(self, direction: Float[np.ndarray, "3"]) -> float:
        """Returns the largest p @ direction of its points p, counted from its centre."""
        parts = np.abs(direction @ self.rotation) * self.sizes
        if self.kind == "ellipsoid":
            return float(np.linalg.norm(parts))
        if self.kind == "capsule":
            return float(parts[2] + self.sizes[0] * np.linalg.norm(direction))
        return float(parts.sum())


class _View(NamedTuple):
    """Parallel projection onto a picture of `width` times `height` pixels with `centre` in its middle."""

    width: int
    height: int
    scale: float  # pixels per metre
    centre: Float[np.ndarray, "3"]

    def rays(self, window: Window) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, " rows"]]:
        """Returns the distances of the pixels of a window from the middle: to the right, and up."""
        rows, columns = window
        across = (np.arange(columns.start, columns.stop) + 0.5 - self.width / 2) / self.scale
        along = (self.height / 2 - np.arange(rows.start, rows.stop) - 0.5) / self.scale
        return across, along

    def on_picture(self, window: Window) -> Vectors:
        """Returns the point on each ray that is as far from the viewer as the centre."""
        across, along = self.rays(window)
        right, up, _ = _camera()
        return self.centre + across[None, :, None] * right + along[:, None, None] * up

    def on_floor(self, window: Window) -> tuple[Plane, Plane]:
        """Returns the coordinates x and y of the point with z = 0 on each ray."""
        across, along = self.rays(window)
        right, up, towards = _camera()
        down = (self.centre[2] + along * up[2]) / towards[2]  # `right` is level
        starts = self.centre[:2, None] + along * up[:2, None] - down * towards[:2, None]
        x, y = starts[..., None] + across * right[:2, None, None]
        return x, y

    def window(self, solid: _Solid, right: Float[np.ndarray, "3"], up: Float[np.ndarray, "3"]) -> Window:
        """Returns the pixels that a solid may cover, if points are projected by `right` and `up`."""
        middle = np.array([self.height / 2, self.width / 2]) - self.scale * np.array([up, -right]) @ solid.centre
        middle = middle + self.scale * np.array([_camera()[1], -_camera()[0]]) @ self.centre
        reach = self.scale * np.array([solid.half_extent(up), solid.half_extent(right)])
        low = np.clip(np.floor(middle - reach), 0, [self.height, self.width]).astype(int)
        high = np.clip(np.ceil(middle + reach), low, [self.height, self.width]).astype(int)
        return slice(low[0], high[0]), slice(low[1], high[1])


def draw(mj_model: Any, q: Float[np.ndarray, " q"]) -> UInt8[np.ndarray, "height width 3"]:
    """Draws the bodies at the joint positions `q`. The camera follows the first body."""
    mujoco, image_module = require("mujoco", extra="envs"), require("PIL.Image", extra="envs")
    data = mujoco.MjData(mj_model)
    # The scale comes from the resting pose, so it is the same in every picture of an episode.
    mujoco.mj_kinematics(mj_model, data)
    low, high = _bounds(list(_solids(mj_model, data)))
    width, height = _WIDTH * _OVERSAMPLING, _HEIGHT * _OVERSAMPLING
    ground = min(low[2], 0.0)  # the resting pose may hang above the floor
    wide, tall = (high - low)[:2].max(), high[2] - ground
    visible = wide * np.sin(_ELEVATION) + tall * np.cos(_ELEVATION)
    scale = _MARGIN * min(width / wide, height / visible)

    data.qpos[:] = q
    mujoco.mj_kinematics(mj_model, data)
    view = _View(width, height, scale, np.array([*data.xpos[1][:2], (ground + high[2]) / 2]))
    if not np.isfinite(view.centre).all():  # the physics has diverged
        view = view._replace(centre=np.zeros(3))
    solids = [solid for solid in _solids(mj_model, data) if np.isfinite([*solid.centre, *solid.rotation.flat]).all()]
    image = _draw_floor(view, solids, tile=10.0 ** np.round(np.log10(max(wide, tall) / 2)))
    _draw_solids(image, view, solids)
    picture = image_module.fromarray(np.clip(image, 0, 255).astype(np.uint8))
    return np.asarray(picture.reduce(_OVERSAMPLING))


@functools.cache
def _camera() -> Float[np.ndarray, "3 3"]:
    """Rows: to the right, up, and towards the viewer."""
    right = np.array([np.cos(_AZIMUTH), np.sin(_AZIMUTH), 0.0])
    towards = np.array(
        [np.sin(_AZIMUTH) * np.cos(_ELEVATION), -np.cos(_AZIMUTH) * np.cos(_ELEVATION), np.sin(_ELEVATION)]
    )
    return np.stack([right, np.cross(towards, right), towards])


# --- The scene --------------------------------------------------------------------------------------------------------


def _solids(mj_model: Any, data: Any) -> Iterator[_Solid]:
    """Yields the visible geometries but the floor. A mesh is drawn as the sphere around it."""
    kinds = require("mujoco", extra="envs").mjtGeom
    for geom in range(mj_model.ngeom):
        kind, sizes, reach = kinds(mj_model.geom_type[geom]), mj_model.geom_size[geom], mj_model.geom_rbound[geom]
        if kind in (kinds.mjGEOM_PLANE, kinds.mjGEOM_HFIELD) or mj_model.geom_rgba[geom][3] == 0 or reach == 0:
            continue
        if kind in (kinds.mjGEOM_CAPSULE, kinds.mjGEOM_CYLINDER):
            name, sizes = "capsule", sizes[[0, 0, 1]]
        elif kind == kinds.mjGEOM_BOX:
            name = "box"
        else:
            name, sizes = "ellipsoid", sizes if kind == kinds.mjGEOM_ELLIPSOID else np.full(3, reach)
        rotation, colour = data.geom_xmat[geom].reshape(3, 3), 255 * mj_model.geom_rgba[geom][:3]
        yield _Solid(name, data.geom_xpos[geom].copy(), rotation.copy(), sizes, colour)


def _bounds(solids: list[_Solid]) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Returns the lowest and highest coordinates of all solids."""
    centres = np.stack([solid.centre for solid in solids])
    reaches = np.array([[solid.half_extent(axis) for axis in np.eye(3)] for solid in solids])
    return (centres - reaches).min(axis=0), (centres + reaches).max(axis=0)


def _draw_floor(view: _View, solids: list[_Solid], tile: float) -> Float[np.ndarray, "height width 3"]:
    """Draws tiles of a round size, and shadows. Without the tiles, running would look like standing."""
    x, y = view.on_floor((slice(0, view.height), slice(0, view.width)))
    image = _TILES[(np.floor(x / tile).astype(int) + np.floor(y / tile).astype(int)) % 2]
    dark = np.zeros(image.shape[:2], bool)
    # A point and its shadow, at z = 0, are on one line with the light.
    right, up = (axis - axis @ _LIGHT / _LIGHT[2] * np.array([0.0, 0.0, 1.0]) for axis in _camera()[:2])
    for solid in solids:
        window = view.window(solid, right, up)
        points = np.stack([x[window], y[window], np.zeros(x[window].shape)], axis=-1)
        dark[window] |= _distance(solid, points, _LIGHT) > -np.inf
    image[dark] *= _SHADOW
    return image


def _draw_solids(image: Float[np.ndarray, "height width 3"], view: _View, solids: list[_Solid]) -> None:
    """Draws the solids, lit from above. Of several on one ray, the nearest one is seen."""
    right, up, towards = _camera()
    nearest = np.full(image.shape[:2], -np.inf)
    for solid in solids:
        window = view.window(solid, right, up)
        points = view.on_picture(window)
        distance = _distance(solid, points, towards)
        seen = distance > nearest[window]
        normal = _normal(solid, points[seen] + distance[seen, None] * towards)
        light = _AMBIENT + _DIFFUSE * np.maximum(normal @ _LIGHT, 0.0)
        image[window][seen] = light[:, None] * solid.colour
        nearest[window][seen] = distance[seen]


# --- Rays and solids --------------------------------------------------------------------------------------------------


def _distance(solid: _Solid, origins: Vectors, direction: Float[np.ndarray, "3"]) -> Float[np.ndarray, " *rays"]:
    """Returns the distance from each origin to the last point of a solid on its ray: -inf if the ray misses it."""
    start, ray, sizes = (origins - solid.centre) @ solid.rotation, direction @ solid.rotation, solid.sizes
    if solid.kind == "ellipsoid":
        return _last_root(start / sizes, ray / sizes)
    if solid.kind == "box":
        with np.errstate(divide="ignore", invalid="ignore"):
            sides = np.stack([(-sizes - start) / ray, (sizes - start) / ray])
        leaves, enters = sides.max(axis=0).min(axis=-1), sides.min(axis=0).max(axis=-1)
        return np.where(leaves >= enters, leaves, -np.inf)
    radius, half = sizes[0], sizes[2]
    side = _last_root(start[..., :2] / radius, ray[:2] / radius)
    height = start[..., 2] + np.where(side > -np.inf, side, 0.0) * ray[2]
    distance = np.where(np.abs(height) <= half, side, -np.inf)
    for end in (-half, half):
        distance = np.maximum(distance, _last_root((start - np.array([0.0, 0.0, end])) / radius, ray / radius))
    return distance


def _last_root(start: Float[np.ndarray, "*rays d"], ray: Float[np.ndarray, " d"]) -> Float[np.ndarray, " *rays"]:
    """Returns the largest t with |start + t ray| = 1, or -inf where there is none."""
    square, mixed, rest = ray @ ray, start @ ray, (start**2).sum(axis=-1) - 1.0
    if square < 1e-12:  # along the line of a capsule
        return np.full(rest.shape, -np.inf)
    discriminant = mixed**2 - square * rest
    return np.where(discriminant >= 0, (np.sqrt(np.maximum(discriminant, 0.0)) - mixed) / square, -np.inf)


def _normal(solid: _Solid, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Returns the normals of a solid at points on its surface."""
    inside = (points - solid.centre) @ solid.rotation
    if solid.kind == "ellipsoid":
        normal = inside / solid.sizes**2
    elif solid.kind == "box":
        faces = inside / solid.sizes
        normal = np.eye(3)[np.abs(faces).argmax(axis=-1)] * np.sign(faces)
    else:
        normal = inside.copy()
        normal[:, 2] -= np.clip(inside[:, 2], -solid.sizes[2], solid.sizes[2])  # from the nearest point of its line
    return normal / np.linalg.norm(normal, axis=-1, keepdims=True) @ solid.rotation.T
