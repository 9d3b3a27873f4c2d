"""The state of a running search: its functions, the carry from depth to depth, and the record of each depth."""

from collections.abc import Callable
from typing import Any, NamedTuple

from spo.distributions import Distribution
from spo.search.base import ModelOutput, Node, Particles, Proposed, Readout, ScoreFn
from spo.search.diagnostics import WeightSummary
from spo.search.resampling import Resampling
from spo.types import Action, Array, Bool, Float, Integer, PRNGKey, State


class Functions(NamedTuple):
    """The functions that define a search. `model_fn` and `temperature_fn` take batches, the others do not."""

    model_fn: Callable[[PRNGKey, Any, Action], ModelOutput]
    distribution: Distribution
    score_fn: ScoreFn
    propose_fn: Callable[[PRNGKey, Node], Proposed]
    temperature_fn: Callable[[Array, Float[Array, "B N"]], Float[Array, " B"]]
    resampling: Resampling
    readout: Readout


class Loop(NamedTuple):
    """The carry from one depth to the next."""

    particles: Particles
    log_normaliser: Float[Array, " B"]  # of the resamples so far
    temperature_advantages: Float[Array, "B N"]  # per root sample, hence not moved by a resample
    resampled: Bool[Array, " B"]  # a resample has happened: `temperature_advantages` is final
    num_root_actions: Integer[Array, " B"]  # only a resample changes it
    readout: Any  # [B, ...] the carry of the read-out
    temperature: Float[Array, " B"]  # of the last step so far
    parent: Integer[Array, "B N"] | None  # only if the ancestry is recorded


class Lineage(NamedTuple):
    """One depth of an `Ancestry`."""

    parent: Integer[Array, "B N"]
    action: Action
    reward: Float[Array, "B N"]
    value: Float[Array, "B N"]
    ended: Bool[Array, "B N"]
    log_weights: Float[Array, "B N"]
    state: State


class Stepped(NamedTuple):
    """One depth, as the loop stores it."""

    log_weights: Float[Array, "B N"]  # after the step, before any resample
    live: Bool[Array, "B N"]
    lineage: Lineage | None  # only if the ancestry is recorded


class DepthRecord(NamedTuple):
    """Diagnostics of one depth."""

    weights: WeightSummary
    num_live: Integer[Array, " B"]
    num_root_actions: Integer[Array, " B"]
    resampled: Bool[Array, " B"]
    log_normaliser: Float[Array, " B"]
    lineage: Lineage | None
