"""Random play in Brax, in double precision, and a few of its steps stored in `tests/oracles/spring_steps.json`.

`python tests/environments/spring_steps.py` writes the file. The tests read it, because Brax takes long to compile.
"""

import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from brax import contact, envs

NAMES = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "reacher",
    "walker2d",
)
BATCH, NUM_STEPS = 8, 125
FILE = Path(__file__).parents[1] / "oracles" / "spring_steps.json"
STORED = tuple(name for name in NAMES if name != "humanoidstandup")  # as large as Humanoid, and the same parts
DIGITS = 14


class Steps(NamedTuple):
    """Steps of Brax, with one leading axis: a thousand of them."""

    before: np.ndarray  # position, rotation, velocity and angular velocity of each link's centre of mass
    action: np.ndarray
    after: np.ndarray
    q: np.ndarray
    qd: np.ndarray
    observation: np.ndarray
    reward: np.ndarray
    done: np.ndarray


class Coverage(NamedTuple):
    """Of each step's start: whether each contact point is inside another body, each joint beyond its limits."""

    touching: np.ndarray
    beyond_limits: np.ndarray


def all_numbers(pipeline_state):
    """All 13 numbers of each link."""
    x, xd = pipeline_state.x_i, pipeline_state.xd_i
    return jnp.concatenate([x.pos, x.rot, xd.vel, xd.ang], axis=-1)


def play(name, *, batch=BATCH, num_steps=NUM_STEPS):
    """Returns Brax's environment, its states before and after each step, and the actions, with one leading axis."""
    env = envs.get_environment(name, backend="spring")
    key_reset, key_actions, key_strength = jax.random.split(jax.random.key(11), 3)
    # Held for some steps, so that joints reach their limits, and beyond the motors' range.
    shape = (-(-num_steps // 10), batch, env.action_size)
    held = jnp.repeat(jax.random.uniform(key_actions, shape, minval=-1.3, maxval=1.3), 10, axis=0)[:num_steps]
    actions = held + 0.2 * jax.random.normal(key_strength, held.shape)

    def body(before, action):
        after = jax.vmap(env.step)(before, action)
        after = jax.tree.map(lambda old, new: jax.lax.convert_element_type(new, old.dtype), before, after)
        return after, (before, after)

    @jax.jit
    def run():
        start = jax.vmap(env.reset)(jax.random.split(key_reset, batch))
        before, after = jax.lax.scan(body, start, actions)[1]
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (before, actions, after))

    with jax.numpy_rank_promotion("allow"):
        return env, *run()


def to_steps(before, actions, after):
    state = after.pipeline_state
    numbers = jax.vmap(all_numbers)
    return Steps(
        *map(
            np.asarray,
            (
                numbers(before.pipeline_state),
                actions,
                numbers(state),
                state.q,
                state.qd,
                after.obs,
                after.reward,
                after.done,
            ),
        )
    )


def coverage(env, before):
    state = before.pipeline_state
    found = jax.eval_shape(lambda x: contact.get(env.sys, x), jax.tree.map(lambda leaf: leaf[0], state.x))
    touching = np.zeros((len(before.done), 0), bool)
    if found is not None:
        with jax.numpy_rank_promotion("allow"):
            touching = np.asarray(jax.jit(jax.vmap(lambda x: contact.get(env.sys, x).dist))(state.x)) < 0
    lowest, highest = map(np.asarray, env.sys.dof.limit)
    q = np.asarray(state.q)[:, state.q.shape[1] - len(lowest) :]  # a free body has one q more than qd, and no limits
    return Coverage(touching, (q < lowest) | (q > highest))


def choose(seen):
    """Indices of some steps: four at equal distances, and one for each contact and each limit that was reached."""
    occurrences = [np.flatnonzero(column) for column in np.concatenate(seen, axis=1).T]
    middle = {int(steps[len(steps) // 2]) for steps in occurrences if len(steps)}
    return sorted(middle | set(range(0, BATCH * NUM_STEPS, BATCH * NUM_STEPS // 4)))


def stored(name):
    fields = json.loads(FILE.read_text("utf-8"))[name]
    return Steps(*(np.array(fields[field]) for field in Steps._fields))


def main():
    rows = {}
    for name in STORED:
        env, *played = play(name)
        chosen = choose(coverage(env, played[0]))
        steps = jax.tree.map(lambda leaf, chosen=chosen: leaf[np.array(chosen)], to_steps(*played))
        rows[name] = {field: _round(value.tolist()) for field, value in steps._asdict().items()}
        print(name, len(chosen))
    lines = ",\n".join(f'"{name}":{json.dumps(row, separators=(",", ":"))}' for name, row in rows.items())
    FILE.write_text(f"{{{lines}}}\n", "utf-8")


def _round(values):
    return [_round(value) for value in values] if isinstance(values, list) else float(f"{values:.{DIGITS}g}")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
