"""Brax's spring physics, one limb per thread: all substeps of an environment's step in a single kernel.

Brax (https://github.com/google/brax) computes a spring step as arrays over links: gathers, scatters, small matrix
products. On a GPU that is hundreds of kernels per environment step, each of which reads and writes the whole batch.
Here the same equations are written out number by number, and every constant of the system is folded in while tracing: a
mass of one, an identity rotation, a zero offset leave nothing behind. Links that are alike, such as the four hips of
Ant, are one group and share the code: each number of theirs is an array [environments, members]. A link without its
like, such as the torso, is the same in every member. So almost everything is elementwise; only what the hips do to the
torso is a sum over members. On a GPU, Pallas makes one kernel of it, which keeps a limb in the registers of a thread
over all substeps; elsewhere XLA compiles the same body.

The equations are Brax's, to rounding, in another arrangement:

- Forces of joints are computed in the world frame. Brax moves into the joint's frame and back, which changes nothing.
- Joint coordinates follow from the bodies, so they are computed once, after the last substep.
- Brax reads the inverse inertia of a contact from the flattened matrices of all links, at the index of the link: a
  number of another link. Its worlds were tuned with it, and so it is kept. So is the sign of the parent's
  angular velocity in the damping of joints.

`spring_physics` says which systems it can do: bodies that float freely or hang on another one by one hinge, in limbs
that are alike, and contacts of spheres with a fixed plane, which is Ant. Nothing here can be differentiated.
"""

import copy
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Int

from spo.environments._adapters import on_its_own_terms, require
from spo.types import Array, Float, PRNGKey

#: Position, rotation (a unit quaternion, real part first), velocity and angular velocity.
NUMBERS_PER_BODY = 13
Implementation: TypeAlias = Literal["xla", "pallas", "interpret"]

# A number of a group of links: a float, known while tracing and the same for all members, or an array [B, members].
_Number: TypeAlias = Any
_Vector: TypeAlias = Sequence[_Number]
_Matrix: TypeAlias = Sequence[_Vector]


class SpringState(NamedTuple):
    """All that the next step reads: the bodies' centres of mass, in the frame of the world."""

    bodies: Float[Array, "links 13"]


def from_brax(pipeline_state: Any) -> SpringState:
    """What the next step reads of a state of Brax's spring pipeline."""
    x, xd = pipeline_state.x_i, pipeline_state.xd_i
    return SpringState(jnp.concatenate([x.pos, x.rot, xd.vel, xd.ang], axis=-1))


class SpringPhysics(NamedTuple):
    """Physics of one environment. Any number of `vmap`s around `step` still calls one kernel, over all of the batch."""

    #: (state, action) -> (state, q, qd) after all substeps.
    step: Callable[[SpringState, Float[Array, " D"]], tuple[SpringState, Float[Array, " q"], Float[Array, " qd"]]]
    #: The joint positions and velocities of a state.
    coordinates: Callable[[SpringState], tuple[Float[Array, " q"], Float[Array, " qd"]]]
    #: The links of a state as Brax has them: `Transform` and `Motion` in the world's frame.
    links: Callable[[SpringState], tuple[Any, Any]]


# --- A system as numbers ----------------------------------------------------------------------------------------------


class _Joint(NamedTuple):
    """How a link hangs on its parent, by one hinge. Vectors in the frame of either link, from its centre of mass."""

    anchor_in_parent: _Vector
    anchor_in_child: _Vector
    # The point of either link whose velocity the damping compares.
    damped_in_parent: _Vector
    damped_in_child: _Vector
    # The hinge's axis and, for the angle, two directions at right angles to it.
    axis_in_parent: _Vector
    side_in_parent: _Vector
    front_in_parent: _Vector
    axis_in_child: _Vector
    front_in_child: _Vector
    limits: tuple[_Number, _Number] | None
    stiffness: _Number
    limit_stiffness: _Number
    damping: _Number
    angular_damping: _Number


class _Contact(NamedTuple):
    """A sphere of a link which may touch a fixed plane."""

    centre: _Vector  # from the link's centre of mass, in its frame
    radius: _Number
    normal: _Vector
    height: _Number  # of the plane, along its normal
    friction: _Number
    elasticity: _Number
    inverse_inertia: _Number  # which Brax takes for the link's


class _Motor(NamedTuple):
    control_range: tuple[_Number, _Number]
    force_range: tuple[_Number, _Number]
    gain: _Number
    gear: _Number


class _Link(NamedTuple):
    joint: _Joint | None  # None: it floats freely
    motor: _Motor | None
    contact: _Contact | None
    centre_of_mass: _Vector  # from the link's origin, in its frame
    inverse_mass: _Number  # the moment of inertia is one


class _World(NamedTuple):
    gravity: _Vector
    timestep: float
    velocity_decay: float
    angular_velocity_decay: float
    contact_correction: float


class _System(NamedTuple):
    world: _World
    links: tuple[_Link, ...]
    parents: tuple[int, ...]
    motorised: tuple[int, ...]  # the link that an action's entry drives


def _floats(array: Any) -> Any:
    """Nested tuples of Python floats, which take the precision of what they meet."""
    array = np.asarray(array, np.float64)
    return float(array) if array.ndim == 0 else tuple(_floats(entry) for entry in array)


def _rotation(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    matrix: np.ndarray = np.array(
        _rotation_matrix(_floats(np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)))
    )
    return np.where(np.abs(matrix) < 1e-7, 0.0, matrix)  # a zero that rounding hid


def _constants_of(system: Any) -> _System:
    """The numbers of a Brax system. Raises ValueError where it has something which isn't written out here."""
    link_types = str(system.link_types)
    if unknown := sorted(set(link_types) - set("f1")):
        raise ValueError(
            f"its links have joints of {' and '.join(unknown)} degrees of freedom, not of one or free ones"
        )
    if system.enable_fluid:
        raise ValueError("it moves in a fluid")
    if np.any(system.actuator.bias_q) or np.any(system.actuator.bias_qd):
        raise ValueError("its motors follow a position or a velocity")

    if float(system.spring_inertia_scale) != 1.0:
        raise ValueError("its links have moments of inertia other than one")

    link, dof = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (system.link, system.dof))
    parents = tuple(map(int, system.link_parents))
    dof_start = np.cumsum([0, *({"f": 6, "1": 1}[kind] for kind in link_types)])
    motors = _motors_of(system, {int(dof_start[index]): index for index, kind in enumerate(link_types) if kind == "1"})
    contacts = _contacts_of(system, link.inertia.transform.pos)
    links = tuple(
        _Link(
            joint=None if kind == "f" else _joint_of(link, dof, index, parents[index], dof_start[index]),
            motor=motors.get(index),
            contact=contacts.get(index),
            centre_of_mass=_floats(link.inertia.transform.pos[index]),
            inverse_mass=_floats(1.0 / link.inertia.mass[index] ** (1.0 - float(system.spring_mass_scale))),
        )
        for index, kind in enumerate(link_types)
    )
    for index, floating in enumerate(links):
        offset = _rotation(link.transform.rot[index]) @ _rotation(link.joint.rot[index]) - np.eye(3)
        if floating.joint is None and (
            parents[index] != -1
            or np.any(link.transform.pos[index])
            or np.any(link.joint.pos[index])
            or not np.allclose(offset, 0.0)
        ):
            raise ValueError("a free body of it is set off from the origin")

    timestep = float(system.opt.timestep)
    world = _World(
        gravity=_floats(system.gravity),
        timestep=timestep,
        velocity_decay=math.exp(float(system.vel_damping) * timestep),
        angular_velocity_decay=math.exp(float(system.ang_damping) * timestep),
        contact_correction=float(system.baumgarte_erp) / timestep,
    )
    return _System(world, links, parents, motorised=tuple(motors))


def _joint_of(link: Any, dof: Any, index: int, parent: int, dof_index: int) -> _Joint:
    axis, slide = dof.motion.ang[dof_index], dof.motion.vel[dof_index]
    if parent == -1 or np.any(slide) or not np.any(axis):
        raise ValueError("a link of it slides, or hangs on the world")
    to_parent, to_joint = _rotation(link.transform.rot[index]), _rotation(link.joint.rot[index])
    centre, centre_of_parent = link.inertia.transform.pos[index], link.inertia.transform.pos[parent]
    # Brax measures the angle of a hinge from the y axis or, where that is too near the hinge's own, from z.
    side = np.array([0.0, 1.0, 0.0]) if abs(axis[1]) < 0.5 else np.array([0.0, 0.0, 1.0])
    side = side - axis * (axis @ side)
    side = side / np.linalg.norm(side)
    front = np.cross(axis, side)
    anchor = link.transform.pos[index] + to_parent @ link.joint.pos[index]
    joint_in_parent = to_parent @ to_joint
    limits = None if dof.limit is None else np.array([end[dof_index] for end in dof.limit])
    return _Joint(
        anchor_in_parent=_floats(anchor - centre_of_parent),
        anchor_in_child=_floats(link.joint.pos[index] - centre),
        damped_in_parent=_floats(-anchor - centre_of_parent),  # mirrored, see above
        damped_in_child=_floats(-centre),
        axis_in_parent=_floats(joint_in_parent @ axis),
        side_in_parent=_floats(joint_in_parent @ side),
        front_in_parent=_floats(joint_in_parent @ front),
        axis_in_child=_floats(to_joint @ axis),
        front_in_child=_floats(to_joint @ front),
        limits=None if limits is None or np.all(np.isinf(limits)) else _floats(limits),
        stiffness=_floats(link.constraint_stiffness[index]),
        limit_stiffness=_floats(link.constraint_limit_stiffness[index]),
        damping=_floats(link.constraint_vel_damping[index]),
        angular_damping=_floats(link.constraint_ang_damping[index]),
    )


def _motors_of(system: Any, link_of_dof: dict[int, int]) -> dict[int, _Motor]:
    """By link, in the order of an action's entries."""
    actuator = system.actuator
    motors: dict[int, _Motor] = {}
    for dof_index, *numbers in zip(
        actuator.qd_id, actuator.ctrl_range, actuator.force_range, actuator.gain, actuator.gear, strict=True
    ):
        link = link_of_dof.get(int(dof_index))
        if link is None or link in motors:
            raise ValueError("a motor of it drives something else than a hinge, or a hinge that has one already")
        motors[link] = _Motor(*map(_floats, numbers))
    return motors


def _contacts_of(system: Any, centres: Float[np.ndarray, "links 3"]) -> dict[int, _Contact]:
    """By link."""
    base, contact = require("brax.base", extra="envs"), require("brax.contact", extra="envs")

    def constants(x: Any) -> Any:
        found = contact.get(system, x)
        return None if found is None else (found.geom1, found.geom2, found.friction[:, 0], found.elasticity)

    # MuJoCo decides which geometries may touch, and with which friction; where the links are doesn't matter for that.
    found = jax.jit(on_its_own_terms(constants))(base.Transform.zero((len(centres),)))
    if found is None:
        return {}
    kinds = require("mujoco", extra="envs").mjtGeom
    geom_type, geom_body = np.asarray(system.geom_type), np.asarray(system.geom_bodyid)
    geom_position, geom_rotation, geom_size = map(np.asarray, (system.geom_pos, system.geom_quat, system.geom_size))
    contacts: dict[int, _Contact] = {}
    for plane, geom, friction, elasticity in zip(*map(np.asarray, found), strict=True):
        if geom_type[plane] != kinds.mjGEOM_PLANE or geom_body[plane] != 0 or geom_body[geom] == 0:
            raise ValueError("links of it may touch other things than a fixed plane")
        if geom_type[geom] != kinds.mjGEOM_SPHERE:
            raise ValueError("something else of it than spheres may touch the plane")
        link = int(geom_body[geom]) - 1
        if link in contacts:
            raise ValueError("a link of it may touch the plane at several points")
        if link >= 9:
            raise ValueError("a link beyond its ninth may touch the plane")
        normal = _rotation(geom_rotation[plane])[:, 2]
        contacts[link] = _Contact(
            centre=_floats(geom_position[geom] - centres[link]),
            radius=_floats(geom_size[geom, 0]),
            normal=_floats(normal),
            height=_floats(normal @ geom_position[plane]),
            friction=_floats(friction),
            elasticity=_floats(elasticity),
            # Brax's entry of all links' matrices, in a row: for the first nine links one of the first link's identity.
            inverse_inertia=_floats(np.eye(3).reshape(-1)[link]),
        )
    return contacts


# --- Links that are alike ---------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """Links with the same place in the tree of links, and constants which are floats or [members] arrays."""

    members: tuple[int, ...]
    parent: int | None  # the group of the members' parents: one for each of them, or one for all
    link: _Link


def _groups_of(system: _System) -> tuple[_Group, ...]:
    """From the roots outwards. Raises ValueError where limbs aren't alike."""
    children = [
        [child for child, parent in enumerate(system.parents) if parent == link]
        for link in range(-1, len(system.links))
    ]
    places: list[tuple[tuple[int, ...], int | None]] = [((root,), None) for root in children[0]]
    for index, (members, _) in enumerate(places):  # it grows while we walk along it
        offspring = [children[1 + member] for member in members]
        if len(members) == 1:
            places += [(tuple(offspring[0]), index)] if offspring[0] else []
        elif len(set(map(len, offspring))) > 1:
            raise ValueError("its limbs have different numbers of links")
        else:
            places += [(siblings, index) for siblings in zip(*offspring, strict=True)]
    sizes = sorted({len(members) for members, _ in places})
    if len(set(sizes) - {1}) > 1 or sizes[-1] & (sizes[-1] - 1):
        raise ValueError(f"its limbs come in groups of {' and '.join(map(str, sizes))}, not in one power of two")
    return tuple(
        _Group(members, parent, _alike([system.links[member] for member in members])) for members, parent in places
    )


def _alike(links: Sequence[_Link]) -> _Link:
    """One link with the constants of all: a float where they agree, an array [members] where they don't."""
    if len({jax.tree.structure(link) for link in links}) > 1:
        raise ValueError("its limbs differ in joints, motors or contacts")
    return jax.tree.map(lambda *numbers: numbers[0] if len(set(numbers)) == 1 else np.array(numbers), *links)


def _spread(groups: Sequence[_Group], like: Float[Array, " B*W"]) -> list[_Group]:
    """Constants that differ between members as arrays like the others, made of selections: a kernel captures none."""
    width = max(len(group.members) for group in groups)
    member = jax.lax.iota(jnp.int32, len(like)) & (width - 1)
    spread: dict[tuple[float, ...], Array] = {}

    def array(constant: _Number) -> _Number:
        if isinstance(constant, float):
            return constant
        key = tuple(constant.tolist())
        if key not in spread:
            spread[key] = jnp.full_like(like, key[0])
            for index, number in enumerate(key[1:], start=1):
                spread[key] = jnp.where(member == index, jnp.full_like(like, number), spread[key])
        return spread[key]

    return [group._replace(link=jax.tree.map(array, group.link)) for group in groups]


# --- Arithmetic that leaves out what is known while tracing -----------------------------------------------------------


def _mul(*factors: _Number) -> _Number:
    known = math.prod(factor for factor in factors if isinstance(factor, float))
    arrays = [factor for factor in factors if not isinstance(factor, float)]
    if not arrays or known == 0.0:
        return float(known)
    product = math.prod(arrays[1:], start=arrays[0])
    return product if known == 1.0 else -product if known == -1.0 else known * product


def _add(*terms: _Number) -> _Number:
    known = math.fsum(term for term in terms if isinstance(term, float))
    arrays = [term for term in terms if not isinstance(term, float)]
    if not arrays:
        return known
    total = sum(arrays[1:], start=arrays[0])
    return total if known == 0.0 else total + known


def _sub(left: _Number, right: _Number) -> _Number:
    if isinstance(left, float) or isinstance(right, float):
        return _add(left, _mul(-1.0, right))
    return left - right


def _dot(left: _Vector, right: _Vector) -> _Number:
    return _add(*map(_mul, left, right))


def _plus(*vectors: _Vector) -> _Vector:
    return tuple(map(_add, *vectors))


def _minus(left: _Vector, right: _Vector) -> _Vector:
    return tuple(map(_sub, left, right))


def _scale(factor: _Number, vector: _Vector) -> _Vector:
    return tuple(_mul(factor, entry) for entry in vector)


def _cross(left: _Vector, right: _Vector) -> _Vector:
    (a, b, c), (x, y, z) = left, right
    return _sub(_mul(b, z), _mul(c, y)), _sub(_mul(c, x), _mul(a, z)), _sub(_mul(a, y), _mul(b, x))


def _apply(matrix: _Matrix, vector: _Vector) -> _Vector:
    return tuple(_dot(row, vector) for row in matrix)


def _transpose(matrix: _Matrix) -> _Matrix:
    return tuple(zip(*matrix, strict=True))


def _rotation_matrix(quaternion: _Vector) -> _Matrix:
    w, x, y, z = quaternion
    x2, y2, z2 = (_add(entry, entry) for entry in (x, y, z))
    xx, yy, zz = _mul(x, x2), _mul(y, y2), _mul(z, z2)
    xy, xz, yz = _mul(x, y2), _mul(x, z2), _mul(y, z2)
    wx, wy, wz = _mul(w, x2), _mul(w, y2), _mul(w, z2)
    return (
        (_sub(1.0, _add(yy, zz)), _sub(xy, wz), _add(xz, wy)),
        (_add(xy, wz), _sub(1.0, _add(xx, zz)), _sub(yz, wx)),
        (_sub(xz, wy), _add(yz, wx), _sub(1.0, _add(xx, yy))),
    )


# --- The physics of one environment -----------------------------------------------------------------------------------


class _Body(NamedTuple):
    """The centres of mass of a group of links."""

    position: _Vector
    rotation: _Vector
    velocity: _Vector
    angular_velocity: _Vector


def _bodies(numbers: Sequence[_Number]) -> list[_Body]:
    chunks = [numbers[start : start + NUMBERS_PER_BODY] for start in range(0, len(numbers), NUMBERS_PER_BODY)]
    return [_Body(chunk[0:3], chunk[3:7], chunk[7:10], chunk[10:13]) for chunk in chunks]


def _numbers(bodies: Sequence[_Body]) -> list[_Number]:
    return [number for body in bodies for part in body for number in part]


def _clip(value: _Number, bounds: tuple[_Number, _Number]) -> _Number:
    lowest, highest = bounds
    value = value if isinstance(lowest, float) and lowest == -math.inf else jnp.maximum(value, lowest)
    return value if isinstance(highest, float) and highest == math.inf else jnp.minimum(value, highest)


def _torque(motor: _Motor, control: _Number) -> _Number:
    force = _mul(motor.gain, _clip(control, motor.control_range))
    return _mul(motor.gear, _clip(force, motor.force_range))


def _sum_over_members(width: int, vector: _Vector) -> _Vector:
    """For every member the sum over all of them."""
    grids = [entry.reshape(-1, width) for entry in vector]
    return tuple(jnp.broadcast_to(grid.sum(axis=1, keepdims=True), grid.shape).reshape(-1) for grid in grids)


def _substep(
    world: _World, groups: Sequence[_Group], bodies: Sequence[_Body], torques: Sequence[_Number]
) -> list[_Body]:
    """Joints pull, motors push, then contacts answer, then everything moves."""
    frames = [_rotation_matrix(body.rotation) for body in bodies]
    forces: list[_Vector] = [(0.0, 0.0, 0.0)] * len(groups)
    moments: list[_Vector] = [(0.0, 0.0, 0.0)] * len(groups)
    for index, (group, torque) in enumerate(zip(groups, torques, strict=True)):
        joint, parent = group.link.joint, group.parent
        if joint is None or parent is None:
            continue
        force, moment = _joint_force(joint, bodies[parent], bodies[index], frames[parent], frames[index], torque)
        at_child = _apply(frames[index], joint.anchor_in_child)
        at_parent = _apply(frames[parent], joint.anchor_in_parent)
        forces[index] = _plus(forces[index], force)
        moments[index] = _plus(moments[index], moment, _cross(at_child, force))
        moment = _plus(moment, _cross(at_parent, force))
        if len(groups[parent].members) < len(group.members):
            width = len(group.members)
            force, moment = _sum_over_members(width, force), _sum_over_members(width, moment)
        forces[parent] = _minus(forces[parent], force)
        moments[parent] = _minus(moments[parent], moment)

    moved = []
    for group, body, frame, force, moment in zip(groups, bodies, frames, forces, moments, strict=True):
        link = group.link
        acceleration = _plus(_scale(link.inverse_mass, force), world.gravity)
        pushed = body._replace(
            velocity=_plus(body.velocity, _scale(world.timestep, acceleration)),
            angular_velocity=_plus(body.angular_velocity, _scale(world.timestep, moment)),
        )
        velocity = _scale(world.velocity_decay, pushed.velocity)
        angular_velocity = _scale(world.angular_velocity_decay, pushed.angular_velocity)
        if link.contact is not None:
            impulse, turn = _contact_impulse(world, link.contact, link.inverse_mass, pushed, frame)
            velocity = _plus(velocity, _scale(link.inverse_mass, impulse))
            angular_velocity = _plus(angular_velocity, turn)
        position = _plus(body.position, _scale(world.timestep, velocity))
        rotation = _turned(body.rotation, _scale(0.5 * world.timestep, angular_velocity))
        moved.append(_Body(position, rotation, velocity, angular_velocity))
    return moved


def _joint_force(
    joint: _Joint, parent: _Body, child: _Body, parent_frame: _Matrix, child_frame: _Matrix, torque: _Number
) -> tuple[_Vector, _Vector]:
    """Force and moment on the child: springs that hold the hinge together and its axis straight, dampers, the motor."""
    gap = _minus(
        _plus(child.position, _apply(child_frame, joint.anchor_in_child)),
        _plus(parent.position, _apply(parent_frame, joint.anchor_in_parent)),
    )
    slip = _minus(
        _plus(child.velocity, _cross(child.angular_velocity, _apply(child_frame, joint.damped_in_child))),
        _plus(parent.velocity, _cross(parent.angular_velocity, _apply(parent_frame, joint.damped_in_parent))),
    )
    force = _plus(_scale(_mul(-1.0, joint.stiffness), gap), _scale(_mul(-1.0, joint.damping), slip))

    axis, axis_of_child = _apply(parent_frame, joint.axis_in_parent), _apply(child_frame, joint.axis_in_child)
    along_axis = torque
    if joint.limits is not None:
        angle = _hinge_angle(joint, parent_frame, child_frame)
        beyond = _sub(angle, _clip(angle, joint.limits))
        along_axis = _sub(along_axis, _mul(joint.limit_stiffness, beyond))
    moment = _plus(
        _scale(_mul(-1.0, joint.stiffness), _cross(axis, axis_of_child)),
        _scale(_mul(-1.0, joint.angular_damping), _minus(child.angular_velocity, parent.angular_velocity)),
        _scale(along_axis, axis),
    )
    return force, moment


def _hinge_angle(joint: _Joint, parent_frame: _Matrix, child_frame: _Matrix) -> _Number:
    front = _apply(child_frame, joint.front_in_child)
    sideways = _dot(front, _apply(parent_frame, joint.side_in_parent))
    forwards = _dot(front, _apply(parent_frame, joint.front_in_parent))
    return jnp.arctan2(_mul(-1.0, sideways), forwards)


def _contact_impulse(
    world: _World, contact: _Contact, inverse_mass: _Number, body: _Body, frame: _Matrix
) -> tuple[_Vector, _Vector]:
    """Impulse on a link and its moment, where the contact touches; zero elsewhere."""
    normal = contact.normal
    centre = _apply(frame, contact.centre)
    surface = _add(contact.height, contact.radius)
    depth = _sub(_dot(normal, _plus(body.position, centre)), surface)  # negative: inside
    lever = _minus(centre, _scale(_add(contact.radius, _mul(0.5, depth)), normal))
    velocity = _plus(body.velocity, _cross(body.angular_velocity, lever))

    approach = _dot(normal, velocity)
    across = _cross(lever, normal)
    inertia = _add(inverse_mass, _mul(contact.inverse_inertia, _dot(across, across)))
    bounce = _mul(-1.0, _add(1.0, contact.elasticity), approach)
    push = _add(bounce, _mul(-world.contact_correction, depth)) / inertia

    sliding = _minus(velocity, _scale(approach, normal))
    speed = jnp.sqrt(_dot(sliding, sliding))
    direction = _scale(1.0 / (1e-6 + speed), sliding)
    across = _cross(lever, direction)
    inertia = _add(inverse_mass, _mul(contact.inverse_inertia, _dot(across, across)))
    drag = jnp.minimum(speed / inertia, _mul(contact.friction, push))

    touches = (depth < 0.0) & (approach < 0.0) & (push > 0.0)
    push = jnp.where(touches, push, 0.0)
    drag = jnp.where(touches & (speed > 1e-3), drag, 0.0)
    impulse = _minus(_scale(push, normal), _scale(drag, direction))
    return impulse, _cross(lever, impulse)


def _turned(rotation: _Vector, half_turn: _Vector) -> _Vector:
    """The quaternion after a small turn, of length one again."""
    w, vector = rotation[0], rotation[1:]
    turned = (
        _sub(w, _dot(half_turn, vector)),
        *_plus(vector, _scale(w, half_turn), _cross(half_turn, vector)),
    )
    return _scale(1.0 / jnp.sqrt(_dot(turned, turned)), turned)


def _coordinates(groups: Sequence[_Group], bodies: Sequence[_Body]) -> tuple[list[_Number], list[_Number]]:
    """Positions and velocities of each group's joint: seven and six of a free one, an angle and its rate of a hinge."""
    frames = [_rotation_matrix(body.rotation) for body in bodies]
    q: list[_Number] = []
    qd: list[_Number] = []
    for group, body, frame in zip(groups, bodies, frames, strict=True):
        joint, parent = group.link.joint, group.parent
        if joint is None or parent is None:
            from_centre = _scale(-1.0, _apply(frame, group.link.centre_of_mass))
            q += [*_plus(body.position, from_centre), *body.rotation]
            qd += _plus(body.velocity, _cross(body.angular_velocity, from_centre))
            qd += _apply(_transpose(frame), body.angular_velocity)
        else:
            turning = _minus(body.angular_velocity, bodies[parent].angular_velocity)
            q.append(_hinge_angle(joint, frames[parent], frame))
            qd.append(_dot(_apply(frame, joint.axis_in_child), turning))
    return q, qd


def _with_coordinates(groups: Sequence[_Group], numbers: Sequence[_Number]) -> list[_Number]:
    q, qd = _coordinates(groups, _bodies(numbers))
    return [*numbers, *q, *qd]


def _advance(world: _World, groups: Sequence[_Group], num_substeps: int, rows: Sequence[_Number]) -> list[_Number]:
    """All substeps: from the numbers of the bodies and the action to those of the bodies, q and qd."""
    groups = _spread(groups, rows[0])
    num_numbers = NUMBERS_PER_BODY * len(groups)
    controls = iter(rows[num_numbers:])
    torques = [0.0 if group.link.motor is None else _torque(group.link.motor, next(controls)) for group in groups]

    def body(_: Any, numbers: tuple[_Number, ...]) -> tuple[_Number, ...]:
        return tuple(_numbers(_substep(world, groups, _bodies(numbers), torques)))

    return _with_coordinates(groups, jax.lax.fori_loop(0, num_substeps, body, tuple(rows[:num_numbers])))


# --- Many environments at once ----------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Where the numbers of an environment lie in rows of `width` members: a row for each number of a group.

    Before: the numbers of the bodies, then the action. After: the numbers of the bodies, then q, then qd.
    """

    width: int
    entering: Int[np.ndarray, "rows_in width"]  # which number before is in this place
    leaving: Int[np.ndarray, " numbers_out"]  # in which place this number after is, counted through the rows
    num_rows_out: int
    num_q: int


def _layout_of(system: _System, groups: Sequence[_Group]) -> _Layout:
    width = max(len(group.members) for group in groups)
    num_links = len(system.links)

    def across(numbers: list[int]) -> list[int]:
        return numbers * (width // len(numbers))

    entering = [
        across([NUMBERS_PER_BODY * link + number for link in group.members])
        for group in groups
        for number in range(NUMBERS_PER_BODY)
    ]
    entering += [
        across([NUMBERS_PER_BODY * num_links + system.motorised.index(link) for link in group.members])
        for group in groups
        if group.link.motor is not None
    ]

    place = {link: (index, member) for index, group in enumerate(groups) for member, link in enumerate(group.members)}
    leaving: list[int] = []
    row = 0
    for num_free, num_hinge in ((NUMBERS_PER_BODY, NUMBERS_PER_BODY), (7, 1), (6, 1)):  # bodies, q, qd
        counts = [num_free if group.link.joint is None else num_hinge for group in groups]
        first_rows = row + np.cumsum([0, *counts])
        for index, member in (place[link] for link in range(num_links)):
            leaving += [width * (first_rows[index] + number) + member for number in range(counts[index])]
        row = first_rows[-1]
    num_q = sum(7 if link.joint is None else 1 for link in system.links)
    return _Layout(width, np.array(entering), np.array(leaving), int(row), num_q)


def _advance_xla(
    world: _World, groups: Sequence[_Group], num_substeps: int, rows_in: Float[Array, "B rows_in W"]
) -> Float[Array, "B rows_out W"]:
    batch, num_rows_in, width = rows_in.shape
    rows_out = _advance(world, groups, num_substeps, list(rows_in.swapaxes(0, 1).reshape(num_rows_in, -1)))
    return jnp.stack(rows_out).reshape(-1, batch, width).swapaxes(0, 1)


def _advance_pallas(
    world: _World,
    groups: Sequence[_Group],
    num_substeps: int,
    num_rows_out: int,
    block_size: int,
    num_warps: int,
    interpret: bool,
    rows_in: Float[Array, "B rows_in W"],
) -> Float[Array, "B rows_out W"]:
    """Every program of the kernel takes `block_size` environments: a member for each of its 32 `num_warps` threads.

    A block is contiguous, row by row, so neighbouring threads read neighbouring words.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    batch, num_rows_in, width = rows_in.shape
    padding = -batch % block_size
    if padding:
        # With copies of the last environment: zeros would be bodies without a rotation, and make NaNs.
        rows_in = jnp.pad(rows_in, ((0, padding), (0, 0), (0, 0)), mode="edge")
    num_blocks = (batch + padding) // block_size
    blocks_in = rows_in.reshape(num_blocks, block_size, num_rows_in, width).swapaxes(1, 2)
    blocks_in = blocks_in.reshape(num_blocks, num_rows_in, block_size * width)

    def kernel(block_in: Any, block_out: Any) -> None:
        rows_out = _advance(world, groups, num_substeps, [block_in[row] for row in range(num_rows_in)])
        for row, number in enumerate(rows_out):
            block_out[row] = number

    def blocks(num_rows: int) -> Any:
        return pallas.BlockSpec((None, num_rows, block_size * width), lambda program: (program, 0, 0))

    blocks_out = pallas.pallas_call(
        kernel,
        grid=(num_blocks,),
        in_specs=[blocks(num_rows_in)],
        out_specs=blocks(num_rows_out),
        out_shape=jax.ShapeDtypeStruct((num_blocks, num_rows_out, block_size * width), rows_in.dtype),
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=1),
        interpret=interpret,
        name="spring_physics",
    )(blocks_in)
    rows_out = blocks_out.reshape(num_blocks, num_rows_out, block_size, width).swapaxes(1, 2)
    return rows_out.reshape(batch + padding, num_rows_out, width)[:batch]


def spring_physics(
    system: Any,
    num_substeps: int,
    *,
    implementation: Implementation | None = None,
    block_size: int = 32,
    num_warps: int = 4,
) -> SpringPhysics:
    """The spring physics of a Brax system, `num_substeps` of its time steps at once.

    `implementation` is "pallas" (a GPU's kernel), "xla", or "interpret" (the kernel, slowly, anywhere); by default the
    kernel where the program runs on an NVIDIA GPU (and JAX still has the Triton backend of Pallas, which it means to
    remove), XLA elsewhere. A program of the kernel has `num_warps` times 32
    threads and steps `block_size` environments, a power of two. Raises ValueError for a system it can't do.
    """
    if block_size < 1 or block_size & (block_size - 1):
        raise ValueError(f"A kernel's block is a power of two, got block_size={block_size}: give 16, 32 or so.")
    try:
        with jax.ensure_compile_time_eval():  # a world may be made inside of `jit`
            constants = _constants_of(system)
            groups = _groups_of(constants)
    except ValueError as error:
        raise ValueError(f"The fused spring physics can't do this system: {error}.") from error
    layout = _layout_of(constants, groups)
    num_links, num_q = len(constants.links), layout.num_q
    num_numbers = num_links * NUMBERS_PER_BODY
    base = require("brax.base", extra="envs")
    centres_of_mass = np.array([link.centre_of_mass for link in constants.links])

    def xla(rows_in: Float[Array, "B rows_in W"]) -> Float[Array, "B rows_out W"]:
        return _advance_xla(constants.world, groups, num_substeps, rows_in)

    # Under `jit`, calls of one size in one program share one kernel, which takes a while to compile.
    @jax.jit
    def pallas(rows_in: Float[Array, "B rows_in W"]) -> Float[Array, "B rows_out W"]:
        shape = (layout.num_rows_out, block_size, num_warps)
        return _advance_pallas(constants.world, groups, num_substeps, *shape, implementation == "interpret", rows_in)

    @custom_vmap
    def advance(numbers_in: Float[Array, "B numbers_in"]) -> Float[Array, "B numbers_out"]:
        rows_in = numbers_in.at[:, layout.entering].get(mode="promise_in_bounds")
        if implementation is None and importlib.util.find_spec("jax.experimental.pallas.triton"):
            rows_out = jax.lax.platform_dependent(rows_in, cuda=pallas, default=xla)
        else:
            rows_out = (pallas if implementation in ("pallas", "interpret") else xla)(rows_in)
        return rows_out.reshape(len(rows_out), -1).at[:, layout.leaving].get(mode="promise_in_bounds")

    @advance.def_vmap
    def advance_more(
        axis_size: int, in_batched: list, numbers_in: Float[Array, "N B numbers_in"]
    ) -> tuple[Float[Array, "N B numbers_out"], bool]:
        # One more axis only makes the batch larger, so that any number of axes ends in one call.
        del in_batched  # there is but one operand
        numbers_out = advance(numbers_in.reshape(-1, numbers_in.shape[-1]))
        return numbers_out.reshape(axis_size, -1, numbers_out.shape[-1]), True

    def step(
        state: SpringState, action: Float[Array, " D"]
    ) -> tuple[SpringState, Float[Array, " q"], Float[Array, " qd"]]:
        numbers_in = jnp.concatenate([state.bodies.reshape(-1), action])
        bodies, q, qd = jnp.split(advance(numbers_in[None])[0], (num_numbers, num_numbers + num_q))
        return SpringState(bodies.reshape(num_links, NUMBERS_PER_BODY)), q, qd

    def coordinates(state: SpringState) -> tuple[Float[Array, " q"], Float[Array, " qd"]]:
        rows = state.bodies.reshape(-1)[layout.entering[: NUMBERS_PER_BODY * len(groups)]]
        rows_out = _with_coordinates(_spread(groups, rows[0]), list(rows))
        q, qd = jnp.split(jnp.stack(rows_out).reshape(-1)[layout.leaving[num_numbers:]], (num_q,))
        return q, qd

    def links(state: SpringState) -> tuple[Any, Any]:
        position, rotation, velocity, angular_velocity = jnp.split(state.bodies, (3, 7, 10), axis=-1)
        rotate = on_its_own_terms(jax.vmap(require("brax.math", extra="envs").rotate))
        from_centre = rotate(jnp.asarray(-centres_of_mass, state.bodies.dtype), rotation)
        velocity = velocity + jnp.cross(angular_velocity, from_centre)
        return base.Transform(position + from_centre, rotation), base.Motion(angular_velocity, velocity)

    return SpringPhysics(step, coordinates, links)


# --- A Brax environment on this physics -------------------------------------------------------------------------------


class _PipelineState(NamedTuple):
    """What environments of Brax's read of a pipeline's state. What isn't read, XLA leaves out."""

    spring: SpringState
    q: Float[Array, " q"]
    qd: Float[Array, " qd"]
    x: Any
    xd: Any


class FusedEnvironment(NamedTuple):
    """A Brax environment, whose `pipeline_state` is a `SpringState`; start, observation, reward and end are Brax's."""

    reset: Callable[[PRNGKey], Any]
    step: Callable[[Any, Float[Array, " D"]], Any]
    #: A state with the names of Brax's: q, qd, x and xd.
    view: Callable[[SpringState], Any]


def fused_environment(brax_env: Any, **options: Any) -> FusedEnvironment:
    """A `PipelineEnv` of Brax's, on the spring backend, with its physics fused; `options` go to `spring_physics`."""
    pipeline_env = require("brax.envs", extra="envs").PipelineEnv
    if brax_env.backend != "spring":
        raise ValueError(f"Only spring physics is fused, not {brax_env.backend}: take the backend 'spring'.")
    if type(brax_env).pipeline_step is not pipeline_env.pipeline_step or brax_env._debug:
        raise ValueError("Only Brax's own pipeline step without debugging is fused: leave debug off.")
    physics = spring_physics(brax_env.sys, brax_env._n_frames, **options)

    def view(state: SpringState) -> _PipelineState:
        return _PipelineState(state, *physics.coordinates(state), *physics.links(state))

    def pipeline_step(before: _PipelineState, action: Float[Array, " D"]) -> _PipelineState:
        after, q, qd = physics.step(before.spring, action)
        return _PipelineState(after, q, qd, *physics.links(after))

    # The environment's own code computes everything but the physics.
    on_fused_physics = copy.copy(brax_env)
    on_fused_physics.pipeline_step = pipeline_step

    def reset(key: PRNGKey) -> Any:
        start = brax_env.reset(key)
        return start.replace(pipeline_state=from_brax(start.pipeline_state))

    def step(brax_state: Any, action: Float[Array, " D"]) -> Any:
        before = brax_state.replace(pipeline_state=view(brax_state.pipeline_state))
        after = on_fused_physics.step(before, action)
        return after.replace(pipeline_state=after.pipeline_state.spring)

    return FusedEnvironment(reset, step, view)


__all__ = ["FusedEnvironment", "SpringPhysics", "SpringState", "from_brax", "fused_environment", "spring_physics"]
