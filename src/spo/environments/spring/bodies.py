"""State of a rigid body, as numbers."""

from collections.abc import Sequence
from typing import NamedTuple

from spo.environments.spring.arithmetic import Matrix, Number, Vector

#: Indices into position (3), rotation (4), velocity (3) and angular velocity (3): those that change over time.
SPATIAL = tuple(range(13))
#: The same for a body that moves in the plane y = 0 and turns about the y axis. Its other numbers are zero.
PLANAR = (0, 2, 3, 5, 7, 9, 11)


class Body(NamedTuple):
    """Centre of mass of a link, or of each link of a group, in the global frame."""

    position: Vector
    rotation: Vector  # a unit quaternion, real part first
    velocity: Vector
    angular_velocity: Vector


#: The ground, which joints are attached to as to a body.
GROUND = Body((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
GROUND_FRAME: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def to_bodies(numbers: Sequence[Number], changing: Sequence[int]) -> list[Body]:
    """Bodies from the numbers that change, which are `SPATIAL` or `PLANAR`. The others are the constant zero."""
    bodies = []
    for start in range(0, len(numbers), len(changing)):
        body: list[Number] = [0.0] * len(SPATIAL)
        for place, index in enumerate(changing):
            body[index] = numbers[start + place]
        bodies.append(Body(body[0:3], body[3:7], body[7:10], body[10:13]))
    return bodies


def to_numbers(bodies: Sequence[Body], changing: Sequence[int]) -> list[Number]:
    """The numbers of bodies that change."""
    every = [[number for part in body for number in part] for body in bodies]
    return [numbers[index] for numbers in every for index in changing]
