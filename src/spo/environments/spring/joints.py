"""Joints between a link and its parent, or the ground: constants, forces and coordinates.

A joint has up to three degrees of freedom, each a turn or a slide. They are numbered as Brax does. The parent's axes
p0, p1, p2 and the child's axes c0, c1, c2 coincide at rest. With the turns' Euler angles and s = p0 . c2,

    angle 0 = atan2(-c2 . p1, c2 . p2)    about p0
    angle 1 = asin(s)                     about c1
    angle 2 = atan2(-p0 . c1, p0 . c0)    about c2

Brax computes angle 1 as an arc cosine, which loses half of the digits near zero. The arc tangent here loses none.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp

from spo.environments.spring.arithmetic import (
    Matrix,
    Number,
    Vector,
    add,
    apply,
    clip,
    cross,
    dot,
    minus,
    mul,
    plus,
    scale,
    sub,
    transpose,
)
from spo.environments.spring.bodies import Body
from spo.environments.spring.motors import Motor


class Free(NamedTuple):
    """A body that floats freely."""


class Turn(NamedTuple):
    """A degree of freedom of rotation."""

    limits: tuple[Number, Number] | None
    motor: Motor | None


class Slide(NamedTuple):
    """A degree of freedom of translation."""

    axis_in_parent: Vector
    limits: tuple[Number, Number] | None
    motor: Motor | None


class Alignment(NamedTuple):
    """A spring that turns an axis of the child into the same axis of the parent."""

    axis_in_parent: Vector
    axis_in_child: Vector
    stiffness: Number


class Joint(NamedTuple):
    """Constants of a joint. Vectors are in the frame of the parent or the child, from its centre of mass."""

    anchor_in_parent: Vector
    anchor_in_child: Vector
    # Points whose velocities the damping compares.
    damped_in_parent: Vector
    damped_in_child: Vector
    axes_in_parent: Matrix
    axes_in_child: Matrix
    handedness: Number  # -1 where the third axis of rotation is opposite to c2
    dofs: tuple[Turn | Slide, ...]
    alignments: tuple[Alignment, ...]
    stiffness: Number
    limit_stiffness: Number
    damping: Number
    angular_damping: Number


AnyJoint: TypeAlias = Free | Joint


class Pose(NamedTuple):
    """A body and its rotation matrix."""

    body: Body
    frame: Matrix


def num_positions(joint: AnyJoint) -> int:
    """Number of joint positions q. A free body has three coordinates and a quaternion."""
    return 7 if isinstance(joint, Free) else len(joint.dofs)


def num_velocities(joint: AnyJoint) -> int:
    """Number of joint velocities qd."""
    return 6 if isinstance(joint, Free) else len(joint.dofs)


def driven_dofs(joint: AnyJoint) -> list[int]:
    """The degrees of freedom with a motor."""
    return [] if isinstance(joint, Free) else [index for index, dof in enumerate(joint.dofs) if dof.motor is not None]


# --- Force -----------------------------------------------------------------------------------------------------------


def joint_force(joint: Joint, parent: Pose, child: Pose, driving: Sequence[Number]) -> tuple[Vector, Vector]:
    """Force and moment of a joint on the child.

    Springs hold the anchors together, except along slides, and align axes. Dampers act on both velocities. Motors and
    the springs at limits act along each degree of freedom.

    Args:
        joint: the constants.
        parent: the parent, or the ground.
        child: the link.
        driving: force or torque of the motor of each degree of freedom.
    """
    gap, slip = _gap(joint, parent, child), _slip(joint, parent, child)
    spring = plus(scale(mul(-1.0, joint.stiffness), gap), scale(mul(-1.0, joint.damping), slip))
    force = spring
    moment = scale(mul(-1.0, joint.angular_damping), _turning(parent, child))
    for alignment in joint.alignments:
        axis, axis_of_child = apply(parent.frame, alignment.axis_in_parent), apply(child.frame, alignment.axis_in_child)
        moment = plus(moment, scale(mul(-1.0, alignment.stiffness), cross(axis, axis_of_child)))
    if len(joint.dofs) == 2 and all(isinstance(dof, Turn) for dof in joint.dofs):
        moment = plus(moment, _universal_moment(joint, parent, child))
    for index, (dof, drive) in enumerate(zip(joint.dofs, driving, strict=True)):
        if isinstance(dof, Slide):
            axis = apply(parent.frame, dof.axis_in_parent)
            along = sub(_within_limits(joint, dof, drive, dot(gap, axis)), dot(spring, axis))
            force = plus(force, scale(along, axis))
        else:
            axis = _torque_axis(joint, index, parent, child)
            angle = 0.0 if dof.limits is None else _angle(joint, index, parent, child)
            moment = plus(moment, scale(_within_limits(joint, dof, drive, angle), axis))
    return force, moment


def _gap(joint: Joint, parent: Pose, child: Pose) -> Vector:
    """From the parent's anchor to the child's."""
    return minus(
        plus(child.body.position, apply(child.frame, joint.anchor_in_child)),
        plus(parent.body.position, apply(parent.frame, joint.anchor_in_parent)),
    )


def _slip(joint: Joint, parent: Pose, child: Pose) -> Vector:
    """Relative velocity of the damped points."""
    of_child, of_parent = child.body, parent.body
    return minus(
        plus(of_child.velocity, cross(of_child.angular_velocity, apply(child.frame, joint.damped_in_child))),
        plus(of_parent.velocity, cross(of_parent.angular_velocity, apply(parent.frame, joint.damped_in_parent))),
    )


def _turning(parent: Pose, child: Pose) -> Vector:
    return minus(child.body.angular_velocity, parent.body.angular_velocity)


def _universal_moment(joint: Joint, parent: Pose, child: Pose) -> Vector:
    """Moment that keeps both axes of two turns at right angles: with s = p0 . c1, stiffness s / |c1 - s p0| p0 x c1."""
    first, second = apply(parent.frame, joint.axes_in_parent[0]), apply(child.frame, joint.axes_in_child[1])
    skew = dot(first, second)
    across = minus(second, scale(skew, first))
    return scale(mul(joint.limit_stiffness, skew) / jnp.sqrt(dot(across, across)), cross(first, second))


def _within_limits(joint: Joint, dof: Turn | Slide, drive: Number, coordinate: Number) -> Number:
    """Force along a degree of freedom: the motor's, and that of a spring beyond the limits."""
    if dof.limits is None:
        return drive
    return sub(drive, mul(joint.limit_stiffness, sub(coordinate, clip(coordinate, dof.limits))))


def _torque_axis(joint: Joint, index: int, parent: Pose, child: Pose) -> Vector:
    if index == 0:
        return apply(parent.frame, joint.axes_in_parent[0])
    return _velocity_axis(joint, index, child)


# --- Coordinates -----------------------------------------------------------------------------------------------------


def joint_coordinates(joint: Joint, parent: Pose, child: Pose, *, on_ground: bool) -> tuple[list[Number], list[Number]]:
    """Position and velocity of each degree of freedom."""
    gap, slip, turning = _gap(joint, parent, child), _slip(joint, parent, child), _turning(parent, child)
    if on_ground:
        turning = apply(transpose(child.frame), turning)  # as Brax does
    positions: list[Number] = []
    velocities: list[Number] = []
    for index, dof in enumerate(joint.dofs):
        if isinstance(dof, Slide):
            axis = apply(parent.frame, dof.axis_in_parent)
            positions.append(dot(gap, axis))
            velocities.append(dot(slip, axis))
        else:
            positions.append(_angle(joint, index, parent, child))
            velocities.append(dot(_velocity_axis(joint, index, child), turning))
    return positions, velocities


def _angle(joint: Joint, index: int, parent: Pose, child: Pose) -> Number:
    """Euler angle: see the module's docstring."""
    p, c = joint.axes_in_parent, joint.axes_in_child
    if index == 0:
        last = apply(child.frame, c[2])
        sine, cosine = dot(last, apply(parent.frame, p[1])), dot(last, apply(parent.frame, p[2]))
        return jnp.arctan2(mul(-1.0, sine), cosine)
    first = apply(parent.frame, p[0])
    forwards, sideways = dot(first, apply(child.frame, c[0])), dot(first, apply(child.frame, c[1]))
    if index == 2:
        return jnp.arctan2(mul(-1.0, joint.handedness, sideways), forwards)
    level = jnp.sqrt(add(mul(forwards, forwards), mul(sideways, sideways)))
    return jnp.arctan2(dot(first, apply(child.frame, c[2])), level)


def _velocity_axis(joint: Joint, index: int, child: Pose) -> Vector:
    axis = apply(child.frame, joint.axes_in_child[index])
    return scale(joint.handedness, axis) if index == 2 else axis


def free_coordinates(centre_of_mass: Vector, pose: Pose) -> tuple[list[Number], list[Number]]:
    """Positions and velocities of a free body, as Brax defines them.

    Positions are the link's origin and its quaternion. Velocities are that of the origin, and the angular velocity in
    the link's frame.
    """
    body, frame = pose
    from_centre = scale(-1.0, apply(frame, centre_of_mass))
    velocity = plus(body.velocity, cross(body.angular_velocity, from_centre))
    angular_velocity = apply(transpose(frame), body.angular_velocity)
    return [*plus(body.position, from_centre), *body.rotation], [*velocity, *angular_velocity]
