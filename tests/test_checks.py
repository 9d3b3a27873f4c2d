"""Checks of configuration values by the annotations of their fields."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, UnitInterval, check_fields


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
        ("choice", "up", "must be one of left, right, got up"),
        ("optional_choice", "up", "must be one of left, right, got up"),
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
    Options(7, 3, 1e-9, 0, 1, "right", "left", float("nan"))
    Options(optional_count=None, optional_choice=None, fraction=0)


def test_a_traced_value_is_not_checked():
    fractions = jnp.array([0.25, 5.0])
    np.testing.assert_array_equal(jax.vmap(lambda fraction: Options(fraction=fraction).fraction)(fractions), fractions)
