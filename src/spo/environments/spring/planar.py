"""Systems that move in a plane, such as HalfCheetah: most numbers of their bodies stay zero."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from spo.environments.spring.arithmetic import Vector
from spo.environments.spring.bodies import PLANAR, SPATIAL, to_bodies
from spo.environments.spring.groups import Group, group_width, spread_constants
from spo.environments.spring.joints import AnyJoint, Free, Slide
from spo.environments.spring.substep import substep
from spo.environments.spring.system import SharedConstants
from spo.types import Array, Float


def changing_numbers(shared: SharedConstants, groups: Sequence[Group]) -> tuple[int, ...]:
    """The numbers of a body that change over time: `PLANAR` if the system moves in the plane y = 0, else `SPATIAL`.

    A system is planar if its joints move in the plane, and if a substep keeps the other numbers at the constant zero.
    The second is found by tracing a substep. In Brax these numbers are the rounding errors of single precision.
    """
    if not all(_moves_in_plane(group.link.joint) for group in groups):
        return SPATIAL
    keeps_plane = False

    def trace(number: Float[Array, " W"]) -> None:
        nonlocal keeps_plane
        driving = [[number] * len(group.link.joint.dofs) for group in groups]  # type: ignore[union-attr]
        bodies = to_bodies([number] * (len(PLANAR) * len(groups)), PLANAR)
        substep(shared, spread_constants(groups, number), bodies, driving)
        numbers = [[number for part in body for number in part] for body in bodies]
        others = [body[index] for body in numbers for index in SPATIAL if index not in PLANAR]
        keeps_plane = all(isinstance(number, float) and number == 0.0 for number in others)

    jax.eval_shape(trace, jax.ShapeDtypeStruct((group_width(groups),), jnp.float32))
    return PLANAR if keeps_plane else SPATIAL


def _moves_in_plane(joint: AnyJoint) -> bool:
    """Returns whether every slide is in the plane y = 0 and every turn about the y axis."""
    if isinstance(joint, Free):
        return False
    for index, dof in enumerate(joint.dofs):
        if isinstance(dof, Slide):
            if _differs(dof.axis_in_parent[1], 0.0):
                return False
        elif not (_is_across(joint.axes_in_parent[index]) and _is_across(joint.axes_in_child[index])):
            return False
    return True


def _is_across(axis: Vector) -> bool:
    return not (_differs(axis[0], 0.0) or _differs(axis[2], 0.0))


def _differs(number: object, value: float) -> bool:
    """Returns whether a constant, which may be an array over members, differs from a value."""
    return not (isinstance(number, float) and number == value)
