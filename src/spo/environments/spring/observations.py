"""Observations that Brax computes with small matrix products, written as elementwise operations.

On a GPU, Brax's observation of Humanoid takes longer than the fused physics. The functions here compute the same from
the bodies' centres of mass. XLA compiles them into a few kernels.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments._adapters import require
from spo.environments.spring.motors import Motor, motor_force, read_motors
from spo.environments.spring.physics import SpringPhysics
from spo.types import Array, Float


def replace_observation(brax_env: Any, physics: SpringPhysics) -> None:
    """Replaces the observation of a Humanoid, in place. Leaves all other environments as they are."""
    humanoids = (
        require("brax.envs.humanoid", extra="envs").Humanoid,
        require("brax.envs.humanoidstandup", extra="envs").HumanoidStandup,
    )
    system = brax_env.sys
    if type(brax_env) not in humanoids or float(system.spring_inertia_scale) != 1.0:
        return
    masses = np.asarray(system.link.inertia.mass, np.float64) ** (1.0 - float(system.spring_mass_scale))
    motors = read_motors(system)
    from_position = 2 if getattr(brax_env, "_exclude_current_positions_from_observation", True) else 0

    def centre_of_mass(pipeline_state: Any) -> tuple[Float[Array, "3"], None]:
        position = jnp.stack(physics.bodies(pipeline_state.spring).position)
        return (position * jnp.asarray(masses / masses.sum(), position.dtype)[None]).sum(axis=1), None

    def observe(pipeline_state: Any, action: Float[Array, " D"]) -> Float[Array, " O"]:
        centre, _ = centre_of_mass(pipeline_state)
        return jnp.concatenate(
            [
                pipeline_state.q[from_position:],
                pipeline_state.qd,
                _link_inertias(physics, pipeline_state, centre, masses).reshape(-1),
                _link_velocities(physics, pipeline_state, masses).reshape(-1),
                _generalized_forces(motors, system.qd_size(), action),
            ]
        )

    brax_env._com = centre_of_mass
    brax_env._get_obs = observe


def _link_inertias(
    physics: SpringPhysics, pipeline_state: Any, centre: Float[Array, "3"], masses: Float[np.ndarray, " links"]
) -> Float[Array, "links 10"]:
    """Inertia matrix of each link about the centre of mass of all, I + m (r . r I - r r^T), and its mass m."""
    offset = jnp.stack(physics.bodies(pipeline_state.spring).position, -1) - centre[None]
    mass = jnp.asarray(masses, offset.dtype)
    squared = (offset * offset).sum(axis=-1)
    identity = jnp.eye(3, dtype=offset.dtype)[None]
    products = offset[:, :, None] * offset[:, None, :]
    inertia = identity + mass[:, None, None] * (squared[:, None, None] * identity - products)
    return jnp.concatenate([inertia.reshape(-1, 9), mass[:, None]], axis=-1)


def _link_velocities(
    physics: SpringPhysics, pipeline_state: Any, masses: Float[np.ndarray, " links"]
) -> Float[Array, "links 6"]:
    """Velocity of each link times its share of the mass, and its angular velocity."""
    body = physics.bodies(pipeline_state.spring)
    share = jnp.asarray(masses / masses.sum(), pipeline_state.qd.dtype)
    return jnp.stack([*(share * entry for entry in body.velocity), *body.angular_velocity], -1)


def _generalized_forces(motors: Mapping[int, Motor], num_dofs: int, action: Float[Array, " D"]) -> Float[Array, " qd"]:
    """Force of the motor of each degree of freedom; zero without one."""
    constants = jax.tree.map(lambda *numbers: jnp.asarray(numbers, action.dtype), *motors.values())
    forces = jnp.append(motor_force(constants, action), jnp.zeros((), action.dtype))
    entries = {dof_index: entry for entry, dof_index in enumerate(motors)}
    return forces[np.array([entries.get(dof_index, len(motors)) for dof_index in range(num_dofs)])]
