"""Motors: from an entry of the action to the torque on a joint."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from spo.environments.spring.arithmetic import Number, as_floats, clip, mul


class Motor(NamedTuple):
    control_range: tuple[Number, Number]
    force_range: tuple[Number, Number]
    gain: Number
    gear: Number


def motor_torque(motor: Motor, control: Number) -> Number:
    force = mul(motor.gain, clip(control, motor.control_range))
    return mul(motor.gear, clip(force, motor.force_range))


def read_motors(system: Any, link_of_dof: Mapping[int, int]) -> dict[int, Motor]:
    """The motor of each driven link, in the order of the action's entries.

    Args:
        system: the Brax system.
        link_of_dof: the link of each degree of freedom that a motor may drive.
    """
    actuator = system.actuator
    motors: dict[int, Motor] = {}
    for dof_index, *numbers in zip(
        actuator.qd_id, actuator.ctrl_range, actuator.force_range, actuator.gain, actuator.gear, strict=True
    ):
        link = link_of_dof.get(int(dof_index))
        if link is None or link in motors:
            raise ValueError("a motor drives something other than a hinge, or a hinge has two motors")
        motors[link] = Motor(*map(as_floats, numbers))
    return motors
