"""Positive dual variables (temperatures, multipliers). The optimiser changes an unconstrained raw variable."""

import math

import jax

from spo.types import Array, Float

#: Smallest value of a dual. At 0, a temperature would divide by zero. With this minimum, A/η² fits into float32.
MINIMUM = 1e-8


def positive_from_raw(raw: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """softplus(raw) + MINIMUM. For large values its slope is 1: a learning rate has the same effect at 500 as at 10."""
    return jax.nn.softplus(raw) + MINIMUM


def raw_from_positive(value: float) -> float:
    """Returns the raw variable of a dual with the given value: the inverse of `positive_from_raw`."""
    if not MINIMUM < value < math.inf:
        raise ValueError(f"A dual variable needs a finite value above {MINIMUM:g}, got {value}.")
    # log(exp(x) - 1) in a form that does not overflow for a large x and does not cancel for a small one.
    excess = value - MINIMUM
    return excess + math.log(-math.expm1(-excess))
