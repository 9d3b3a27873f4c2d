"""State of a rigid body, as numbers."""

from collections.abc import Sequence
from typing import NamedTuple

from spo.environments.spring.arithmetic import Number, Vector

#: Position, rotation, velocity and angular velocity.
NUMBERS_PER_BODY = 13


class Body(NamedTuple):
    """Centre of mass of a link, or of each link of a group, in the global frame."""

    position: Vector
    rotation: Vector  # a unit quaternion, real part first
    velocity: Vector
    angular_velocity: Vector


def to_bodies(numbers: Sequence[Number]) -> list[Body]:
    chunks = [numbers[start : start + NUMBERS_PER_BODY] for start in range(0, len(numbers), NUMBERS_PER_BODY)]
    return [Body(chunk[0:3], chunk[3:7], chunk[7:10], chunk[10:13]) for chunk in chunks]


def to_numbers(bodies: Sequence[Body]) -> list[Number]:
    return [number for body in bodies for part in body for number in part]
