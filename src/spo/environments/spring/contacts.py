"""Contacts of links with the ground: constants and impulse."""

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
    """A sphere of a link that may touch a fixed plane."""

    centre: Vector  # from the link's centre of mass, in its frame
    radius: Number
    normal: Vector
    height: Number  # of the plane, along its normal
    friction: Number
    elasticity: Number
    inverse_inertia: Number  # the number that Brax reads in its place


def contact_impulse(
    contact: Contact, correction: float, inverse_mass: Number, body: Body, frame: Matrix
) -> tuple[Vector, Vector]:
    """Impulse on a link and its moment where the sphere touches the plane; zero elsewhere.

    Args:
        contact: the sphere and the plane.
        correction: velocity per unit of penetration that pushes the sphere out of the plane.
        inverse_mass: of the link.
        body: the link, after forces and before contacts.
        frame: the link's rotation matrix.
    """
    normal = contact.normal
    centre = apply(frame, contact.centre)
    surface = add(contact.height, contact.radius)
    depth = sub(dot(normal, plus(body.position, centre)), surface)  # negative: inside the plane
    lever = minus(centre, scale(add(contact.radius, mul(0.5, depth)), normal))
    velocity = plus(body.velocity, cross(body.angular_velocity, lever))

    approach = dot(normal, velocity)
    across = cross(lever, normal)
    inertia = add(inverse_mass, mul(contact.inverse_inertia, dot(across, across)))
    bounce = mul(-1.0, add(1.0, contact.elasticity), approach)
    push = add(bounce, mul(-correction, depth)) / inertia

    sliding = minus(velocity, scale(approach, normal))
    speed = jnp.sqrt(dot(sliding, sliding))
    direction = scale(1.0 / (1e-6 + speed), sliding)
    across = cross(lever, direction)
    inertia = add(inverse_mass, mul(contact.inverse_inertia, dot(across, across)))
    drag = jnp.minimum(speed / inertia, mul(contact.friction, push))

    touches = (depth < 0.0) & (approach < 0.0) & (push > 0.0)
    push = jnp.where(touches, push, 0.0)
    drag = jnp.where(touches & (speed > 1e-3), drag, 0.0)
    impulse = minus(scale(push, normal), scale(drag, direction))
    return impulse, cross(lever, impulse)


# --- Reading a Brax system -------------------------------------------------------------------------------------------


def read_contacts(system: Any, centres: Float[np.ndarray, "links 3"]) -> dict[int, Contact]:
    """The contact of each link that may touch the plane.

    Args:
        system: the Brax system.
        centres: centre of mass of each link, in the link's frame.
    """
    found = _contact_pairs(system, len(centres))
    if found is None:
        return {}
    kinds = require("mujoco", extra="envs").mjtGeom
    geom_type, geom_body = np.asarray(system.geom_type), np.asarray(system.geom_bodyid)
    geom_position, geom_rotation, geom_size = map(np.asarray, (system.geom_pos, system.geom_quat, system.geom_size))
    contacts: dict[int, Contact] = {}
    for plane, geom, friction, elasticity in zip(*map(np.asarray, found), strict=True):
        if geom_type[plane] != kinds.mjGEOM_PLANE or geom_body[plane] != 0 or geom_body[geom] == 0:
            raise ValueError("links may touch things other than a fixed plane")
        if geom_type[geom] != kinds.mjGEOM_SPHERE:
            raise ValueError("shapes other than spheres may touch the plane")
        link = int(geom_body[geom]) - 1
        if link in contacts:
            raise ValueError("a link may touch the plane at several points")
        if link >= 9:
            raise ValueError("a link beyond the ninth may touch the plane")
        normal = constant_rotation(geom_rotation[plane])[:, 2]
        contacts[link] = Contact(
            centre=as_floats(geom_position[geom] - centres[link]),
            radius=as_floats(geom_size[geom, 0]),
            normal=as_floats(normal),
            height=as_floats(normal @ geom_position[plane]),
            friction=as_floats(friction),
            elasticity=as_floats(elasticity),
            # Brax reads this entry of the flattened matrices. For the first nine links it is one of link 0's identity.
            inverse_inertia=as_floats(np.eye(3).reshape(-1)[link]),
        )
    return contacts


def _contact_pairs(system: Any, num_links: int) -> Any:
    """Arrays over possible contacts: first geometry, second geometry, friction, elasticity. None without contacts.

    MuJoCo decides which geometries may touch, and with which friction. This does not depend on the links' positions.
    """
    base, contact = require("brax.base", extra="envs"), require("brax.contact", extra="envs")

    def pairs(x: Any) -> Any:
        found = contact.get(system, x)
        return None if found is None else (found.geom1, found.geom2, found.friction[:, 0], found.elasticity)

    return jit_foreign(pairs)(base.Transform.zero((num_links,)))
