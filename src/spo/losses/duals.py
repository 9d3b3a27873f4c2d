"""Dual variables (temperatures, multipliers) stay positive: an optimiser moves a raw variable, losses see its dual."""

import math

import jax

from spo.types import Array, Float

#: No dual falls below this. At 0 a temperature would divide by zero; from here on float32 still has room for A/η².
MINIMUM = 1e-8


def positive_from_raw(raw: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """softplus(raw) + MINIMUM. Its slope is at most 1, so that a learning rate means the same for 500 as for 10."""
    return jax.nn.softplus(raw) + MINIMUM


def raw_from_positive(value: float) -> float:
    """The raw variable whose dual is `value`: a table's "initial η = 10" is η itself, not what softplus is fed with."""
    if not MINIMUM < value < math.inf:
        raise ValueError(f"A dual variable starts at a finite value above {MINIMUM:g}, got {value}.")
    # log(exp(x) - 1) in the form that neither overflows for a large x nor cancels for a small one.
    excess = value - MINIMUM
    return excess + math.log(-math.expm1(-excess))
