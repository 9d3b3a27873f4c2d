"""Arithmetic on numbers that may be known while tracing.

A `Number` is a Python float, which is known and equal for all members of a group, or an array [B * members]. Operations
on floats happen in Python. A factor of 0 or 1 and a summand of 0 add no operation to the traced program.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from spo.types import Float

#: A float known while tracing, or an array [B * members].
Number: TypeAlias = Any
Vector: TypeAlias = Sequence[Number]
Matrix: TypeAlias = Sequence[Vector]

ZERO: Vector = (0.0, 0.0, 0.0)


def mul(*factors: Number) -> Number:
    known = math.prod(factor for factor in factors if isinstance(factor, float))
    arrays = [factor for factor in factors if not isinstance(factor, float)]
    if not arrays or known == 0.0:
        return float(known)
    product = math.prod(arrays[1:], start=arrays[0])
    return product if known == 1.0 else -product if known == -1.0 else known * product


def add(*terms: Number) -> Number:
    known = math.fsum(term for term in terms if isinstance(term, float))
    arrays = [term for term in terms if not isinstance(term, float)]
    if not arrays:
        return known
    total = sum(arrays[1:], start=arrays[0])
    return total if known == 0.0 else total + known


def sub(left: Number, right: Number) -> Number:
    if left is right:
        return 0.0
    if isinstance(left, float) or isinstance(right, float):
        return add(left, mul(-1.0, right))
    return left - right


def clip(value: Number, bounds: tuple[Number, Number]) -> Number:
    """Clips to (lowest, highest). An infinite bound adds no operation."""
    lowest, highest = bounds
    value = value if isinstance(lowest, float) and lowest == -math.inf else jnp.maximum(value, lowest)
    return value if isinstance(highest, float) and highest == math.inf else jnp.minimum(value, highest)


def dot(left: Vector, right: Vector) -> Number:
    return add(*map(mul, left, right))


def plus(*vectors: Vector) -> Vector:
    return tuple(map(add, *vectors))


def minus(left: Vector, right: Vector) -> Vector:
    return tuple(map(sub, left, right))


def scale(factor: Number, vector: Vector) -> Vector:
    return tuple(mul(factor, entry) for entry in vector)


def cross(left: Vector, right: Vector) -> Vector:
    (a, b, c), (x, y, z) = left, right
    return sub(mul(b, z), mul(c, y)), sub(mul(c, x), mul(a, z)), sub(mul(a, y), mul(b, x))


def apply(matrix: Matrix, vector: Vector) -> Vector:
    """Matrix times vector."""
    return tuple(dot(row, vector) for row in matrix)


def transpose(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def rotation_matrix(quaternion: Vector) -> Matrix:
    """Rotation matrix of a unit quaternion (real part first)."""
    w, x, y, z = quaternion
    x2, y2, z2 = (add(entry, entry) for entry in (x, y, z))
    xx, yy, zz = mul(x, x2), mul(y, y2), mul(z, z2)
    xy, xz, yz = mul(x, y2), mul(x, z2), mul(y, z2)
    wx, wy, wz = mul(w, x2), mul(w, y2), mul(w, z2)
    return (
        (sub(1.0, add(yy, zz)), sub(xy, wz), add(xz, wy)),
        (add(xy, wz), sub(1.0, add(xx, zz)), sub(yz, wx)),
        (sub(xz, wy), add(yz, wx), sub(1.0, add(xx, yy))),
    )


def rotate_quaternion(quaternion: Vector, half_turn: Vector) -> Vector:
    """Unit quaternion after a small rotation, given as half of its rotation vector, to first order."""
    w, vector = quaternion[0], quaternion[1:]
    turned = (
        sub(w, dot(half_turn, vector)),
        *plus(vector, scale(w, half_turn), cross(half_turn, vector)),
    )
    return scale(1.0 / jnp.sqrt(dot(turned, turned)), turned)


# --- Constants of a system, in NumPy ---------------------------------------------------------------------------------


def as_floats(array: Any) -> Any:
    """Nested tuples of Python floats, which take the precision of the arrays they are combined with."""
    array = np.asarray(array, np.float64)
    return float(array) if array.ndim == 0 else tuple(as_floats(entry) for entry in array)


def constant_rotation(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    """Rotation matrix of a constant quaternion of any length."""
    unit = np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)
    return without_rounding(np.array(rotation_matrix(as_floats(unit))))


def without_rounding(directions: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Replaces entries within 3e-7 of -1, 0 or 1 by these. The difference is a rounding error of single precision."""
    whole = np.round(directions)
    return np.where(np.abs(directions - whole) < 3e-7, whole, directions)
