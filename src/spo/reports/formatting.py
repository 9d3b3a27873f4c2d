"""Numbers as people read them."""

import math
from collections.abc import Sequence

from spo.reports.stats import Estimate

HEADLINES = {"episode/solved": "solved", "episode/return": "return"}
"""Metrics that score a task, in order of preference, with their names in tables."""


def format_metric(name: str, value: float) -> str:
    """Formats the value of a metric: shares of solved episodes in per cent, others with three or four digits."""
    if not math.isfinite(value):
        return "none"
    if name == "episode/solved":
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_estimate(metric: str, estimate: Estimate) -> str:
    """Formats a value with its interval in brackets, if it has one. Metrics not in `HEADLINES` get three decimals."""
    value, low, high = (format_metric(metric, x) if metric in HEADLINES else f"{x:.3f}" for x in estimate)
    return value if math.isnan(estimate.low) else f"{value} ({low} to {high})"


def format_count(number: float) -> str:
    """Formats a large number with three digits and its unit: 950, 303 k, 1.52 M, 2.1 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{float(f'{number / size:.3g}'):g} {unit}"
    return f"{number:g}"


def format_duration(seconds: float) -> str:
    """Formats a duration with its two largest units."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def format_list(names: Sequence[str]) -> str:
    """Joins names with commas, and the last two with "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
