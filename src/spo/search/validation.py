"""Bad input gets a sentence: static arguments always, array values whenever they can be seen (outside `jit`)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spo.distributions import Distribution
from spo.search.base import ModelOutput, Particles, Prior, Root
from spo.types import Array, Float


def is_concrete(x: Any) -> bool:
    """Can the values be looked at, or is this the inside of a transformation?"""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))


def check_root(root: Root) -> int:
    """The number of roots, once all leaves agree on it."""
    value = root.value
    if jnp.ndim(value) != 1:
        raise ValueError(f"root.value must have shape [B], one value per root; got shape {jnp.shape(value)}.")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"root.value must be floating point, got {value.dtype}.")
    num_roots = value.shape[0]
    for name, tree in (("prior", root.prior), ("state", root.state)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if jnp.ndim(leaf) == 0 or leaf.shape[0] != num_roots:
                raise ValueError(
                    f"root.{name}{jax.tree_util.keystr(path)} must have the leading axis B = {num_roots} of "
                    f"root.value; got shape {jnp.shape(leaf)}."
                )
    return num_roots


def check_sizes(
    num_particles: int, horizon: int, resample_period: int | None, ess_threshold: float | None, unroll: int
) -> None:
    check_positive_int("num_particles", num_particles)
    check_positive_int("horizon", horizon)
    check_positive_int("unroll", unroll)
    if resample_period is not None:
        check_positive_int("resample_period", resample_period, hint=" or None to never resample")
    if ess_threshold is not None:
        if not 0.0 < ess_threshold <= 1.0:
            raise ValueError(f"ess_threshold is a fraction of the particles in (0, 1], got {ess_threshold}.")
        if resample_period is None:
            raise ValueError("ess_threshold needs a resample_period: 1 looks at the weights after every step.")


def check_positive_int(name: str, value: Any, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{hint}, known when tracing; got {value!r}.")


def check_proposal(prior: Prior, root_proposal: Prior | None, correct_root_proposal: bool) -> None:
    if root_proposal is None:
        if correct_root_proposal:
            raise ValueError("correct_root_proposal=True needs a root_proposal to correct for.")
        return
    _check_same_layout("root_proposal", root_proposal, "root.prior", prior)


def check_readout(readout: str, resample_last: bool) -> None:
    if readout not in ("last", "all_depths"):
        raise ValueError(f"readout must be 'last' or 'all_depths', got {readout!r}.")
    if readout == "all_depths" and resample_last:
        raise ValueError("readout='all_depths' reads the weights of every depth as they are: leave resample_last off.")


def check_distribution(distribution: Distribution, proposal: Prior) -> None:
    """Every root must have something to draw, as far as the values can be seen."""
    if not is_concrete(proposal):
        return
    with jax.ensure_compile_time_eval():  # constants can be looked at even while something around them is traced
        valid = np.asarray(jax.vmap(distribution.is_valid)(proposal))
    if not valid.all():
        bad = int(np.argmin(valid))
        raise ValueError(f"root {bad} has no valid action: its prior is no distribution (NaN, or every action masked).")


def check_invalid_actions(invalid_actions: Any, shape: tuple[int, ...]) -> None:
    if jnp.shape(invalid_actions) != shape:
        raise ValueError(
            f"invalid_actions must have the shape of the prior logits, {shape}; got {jnp.shape(invalid_actions)}."
        )
    if is_concrete(invalid_actions):
        masked = np.all(np.asarray(invalid_actions) != 0, axis=-1)
        if masked.any():
            raise ValueError(f"invalid_actions masks every action of root {int(np.argmax(masked))}.")


def check_temperature(temperature: Any, num_roots: int) -> Float[Array, " B"]:
    """One temperature per root. What is not positive raises where it can be seen and turns into NaN where it can't."""
    array = jnp.asarray(temperature)
    if not jnp.issubdtype(array.dtype, jnp.number) or jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"temperature must be a real number, got {array.dtype}.")
    if array.shape not in ((), (num_roots,)):
        raise ValueError(f"temperature must be a scalar or have shape [B] = [{num_roots}]; got shape {array.shape}.")
    if is_concrete(temperature):
        values = np.asarray(temperature)
        if not np.all(values > 0):
            raise ValueError(f"temperature must be positive, got {values[~(values > 0)].flat[0]}.")
    array = array.astype(jnp.promote_types(array.dtype, jnp.float32))
    return jnp.broadcast_to(jnp.where(array > 0, array, jnp.nan), (num_roots,))


def check_model_output(model: ModelOutput, particles: Particles) -> None:
    """The model must hand back what it was handed: same structure, shapes and dtypes (seen while tracing)."""
    _check_same_layout("the state that model_fn returns", model.state, "root.state", particles.state)
    _check_same_layout("the prior that model_fn returns", model.prior, "root.prior", particles.prior)
    for name in ("value", "reward", "discount", "ended"):
        leaf = getattr(model, name)
        if jnp.shape(leaf) != particles.value.shape:
            raise ValueError(
                f"model_fn must return one {name} per particle; over all of them its shape should be "
                f"{particles.value.shape}, got {jnp.shape(leaf)}."
            )
    if model.ended.dtype != jnp.bool_:
        raise ValueError(f"model_fn must return `ended` as a boolean, got {model.ended.dtype}.")


def _check_same_layout(name: str, tree: Any, expected_name: str, expected: Any) -> None:
    structure, expected_structure = jax.tree.structure(tree), jax.tree.structure(expected)
    if structure != expected_structure:  # type: ignore[operator]
        raise ValueError(f"{name} must have the structure of {expected_name}, {expected_structure}; got {structure}.")
    for (path, leaf), wanted in zip(jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(expected), strict=True):
        if jnp.shape(leaf) != jnp.shape(wanted) or jnp.result_type(leaf) != jnp.result_type(wanted):
            where = jax.tree_util.keystr(path)
            raise ValueError(
                f"{name}{where} must have the shape and dtype of {expected_name}{where}, {jnp.shape(wanted)} "
                f"{jnp.result_type(wanted)}; got {jnp.shape(leaf)} {jnp.result_type(leaf)}."
            )
