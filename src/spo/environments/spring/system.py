"""The constants of a Brax system, as Python floats."""

import itertools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from spo.environments.spring.arithmetic import Number, Vector, as_floats
from spo.environments.spring.contacts import Contact, read_contacts
from spo.environments.spring.inertia import InverseInertia, read_inverse_inertia
from spo.environments.spring.joint_reader import NUM_DOFS, read_joint
from spo.environments.spring.joints import AnyJoint
from spo.environments.spring.motors import read_motors


class Link(NamedTuple):
    """A rigid body."""

    joint: AnyJoint
    contacts: tuple[Contact, ...]
    centre_of_mass: Vector  # from the link's origin, in its frame
    inverse_mass: Number
    inverse_inertia: InverseInertia


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
    parents: tuple[int, ...]  # -1: the ground
    driven_dofs: tuple[tuple[int, int], ...]  # of each entry of the action: the link, and which of its dofs


def read_system(system: Any) -> System:
    """Reads the constants of a Brax system. Raises ValueError for anything that this package does not compute."""
    if system.enable_fluid:
        raise ValueError("it moves in a fluid")
    link, dof = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system.link, system.dof))
    parents = tuple(map(int, system.link_parents))
    ends = np.cumsum([0, *(NUM_DOFS[letter] for letter in str(system.link_types))]).tolist()
    dofs = [range(start, end) for start, end in itertools.pairwise(ends)]
    motors = read_motors(system)
    inverse_inertias = [read_inverse_inertia(system, link, index) for index in range(len(parents))]
    has_unit_inertia = all(inverse == InverseInertia(1.0, ()) for inverse in inverse_inertias)
    contacts = read_contacts(system, link.inertia.transform.pos, has_unit_inertia)
    links = tuple(
        Link(
            joint=read_joint(link, dof, motors, index, parents[index], dofs[index]),
            contacts=contacts.get(index, ()),
            centre_of_mass=as_floats(link.inertia.transform.pos[index]),
            inverse_mass=as_floats(1.0 / link.inertia.mass[index] ** (1.0 - float(system.spring_mass_scale))),
            inverse_inertia=inverse_inertias[index],
        )
        for index in range(len(parents))
    )
    place = {dof: (index, dof - span.start) for index, span in enumerate(dofs) for dof in span}
    return System(_read_shared(system), links, parents, driven_dofs=tuple(place[dof] for dof in motors))


def _read_shared(system: Any) -> SharedConstants:
    timestep = float(system.opt.timestep)
    return SharedConstants(
        gravity=as_floats(system.gravity),
        timestep=timestep,
        velocity_decay=math.exp(float(system.vel_damping) * timestep),
        angular_velocity_decay=math.exp(float(system.ang_damping) * timestep),
        contact_correction=float(system.baumgarte_erp) / timestep,
    )
