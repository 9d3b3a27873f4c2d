"""The constants of a Brax system, as Python floats."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from spo.environments.spring.arithmetic import Number, Vector, as_floats
from spo.environments.spring.contacts import Contact, read_contacts
from spo.environments.spring.joints import Free, Joint, check_free, read_hinge
from spo.environments.spring.motors import Motor, read_motors

#: Degrees of freedom of each supported letter in Brax's `link_types`: a free body, or one hinge. Brax writes "2" and
#: "3" for two and three hinges or slides.
_NUM_DOFS = {"f": 6, "1": 1}


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
    link, dof = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system.link, system.dof))
    parents = tuple(map(int, system.link_parents))
    first_dof = np.cumsum([0, *(_NUM_DOFS[letter] for letter in link_types)])
    link_of_dof = {int(first_dof[index]): index for index, letter in enumerate(link_types) if letter == "1"}
    motors = read_motors(system, link_of_dof)
    contacts = read_contacts(system, link.inertia.transform.pos)

    def read_joint(index: int) -> Joint:
        if link_types[index] == "1":
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
        for index in range(len(link_types))
    )
    return System(_read_shared(system), links, parents, driven_links=tuple(motors))


def _check_supported(system: Any) -> None:
    if unknown := sorted(set(str(system.link_types)) - _NUM_DOFS.keys()):
        raise ValueError(f"it has joints of {' and '.join(unknown)} degrees of freedom")
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
