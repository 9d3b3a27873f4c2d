"""A picture of one search: its particles over the depths, drawn from the recorded ancestry."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from spo.search.base import SearchOutput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that people with colour blindness can tell apart; used again from the start if there are more actions.
ACTION_COLOURS = ("#4269d0", "#efb118", "#3ca951", "#a463f2", "#ff725c", "#6cc5b0", "#9c6b4e", "#97bbf5")
INK, SHADE = "#4b5563", "#eef1f5"
MAX_BARS = 12


def draw_ancestry(output: SearchOutput, root: int = 0, action_names: Sequence[str] | None = None) -> "Figure":
    """Draws the particles of one root, depth by depth, and the estimated policy.

    Depth runs to the right. A circle is a particle, its area is the weight, and a line leads to its parent. A cross
    marks a particle whose episode has ended. Particles are redrawn in the shaded gaps. Colours are first actions.

    Args:
      output: of `search(..., with_ancestry=True)`.
      root: index of the root to draw.
      action_names: labels of discrete actions; by default their numbers.

    Returns:
      A matplotlib figure. Save it with `figure.savefig("search.svg")`.
    """
    if output.ancestry is None:
        raise ValueError("There is no ancestry to draw: call search with with_ancestry=True.")
    num_roots = len(output.value)
    if not 0 <= root < num_roots:  # JAX would use the nearest valid index
        raise ValueError(f"root must be an index from 0 to {num_roots - 1}, got {root}.")
    tree = _read_tree(output, root)
    figure, axes = _new_figure(tree)
    _draw_resamples(axes, tree)
    _draw_particles(axes, tree)
    left = tree.x[-1] + 0.9
    if output.action_weights is not None:
        _draw_policy(axes, np.asarray(output.action_weights[root]), left, tree, action_names)
    axes.set(xlim=(-0.5, left + 2.1), ylim=(-1.7, tree.rows.shape[1] + 0.7))
    axes.axis("off")
    figure.tight_layout(pad=0.2)
    return figure


class _Tree(NamedTuple):
    """One root's ancestry in NumPy, with the place of every particle in the picture."""

    parents: np.ndarray  # [H, N]
    weights: np.ndarray  # [H, N] sum to 1 at each depth
    ended: np.ndarray  # [H, N]
    resampled: np.ndarray  # [H]
    colours: np.ndarray  # [H, N] index of the first action
    x: np.ndarray  # [H]
    rows: np.ndarray  # [H, N] heights


def _read_tree(output: SearchOutput, root: int) -> _Tree:
    assert output.ancestry is not None  # checked by the caller
    ancestry = jax.tree.map(lambda x: np.asarray(x[root]), output.ancestry._replace(state=None))
    resampled = np.asarray(output.diagnostics.resampled[root])
    samples = np.arange(ancestry.parent.shape[1])
    colours = np.empty(ancestry.parent.shape, int)
    colours[0] = samples if output.action_weights is None else ancestry.action[0]
    for depth in range(1, len(colours)):
        colours[depth] = colours[depth - 1][ancestry.parent[depth]]
    # A resample takes a little more room than a step without.
    gaps = np.where(resampled[:-1], 1.5, 1.0)
    return _Tree(
        parents=ancestry.parent,
        weights=np.asarray(jax.nn.softmax(ancestry.log_weights, axis=1)),
        ended=ancestry.ended,
        resampled=resampled,
        colours=colours,
        x=np.cumsum(np.concatenate([[1.0], gaps])),
        rows=_rows_without_crossings(ancestry.parent, colours[0]),
    )


def _rows_without_crossings(parents: np.ndarray, first_actions: np.ndarray) -> np.ndarray:
    """Heights [H, N]: particles sorted by first action, then by the height of their parent."""
    rows = np.empty(parents.shape)
    above = np.argsort(np.argsort(first_actions, kind="stable"))
    for depth, parent in enumerate(parents):
        rows[depth] = np.argsort(np.argsort(above[parent], kind="stable"))
        above = rows[depth]
    return rows


def _new_figure(tree: _Tree) -> tuple["Figure", "Axes"]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("draw_ancestry needs matplotlib: pip install matplotlib.") from error
    num_depths, num_particles = tree.rows.shape
    figure = Figure(figsize=(2.6 + 0.9 * num_depths, min(0.8 + 0.28 * num_particles, 12.0)))
    return figure, figure.subplots()


def _draw_resamples(axes: "Axes", tree: _Tree) -> None:
    num_depths, num_particles = tree.rows.shape
    for depth in range(num_depths - 1):
        if tree.resampled[depth]:
            centre = (tree.x[depth] + tree.x[depth + 1]) / 2
            axes.axvspan(centre - 0.45, centre + 0.45, color=SHADE, lw=0, zorder=0)
            axes.text(centre, num_particles - 0.2, "resample", ha="center", va="bottom", color=INK, fontsize=9)
    for depth in range(num_depths):
        axes.text(tree.x[depth], -1.4, str(depth + 1), ha="center", color=INK, fontsize=9)
    axes.text(0, -1.4, "step", ha="center", color=INK, fontsize=9)


def _draw_particles(axes: "Axes", tree: _Tree) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    num_depths, num_particles = tree.rows.shape
    middle = (num_particles - 1) / 2
    axes.scatter([0], [middle], s=90, color=INK, zorder=3)
    axes.text(0, middle + 0.9, "root", ha="center", color=INK, fontsize=9)
    for depth in range(num_depths):
        for n in range(num_particles):
            x, y, colour = tree.x[depth], tree.rows[depth, n], _colour(tree.colours[depth, n])
            from_x, from_y = 0.0, middle
            if depth > 0:
                from_x, from_y = tree.x[depth - 1], tree.rows[depth - 1, tree.parents[depth, n]]
            half_way = (from_x + x) / 2  # the curve is horizontal at both ends
            curve = Path([(from_x, from_y), (half_way, from_y), (half_way, y), (x, y)], [1, 4, 4, 4])
            axes.add_patch(PathPatch(curve, fc="none", ec=colour, lw=1.2, alpha=0.55, zorder=1))
            area = 14 + 900 * tree.weights[depth, n]
            axes.scatter([x], [y], s=area, color=colour, ec="white", lw=0.8, zorder=2)
            if tree.ended[depth, n]:
                axes.scatter([x], [y], s=28, color="white", marker="x", lw=1.2, zorder=3)


def _draw_policy(
    axes: "Axes", weights: np.ndarray, left: float, tree: _Tree, action_names: Sequence[str] | None
) -> None:
    """Draws the estimated policy as bars; of many actions only those with most weight."""
    num_particles = tree.rows.shape[1]
    axes.text(left, num_particles - 0.2, "q at the root", ha="left", va="bottom", color=INK, fontsize=9)
    shown = np.sort(np.argsort(-weights, kind="stable")[:MAX_BARS])
    spacing = min(2.1, num_particles / len(shown))
    for place, action in enumerate(shown):
        y = (num_particles - 1) / 2 + spacing * (place - (len(shown) - 1) / 2)
        height = 0.43 * spacing
        axes.barh(y, 1.4, left=left, height=height, color=SHADE)
        axes.barh(y, 1.4 * weights[action], left=left, height=height, color=_colour(action))
        name = "" if action_names is None else f" {action_names[action]}"
        axes.text(left + 1.5, y, f"{weights[action]:.2f}{name}", va="center", color=INK, fontsize=9)


def _colour(action: Any) -> str:
    return ACTION_COLOURS[int(action) % len(ACTION_COLOURS)]
