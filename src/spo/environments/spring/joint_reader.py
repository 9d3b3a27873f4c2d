"""The constants of a joint, read from a Brax system."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spo.environments.spring.arithmetic import as_floats, constant_rotation, without_rounding
from spo.environments.spring.joints import Alignment, AnyJoint, Free, Joint, Slide, Turn
from spo.environments.spring.motors import Motor
from spo.types import Float

#: Degrees of freedom of each letter in Brax's `link_types`.
NUM_DOFS = {"f": 6, "1": 1, "2": 2, "3": 3}


def read_joint(
    link: Any, dof: Any, motors: Mapping[int, Motor], index: int, parent: int, dof_indices: range
) -> AnyJoint:
    """Constants of the joint of link `index`.

    Args:
        link: Brax's `Link` as NumPy arrays.
        dof: Brax's `DoF` as NumPy arrays.
        motors: motors by degree of freedom.
        index: the link.
        parent: its parent; -1 is the ground.
        dof_indices: its degrees of freedom, six for a free body.
    """
    to_parent, to_joint = constant_rotation(link.transform.rot[index]), constant_rotation(link.joint.rot[index])
    if len(dof_indices) == NUM_DOFS["f"]:
        _check_free(link, index, parent, to_parent @ to_joint)
        if any(dof_index in motors for dof_index in dof_indices):
            raise ValueError("a motor drives a free body")
        return Free()
    if parent == -1 and not (np.array_equal(to_parent, np.eye(3)) and np.array_equal(to_joint, np.eye(3))):
        raise ValueError("a joint with the ground is rotated")
    turning, sliding = dof.motion.ang[dof_indices], dof.motion.vel[dof_indices]
    axes, handedness = _joint_axes(turning)
    joint_in_parent = to_parent @ to_joint
    dofs: list[Turn | Slide] = []
    for dof_index, axis in zip(dof_indices, sliding, strict=True):
        limits, motor = _read_limits(dof, dof_index), motors.get(dof_index)
        slide = Slide(_rotated(joint_in_parent, axis), limits, motor)
        dofs.append(slide if np.any(axis) else Turn(limits, motor))
    centre = link.inertia.transform.pos[index]
    centre_of_parent = np.zeros(3) if parent == -1 else link.inertia.transform.pos[parent]
    anchor = link.transform.pos[index] + to_parent @ link.joint.pos[index]
    return Joint(
        anchor_in_parent=as_floats(anchor - centre_of_parent),
        anchor_in_child=as_floats(link.joint.pos[index] - centre),
        damped_in_parent=as_floats(-anchor - centre_of_parent),  # mirrored, as in Brax: see the package's docstring
        damped_in_child=as_floats(-centre),
        axes_in_parent=tuple(_rotated(joint_in_parent, axis) for axis in axes),
        axes_in_child=tuple(_rotated(to_joint, axis) for axis in axes),
        handedness=as_floats(without_rounding(np.asarray(handedness))),
        dofs=tuple(dofs),
        alignments=tuple(
            Alignment(_rotated(joint_in_parent, axis), _rotated(to_joint, axis), as_floats(stiffness[index]))
            for axis, stiffness in _aligned_axes(link, turning, sliding, axes)
        ),
        stiffness=as_floats(link.constraint_stiffness[index]),
        limit_stiffness=as_floats(link.constraint_limit_stiffness[index]),
        damping=as_floats(link.constraint_vel_damping[index]),
        angular_damping=as_floats(link.constraint_ang_damping[index]),
    )


def _rotated(rotation: Float[np.ndarray, "3 3"], axis: Float[np.ndarray, "3"]) -> Any:
    return as_floats(without_rounding(rotation @ axis))


def _read_limits(dof: Any, dof_index: int) -> Any:
    limits = None if dof.limit is None else np.array([end[dof_index] for end in dof.limit])
    return None if limits is None or np.all(np.isinf(limits)) else as_floats(limits)


def _joint_axes(turning: Float[np.ndarray, "dofs 3"]) -> tuple[Float[np.ndarray, "3 3"], float]:
    """The axes that define a joint's angles, and their handedness, as Brax chooses them.

    `turning` has the axis of each turn, and zeros for each slide.
    """
    is_turn = np.any(turning, axis=1)
    if not is_turn.any():
        return np.eye(3), 1.0
    if is_turn.all() and len(turning) == 1:
        return np.stack([turning[0], *_sides(turning[0])]), 1.0
    if is_turn.all():
        third = np.cross(turning[0], turning[1])
        if abs(turning[0] @ turning[1]) > 1e-6:
            raise ValueError("the axes of a joint are not at right angles")
        return np.stack([turning[0], turning[1], third]), float(third @ turning[2]) if len(turning) == 3 else 1.0
    # Turns and slides: the axes of turns that are missing are at right angles to those that are there.
    first, second = turning[0], turning[1]
    if not is_turn[0]:
        first = _sides(turning[1])[1] if is_turn[1] else _sides(turning[2])[0]
    if not is_turn[1]:
        second = _sides(turning[0])[0] if is_turn[0] else _sides(turning[2])[1]
    return np.stack([first, second, np.cross(first, second)]), 1.0


def _sides(axis: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Two directions at right angles to an axis. Brax takes the y axis, or z where y is close to the axis."""
    side = np.array([0.0, 1.0, 0.0]) if abs(axis[1]) < 0.5 else np.array([0.0, 0.0, 1.0])
    side = side - axis * (axis @ side)
    side = side / np.linalg.norm(side)
    return side, np.cross(axis, side)


def _aligned_axes(
    link: Any,
    turning: Float[np.ndarray, "dofs 3"],
    sliding: Float[np.ndarray, "dofs 3"],
    axes: Float[np.ndarray, "3 3"],
) -> list[tuple[Float[np.ndarray, "3"], Float[np.ndarray, " links"]]]:
    """The axes of a joint that springs keep parallel, each with the stiffness of all links, as Brax defines them."""
    stiffness, limit_stiffness = link.constraint_stiffness, link.constraint_limit_stiffness
    turns, slides = bool(np.any(turning)), bool(np.any(sliding))
    if len(turning) == 1:
        return [(axes[0], stiffness)] if turns else [(axes[0], stiffness), (axes[1], stiffness)]
    if len(turning) == 2:
        if not slides:
            return []  # two turns: see `_universal_moment`
        aligned = axes[0] if np.any(turning[0]) else axes[1]
        return [(aligned, limit_stiffness)] + ([] if turns else [(axes[2], stiffness)])
    return [(turning.sum(axis=0), stiffness)] if turns and slides else []


def _check_free(link: Any, index: int, parent: int, rotation: Float[np.ndarray, "3 3"]) -> None:
    """Raises ValueError unless the free body `index` rests at the origin without a rotation."""
    is_moved = np.any(link.transform.pos[index]) or np.any(link.joint.pos[index])
    if parent != -1 or is_moved or not np.array_equal(rotation, np.eye(3)):
        raise ValueError("a free body is displaced from the origin")
