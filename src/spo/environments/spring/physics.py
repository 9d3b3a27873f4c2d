"""`spring_physics`: a step of one environment, and its joint coordinates and links."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from spo.environments._adapters import require
from spo.environments.spring.arithmetic import Vector, apply, cross, minus, plus, rotation_matrix, scale
from spo.environments.spring.bodies import Body, to_bodies
from spo.environments.spring.groups import Group, group_links, group_width, spread_constants
from spo.environments.spring.kernel import Implementation, KernelShape, RowFunction, batch_rows
from spo.environments.spring.layout import Layout, make_layout
from spo.environments.spring.planar import changing_numbers
from spo.environments.spring.substep import advance, coordinates
from spo.environments.spring.system import System, read_system
from spo.types import Array, Float


class SpringState(NamedTuple):
    """State of the physics: the bodies' centres of mass in the global frame.

    The 13 numbers are position, rotation (a unit quaternion, real part first), velocity and angular velocity. A system
    that moves in the plane y = 0 has the 7 of them that are not always zero.
    """

    bodies: Float[Array, "links numbers"]


class SpringPhysics(NamedTuple):
    """Physics of one environment. Any number of `vmap`s around `step` is one kernel call over the whole batch."""

    #: (state, action) -> (state, q, qd) after all substeps.
    step: Callable[[SpringState, Float[Array, " D"]], tuple[SpringState, Float[Array, " q"], Float[Array, " qd"]]]
    #: Joint positions and velocities of a state.
    coordinates: Callable[[SpringState], tuple[Float[Array, " q"], Float[Array, " qd"]]]
    #: The links of a state as Brax's `Transform` and `Motion` in the global frame.
    links: Callable[[SpringState], tuple[Any, Any]]
    #: The bodies of a state, each number an array over links.
    bodies: Callable[[SpringState], Body]
    #: Converts a state of Brax's spring pipeline.
    from_brax: Callable[[Any], SpringState]


def spring_physics(
    system: Any,
    num_substeps: int,
    *,
    implementation: Implementation | None = None,
    block_size: int | None = None,
    num_warps: int = 4,
) -> SpringPhysics:
    """Builds the spring physics of a Brax system.

    Args:
        system: the Brax system. Raises ValueError if it is not supported.
        num_substeps: number of the system's time steps in one `step`.
        implementation: "pallas" (the GPU kernel), "xla", or "interpret" (the kernel on any device, slowly). By default
            the kernel on NVIDIA GPUs and XLA elsewhere.
        block_size: environments per program of the kernel, a power of two. By default one member of a group per thread.
        num_warps: warps of 32 threads per program of the kernel.
    """
    if block_size is not None and (block_size < 1 or block_size & (block_size - 1)):
        raise ValueError(f"block_size must be a power of two, got block_size={block_size}: use 16 or 32.")
    try:
        constants = _read_outside_of_jit(system)
    except ValueError as error:
        raise ValueError(f"The fused spring physics does not support this system: {error}.") from error
    groups = group_links(constants)
    changing = changing_numbers(constants.shared, groups)
    layout = make_layout(constants, groups, len(changing))
    num_links, num_q = len(constants.links), layout.num_q
    num_numbers = num_links * len(changing)
    shape = KernelShape(block_size or 32 * num_warps // group_width(groups), num_warps)
    advance_rows = functools.partial(advance, constants.shared, groups, changing, num_substeps)
    advance_batch = _batched_advance(advance_rows, layout, implementation, shape)

    def step(
        state: SpringState, action: Float[Array, " D"]
    ) -> tuple[SpringState, Float[Array, " q"], Float[Array, " qd"]]:
        numbers_in = jnp.concatenate([state.bodies.reshape(-1), action])
        bodies, q, qd = jnp.split(advance_batch(numbers_in[None])[0], (num_numbers, num_numbers + num_q))
        return SpringState(bodies.reshape(num_links, len(changing))), q, qd

    return SpringPhysics(
        step,
        functools.partial(_coordinates, groups, layout, changing),
        functools.partial(_links, constants, changing),
        functools.partial(_bodies, changing),
        functools.partial(_from_brax, changing),
    )


def _read_outside_of_jit(system: Any) -> System:
    """Reads a system, also where an environment is made inside of `jit`.

    `ensure_compile_time_eval` evaluates every operation on its own, which takes ten times as long.
    """
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            return read_system(system)
    return read_system(system)


def _batched_advance(
    advance_rows: RowFunction, layout: Layout, implementation: Implementation | None, shape: KernelShape
) -> Callable[[Float[Array, "B numbers_in"]], Float[Array, "B numbers_out"]]:
    """All substeps of a batch of environments: from bodies and actions to bodies, q and qd."""
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


def _coordinates(
    groups: Sequence[Group], layout: Layout, changing: Sequence[int], state: SpringState
) -> tuple[Float[Array, " q"], Float[Array, " qd"]]:
    num_numbers = state.bodies.size
    rows = list(state.bodies.reshape(-1)[layout.rows_from_numbers[: len(changing) * len(groups)]])
    spread = spread_constants(groups, rows[0])
    rows_out = [*rows, *coordinates(spread, to_bodies(rows, changing), like=rows[0])]
    numbers = jnp.stack(rows_out).reshape(-1)[layout.numbers_from_rows[num_numbers:]]
    q, qd = jnp.split(numbers, (layout.num_q,))
    return q, qd


def _bodies(changing: Sequence[int], state: SpringState) -> Body:
    return to_bodies(list(state.bodies.T), changing)[0]


def _links(system: System, changing: Sequence[int], state: SpringState) -> tuple[Any, Any]:
    """Brax's `Transform` and `Motion` of each link's origin."""
    base = require("brax.base", extra="envs")
    body = _bodies(changing, state)
    columns = np.array([link.centre_of_mass for link in system.links]).T
    centre = [jnp.asarray(column, state.bodies.dtype) if np.any(column) else 0.0 for column in columns]
    to_centre = apply(rotation_matrix(body.rotation), centre)
    position = minus(body.position, to_centre)
    velocity = plus(body.velocity, scale(-1.0, cross(body.angular_velocity, to_centre)))

    def stack(vector: Vector) -> Float[Array, "links n"]:
        like = state.bodies[:, 0]
        return jnp.stack([jnp.full_like(like, entry) if isinstance(entry, float) else entry for entry in vector], -1)

    return (
        base.Transform(stack(position), stack(body.rotation)),
        base.Motion(ang=stack(body.angular_velocity), vel=stack(velocity)),
    )


def _from_brax(changing: Sequence[int], pipeline_state: Any) -> SpringState:
    x, xd = pipeline_state.x_i, pipeline_state.xd_i
    return SpringState(jnp.concatenate([x.pos, x.rot, xd.vel, xd.ang], axis=-1)[..., np.array(changing)])
