"""Statistics of a few runs: intervals, aggregate scores, tests and verdicts. NumPy and SciPy only.

The methods follow Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice", as the
paper applies them (appendix "Statistical Precipice").
"""

from spo.reports.stats.aggregates import (
    AGGREGATES,
    Scores,
    interquartile_mean,
    mean,
    median,
    min_max,
    normalise,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)
from spo.reports.stats.bootstrapping import LEVEL, NUM_RESAMPLES, Estimate, aggregate, bootstrap
from spo.reports.stats.curves import CURVE_RESAMPLES, Curve, aggregate_curve, on_common_grid, plain_curve, share_axis
from spo.reports.stats.intervals import (
    Interval,
    clip_to_share,
    least_probability,
    mean_interval,
    normal_interval,
    share_interval,
    widen_to_seeds,
)
from spo.reports.stats.leads import Lead, leads
from spo.reports.stats.permutation import holm, permutation_p_value
from spo.reports.stats.verdicts import (
    MEANINGFUL,
    Dominance,
    Verdict,
    dominance,
    format_dominance,
    format_p_value,
    verdict,
)

__all__ = [
    "AGGREGATES",
    "CURVE_RESAMPLES",
    "LEVEL",
    "MEANINGFUL",
    "NUM_RESAMPLES",
    "Curve",
    "Dominance",
    "Estimate",
    "Interval",
    "Lead",
    "Scores",
    "Verdict",
    "aggregate",
    "aggregate_curve",
    "bootstrap",
    "clip_to_share",
    "dominance",
    "format_dominance",
    "format_p_value",
    "holm",
    "interquartile_mean",
    "leads",
    "least_probability",
    "mean",
    "mean_interval",
    "median",
    "min_max",
    "normal_interval",
    "normalise",
    "on_common_grid",
    "optimality_gap",
    "performance_profile",
    "permutation_p_value",
    "plain_curve",
    "probability_of_improvement",
    "share_axis",
    "share_interval",
    "verdict",
    "widen_to_seeds",
]
