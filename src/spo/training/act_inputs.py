"""Checks of the arguments of `Agent.act`: mistakes become sentences before JAX traces anything."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spo.environments.checking.words import named_leaves
from spo.keys import is_one_key
from spo.types import DiscreteActions, Environment, PyTree, TimeStep

#: (key, state, timestep, use_search) -> None; raises ValueError
Check = Callable[[Any, Any, Any, bool], None]


def make_check(environment: Environment, searches: bool) -> Check:
    """Returns a function that raises ValueError for arguments that are not a key, a state and a time step.

    Arguments of the same structure and shapes are checked once.

    Args:
      environment: an environment whose states and observations the agent accepts.
      searches: True if the algorithm has a search, which reads the state.
    """
    passed: set[Any] = set()

    def check(key: Any, state: Any, timestep: Any, use_search: bool) -> None:
        reads_state = bool(use_search) and searches
        found = _signature((key, state if reads_state else None, timestep))
        if (found, reads_state) in passed:
            return
        _check_key(key)
        if reads_state:
            _check_state(environment, state)
        _check_timestep(environment, timestep)
        passed.add((found, reads_state))

    return check


def _signature(arguments: PyTree) -> Any:
    """Returns structure, shapes and types as one hashable value."""
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple((getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)


def _check_key(key: Any) -> None:
    if not is_one_key(key):
        raise ValueError(f"key must be one random key, such as jax.random.key(0), got {_describe(key)}.")


def _check_state(environment: Environment, state: Any) -> None:
    if state is None:
        raise ValueError(
            "state is None: the search needs the state that reset or step of the environment returned; or act by the "
            "policy alone, with use_search=False, which needs only the observation."
        )
    expected = jax.eval_shape(environment.reset, jax.random.key(0))[0]
    if difference := _difference("state", expected, state):
        raise ValueError(
            f"{difference}: pass the state that reset or step of {_name(environment)} returned, for one environment "
            "and with its wrappers, such as episode_limit; or act by the policy alone, with use_search=False."
        )


def _check_timestep(environment: Environment, timestep: Any) -> None:
    if not isinstance(timestep, TimeStep):
        raise ValueError(
            f"timestep must be the TimeStep that reset or step of {_name(environment)} returned, got "
            f"{_describe(timestep)}: a search needs all of it and the state. For the observation alone, act by the "
            "policy: agent.act(key, None, observation, use_search=False)."
        )
    if timestep.reward is None:
        raise ValueError("timestep.reward is None: write 0.0 if there is no reward.")
    if difference := _difference("timestep.observation", environment.observation_spec, timestep.observation):
        raise ValueError(
            f"{difference}: pass the time step of one state of {_name(environment)}; for a batch, use "
            "jax.vmap(agent.act)."
        )
    spec, mask = environment.action_spec, timestep.action_mask
    if mask is not None and isinstance(spec, DiscreteActions) and jnp.shape(mask) != (spec.num_actions,):
        raise ValueError(
            f"timestep.action_mask is {_describe(mask)} and must be bool[{spec.num_actions}]: one entry per action."
        )


# --- Words ------------------------------------------------------------------------------------------------------------


def _difference(root: str, expected: PyTree, found: PyTree) -> str | None:
    """Returns the first difference between two pytrees in their paths or shapes, as words."""
    first, second = named_leaves(root, expected), named_leaves(root, found)
    for path, leaf in first.items():
        if path not in second:
            return f"{root} has no {path.removeprefix(root) or 'array'}, it is {_describe(found)}"
        if getattr(second[path], "shape", ()) != leaf.shape:
            return f"{path} is {_describe(second[path])} and must be {_describe(leaf)}"
    unknown = [path for path in second if path not in first]
    return f"{unknown[0]} is unknown" if unknown else None


def _describe(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    return f"{value!r}" if isinstance(value, bool | int | float | None) else f"of type {type(value).__name__}"


def _name(environment: Environment) -> str:
    return environment.name or "the environment"


__all__ = ["Check", "make_check"]
