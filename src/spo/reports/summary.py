"""What a finished run comes to: flat names and numbers, from its records."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from spo.reports.statistics import (
    Interval,
    at_least_between_seeds,
    normal_interval,
    share_interval,
    within_0_and_1,
)

Record = dict[str, Any]


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """How the run did before training and at its end.

    Each result is a plain number, the mean over seeds, with its 95 % interval (`..._interval`), episodes per seed
    (`..._episodes`) and values per seed (`..._per_seed`) beside it. The interval is that between all episodes (Wilson
    for rates, normal for returns) and, where there are several seeds, that between seeds (Student) if it is wider.
    """
    first = [record for record in records if record["kind"] == "evaluation" and record["iteration"] == 0]
    final = [record for record in records if record["kind"] == "final"]
    results: dict[str, Any] = {}
    for stage, stage_records, prefix, suffix in (
        ("initial", first, "episode", ""),
        ("final", final, "episode", ""),
        ("final", final, "policy_only", "_policy_only"),
    ):
        metrics = [record["metrics"] for record in sorted(stage_records, key=lambda record: record["seed"])]
        episodes = int(metrics[0][f"{prefix}/count"])
        returns = [m[f"{prefix}/return"] for m in metrics]
        deviations = [m[f"{prefix}/return_deviation"] for m in metrics]
        results |= _result(f"{stage}_return{suffix}", returns, episodes, _mean_interval(returns, deviations, episodes))
        if f"{prefix}/solved" in metrics[0]:
            rates = [m[f"{prefix}/solved"] for m in metrics]
            results |= _result(f"{stage}_solve_rate{suffix}", rates, episodes, _rate_interval(rates, episodes))
    return results


def _result(name: str, per_seed: list[float], episodes: int, interval: Interval) -> dict[str, Any]:
    return {
        name: statistics.fmean(per_seed),
        f"{name}_interval": [interval.low, interval.high],
        f"{name}_episodes": episodes,
        f"{name}_per_seed": per_seed,
    }


def _rate_interval(rates: list[float], episodes: int) -> Interval:
    interval = share_interval(statistics.fmean(rates), episodes * len(rates))
    return within_0_and_1(at_least_between_seeds(interval, rates))


def _mean_interval(means: list[float], deviations: list[float], episodes: int) -> Interval:
    deviation = math.sqrt(statistics.fmean(deviation**2 for deviation in deviations))
    return at_least_between_seeds(normal_interval(statistics.fmean(means), deviation, episodes * len(means)), means)
