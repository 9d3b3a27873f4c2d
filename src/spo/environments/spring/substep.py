"""The physics of one environment: all substeps of a step, then the joint coordinates."""

from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from spo.environments.spring.arithmetic import (
    ZERO,
    Number,
    Vector,
    apply,
    cross,
    minus,
    plus,
    rotate_quaternion,
    rotation_matrix,
    scale,
)
from spo.environments.spring.bodies import GROUND, GROUND_FRAME, Body, to_bodies, to_numbers
from spo.environments.spring.contacts import contact_impulses
from spo.environments.spring.groups import Group, spread_constants
from spo.environments.spring.inertia import divide_by_inertia, weighted_entries
from spo.environments.spring.joints import (
    AnyJoint,
    Free,
    Pose,
    driven_dofs,
    free_coordinates,
    joint_coordinates,
    joint_force,
)
from spo.environments.spring.motors import motor_force
from spo.environments.spring.system import Link, SharedConstants


def advance(
    shared: SharedConstants,
    groups: Sequence[Group],
    changing: Sequence[int],
    num_substeps: int,
    rows: Sequence[Number],
) -> list[Number]:
    """Computes all substeps.

    Args:
        shared: constants of the system.
        groups: its links.
        changing: the numbers of a body that change: `SPATIAL` or `PLANAR`.
        num_substeps: number of time steps.
        rows: the numbers of each group's body, then the control of each group's motors.

    Returns:
        The numbers of each group's body, then all joint positions q, then all joint velocities qd.
    """
    groups = spread_constants(groups, rows[0])
    num_numbers = len(changing) * len(groups)
    controls = iter(rows[num_numbers:])
    driving = [_motor_forces(group.link.joint, controls) for group in groups]

    def body(_: Any, numbers: tuple[Number, ...]) -> tuple[Number, ...]:
        bodies = to_bodies(numbers, changing)
        substep(shared, groups, bodies, driving)
        return tuple(to_numbers(bodies, changing))

    numbers = jax.lax.fori_loop(0, num_substeps, body, tuple(rows[:num_numbers]))
    return [*numbers, *coordinates(groups, to_bodies(numbers, changing), like=rows[0])]


def _motor_forces(joint: AnyJoint, controls: Iterator[Number]) -> list[Number]:
    """Force of the motor of each degree of freedom, 0 without one. Takes the controls from the iterator."""
    forces: list[Number] = [0.0] * (0 if isinstance(joint, Free) else len(joint.dofs))
    for index in driven_dofs(joint):
        forces[index] = motor_force(joint.dofs[index].motor, next(controls))  # type: ignore[union-attr, arg-type]
    return forces


def substep(
    shared: SharedConstants, groups: Sequence[Group], bodies: MutableSequence[Body], driving: Sequence[Sequence[Number]]
) -> None:
    """One time step, in place: joint forces, then contact impulses, then motion.

    Groups are visited from the leaves to the roots. A body can move as soon as its own joint is computed, because the
    joints of its children were before. A kernel then has few numbers at a time besides the state, so they stay in
    registers.
    """
    poses: dict[int | None, Pose] = {None: Pose(GROUND, GROUND_FRAME)}

    def pose_of(index: int | None) -> Pose:
        """Pose before the step, computed where it is first used."""
        if index not in poses:
            body = bodies[index]  # type: ignore[index]
            poses[index] = Pose(body, rotation_matrix(body.rotation))
        return poses[index]

    forces, moments = [ZERO] * len(groups), [ZERO] * len(groups)
    for index in reversed(range(len(groups))):
        group = groups[index]
        joint, parent = group.link.joint, group.parent
        pose = pose_of(index)
        if not isinstance(joint, Free):
            of_parent = pose_of(parent)
            force, moment = joint_force(joint, of_parent, pose, driving[index])
            at_child = apply(pose.frame, joint.anchor_in_child)
            forces[index] = plus(forces[index], force)
            moments[index] = plus(moments[index], moment, cross(at_child, force))
            if parent is not None:
                moment = plus(moment, cross(apply(of_parent.frame, joint.anchor_in_parent), force))
                if len(groups[parent].members) < len(group.members):
                    width = len(group.members)
                    force, moment = _sum_over_members(width, force), _sum_over_members(width, moment)
                forces[parent] = minus(forces[parent], force)
                moments[parent] = minus(moments[parent], moment)
        bodies[index] = _move(shared, group.link, groups[0].link, pose_of(0), pose, forces[index], moments[index])


def _move(
    shared: SharedConstants, link: Link, root: Link, of_root: Pose, pose: Pose, force: Vector, moment: Vector
) -> Body:
    """The body of a link after a force and a moment, contact impulses and motion."""
    body, frame = pose
    acceleration = plus(scale(link.inverse_mass, force), shared.gravity)
    turn = divide_by_inertia(link.inverse_inertia, frame, moment)
    pushed = body._replace(
        velocity=plus(body.velocity, scale(shared.timestep, acceleration)),
        angular_velocity=plus(body.angular_velocity, scale(shared.timestep, turn)),
    )
    velocity = scale(shared.velocity_decay, pushed.velocity)
    angular_velocity = scale(shared.angular_velocity_decay, pushed.angular_velocity)
    if link.contacts:
        inverse_inertias = [
            weighted_entries(root.inverse_inertia, of_root.frame, contact.inertia_weights) for contact in link.contacts
        ]
        impulse, turn = contact_impulses(
            link.contacts, shared.contact_correction, link.inverse_mass, inverse_inertias, pushed, frame
        )
        velocity = plus(velocity, scale(link.inverse_mass, impulse))
        angular_velocity = plus(angular_velocity, divide_by_inertia(link.inverse_inertia, frame, turn))
    position = plus(body.position, scale(shared.timestep, velocity))
    rotation = rotate_quaternion(body.rotation, scale(0.5 * shared.timestep, angular_velocity))
    return Body(position, rotation, velocity, angular_velocity)


def _sum_over_members(width: int, vector: Vector) -> Vector:
    """The sum over all members, repeated for every member."""

    def total(entry: Number) -> Number:
        if isinstance(entry, float):
            return width * entry
        grid = entry.reshape(-1, width)
        return jnp.broadcast_to(grid.sum(axis=1, keepdims=True), grid.shape).reshape(-1)

    return tuple(map(total, vector))


def coordinates(groups: Sequence[Group], bodies: Sequence[Body], like: Number) -> list[Number]:
    """All joint positions q, then all joint velocities qd, as arrays with the shape of `like`."""
    poses = [Pose(body, rotation_matrix(body.rotation)) for body in bodies]
    q: list[Number] = []
    qd: list[Number] = []
    for group, pose in zip(groups, poses, strict=True):
        joint = group.link.joint
        if isinstance(joint, Free):
            positions, velocities = free_coordinates(group.link.centre_of_mass, pose)
        else:
            of_parent = Pose(GROUND, GROUND_FRAME) if group.parent is None else poses[group.parent]
            positions, velocities = joint_coordinates(joint, of_parent, pose, on_ground=group.parent is None)
        q += positions
        qd += velocities
    return [jnp.full_like(like, number) if isinstance(number, float) else number for number in (*q, *qd)]
