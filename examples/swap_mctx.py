"""From mctx's tree search to a particle search: one call changes, the root and the model stay the same.

    python examples/swap_mctx.py

The environment is a corridor of five rooms, as a model for mctx. The right end, three steps away, has a reward. The
left end, one step away, has none. Both end the episode. The value is 0 everywhere.
"""

import jax
import jax.numpy as jnp
import mctx

from spo.search import Resampling, smc_policy

NUM_ROOTS, LAST_ROOM, START = 8, 4, 1
GAMMA = 0.99


def recurrent_fn(_params, _key, action, room):
    """Steps a batch: returns rewards, discounts, priors and values, and the embeddings of the next states."""
    room = jnp.clip(room + 2 * action - 1, 0, LAST_ROOM)
    at_end = (room == 0) | (room == LAST_ROOM)
    output = mctx.RecurrentFnOutput(
        reward=1.0 * (room == LAST_ROOM),
        discount=jnp.where(at_end, 0.0, GAMMA),
        prior_logits=jnp.zeros((*room.shape, 2)),
        value=jnp.zeros(room.shape),
    )
    return output, room


@jax.jit
def before(key, root):
    return mctx.gumbel_muzero_policy((), key, root, recurrent_fn, num_simulations=256)


@jax.jit
def after(key, root):
    """Searches with the same budget, 64 particles x 4 steps. Particles are redrawn where their weights are unequal."""
    return smc_policy(
        (),
        key,
        root,
        recurrent_fn,
        num_particles=64,
        horizon=4,
        temperature=0.1,
        resampling=Resampling(1, ess_below=0.5),
    )


def main() -> tuple[jax.Array, jax.Array]:
    root = mctx.RootFnOutput(
        prior_logits=jnp.zeros((NUM_ROOTS, 2)),
        value=jnp.zeros(NUM_ROOTS),
        embedding=jnp.full(NUM_ROOTS, START),
    )
    tree, particles = before(jax.random.key(0), root), after(jax.random.key(0), root)
    print("Probability of going right, towards the reward, at eight equal roots:")
    print("  prior            ", "  ".join(["0.50"] * NUM_ROOTS))
    for name, policy in (("gumbel_muzero    ", tree), ("smc              ", particles)):
        print(f"  {name}", "  ".join(f"{weight:.2f}" for weight in policy.action_weights[:, 1]))
    print("Model calls one after another: 256 in the tree, 4 with the particles.")
    return tree.action_weights, particles.action_weights


if __name__ == "__main__":
    main()
