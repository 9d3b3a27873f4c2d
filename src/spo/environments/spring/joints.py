"""The kinds of joints between a link and its parent: constants, forces and coordinates.

`Free` is a body without a joint; `Hinge` has one axis of rotation. A further kind needs constants and a reader, a
force, coordinates, and branches in `num_positions` and `num_velocities`.
"""

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np

from spo.environments.spring.arithmetic import (
    Matrix,
    Number,
    Vector,
    apply,
    as_floats,
    clip,
    constant_rotation,
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


class Free(NamedTuple):
    """A body that floats freely."""


class Hinge(NamedTuple):
    """One axis of rotation. Vectors are in the frame of the parent or the child, from its centre of mass."""

    anchor_in_parent: Vector
    anchor_in_child: Vector
    # Points whose velocities the damping compares.
    damped_in_parent: Vector
    damped_in_child: Vector
    # The axis, and two directions at right angles to it that define the angle.
    axis_in_parent: Vector
    side_in_parent: Vector
    front_in_parent: Vector
    axis_in_child: Vector
    front_in_child: Vector
    limits: tuple[Number, Number] | None
    stiffness: Number
    limit_stiffness: Number
    damping: Number
    angular_damping: Number


Joint: TypeAlias = Free | Hinge


def num_positions(joint: Joint) -> int:
    """Number of joint positions q. A free body has three coordinates and a quaternion."""
    return 7 if isinstance(joint, Free) else 1


def num_velocities(joint: Joint) -> int:
    """Number of joint velocities qd."""
    return 6 if isinstance(joint, Free) else 1


def hinge_force(
    joint: Hinge, parent: Body, child: Body, parent_frame: Matrix, child_frame: Matrix, torque: Number
) -> tuple[Vector, Vector]:
    """Force and moment of a hinge on the child.

    Springs hold the anchors together and the axes parallel. Dampers act on both velocities. The motor's torque and the
    springs at the hinge's limits act along the axis.
    """
    gap = minus(
        plus(child.position, apply(child_frame, joint.anchor_in_child)),
        plus(parent.position, apply(parent_frame, joint.anchor_in_parent)),
    )
    slip = minus(
        plus(child.velocity, cross(child.angular_velocity, apply(child_frame, joint.damped_in_child))),
        plus(parent.velocity, cross(parent.angular_velocity, apply(parent_frame, joint.damped_in_parent))),
    )
    force = plus(scale(mul(-1.0, joint.stiffness), gap), scale(mul(-1.0, joint.damping), slip))

    axis, axis_of_child = apply(parent_frame, joint.axis_in_parent), apply(child_frame, joint.axis_in_child)
    along_axis = torque
    if joint.limits is not None:
        angle = hinge_angle(joint, parent_frame, child_frame)
        beyond = sub(angle, clip(angle, joint.limits))
        along_axis = sub(along_axis, mul(joint.limit_stiffness, beyond))
    moment = plus(
        scale(mul(-1.0, joint.stiffness), cross(axis, axis_of_child)),
        scale(mul(-1.0, joint.angular_damping), minus(child.angular_velocity, parent.angular_velocity)),
        scale(along_axis, axis),
    )
    return force, moment


def hinge_angle(joint: Hinge, parent_frame: Matrix, child_frame: Matrix) -> Number:
    front = apply(child_frame, joint.front_in_child)
    sideways = dot(front, apply(parent_frame, joint.side_in_parent))
    forwards = dot(front, apply(parent_frame, joint.front_in_parent))
    return jnp.arctan2(mul(-1.0, sideways), forwards)


def hinge_coordinates(
    joint: Hinge, parent: Body, child: Body, parent_frame: Matrix, child_frame: Matrix
) -> tuple[list[Number], list[Number]]:
    """Angle of a hinge and its rate."""
    turning = minus(child.angular_velocity, parent.angular_velocity)
    angle = hinge_angle(joint, parent_frame, child_frame)
    return [angle], [dot(apply(child_frame, joint.axis_in_child), turning)]


def free_coordinates(centre_of_mass: Vector, body: Body, frame: Matrix) -> tuple[list[Number], list[Number]]:
    """Positions and velocities of a free body, as Brax defines them.

    Positions are the link's origin and its quaternion. Velocities are that of the origin, and the angular velocity in
    the link's frame.
    """
    from_centre = scale(-1.0, apply(frame, centre_of_mass))
    velocity = plus(body.velocity, cross(body.angular_velocity, from_centre))
    angular_velocity = apply(transpose(frame), body.angular_velocity)
    return [*plus(body.position, from_centre), *body.rotation], [*velocity, *angular_velocity]


# --- Reading a Brax system -------------------------------------------------------------------------------------------


def read_hinge(link: Any, dof: Any, index: int, parent: int, dof_index: int) -> Hinge:
    """Constants of the hinge of link `index`, from Brax's `Link` and `DoF` as NumPy arrays."""
    axis, slide = dof.motion.ang[dof_index], dof.motion.vel[dof_index]
    if parent == -1 or np.any(slide) or not np.any(axis):
        raise ValueError("a link slides or is attached to the ground")
    to_parent, to_joint = constant_rotation(link.transform.rot[index]), constant_rotation(link.joint.rot[index])
    centre, centre_of_parent = link.inertia.transform.pos[index], link.inertia.transform.pos[parent]
    # Brax measures the angle of a hinge from the y axis. It takes the z axis where y is too close to the hinge's axis.
    side = np.array([0.0, 1.0, 0.0]) if abs(axis[1]) < 0.5 else np.array([0.0, 0.0, 1.0])
    side = side - axis * (axis @ side)
    side = side / np.linalg.norm(side)
    front = np.cross(axis, side)
    anchor = link.transform.pos[index] + to_parent @ link.joint.pos[index]
    joint_in_parent = to_parent @ to_joint
    limits = None if dof.limit is None else np.array([end[dof_index] for end in dof.limit])
    return Hinge(
        anchor_in_parent=as_floats(anchor - centre_of_parent),
        anchor_in_child=as_floats(link.joint.pos[index] - centre),
        damped_in_parent=as_floats(-anchor - centre_of_parent),  # mirrored, as in Brax: see the package's docstring
        damped_in_child=as_floats(-centre),
        axis_in_parent=as_floats(joint_in_parent @ axis),
        side_in_parent=as_floats(joint_in_parent @ side),
        front_in_parent=as_floats(joint_in_parent @ front),
        axis_in_child=as_floats(to_joint @ axis),
        front_in_child=as_floats(to_joint @ front),
        limits=None if limits is None or np.all(np.isinf(limits)) else as_floats(limits),
        stiffness=as_floats(link.constraint_stiffness[index]),
        limit_stiffness=as_floats(link.constraint_limit_stiffness[index]),
        damping=as_floats(link.constraint_vel_damping[index]),
        angular_damping=as_floats(link.constraint_ang_damping[index]),
    )


def check_free(link: Any, index: int, parent: int) -> None:
    """Raises ValueError unless the free body `index` rests at the origin without a rotation."""
    rotation = constant_rotation(link.transform.rot[index]) @ constant_rotation(link.joint.rot[index])
    is_moved = np.any(link.transform.pos[index]) or np.any(link.joint.pos[index])
    if parent != -1 or is_moved or not np.allclose(rotation - np.eye(3), 0.0):
        raise ValueError("a free body is displaced from the origin")
