"""Brax's spring physics in one kernel: all substeps of an environment step, one limb per thread.

Brax (https://github.com/google/brax) computes a spring step with arrays over links: gathers, scatters, small matrix
products. On a GPU these are hundreds of kernels per environment step. Each of them reads and writes the whole batch.
This package writes out the same equations number by number. Every constant of the system is folded in while tracing:
a mass of one, an identity rotation or a zero offset adds no operation.

Links with the same structure and the same place in the tree, such as the four hips of Ant, form a group. A group shares
its code, and each of its numbers is an array [environments, members]. A link that is alone in its group, such as the
torso, has the same number for every member. Almost everything is elementwise; only the forces of the hips on the torso
are a sum over members. On a GPU, Pallas compiles this into one kernel, which keeps a limb in the registers of a thread
over all substeps. Elsewhere XLA compiles the same body.

HalfCheetah and others move in a plane: the remaining numbers of their bodies are the constant zero. The same equations
fold to a third of the operations, and a state has about half of the numbers.

The equations are Brax's, up to rounding, in another arrangement:

- Joint forces are computed in the global frame. Brax transforms to the joint's frame and back; the result is the same.
- Joint coordinates follow from the bodies. They are computed once, after the last substep.
- The angle of the second of several hinges has full precision near zero, where Brax's has half.
- Brax reads the inverse inertia of a contact from the flattened matrices of all links, at the index of the link. That
  is a number of another link. Brax's environments were tuned with it, so it is kept.
- The sign of the parent's angular velocity in the damping of joints is kept for the same reason (a mirrored anchor).

Supported systems: bodies that float freely or are attached to another body, or to the ground, by up to three hinges and
slides at right angles, and contacts of spheres and capsules with a fixed plane. `spring_physics` raises ValueError for
any other system.

Forward-mode derivatives exist where XLA computes the physics. The GPU kernel and reverse mode have none.

Modules, in the order in which data flows:

    arithmetic    numbers that may be constants, folded while tracing
    bodies        the state of a rigid body
    motors        force of an action
    joints        joints: constants, force, coordinates
    joint_reader  the constants of a joint
    inertia       angular acceleration due to a moment
    contacts      impulse where a link touches the ground
    system        the constants of a Brax system
    groups        links with identical structure
    substep       one time step of all bodies
    planar        systems that move in a plane
    layout        place of each number in the rows that the kernel reads and writes
    kernel        rows in, rows out: XLA or Pallas
    physics       `spring_physics`: a step of one environment
    observations  observations that would take longer than the physics
    environment   `fused_environment`: a Brax environment on this physics

To add a contact shape, extend `contacts`.
"""

from spo.environments.spring.environment import FusedEnvironment, fused_environment
from spo.environments.spring.physics import SpringPhysics, SpringState, spring_physics

__all__ = ["FusedEnvironment", "SpringPhysics", "SpringState", "fused_environment", "spring_physics"]
