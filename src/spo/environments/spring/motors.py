"""Motors: from an entry of the action to the force or torque on a degree of freedom."""

from typing import Any, NamedTuple

import numpy as np

from spo.environments.spring.arithmetic import Number, as_floats, clip, mul


class Motor(NamedTuple):
    control_range: tuple[Number, Number]
    force_range: tuple[Number, Number]
    gain: Number
    gear: Number


def motor_force(motor: Motor, control: Number) -> Number:
    force = mul(motor.gain, clip(control, motor.control_range))
    return mul(motor.gear, clip(force, motor.force_range))


def read_motors(system: Any) -> dict[int, Motor]:
    """The motor of each driven degree of freedom of a Brax system, in the order of the action's entries."""
    actuator = system.actuator
    if np.any(np.asarray(actuator.bias_q)) or np.any(np.asarray(actuator.bias_qd)):
        raise ValueError("its motors follow a position or a velocity")
    motors: dict[int, Motor] = {}
    # In NumPy: each entry of a JAX array would be an array of a compiled program.
    columns = (actuator.qd_id, actuator.ctrl_range, actuator.force_range, actuator.gain, actuator.gear)
    for dof_index, *numbers in zip(*map(np.asarray, columns), strict=True):
        if int(dof_index) in motors:
            raise ValueError("two motors drive one degree of freedom")
        motors[int(dof_index)] = Motor(*map(as_floats, numbers))
    return motors
