"""Checks of configuration values: the type of a field names the values that it accepts.

    @dataclass(frozen=True)
    class MyConfig:
        num_envs: PositiveInt = 64
        gamma: UnitInterval = 0.99
        readout: Literal["last", "all_depths"] = "last"

        def __post_init__(self) -> None:
            check_fields(self)

A field that may be None is annotated `PositiveInt | None`; None passes every check.
"""

import difflib
import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints


class Check(NamedTuple):
    """A condition on a value, and the words that follow the field's name in the error."""

    holds: Callable[[Any], bool]
    rule: str


PositiveInt: TypeAlias = Annotated[int, Check(lambda value: value >= 1, "must be 1 or more")]
PositiveFloat: TypeAlias = Annotated[float, Check(lambda value: value > 0.0, "must be above 0")]
NonNegativeFloat: TypeAlias = Annotated[float, Check(lambda value: 0.0 <= value < math.inf, "must be 0 or more")]
#: A part of something that may be all of it, and not nothing.
Fraction: TypeAlias = Annotated[float, Check(lambda value: 0.0 < value <= 1.0, "must be above 0 and at most 1")]
UnitInterval: TypeAlias = Annotated[float, Check(lambda value: 0.0 <= value <= 1.0, "must lie between 0 and 1")]


def check_fields(config: Any, prefix: str = "") -> None:
    """Raises ValueError for the first field of a dataclass whose value its annotation does not accept.

    Checks `Literal` annotations and those that carry a `Check`. `prefix` precedes the field's name in the error: a
    configuration that is nested as `search` passes "search.". Arrays are not checked: inside `jax.jit` and `jax.vmap`
    they have no value.
    """
    for name, kind in get_type_hints(type(config), include_extras=True).items():
        value = getattr(config, name)
        if isinstance(value, Real | str):
            for failure in _failures(kind, value):
                raise ValueError(f"{prefix}{name} {failure}, got {value}.")


def _failures(kind: Any, value: Any) -> list[str]:
    """Returns the rules of an annotation that a value breaks."""
    if get_origin(kind) is Literal:
        return [] if value in get_args(kind) else [f"must be one of {', '.join(map(str, get_args(kind)))}"]
    if get_origin(kind) is Annotated:
        checks = [item for item in kind.__metadata__ if isinstance(item, Check)]
        return [check.rule for check in checks if not check.holds(value)]
    # A union such as `PositiveInt | None`.
    return [failure for member in get_args(kind) for failure in _failures(member, value)]


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Returns a sentence with the known names closest to an unknown one, or with all of them if none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else f"There are: {', '.join(known)}."
