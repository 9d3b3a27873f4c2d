"""Values of the settings that a sweep varies, and the points that it tries.

    learning-rate 1e-4 3e-4 1e-3       choices
    learning-rate 1e-5..1e-2:log       a range, uniform in the logarithm
    search.num-particles 4..64         a range of whole numbers

A point has one value for each setting, as text for the command line of `spo train`.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from spo.checks import shorten
from spo.installation import install_hint

Sampler: TypeAlias = Literal["grid", "random", "tpe"]
#: Name of a setting, such as "search.num-particles" -> its value.
Point: TypeAlias = dict[str, str]


class Choices(NamedTuple):
    """Values to choose from."""

    values: tuple[str, ...]


class Range(NamedTuple):
    """All numbers between two ends, which belong to it."""

    low: float
    high: float
    is_log: bool
    is_int: bool

    def at(self, share: float) -> str:
        """Returns the value at a share from 0 to 1 of the range."""
        if self.is_int:
            if self.is_log:
                return str(min(int(math.exp(_mix(math.log(self.low), math.log(self.high + 1), share))), int(self.high)))
            return str(min(int(_mix(self.low, self.high + 1, share)), int(self.high)))
        if self.is_log:
            return _short(math.exp(_mix(math.log(self.low), math.log(self.high), share)))
        return _short(_mix(self.low, self.high, share))


#: Name of a setting -> its values.
Space: TypeAlias = dict[str, Choices | Range]


class Result(NamedTuple):
    """A point that was tried, and its score. Higher is better."""

    point: Point
    score: float


# --- Reading ----------------------------------------------------------------------------------------------------------


def parse_values(name: str, words: Sequence[str]) -> Choices | Range:
    """Returns the values of a setting from the words of the command line.

    Raises ValueError with a sentence for words that name no values.
    """
    if not words:
        raise ValueError(f"--vary {name} needs values: several of them, or a range such as 1e-4..1e-2:log.")
    if any(".." in word for word in words):
        if len(words) > 1:
            raise ValueError(f"--vary {name} takes one range or several values, got {' '.join(words)}.")
        return _parse_range(name, words[0])
    repeated = [word for word in words if words.count(word) > 1]
    if repeated:
        raise ValueError(f"--vary {name} has the value {repeated[0]} twice.")
    return Choices(tuple(words))


def _parse_range(name: str, word: str) -> Range:
    found = re.fullmatch(r"(?P<low>.+?)\.\.(?P<high>[^:]+)(?P<log>:log)?", word)
    try:
        low, high = (float(found[end]) for end in ("low", "high")) if found else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    if found is None or not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"--vary {name} {shorten(word)} is no range: write LOW..HIGH or LOW..HIGH:log, with numbers.")
    is_int = all(re.fullmatch(r"-?\d+", found[end]) for end in ("low", "high"))
    if low >= high:
        raise ValueError(f"--vary {name} {word}: the lower end must be below the upper one.")
    if found["log"] and low <= 0:
        raise ValueError(f"--vary {name} {word}: a range with :log must lie above 0.")
    return Range(low, high, bool(found["log"]), is_int)


# --- Points -----------------------------------------------------------------------------------------------------------


def num_points(space: Mapping[str, Choices | Range]) -> float:
    """Returns the number of different points; infinity if a setting has a range."""
    sizes = (len(values.values) if isinstance(values, Choices) else math.inf for values in space.values())
    return math.prod(sizes)


def grid(space: Mapping[str, Choices | Range]) -> Iterator[Point]:
    """Yields every combination of the choices. The last setting changes fastest."""
    values = [of.values for of in space.values() if isinstance(of, Choices)]
    return (dict(zip(space, combination, strict=True)) for combination in itertools.product(*values))


def pick(
    space: Mapping[str, Choices | Range],
    sampler: Sampler,
    number: int,
    seed: int,
    results: Sequence[Result] = (),
    running: Sequence[Point] = (),
) -> Point:
    """Returns the point of a trial.

    Those of "grid" and "random" follow from the number of the trial and the seed alone, so that several processes can
    share a sweep. "tpe" also uses what is known when it is called.

    Args:
      space: the settings and their values.
      sampler: "grid" for all combinations in order, "random", or "tpe" for Optuna's tree-structured Parzen estimator.
      number: number of the trial, from 0.
      seed: random seed.
      results: the trials that have a score, for "tpe".
      running: the points that are being tried, for "tpe".
    """
    if sampler == "grid":
        return next(itertools.islice(grid(space), number, None))
    if sampler == "tpe":
        return _pick_by_tpe(space, number, seed, results, running)
    if math.isfinite(num_points(space)):  # each combination once
        order = np.random.default_rng(seed).permutation(int(num_points(space)))
        return next(itertools.islice(grid(space), int(order[number]), None))
    random = np.random.default_rng([seed, number])
    return {name: _value_at(values, float(random.random())) for name, values in space.items()}


def _value_at(values: Choices | Range, share: float) -> str:
    if isinstance(values, Range):
        return values.at(share)
    return values.values[int(share * len(values.values))]


def _pick_by_tpe(
    space: Mapping[str, Choices | Range],
    number: int,
    seed: int,
    results: Sequence[Result],
    running: Sequence[Point],
) -> Point:
    """Returns the point that Optuna suggests. Points that are being tried count as bad, so that it suggests others."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise ValueError(f"--sampler tpe needs optuna: {install_hint('sweep')}.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, Any] = {
        name: optuna.distributions.CategoricalDistribution(values.values)
        if isinstance(values, Choices)
        else optuna.distributions.IntDistribution(int(values.low), int(values.high), log=values.is_log)
        if values.is_int
        else optuna.distributions.FloatDistribution(values.low, values.high, log=values.is_log)
        for name, values in space.items()
    }
    worst = min((result.score for result in results), default=0.0)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=(seed + number) % 2**32, multivariate=len(space) > 1),
        direction="maximize",
    )
    for result in (*results, *(Result(point, worst) for point in running)):
        params = {name: _as_number(space[name], value) for name, value in result.point.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=result.score))
    asked = study.ask(distributions).params
    return {name: _short(value) if isinstance(value, float) else str(value) for name, value in asked.items()}


def _as_number(values: Choices | Range, value: str) -> Any:
    """Returns a value as Optuna stores it. Rounding must not move it out of its range."""
    if isinstance(values, Choices):
        return value
    number = min(max(float(value), values.low), values.high)
    return int(number) if values.is_int else number


def _mix(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def _short(value: float) -> str:
    """Returns a number with four digits: enough for a setting, and short in a table."""
    return f"{value:.4g}"
