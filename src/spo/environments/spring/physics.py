"""`spring_physics`: a step of one environment, and its joint coordinates and links."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from spo.environments._adapters import jit_foreign, require
from spo.environments.spring.bodies import NUMBERS_PER_BODY
from spo.environments.spring.groups import Group, group_links, spread_constants
from spo.environments.spring.kernel import Implementation, KernelShape, batch_rows
from spo.environments.spring.layout import Layout, make_layout
from spo.environments.spring.substep import advance, append_coordinates
from spo.environments.spring.system import System, read_system
from spo.types import Array, Float


class SpringState(NamedTuple):
    """State of the physics: the bodies' centres of mass in the global frame.

    The 13 numbers are position, rotation (a unit quaternion, real part first), velocity and angular velocity.
    """

    bodies: Float[Array, "links 13"]


class SpringPhysics(NamedTuple):
    """Physics of one environment. Any number of `vmap`s around `step` is one kernel call over the whole batch."""

    #: (state, action) -> (state, q, qd) after all substeps.
    step: Callable[[SpringState, Float[Array, " D"]], tuple[SpringState, Float[Array, " q"], Float[Array, " qd"]]]
    #: Joint positions and velocities of a state.
    coordinates: Callable[[SpringState], tuple[Float[Array, " q"], Float[Array, " qd"]]]
    #: The links of a state as Brax's `Transform` and `Motion` in the global frame.
    links: Callable[[SpringState], tuple[Any, Any]]


def from_brax(pipeline_state: Any) -> SpringState:
    """Converts a state of Brax's spring pipeline."""
    x, xd = pipeline_state.x_i, pipeline_state.xd_i
    return SpringState(jnp.concatenate([x.pos, x.rot, xd.vel, xd.ang], axis=-1))


def spring_physics(
    system: Any,
    num_substeps: int,
    *,
    implementation: Implementation | None = None,
    block_size: int = 32,
    num_warps: int = 4,
) -> SpringPhysics:
    """Builds the spring physics of a Brax system.

    Args:
        system: the Brax system. Raises ValueError if it is not supported.
        num_substeps: number of the system's time steps in one `step`.
        implementation: "pallas" (the GPU kernel), "xla", or "interpret" (the kernel on any device, slowly). By default
            the kernel on NVIDIA GPUs and XLA elsewhere.
        block_size: environments per program of the kernel, a power of two.
        num_warps: warps of 32 threads per program of the kernel.
    """
    if block_size < 1 or block_size & (block_size - 1):
        raise ValueError(f"block_size must be a power of two, got block_size={block_size}: use 16 or 32.")
    try:
        with jax.ensure_compile_time_eval():  # an environment may be made inside of `jit`
            constants = read_system(system)
            groups = group_links(constants)
    except ValueError as error:
        raise ValueError(f"The fused spring physics does not support this system: {error}.") from error
    layout = make_layout(constants, groups)
    num_links, num_q = len(constants.links), layout.num_q
    num_numbers = num_links * NUMBERS_PER_BODY
    shape = KernelShape(block_size, num_warps)
    advance_batch = _batched_advance(constants, groups, layout, num_substeps, implementation, shape)

    def step(
        state: SpringState, action: Float[Array, " D"]
    ) -> tuple[SpringState, Float[Array, " q"], Float[Array, " qd"]]:
        numbers_in = jnp.concatenate([state.bodies.reshape(-1), action])
        bodies, q, qd = jnp.split(advance_batch(numbers_in[None])[0], (num_numbers, num_numbers + num_q))
        return SpringState(bodies.reshape(num_links, NUMBERS_PER_BODY)), q, qd

    def coordinates(state: SpringState) -> tuple[Float[Array, " q"], Float[Array, " qd"]]:
        rows = state.bodies.reshape(-1)[layout.rows_from_numbers[: NUMBERS_PER_BODY * len(groups)]]
        rows_out = append_coordinates(spread_constants(groups, rows[0]), list(rows))
        q, qd = jnp.split(jnp.stack(rows_out).reshape(-1)[layout.numbers_from_rows[num_numbers:]], (num_q,))
        return q, qd

    return SpringPhysics(step, coordinates, functools.partial(_links, constants))


def _batched_advance(
    system: System,
    groups: Sequence[Group],
    layout: Layout,
    num_substeps: int,
    implementation: Implementation | None,
    shape: KernelShape,
) -> Callable[[Float[Array, "B numbers_in"]], Float[Array, "B numbers_out"]]:
    """All substeps of a batch of environments: from bodies and actions to bodies, q and qd."""
    advance_rows = functools.partial(advance, system.shared, groups, num_substeps)
    run = batch_rows(advance_rows, layout.num_rows_out, implementation, shape)

    @custom_vmap
    def advance_batch(numbers_in: Float[Array, "B numbers_in"]) -> Float[Array, "B numbers_out"]:
        rows_in = numbers_in.at[:, layout.rows_from_numbers].get(mode="promise_in_bounds")
        rows_out = run(rows_in)
        return rows_out.reshape(len(rows_out), -1).at[:, layout.numbers_from_rows].get(mode="promise_in_bounds")

    @advance_batch.def_vmap
    def advance_more(
        axis_size: int, in_batched: list, numbers_in: Float[Array, "N B numbers_in"]
    ) -> tuple[Float[Array, "N B numbers_out"], bool]:
        # One more axis only makes the batch larger. Any number of axes ends in one call.
        del in_batched  # there is one operand
        numbers_out = advance_batch(numbers_in.reshape(-1, numbers_in.shape[-1]))
        return numbers_out.reshape(axis_size, -1, numbers_out.shape[-1]), True

    return advance_batch


def _links(system: System, state: SpringState) -> tuple[Any, Any]:
    """Brax's `Transform` and `Motion` of each link's origin."""
    base = require("brax.base", extra="envs")
    centres_of_mass = np.array([link.centre_of_mass for link in system.links])
    position, rotation, velocity, angular_velocity = jnp.split(state.bodies, (3, 7, 10), axis=-1)
    rotate = jit_foreign(jax.vmap(require("brax.math", extra="envs").rotate))
    from_centre = rotate(jnp.asarray(-centres_of_mass, state.bodies.dtype), rotation)
    velocity = velocity + jnp.cross(angular_velocity, from_centre)
    return base.Transform(position + from_centre, rotation), base.Motion(angular_velocity, velocity)
