"""The constants of a Brax system, as Python floats."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from spo.environments.spring.arithmetic import Number, Vector, as_floats
from spo.environments.spring.contacts import Contact, read_contacts
from spo.environments.spring.joints import NUM_VELOCITIES, Free, Hinge, Joint, check_free, read_hinge
from spo.environments.spring.motors import Motor, read_motors

#: The kind of joint of each letter in `System.link_types`. Brax writes "2" and "3" for two and three hinges or slides.
_JOINT_OF_LETTER: dict[str, type] = {"f": Free, "1": Hinge}


class Link(NamedTuple):
    """A rigid body. Its moment of inertia is one."""

    joint: Joint
    motor: Motor | None
    contact: Contact | None
    centre_of_mass: Vector  # from the link's origin, in its frame
    inverse_mass: Number


class SharedConstants(NamedTuple):
    """Constants that are the same for all links."""

    gravity: Vector
    timestep: float
    velocity_decay: float
    angular_velocity_decay: float
    contact_correction: float


class System(NamedTuple):
    shared: SharedConstants
    links: tuple[Link, ...]
    parents: tuple[int, ...]  # -1: none
    driven_links: tuple[int, ...]  # the link that each entry of the action drives


def read_system(system: Any) -> System:
    """Reads the constants of a Brax system. Raises ValueError for anything that this package does not compute."""
    _check_supported(system)
    link_types = str(system.link_types)
    kinds = [_JOINT_OF_LETTER[letter] for letter in link_types]
    link, dof = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system.link, system.dof))
    parents = tuple(map(int, system.link_parents))
    first_dof = np.cumsum([0, *(NUM_VELOCITIES[kind] for kind in kinds)])
    motors = read_motors(system, {int(first_dof[index]): index for index, kind in enumerate(kinds) if kind is Hinge})
    contacts = read_contacts(system, link.inertia.transform.pos)

    def read_joint(index: int) -> Joint:
        if kinds[index] is Hinge:
            return read_hinge(link, dof, index, parents[index], first_dof[index])
        check_free(link, index, parents[index])
        return Free()

    links = tuple(
        Link(
            joint=read_joint(index),
            motor=motors.get(index),
            contact=contacts.get(index),
            centre_of_mass=as_floats(link.inertia.transform.pos[index]),
            inverse_mass=as_floats(1.0 / link.inertia.mass[index] ** (1.0 - float(system.spring_mass_scale))),
        )
        for index in range(len(kinds))
    )
    return System(_read_shared(system), links, parents, driven_links=tuple(motors))


def _check_supported(system: Any) -> None:
    if unknown := sorted(set(str(system.link_types)) - _JOINT_OF_LETTER.keys()):
        raise ValueError(
            f"it has joints of {' and '.join(unknown)} degrees of freedom, only one or a free body is done"
        )
    if system.enable_fluid:
        raise ValueError("it moves in a fluid")
    if np.any(system.actuator.bias_q) or np.any(system.actuator.bias_qd):
        raise ValueError("its motors follow a position or a velocity")
    if float(system.spring_inertia_scale) != 1.0:
        raise ValueError("its links have moments of inertia other than one")


def _read_shared(system: Any) -> SharedConstants:
    timestep = float(system.opt.timestep)
    return SharedConstants(
        gravity=as_floats(system.gravity),
        timestep=timestep,
        velocity_decay=math.exp(float(system.vel_damping) * timestep),
        angular_velocity_decay=math.exp(float(system.ang_damping) * timestep),
        contact_correction=float(system.baumgarte_erp) / timestep,
    )
