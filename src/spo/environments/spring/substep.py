"""The physics of one environment: all substeps of a step, then the joint coordinates."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from spo.environments.spring.arithmetic import (
    ZERO,
    Matrix,
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
from spo.environments.spring.bodies import NUMBERS_PER_BODY, Body, to_bodies, to_numbers
from spo.environments.spring.contacts import contact_impulse
from spo.environments.spring.groups import Group, spread_constants
from spo.environments.spring.joints import Free, free_coordinates, hinge_coordinates, hinge_force
from spo.environments.spring.motors import motor_torque
from spo.environments.spring.system import SharedConstants


def advance(
    shared: SharedConstants, groups: Sequence[Group], num_substeps: int, rows: Sequence[Number]
) -> list[Number]:
    """Computes all substeps.

    Args:
        shared: constants of the system.
        groups: its links.
        num_substeps: number of time steps.
        rows: the numbers of each group's body, then the control of each group with a motor.

    Returns:
        The numbers of each group's body, then all joint positions q, then all joint velocities qd.
    """
    groups = spread_constants(groups, rows[0])
    num_numbers = NUMBERS_PER_BODY * len(groups)
    controls = iter(rows[num_numbers:])
    torques = [0.0 if group.link.motor is None else motor_torque(group.link.motor, next(controls)) for group in groups]

    def body(_: Any, numbers: tuple[Number, ...]) -> tuple[Number, ...]:
        return tuple(to_numbers(substep(shared, groups, to_bodies(numbers), torques)))

    return append_coordinates(groups, jax.lax.fori_loop(0, num_substeps, body, tuple(rows[:num_numbers])))


def substep(
    shared: SharedConstants, groups: Sequence[Group], bodies: Sequence[Body], torques: Sequence[Number]
) -> list[Body]:
    """One time step: joint forces, then contact impulses, then motion."""
    frames = [rotation_matrix(body.rotation) for body in bodies]
    forces, moments = _joint_forces(groups, bodies, frames, torques)
    moved = []
    for group, body, frame, force, moment in zip(groups, bodies, frames, forces, moments, strict=True):
        link = group.link
        acceleration = plus(scale(link.inverse_mass, force), shared.gravity)
        pushed = body._replace(
            velocity=plus(body.velocity, scale(shared.timestep, acceleration)),
            angular_velocity=plus(body.angular_velocity, scale(shared.timestep, moment)),
        )
        velocity = scale(shared.velocity_decay, pushed.velocity)
        angular_velocity = scale(shared.angular_velocity_decay, pushed.angular_velocity)
        if link.contact is not None:
            impulse, turn = contact_impulse(link.contact, shared.contact_correction, link.inverse_mass, pushed, frame)
            velocity = plus(velocity, scale(link.inverse_mass, impulse))
            angular_velocity = plus(angular_velocity, turn)
        position = plus(body.position, scale(shared.timestep, velocity))
        rotation = rotate_quaternion(body.rotation, scale(0.5 * shared.timestep, angular_velocity))
        moved.append(Body(position, rotation, velocity, angular_velocity))
    return moved


def _joint_forces(
    groups: Sequence[Group], bodies: Sequence[Body], frames: Sequence[Matrix], torques: Sequence[Number]
) -> tuple[list[Vector], list[Vector]]:
    """Sum of all joint forces, and of their moments, on each group."""
    forces, moments = [ZERO] * len(groups), [ZERO] * len(groups)
    for index, (group, torque) in enumerate(zip(groups, torques, strict=True)):
        joint, parent = group.link.joint, group.parent
        if isinstance(joint, Free) or parent is None:
            continue
        force, moment = hinge_force(joint, bodies[parent], bodies[index], frames[parent], frames[index], torque)
        at_child = apply(frames[index], joint.anchor_in_child)
        at_parent = apply(frames[parent], joint.anchor_in_parent)
        forces[index] = plus(forces[index], force)
        moments[index] = plus(moments[index], moment, cross(at_child, force))
        moment = plus(moment, cross(at_parent, force))
        if len(groups[parent].members) < len(group.members):
            width = len(group.members)
            force, moment = _sum_over_members(width, force), _sum_over_members(width, moment)
        forces[parent] = minus(forces[parent], force)
        moments[parent] = minus(moments[parent], moment)
    return forces, moments


def _sum_over_members(width: int, vector: Vector) -> Vector:
    """The sum over all members, repeated for every member."""
    grids = [entry.reshape(-1, width) for entry in vector]
    return tuple(jnp.broadcast_to(grid.sum(axis=1, keepdims=True), grid.shape).reshape(-1) for grid in grids)


def append_coordinates(groups: Sequence[Group], numbers: Sequence[Number]) -> list[Number]:
    """The numbers of the bodies, followed by all joint positions q and all joint velocities qd."""
    bodies = to_bodies(numbers)
    frames = [rotation_matrix(body.rotation) for body in bodies]
    q: list[Number] = []
    qd: list[Number] = []
    for group, body, frame in zip(groups, bodies, frames, strict=True):
        joint, parent = group.link.joint, group.parent
        if isinstance(joint, Free) or parent is None:
            positions, velocities = free_coordinates(group.link.centre_of_mass, body, frame)
        else:
            positions, velocities = hinge_coordinates(joint, bodies[parent], body, frames[parent], frame)
        q += positions
        qd += velocities
    return [*numbers, *q, *qd]
