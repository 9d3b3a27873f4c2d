"""The style of all figures, and the parts that they share: curves, intervals, axes, legends and files.

A group has the same colour in every figure. Colour-blind readers can tell the colours apart (after Okabe and Ito).
"""

import contextlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator
from PIL import Image

from spo.reports.formatting import format_metric
from spo.reports.stats import Curve, Estimate


def extend_palette(colours: Sequence[str]) -> tuple[str, ...]:
    """Returns the colours, then a darker and a lighter shade of each."""

    def mix(colour: str, with_value: int, share: float) -> str:
        parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return "#" + "".join(f"{round((1 - share) * part + share * with_value):02X}" for part in parts)

    return (*colours, *(mix(c, 0, 0.45) for c in colours), *(mix(c, 255, 0.5) for c in colours))


#: The colours of groups. None of them is grey, the colour of axes and of open verdicts.
PALETTE = extend_palette(
    ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D46", "#4B0092"),
)
INK, MUTED, GRID = "#24292F", "#6E7781", "#D8DEE4"
SHARE_LIMITS = (-0.02, 1.03)
"""Limits of an axis from 0 to 1."""
METRIC_LABELS = {"episode/solved": "episodes solved", "episode/return": "return per episode"}
PER_CENT = FuncFormatter(lambda value, _: f"{100 * value:.4g} %")

#: Algorithms with a fixed colour, the same in every comparison.
_KNOWN = ("spo", "ppo", "mpo", "vmpo", "alphazero", "sampled_alphazero", "smc_ent", "gumbel_alphazero")
_ROUND = [1, 2, 2.5, 5, 10]
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.wspace": 0.06,
    "figure.constrained_layout.hspace": 0.08,
    "svg.fonttype": "none",  # text stays text: it can be searched, and takes the colour of the page
}


def style() -> contextlib.AbstractContextManager[None]:
    """Returns the context in which every figure is drawn."""
    return matplotlib.rc_context(_STYLE)


def colours(groups: Sequence[str]) -> dict[str, str]:
    """Returns a colour for each group. Known algorithms have a fixed one, others take the rest in order.

    Up to 24 groups have colours of their own; more of them repeat some.
    """
    taken = {group: PALETTE[_KNOWN.index(group)] for group in groups if group in _KNOWN}
    free = [colour for colour in PALETTE if colour not in taken.values()] or list(PALETTE)
    others = [group for group in groups if group not in taken]
    return taken | {group: free[index % len(free)] for index, group in enumerate(others)}


def new_figure(width: float, height: float) -> Figure:
    """Creates a figure of this size, in inches, that needs no display."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def new_panels(count: int, height: float, *, same_rows: bool = False) -> tuple[Figure, list[Axes]]:
    """Creates a figure with `count` panels in rows of up to three. `same_rows`: all panels share their y-axis."""
    columns = min(3, count)
    rows = math.ceil(count / columns)
    figure = new_figure({1: 6.4, 2: 8.4, 3: 10.8}[columns], rows * height)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=same_rows).ravel().tolist()
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


def draw_curve(
    axes: Axes,
    curve: Curve,
    colour: str,
    *,
    label: str | None = None,
    marker: str | None = None,
    lw: float = 1.8,
    ls: str = "-",
) -> None:
    """Draws a curve as a line and its interval, where it has one, as a band."""
    marker = "o" if len(curve.x) == 1 else marker
    line: dict[str, Any] = {"color": colour, "lw": lw, "ls": ls, "marker": marker, "ms": 4, "label": label}
    axes.plot(curve.x, curve.estimate.value, solid_capstyle="round", **line)
    if np.isfinite(curve.estimate.low).any():
        axes.fill_between(curve.x, curve.estimate.low, curve.estimate.high, color=colour, alpha=0.15, lw=0)


def draw_interval(axes: Axes, row: float, estimate: Estimate, colour: str, ink: str = INK) -> None:
    """Draws a horizontal bar from the lower to the upper bound, with a tick at the value."""
    axes.use_sticky_edges = False  # a bar that ends at the edge would cut markers in half
    if not math.isnan(estimate.low):
        axes.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.3, color=colour, alpha=0.3, lw=0)
    axes.plot([estimate.value] * 2, [row - 0.2, row + 0.2], color=ink, lw=2, solid_capstyle="butt")


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Labels rows 0, 1, ... of the y-axis from top to bottom."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def add_legend(figure: Figure, groups: Sequence[str], palette: Mapping[str, str]) -> None:
    """Adds one legend for all panels, above them."""
    handles = [Line2D([], [], color=palette[group], lw=2.5, label=group) for group in groups]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 6))


def round_ticks(count: int) -> MaxNLocator:
    """Returns up to `count` intervals between ticks at 1, 2, 2.5 or 5 times a power of ten."""
    return MaxNLocator(count, steps=_ROUND)


def format_steps(axes: Axes) -> None:
    """Formats the x-axis as environment steps: 500k, 1M."""
    axes.xaxis.set_major_locator(round_ticks(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def format_time(axes: Axes) -> None:
    """Formats an x-axis in seconds as seconds, minutes or hours, and adds the unit to its label."""
    longest = axes.get_xlim()[1]
    unit, seconds = next((u, s) for u, s in (("h", 3600), ("min", 60), ("s", 1)) if longest >= 2 * s or s == 1)
    axes.set_xlabel(f"{axes.get_xlabel()} ({unit})")
    axes.xaxis.set_major_locator(_Multiples(seconds))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / seconds:g}"))


def format_values(axis: Any, metric: str) -> None:
    """Formats an axis with the values of a metric."""
    if metric == "episode/solved":
        axis.set_major_formatter(PER_CENT)
    else:
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_metric(metric, value)))
    axis.set_major_locator(round_ticks(5))


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure as .svg or .png, by the name of the file. The same figure gives the same bytes."""
    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"{path} must end in .svg or .png.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        path.write_text(to_svg(figure, path.stem, transparent=False), "utf-8")
        return path
    pixels = io.BytesIO()
    figure.savefig(pixels, dpi=200, format="png")
    # 256 colours show lines and bands well, and make the file a third as large.
    indexed = Image.open(pixels).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    indexed.save(path, optimize=True)
    return path


def to_svg(figure: Figure, name: str, *, transparent: bool = True) -> str:
    """Returns a figure as SVG. Figures with different names may stand on one page."""
    text = io.StringIO()
    # Matplotlib derives the identifiers inside the SVG from the salt.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=transparent, metadata={"Date": None})
    return text.getvalue()


class _Multiples(MaxNLocator):
    """Ticks at round multiples of a unit."""

    def __init__(self, unit: float):
        super().__init__(5, steps=_ROUND)
        self._unit = unit

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return np.asarray(super().tick_values(vmin / self._unit, vmax / self._unit)) * self._unit
