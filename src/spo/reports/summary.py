"""Results of a finished run, as flat names and numbers. They are stored in summary.json."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from spo.reports.run_files import Record
from spo.reports.stats import Interval, clip_to_share, normal_interval, share_interval, widen_to_seeds


def summarise(records: Sequence[Record]) -> dict[str, Any]:
    """Returns the results of a run before training and at its end.

    At the end they are of the best parameters: with search, without it (`..._policy_only`), and of the last parameters
    (`..._last`). With `..._greedy` the best actions are taken instead of drawn ones, or with `..._drawn` the reverse.

    Each result is a number, the mean over seeds. Next to it are its 95 % interval (`..._interval`), the episodes per
    seed (`..._episodes`) and the value of each seed (`..._per_seed`). The interval is between all episodes: Wilson's
    for rates, normal for returns. With several seeds it is widened to contain Student's interval between seeds.
    """
    first = [record for record in records if record["kind"] == "evaluation" and record["iteration"] == 0]
    final = [record for record in records if record["kind"] == "final"]
    results: dict[str, Any] = {}
    for stage, stage_records, prefix, suffix in (
        ("initial", first, "episode", ""),
        ("final", final, "episode", ""),
        ("final", final, "policy_only", "_policy_only"),
        ("final", final, "last", "_last"),
        ("final", final, "greedy", "_greedy"),
        ("final", final, "drawn", "_drawn"),
    ):
        if f"{prefix}/count" not in stage_records[0]["metrics"]:
            continue  # an older run, or the kind of actions that "episode" stands for
        metrics = [record["metrics"] for record in sorted(stage_records, key=lambda record: record["seed"])]
        episodes = int(metrics[0][f"{prefix}/count"])
        returns = [m[f"{prefix}/return"] for m in metrics]
        deviations = [m[f"{prefix}/return_deviation"] for m in metrics]
        results |= _result(f"{stage}_return{suffix}", returns, episodes, _mean_interval(returns, deviations, episodes))
        if f"{prefix}/solved" in metrics[0]:
            rates = [m[f"{prefix}/solved"] for m in metrics]
            results |= _result(f"{stage}_solve_rate{suffix}", rates, episodes, _rate_interval(rates, episodes))
    return results


def untrained_sentence(best: Sequence[int], started_from_file: bool = False) -> str:
    """Returns a sentence if the best parameters of a seed are those before training; else an empty one.

    Args:
      best: iterations, or environment steps, of the best evaluation of each seed.
      started_from_file: the first parameters are those of an exported learner.
    """
    untrained = [str(seed) for seed, amount in enumerate(best) if amount == 0]
    if not untrained:
        return ""
    network = "the network that the run started from" if started_from_file else "the untrained network"
    seeds = "" if len(best) == 1 else f" of seed {', '.join(untrained)}"
    return f"The best parameters{seeds} are those of {network}: no evaluation during training was as good."


def _result(name: str, per_seed: list[float], episodes: int, interval: Interval) -> dict[str, Any]:
    return {
        name: statistics.fmean(per_seed),
        f"{name}_interval": [interval.low, interval.high],
        f"{name}_episodes": episodes,
        f"{name}_per_seed": per_seed,
    }


def _rate_interval(rates: list[float], episodes: int) -> Interval:
    interval = share_interval(statistics.fmean(rates), episodes * len(rates))
    return clip_to_share(widen_to_seeds(interval, rates))


def _mean_interval(means: list[float], deviations: list[float], episodes: int) -> Interval:
    deviation = math.sqrt(statistics.fmean(deviation**2 for deviation in deviations))
    return widen_to_seeds(normal_interval(statistics.fmean(means), deviation, episodes * len(means)), means)
