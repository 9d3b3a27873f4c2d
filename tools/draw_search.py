"""Draws a search, particle by particle, from its recorded ancestry: the picture in the README.

    python tools/draw_search.py docs/images/search.svg [seed]

Time runs to the right. A circle is a particle and its area the weight; a line leads to the particle it came from. In
the shaded gaps particles are redrawn: heavy ones get several children, light ones none. Colours tell first actions
apart.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from spo.search import ModelOutput, Root, SearchOutput, search

NUM_PARTICLES, HORIZON, RESAMPLE_PERIOD, TEMPERATURE = 10, 6, 2, 1.0
NUM_ACTIONS, NUM_STATES = 4, 64
ACTION_COLOURS = ("#4269d0", "#efb118", "#3ca951", "#a463f2")
INK, SHADE = "#4b5563", "#eef1f5"


def search_a_random_world(seed: int) -> SearchOutput:
    """A world of random rewards and moves is all a picture needs."""
    rewards = jax.random.normal(jax.random.key(seed), (NUM_STATES, NUM_ACTIONS))
    moves = jax.random.randint(jax.random.key(seed + 1), (NUM_STATES, NUM_ACTIONS), 0, NUM_STATES)

    def model_fn(_key, state, action) -> ModelOutput:
        return ModelOutput(
            state=moves[state, action],
            prior=jnp.zeros(NUM_ACTIONS),
            value=jnp.zeros(()),
            reward=rewards[state, action],
            discount=jnp.ones(()),
            ended=jnp.zeros((), bool),
        )

    return search(
        jax.random.key(seed + 2),
        Root(prior=jnp.zeros((1, NUM_ACTIONS)), value=jnp.zeros(1), state=jnp.zeros(1, jnp.int32)),
        model_fn,
        num_particles=NUM_PARTICLES,
        horizon=HORIZON,
        temperature=TEMPERATURE,
        resample_period=RESAMPLE_PERIOD,
        with_ancestry=True,
    )


def rows_without_crossings(parents: np.ndarray, first_actions: np.ndarray) -> np.ndarray:
    """[H, N] heights: particles sorted by first action, then by the height of their parent."""
    rows = np.empty(parents.shape)
    above = np.argsort(np.argsort(first_actions, kind="stable"))
    for depth, parent in enumerate(parents):
        rows[depth] = np.argsort(np.argsort(above[parent], kind="stable"))
        above = rows[depth]
    return rows


def draw(output: SearchOutput) -> plt.Figure:
    ancestry = jax.tree.map(lambda x: np.asarray(x[0]), output.ancestry)
    resampled = np.asarray(output.diagnostics.resampled[0])
    weights = np.asarray(jax.nn.softmax(ancestry.log_weights, axis=1))

    # The first action of each particle, depth by depth.
    first_actions = np.empty(ancestry.parent.shape, int)
    first_actions[0] = ancestry.action[0]
    for depth in range(1, HORIZON):
        first_actions[depth] = first_actions[depth - 1][ancestry.parent[depth]]
    rows = rows_without_crossings(ancestry.parent, first_actions[0])

    figure, axes = plt.subplots(figsize=(8.0, 3.6))
    gap = np.cumsum(np.concatenate([[1.0], np.where(resampled[:-1], 1.5, 1.0)]))  # a resample takes a little room
    middle = (NUM_PARTICLES - 1) / 2
    for depth in range(HORIZON - 1):
        if resampled[depth]:
            centre = (gap[depth] + gap[depth + 1]) / 2
            axes.axvspan(centre - 0.45, centre + 0.45, color=SHADE, lw=0, zorder=0)
            axes.text(centre, NUM_PARTICLES - 0.2, "resample", ha="center", va="bottom", color=INK, fontsize=9)

    axes.scatter([0], [middle], s=90, color=INK, zorder=3)
    axes.text(0, middle + 0.9, "root", ha="center", color=INK, fontsize=9)
    for depth in range(HORIZON):
        for n in range(NUM_PARTICLES):
            x, y = gap[depth], rows[depth, n]
            colour = ACTION_COLOURS[first_actions[depth, n]]
            from_x, from_y = (
                (0.0, middle) if depth == 0 else (gap[depth - 1], rows[depth - 1, ancestry.parent[depth, n]])
            )
            half_way = (from_x + x) / 2  # the curve leaves and arrives level
            curve = Path([(from_x, from_y), (half_way, from_y), (half_way, y), (x, y)], [1, 4, 4, 4])
            axes.add_patch(PathPatch(curve, fc="none", ec=colour, lw=1.2, alpha=0.55, zorder=1))
            axes.scatter([x], [y], s=14 + 900 * weights[depth, n], color=colour, ec="white", lw=0.8, zorder=2)

    # The read-out: how much weight ended up on each first action.
    left = gap[-1] + 0.9
    axes.text(left, NUM_PARTICLES - 0.2, "q at the root", ha="left", va="bottom", color=INK, fontsize=9)
    for action, weight in enumerate(np.asarray(output.action_weights[0])):
        y = middle + 2.1 * (action - (NUM_ACTIONS - 1) / 2)
        axes.barh(y, 1.4, left=left, height=0.9, color=SHADE)
        axes.barh(y, 1.4 * weight, left=left, height=0.9, color=ACTION_COLOURS[action])
        axes.text(left + 1.5, y, f"{weight:.2f}", va="center", color=INK, fontsize=9)

    for depth in range(HORIZON):
        axes.text(gap[depth], -1.4, str(depth + 1), ha="center", color=INK, fontsize=9)
    axes.text(0, -1.4, "step", ha="center", color=INK, fontsize=9)
    axes.set(xlim=(-0.5, left + 2.1), ylim=(-1.7, NUM_PARTICLES + 0.7))
    axes.axis("off")
    figure.tight_layout(pad=0.2)
    return figure


def main(path: pathlib.Path, seed: int = 5) -> None:
    reproducible = {"Date": None} if path.suffix == ".svg" else None
    with plt.rc_context({"svg.hashsalt": "spo", "svg.fonttype": "none"}):  # the same picture is the same file
        draw(search_a_random_world(seed)).savefig(path, metadata=reproducible, dpi=110)
    print(f"Wrote {path}.")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("Say where to draw to: python tools/draw_search.py docs/images/search.svg")
    main(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
