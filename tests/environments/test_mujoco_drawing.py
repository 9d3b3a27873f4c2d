"""Pictures of MuJoCo models: rays against dense samples of the solids, and the scene."""

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from spo.environments._mujoco_drawing import _LIGHT, _camera, _distance, _normal, _Solid, draw  # noqa: E402

KINDS = ("ellipsoid", "box", "capsule")


def make_solid(kind, seed=0):
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    sizes = np.array([0.3, 0.3, 0.7]) if kind == "capsule" else np.array([0.4, 0.6, 0.9])
    return _Solid(kind, np.array([0.1, -0.2, 0.3]), rotation, sizes, np.full(3, 200.0))


def outside(solid, points):
    """An implicit function: below 0 inside the solid, 0 on its surface."""
    inside = (points - solid.centre) @ solid.rotation
    if solid.kind == "ellipsoid":
        return np.linalg.norm(inside / solid.sizes, axis=-1) - 1
    if solid.kind == "box":
        return np.max(np.abs(inside) / solid.sizes, axis=-1) - 1
    on_line = np.zeros_like(inside)
    on_line[..., 2] = np.clip(inside[..., 2], -solid.sizes[2], solid.sizes[2])
    return np.linalg.norm(inside - on_line, axis=-1) - solid.sizes[0]


def rays(solid, seed=1, count=400):
    """Origins, one direction, and the distances to the solid."""
    random = np.random.default_rng(seed)
    direction = random.normal(size=3)
    direction /= np.linalg.norm(direction)
    origins = random.uniform(-1.5, 1.5, (count, 3))
    return origins, direction, _distance(solid, origins, direction)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ray_meets_the_last_point_of_a_solid(kind):
    solid = make_solid(kind)
    origins, direction, distance = rays(solid)
    times = np.linspace(-6, 6, 2001)
    samples = outside(solid, origins[:, None] + times[:, None] * direction) < 0
    assert 0.1 < samples.any(axis=1).mean() < 0.9
    hit = np.isfinite(distance)
    assert hit[samples.any(axis=1)].all()
    assert (distance[~hit] == -np.inf).all()
    np.testing.assert_allclose(outside(solid, origins[hit] + distance[hit, None] * direction), 0, atol=1e-9)
    assert not (samples & (times > distance[:, None] + 1e-9)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_normals_are_the_gradient_at_the_surface(kind):
    solid = make_solid(kind)
    origins, direction, distance = rays(solid)
    points = origins[distance > -np.inf] + distance[distance > -np.inf, None] * direction
    step = 1e-6 * np.eye(3)
    gradient = np.stack([outside(solid, points + one) - outside(solid, points - one) for one in step], axis=-1)
    gradient /= np.linalg.norm(gradient, axis=-1, keepdims=True)
    np.testing.assert_allclose(_normal(solid, points), gradient, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_half_extent_is_the_farthest_point(kind):
    solid = make_solid(kind)
    direction = np.array([0.5, -1.5, 0.7])  # need not have length 1
    along = direction / np.linalg.norm(direction)
    sideways = np.linalg.svd(along[None])[2][1:]  # two directions across
    grid = np.stack(np.meshgrid(*[np.linspace(-1.2, 1.2, 241)] * 2), axis=-1) @ sideways
    distance = _distance(solid, solid.centre + grid, along)
    assert distance.max() * np.linalg.norm(direction) == pytest.approx(solid.half_extent(direction), rel=0.02)


def model(*bodies):
    plane = '<geom type="plane" size="40 40 40"/>'
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{plane}{''.join(bodies)}</worldbody></mujoco>")


def ball(position, colour, free=False):
    joint = "<freejoint/>" if free else ""
    x, y, z = position
    return f'<body pos="{x} {y} {z}">{joint}<geom type="sphere" size="0.5" rgba="{colour} 1"/></body>'


def test_the_nearest_solid_is_seen():
    """A red ball stands before a green one, whichever comes first in the model."""
    near, far = np.array([0, 0, 3.0]), np.array([0, 0, 3.0]) - 2 * _camera()[2]
    for balls in ((ball(near, "1 0 0"), ball(far, "0 1 0")), (ball(far, "0 1 0"), ball(near, "1 0 0"))):
        picture = draw(model(*balls), np.zeros(0)).astype(int)
        assert (picture[..., 0] > picture[..., 1] + 50).sum() > 400
        assert not (picture[..., 1] > picture[..., 0] + 50).any()


def test_the_light_comes_from_above_and_leaves_a_shadow():
    picture = draw(model(ball((0, 0, 0.5), "0.4 0.1 0.1")), np.zeros(0)).astype(int)
    rows, columns = np.nonzero(picture[..., 0] > picture[..., 1] + 20)
    upper, lower = rows < np.quantile(rows, 0.2), rows > np.quantile(rows, 0.8)
    red = picture[rows, columns, 0]
    assert red[upper].mean() > red[lower].mean() + 30
    # The shadow falls to the side away from the light.
    dark_rows, dark_columns = np.nonzero((picture[..., 2] < 190) & (picture[..., 2] > picture[..., 0]))
    assert len(dark_rows) > 400
    away = np.sign(_camera()[0] @ -_LIGHT)
    assert away * (dark_columns.mean() - columns.mean()) > 5
    assert dark_rows.mean() > rows.mean()


def test_the_camera_follows_the_first_body():
    """The ball stays where it is in the picture, and the floor passes below it. Its tiles repeat after two."""
    moving = model(ball((0, 0, 0.5), "1 0 0", free=True))

    def at(x):
        return draw(moving, np.array([x, 0, 0.5, 1, 0, 0, 0]))

    start, moved, repeated = at(0.0), at(0.13), at(4.0)
    ball_pixels = start[..., 0] > start[..., 2].astype(int) + 100
    np.testing.assert_array_equal(ball_pixels, moved[..., 0] > moved[..., 2].astype(int) + 100)
    rows, columns = np.nonzero(ball_pixels)
    assert abs(rows.mean() - 120) < 10
    assert abs(columns.mean() - 160) < 5
    assert (start != moved).mean() > 0.005
    assert (start != repeated).mean() < 0.001


def test_a_diverged_state_is_drawn_as_an_empty_floor():
    moving = model(ball((0, 0, 0.5), "1 0 0", free=True))
    picture = draw(moving, np.full(7, np.nan)).astype(int)
    assert not (picture[..., 0] > picture[..., 2]).any()
