"""Checks of the inputs: static arguments always, array values where they are known (outside `jit`)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spo.checks import MAX_INT, shorten
from spo.distributions import Distribution, Gaussian, categorical, gaussian
from spo.keys import is_one_key
from spo.search.base import ModelOutput, Particles, Prior, Proposal, Root
from spo.types import Array, Float


def is_concrete(x: Any) -> bool:
    """Returns whether the values are known, as opposed to traced by a transformation."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))


def check_type(name: str, value: Any, kind: type) -> None:
    """Raises ValueError if an argument is of another type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {type(value).__name__}.")


def check_callable(name: str, value: Any) -> None:
    """Raises ValueError if an argument is no function."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {type(value).__name__}.")


def check_key(name: str, key: Any) -> None:
    """Raises ValueError if an argument is no random key."""
    if not is_one_key(key):
        raise ValueError(f"{name} must be one random key, such as jax.random.key(0), got {_describe(key)}.")


def check_root(root: Root, num_particles: int, distribution: Distribution) -> int:
    """Returns the number of roots, after checking that all leaves agree on it."""
    check_type("root", root, Root)
    _check_parameters("root.prior", root.prior, distribution)
    if root.proposal is not None:
        _check_parameters("root.proposal", root.proposal, distribution)
    value = root.value
    if not hasattr(value, "dtype"):
        raise ValueError(f"root.value must be an array of shape [B], got {type(value).__name__}.")
    if jnp.ndim(value) not in (1, 2):
        raise ValueError(
            f"root.value must have shape [B], one value per root, or [B, N] for a belief; got shape {jnp.shape(value)}."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"root.value must be floating point, got {value.dtype}.")
    if value.ndim == 2 and value.shape[1] != num_particles:
        raise ValueError(
            f"root.value has the axes [B, N] of a belief, so N must be num_particles = {num_particles}; got shape "
            f"{value.shape}."
        )
    _check_leading_axes("prior", root.prior, value.shape[:1])
    _check_leading_axes("state", root.state, value.shape)
    if root.proposal is not None:
        _check_same_layout("root.proposal", root.proposal, "root.prior", root.prior)
    return value.shape[0]


def _check_parameters(name: str, params: Any, distribution: Distribution) -> None:
    """Checks the type of a distribution's parameters. A family of one's own may have any parameters."""
    if distribution.is_valid is categorical.is_valid:
        if isinstance(params, Gaussian):
            raise ValueError(
                f"{name} is a Gaussian: pass distribution=spo.distributions.gaussian, or tanh_gaussian(low, high)."
            )
        if not _is_array(params):
            raise ValueError(
                f"{name} must be an array of logits, [B, A], got {_describe(params)}: convert it with jnp.asarray."
            )
    elif distribution.is_valid is gaussian.is_valid and not isinstance(params, Gaussian):
        raise ValueError(
            f"{name} must be a spo.distributions.Gaussian(mean, scale) for this distribution, got {_describe(params)}: "
            "give one, or pass distribution=spo.distributions.categorical for logits."
        )


def _check_leading_axes(name: str, tree: Any, axes: tuple[int, ...]) -> None:
    wanted = f"axis B = {axes[0]}" if len(axes) == 1 else f"axes B, N = {axes[0]}, {axes[1]}"
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.shape(leaf)[: len(axes)] != axes:
            raise ValueError(
                f"root.{name}{jax.tree_util.keystr(path)} must have the leading {wanted} of root.value; got shape "
                f"{jnp.shape(leaf)}."
            )


def check_sizes(num_particles: int, horizon: int, unroll: int) -> None:
    check_positive_int("num_particles", num_particles)
    check_positive_int("horizon", horizon)
    check_positive_int("unroll", unroll)


def check_positive_int(name: str, value: Any, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{hint}, known when tracing; got {value!r}.")
    if value > MAX_INT:
        raise ValueError(f"{name} must be at most {MAX_INT}, got {shorten(value)}.")


def check_proposal(root: Root, proposal: Proposal) -> None:
    """Checks that the distribution of the first actions is given once."""
    if root.proposal is not None and proposal.step_fn is not None and proposal.root_fn is None:
        raise ValueError(
            "root.proposal (exploration noise, for example) is not used if Proposal.step_fn draws the first actions: "
            "leave it out, or add a Proposal.root_fn such as `proposals.corrected_root()`."
        )


def check_distribution(distribution: Distribution, proposal: Prior) -> None:
    """Checks that every root has a valid action, if the values are known."""
    if not is_concrete(proposal):
        return
    with jax.ensure_compile_time_eval():  # constants are known even inside a trace
        valid = np.asarray(jax.vmap(distribution.is_valid)(proposal))
    if not valid.all():
        bad = int(np.argmin(valid))
        raise ValueError(
            f"root {bad} has no valid action: its prior is not a distribution (NaN, or every action masked)."
        )


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
    """Returns one temperature per root. A value that is not positive raises if known and becomes NaN if traced."""
    try:
        array = jnp.asarray(temperature)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"temperature must be a real number, got {type(temperature).__name__}.") from None
    if not jnp.issubdtype(array.dtype, jnp.number) or jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"temperature must be a real number, got {array.dtype}.")
    if array.shape not in ((), (num_roots,)):
        raise ValueError(f"temperature must be a scalar or have shape [B] = [{num_roots}]; got shape {array.shape}.")
    dtype = jnp.promote_types(array.dtype, jnp.float32)
    if is_concrete(temperature):
        with jax.ensure_compile_time_eval():
            is_positive = np.asarray(jnp.asarray(temperature).astype(dtype) > 0)
        if not is_positive.all():
            value = np.asarray(temperature)[~is_positive].flat[0]
            rounded = f", which is 0 in {dtype}: give a larger one" if value > 0 else ""
            raise ValueError(f"temperature must be positive, got {value}{rounded}.")
    array = array.astype(dtype)
    return jnp.broadcast_to(jnp.where(array > 0, array, jnp.nan), (num_roots,))


def check_model_output(model: ModelOutput, particles: Particles) -> None:
    """Checks that the model returns a `ModelOutput` with the structure, shapes and dtypes of its inputs."""
    check_type("the result of model_fn", model, ModelOutput)
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
    if _is_array(expected) and not _is_array(tree):
        raise ValueError(f"{name} must have the structure of {expected_name}, one array; got {_describe(tree)}.")
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


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _describe(value: Any) -> str:
    """Returns a value as an error names it: dtype and shape of an array, the value of a number, else the type."""
    if _is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    return (
        shorten(value) if value is None or isinstance(value, bool | int | float | str) else f"a {type(value).__name__}"
    )
