"""Writes rliable_numbers.json: bootstrap intervals as rliable computes them, in some minutes.

pip install rliable 'pandas<3' 'arch<8' && python tests/oracles/make_rliable_numbers.py
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

OUTPUT = Path(__file__).with_name("rliable_numbers.json")
RESAMPLES = 20_000
AGGREGATES = {
    "IQM": metrics.aggregate_iqm,
    "mean": metrics.aggregate_mean,
    "median": metrics.aggregate_median,
    "optimality gap": metrics.aggregate_optimality_gap,
}


def main() -> None:
    np.random.seed(0)  # noqa: NPY002  (rliable uses the global generator)
    cases = []
    for shape in ((5, 3), (10, 1)):
        rng = np.random.default_rng(shape)
        # Scores have few digits: a reader can check them, and some are equal.
        a, b = (np.round(rng.uniform(0, 1.2, shape), 2) for _ in range(2))
        _, aggregates = library.get_interval_estimates(
            {"a": a}, lambda x: np.array([statistic(x) for statistic in AGGREGATES.values()]), reps=RESAMPLES
        )
        _, improvement = library.get_interval_estimates(
            {"a,b": (a, b)}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=RESAMPLES
        )
        intervals = dict(zip(AGGREGATES, aggregates["a"].T.tolist(), strict=True))
        intervals["probability of improvement"] = improvement["a,b"][:, 0].tolist()
        cases.append({"a": a.tolist(), "b": b.tolist(), "intervals": intervals})
    content = {
        "made_by": "tests/oracles/make_rliable_numbers.py",
        "rliable": version("rliable"),
        "resamples": RESAMPLES,
        "cases": cases,
    }
    OUTPUT.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
