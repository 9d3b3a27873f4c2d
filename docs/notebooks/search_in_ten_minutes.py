# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Search in ten minutes on a CPU
#
# We plan in a small grid with a particle search and look at its diagnostics. Then we change the temperature and the
# number of particles. Nothing is trained here.

# %%
import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from spo.search import ModelOutput, Resampling, Root, search

# %% [markdown]
# ## An environment
#
# The environment is a grid of five by five cells, with four actions. The goal in the corner (4, 4) gives reward 1 and
# ends the episode. A pit in the middle gives reward −1 and ends it too. Every step costs 0.02. The policy is uniform,
# and the value is 0 everywhere.

# %%
SIZE = 5
MOVES = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
NAMES = ("up", "down", "left", "right")
GOAL, PIT = jnp.array([4, 4]), jnp.array([2, 2])


def model_fn(_key, position, action):
    """One step of one particle. A learned model has the same signature as this simulator."""
    position = jnp.clip(position + MOVES[action], 0, SIZE - 1)
    at_goal, at_pit = jnp.all(position == GOAL), jnp.all(position == PIT)
    ended = at_goal | at_pit
    return ModelOutput(
        state=position,
        prior=jnp.zeros(4),
        value=jnp.zeros(()),
        reward=1.0 * at_goal - 1.0 * at_pit - 0.02,
        discount=1.0 - ended,
        ended=ended,
    )


def root_at(positions):
    num_roots = len(positions)
    return Root(prior=jnp.zeros((num_roots, 4)), value=jnp.zeros(num_roots), state=jnp.asarray(positions))


# %% [markdown]
# ## One search
#
# `num_particles`, `horizon` and `resample_period` are sizes, so they are static arguments of `jit`. The temperature may
# be traced.


# %%
@functools.partial(jax.jit, static_argnames=("num_particles", "horizon", "resample_period"))
def plan(key, root, temperature, *, num_particles=256, horizon=10, resample_period=3):
    return search(
        key,
        root,
        model_fn,
        num_particles=num_particles,
        horizon=horizon,
        temperature=temperature,
        resampling=Resampling(resample_period),
        unroll=1,
    )


output = plan(jax.random.key(0), root_at([[3, 2]]), 0.1)
for name, weight in zip(NAMES, output.action_weights[0], strict=True):
    print(f"{name:5s} {weight:.2f}")

# %% [markdown]
# The cell (3, 2) is directly below the pit, so "up" leads into the pit. The search gives "up" almost no weight, because
# particles that entered the pit lost their weight.

# %%
assert output.action_weights[0, 0] < 0.05

# %% [markdown]
# ## Inside
#
# The effective sample size measures how many particles still have weight. It falls as the weights become unequal. A
# resample, at a dashed line, sets it back to N.

# %%
diagnostics = output.diagnostics
depths = np.arange(1, 11)
plt.plot(depths, diagnostics.ess[0], marker="o", label="effective sample size")
plt.plot(depths, diagnostics.num_live[0], marker="s", label="particles whose episode has not ended")
for depth in depths[np.asarray(diagnostics.resampled[0])]:
    plt.axvline(depth + 0.5, color="grey", lw=0.8, ls="--")
plt.xlabel("step")
plt.legend()
plt.show()

# %% [markdown]
# ## Temperature
#
# At a high temperature the search returns the policy. At a low temperature it follows its best particle. This cell
# prints the weight of each action from (3, 4), one step from the goal, at five temperatures. The temperature may differ
# between roots, so one call computes all five.

# %%
temperatures = jnp.array([100.0, 1.0, 0.3, 0.1, 0.03])
output = plan(jax.random.key(1), root_at([[3, 4]] * 5), temperatures, num_particles=4096)
for temperature, weights in zip(temperatures, output.action_weights, strict=True):
    print(
        f"{temperature:7.2f}  " + "  ".join(f"{name} {weight:.2f}" for name, weight in zip(NAMES, weights, strict=True))
    )

# %%
assert jnp.all(jnp.abs(output.action_weights[0] - 0.25) < 0.07)
assert output.action_weights[-1, 1] > output.action_weights[0, 1]

# %% [markdown]
# ## More particles, less noise
#
# The same search runs a hundred times with 16, 64 and 256 particles. The standard deviation of the estimate falls in
# proportion to 1/√N.

# %%
for num_particles in (16, 64, 256):
    output = plan(jax.random.key(2), root_at([[3, 4]] * 100), 0.3, num_particles=num_particles)
    spread = jnp.std(output.action_weights[:, 1])
    print(f"N = {num_particles:4d}   spread {spread:.3f}   times √N {spread * num_particles**0.5:.2f}")

# %% [markdown]
# ## Acting
#
# The loop searches and takes the best action until it reaches the goal. It starts in the far corner, eight steps away.

# %%
position, path = jnp.array([[0, 0]]), [(0, 0)]
for key in jax.random.split(jax.random.key(3), 20):
    action = plan(key, root_at(position), 0.05, num_particles=1024, horizon=12).best_action
    position = jnp.clip(position + MOVES[action], 0, SIZE - 1)
    path.append(tuple(int(x) for x in position[0]))
    if path[-1] == (4, 4):
        break
print(" → ".join(map(str, path)))

# %%
assert path[-1] == (4, 4)
