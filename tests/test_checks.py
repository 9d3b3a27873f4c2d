"""Checks of configuration values by the annotations of their fields."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.checks import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PositiveOrInfinite,
    Seed,
    UnitInterval,
    check_arguments,
    check_fields,
    printable,
)


@dataclasses.dataclass(frozen=True)
class Nested:
    """Options inside others."""


@dataclasses.dataclass(frozen=True)
class Options:
    """One field of every kind."""

    count: PositiveInt = 1
    optional_count: PositiveInt | None = None
    scale: PositiveFloat = 1.0
    rate: NonNegativeFloat = 0.0
    fraction: UnitInterval = 0.5
    choice: Literal["left", "right"] = "left"
    optional_choice: Literal["left", "right"] | None = None
    free: float = 0.0
    bound: PositiveOrInfinite = 1.0
    seed: Seed = 0
    switch: bool = False
    whole: int = 0
    sizes: tuple[PositiveInt, ...] | None = None
    path: Path | None = None
    nested: Nested = dataclasses.field(default_factory=Nested)

    def __post_init__(self) -> None:
        check_fields(self, prefix="options.")


@dataclasses.dataclass(frozen=True)
class MoreOptions(Options):
    """Inherits the checks, and has its own field."""

    more: PositiveInt = 1


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("count", 0, "must be 1 or more, got 0"),
        ("optional_count", -2, "must be 1 or more, got -2"),
        ("scale", 0.0, "must be above 0"),
        ("scale", float("nan"), "must be above 0, got nan"),
        ("rate", -1e-9, "must be 0 or more"),
        ("rate", float("inf"), "must be 0 or more, got inf"),
        ("fraction", 1.001, "must lie between 0 and 1"),
        ("fraction", np.float32(-0.5), "must lie between 0 and 1"),
        ("choice", "up", "must be one of left, right, got 'up'"),
        ("optional_choice", "up", "must be one of left, right, got 'up'"),
        ("count", True, "must be a whole number, got True"),
        ("count", 2.5, "must be a whole number, got 2.5"),
        ("count", "3", "must be a whole number, got '3'"),
        ("count", None, "must be a whole number, got None"),
        ("count", 2**63 - 1, "must be at most 2147483647, got 9223372036854775807"),
        ("optional_count", 2.5, "must be a whole number, got 2.5"),
        ("optional_count", 2**31, "must be at most 2147483647"),
        ("whole", -(2**31), "must be at most 2147483647"),
        ("scale", "1e-3", "must be a number, got '1e-3'"),
        ("scale", float("inf"), "must be a finite number, got inf"),
        ("scale", True, "must be a number, got True"),
        ("scale", 1e300, "must be a finite number"),
        ("free", float("nan"), "must be a finite number, got nan"),
        ("free", {}, "must be a number, got {}"),
        ("bound", float("nan"), "must be above 0, got nan"),
        ("seed", -1, "must lie between 0 and 4294967295, got -1"),
        ("seed", 2**32, "must lie between 0 and 4294967295, got 4294967296"),
        ("seed", 1.5, "must be a whole number"),
        ("switch", 1, "must be True or False, got 1"),
        ("switch", "False", "must be True or False, got 'False'"),
        ("choice", ["left"], "must be one of left, right"),
        ("sizes", [1, 2], "must be a tuple"),
        ("sizes", (1, 0), "contains a value that must be 1 or more"),
        ("path", 3, "must be a path, got 3"),
        ("nested", {}, "must be of type Nested, got {}"),
    ],
)
@pytest.mark.parametrize("kind", [Options, MoreOptions])
def test_a_value_out_of_range_is_refused_by_the_name_of_its_field(kind: type, name: str, value: Any, rule: str):
    with pytest.raises(ValueError, match=rf"^options\.{name} {rule}"):
        kind(**{name: value})


def test_a_field_of_a_subclass_is_checked():
    with pytest.raises(ValueError, match="more must be 1 or more"):
        MoreOptions(more=0)


def test_values_in_range_are_accepted():
    Options(7, 3, 1e-9, 0, 1, "right", "left", -2)
    Options(np.int64(7), bound=float("inf"), seed=2**32 - 1, path="here", sizes=(1, 2))
    Options(optional_count=None, optional_choice=None, fraction=0)


def test_a_traced_value_is_not_checked():
    fractions = jnp.array([0.25, 5.0])
    np.testing.assert_array_equal(jax.vmap(lambda fraction: Options(fraction=fraction).fraction)(fractions), fractions)


def test_arguments_are_checked_by_the_annotations_of_their_function():
    def make(length: int, path: Path | None = None, other=None) -> None: ...

    check_arguments(make, {"length": 3, "path": "here", "other": object()}, owner="chain")
    for function in (make, functools.partial(make, path="x")):
        with pytest.raises(ValueError, match=r"^chain: length must be a whole number, got 'abc'\.$"):
            check_arguments(function, {"length": "abc"}, owner="chain")


def test_a_long_value_is_cut_off():
    with pytest.raises(ValueError, match=r"count must be a whole number, got \[0, 0.{60,80} \.\.\.\.$"):
        Options(count=[0] * 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("runs/cube-1: naïve 猫\n\tnext", "runs/cube-1: naïve 猫\n\tnext"),
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("a\rb\x9bc", r"a\rb\x9bc"),
        ("\u202egnp", r"\u202egnp"),
        ("\udcff", r"\udcff"),
    ],
)
def test_control_characters_are_not_printed(text: str, shown: str):
    assert printable(text) == shown
    printable(text).encode("utf-8")


def test_help_shows_the_rules_of_an_argument():
    assert repr(PositiveInt) == "typing.Annotated[int, 'must be 1 or more', 'must be at most 2147483647']"
