"""Contacts of links with the ground: constants and impulses."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from spo.environments._adapters import jit_foreign, require
from spo.environments.spring.arithmetic import (
    Matrix,
    Number,
    Vector,
    add,
    apply,
    as_floats,
    constant_rotation,
    cross,
    dot,
    minus,
    mul,
    plus,
    scale,
    sub,
)
from spo.environments.spring.bodies import Body
from spo.types import Float


class Contact(NamedTuple):
    """A sphere of a link that may touch a fixed plane. A capsule has one at each end."""

    centre: Vector  # from the link's centre of mass, in its frame
    radius: Number
    normal: Vector
    height: Number  # of the plane, along its normal
    friction: Number
    elasticity: Number
    inertia_weights: Matrix  # of the entries of link 0's inverse inertia, where Brax reads the contact's


class Impulse(NamedTuple):
    """Impulse on a link, its moment, and 1.0 where there is one."""

    linear: Vector
    angular: Vector
    is_applied: Number


def contact_impulses(
    contacts: Sequence[Contact],
    correction: float,
    inverse_mass: Number,
    inverse_inertias: Sequence[Number],
    body: Body,
    frame: Matrix,
) -> tuple[Vector, Vector]:
    """Mean impulse on a link, and its moment, over the spheres that touch the plane; zero if none does.

    Args:
        contacts: the spheres and the plane.
        correction: velocity per unit of penetration that pushes a sphere out of the plane.
        inverse_mass: of the link.
        inverse_inertias: of each contact, about all axes.
        body: the link, after forces and before contacts.
        frame: the link's rotation matrix.
    """
    impulses = [
        _contact_impulse(contact, correction, inverse_mass, inverse_inertia, body, frame)
        for contact, inverse_inertia in zip(contacts, inverse_inertias, strict=True)
    ]
    linear, angular = plus(*(each.linear for each in impulses)), plus(*(each.angular for each in impulses))
    if len(impulses) == 1:
        return linear, angular
    share = 1.0 / jnp.maximum(add(*(each.is_applied for each in impulses)), 1.0)
    return scale(share, linear), scale(share, angular)


def _contact_impulse(
    contact: Contact, correction: float, inverse_mass: Number, inverse_inertia: Number, body: Body, frame: Matrix
) -> Impulse:
    normal = contact.normal
    centre = apply(frame, contact.centre)
    surface = add(contact.height, contact.radius)
    depth = sub(dot(normal, plus(body.position, centre)), surface)  # negative: inside the plane
    lever = minus(centre, scale(add(contact.radius, mul(0.5, depth)), normal))
    velocity = plus(body.velocity, cross(body.angular_velocity, lever))

    approach = dot(normal, velocity)
    across = cross(lever, normal)
    inertia = add(inverse_mass, mul(inverse_inertia, dot(across, across)))
    bounce = mul(-1.0, add(1.0, contact.elasticity), approach)
    push = add(bounce, mul(-correction, depth)) / inertia

    sliding = minus(velocity, scale(approach, normal))
    speed = jnp.sqrt(dot(sliding, sliding))
    direction = scale(1.0 / (1e-6 + speed), sliding)
    across = cross(lever, direction)
    inertia = add(inverse_mass, mul(inverse_inertia, dot(across, across)))
    drag = jnp.minimum(speed / inertia, mul(contact.friction, push))

    touches = (depth < 0.0) & (approach < 0.0) & (push > 0.0)
    push = jnp.where(touches, push, 0.0)
    drag = jnp.where(touches & (speed > 1e-3), drag, 0.0)
    impulse = minus(scale(push, normal), scale(drag, direction))
    return Impulse(impulse, cross(lever, impulse), jnp.where(touches, jnp.ones_like(push), 0.0))


# --- Reading a Brax system -------------------------------------------------------------------------------------------


def read_contacts(
    system: Any, centres: Float[np.ndarray, "links 3"], has_unit_inertia: bool
) -> dict[int, tuple[Contact, ...]]:
    """The contacts of each link that may touch the plane.

    Args:
        system: the Brax system.
        centres: centre of mass of each link, in the link's frame.
        has_unit_inertia: whether the inertia of all links is the identity.
    """
    found = _contact_pairs(system, len(centres))
    if found is None:
        return {}
    kinds = require("mujoco", extra="envs").mjtGeom
    geom_type, geom_body = np.asarray(system.geom_type), np.asarray(system.geom_bodyid)
    contacts: dict[int, tuple[Contact, ...]] = {}
    rows = Counter(tuple(row) for row in np.stack([np.asarray(column, np.float64) for column in found], -1).tolist())
    for (first, second, friction, elasticity), num_points in rows.items():
        plane, geom = int(first), int(second)
        if geom_type[plane] != kinds.mjGEOM_PLANE or geom_body[plane] != 0 or geom_body[geom] == 0:
            raise ValueError("links may touch things other than a fixed plane")
        link = int(geom_body[geom]) - 1
        offsets = _sphere_offsets(system, geom)
        if len(offsets) != num_points:
            raise ValueError("shapes other than spheres and capsules may touch the plane")
        if link >= 9 and not has_unit_inertia:
            raise ValueError("a link beyond the ninth may touch the plane")
        normal = constant_rotation(np.asarray(system.geom_quat)[plane])[:, 2]
        contacts[link] = contacts.get(link, ()) + tuple(
            Contact(
                centre=as_floats(np.asarray(system.geom_pos)[geom] + offset - centres[link]),
                radius=as_floats(np.asarray(system.geom_size)[geom, 0]),
                normal=as_floats(normal),
                height=as_floats(normal @ np.asarray(system.geom_pos)[plane]),
                friction=friction,
                elasticity=elasticity,
                # Brax reads this entry of the flattened matrices of all links.
                inertia_weights=as_floats(np.eye(9)[link % 9].reshape(3, 3)),
            )
            for offset in offsets
        )
    return contacts


def _sphere_offsets(system: Any, geom: int) -> list[Float[np.ndarray, "3"]]:
    """Offsets of the spheres of a geometry from its position, in the link's frame. Empty for other shapes."""
    kinds = require("mujoco", extra="envs").mjtGeom
    kind = system.geom_type[geom]
    if kind == kinds.mjGEOM_SPHERE:
        return [np.zeros(3)]
    if kind == kinds.mjGEOM_CAPSULE:
        half = constant_rotation(np.asarray(system.geom_quat)[geom])[:, 2] * float(system.geom_size[geom, 1])
        return [half, -half]
    return []


def _contact_pairs(system: Any, num_links: int) -> Any:
    """Arrays over possible contacts: first geometry, second geometry, friction, elasticity. None without contacts.

    MuJoCo decides which geometries may touch, and with which friction. This does not depend on the links' positions.
    """
    base, contact = require("brax.base", extra="envs"), require("brax.contact", extra="envs")

    def pairs() -> Any:
        found = contact.get(system, base.Transform.zero((num_links,)))
        return None if found is None else (found.geom1, found.geom2, found.friction[:, 0], found.elasticity)

    return jit_foreign(pairs)()
