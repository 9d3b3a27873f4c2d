"""Inverse moment of inertia of a link.

With unit vectors a_k along principal axes it is base I + sum over k of excess_k a_k a_k^T. A link with the same moment
about all axes has no excess, a capsule has one.
"""

from typing import Any, NamedTuple

import numpy as np

from spo.environments.spring.arithmetic import (
    Matrix,
    Number,
    Vector,
    add,
    apply,
    as_floats,
    constant_rotation,
    dot,
    mul,
    plus,
    scale,
)


class Excess(NamedTuple):
    """Difference of the inverse moment about one principal axis from the base."""

    axis: Vector  # in the link's frame
    amount: Number


class InverseInertia(NamedTuple):
    base: Number
    excesses: tuple[Excess, ...]


def divide_by_inertia(inverse: InverseInertia, frame: Matrix, moment: Vector) -> Vector:
    """Angular acceleration due to a moment, both in the global frame. `frame` is the link's rotation matrix."""
    result = scale(inverse.base, moment)
    for excess in inverse.excesses:
        axis = apply(frame, excess.axis)
        result = plus(result, scale(mul(excess.amount, dot(axis, moment)), axis))
    return result


def weighted_entries(inverse: InverseInertia, frame: Matrix, weights: Matrix) -> Number:
    """Sum of the entries of the inverse inertia in the global frame, times the weights."""
    total = mul(inverse.base, add(*(weights[index][index] for index in range(3))))
    for excess in inverse.excesses:
        axis = apply(frame, excess.axis)
        total = add(total, mul(excess.amount, dot(axis, apply(weights, axis))))
    return total


def read_inverse_inertia(system: Any, link: Any, index: int) -> InverseInertia:
    """Inverse inertia of link `index`, from Brax's `Link` as NumPy arrays."""
    moments = 1.0 / np.diagonal(link.inertia.i[index]) ** (1.0 - float(system.spring_inertia_scale))
    axes = constant_rotation(link.inertia.transform.rot[index])
    base = np.median(moments)  # that of two axes, if two agree
    return InverseInertia(
        as_floats(base),
        tuple(
            Excess(as_floats(axes[:, axis]), as_floats(moment - base))
            for axis, moment in enumerate(moments)
            if abs(moment - base) > 1e-7 * base
        ),
    )
