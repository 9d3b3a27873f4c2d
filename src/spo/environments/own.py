"""Environments that are not in the registry: `module:function` by name, and what an `Environment` may leave out."""

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from spo.checks import check_arguments
from spo.environments.outputs import unpack_output
from spo.importing import OBJECT, calling_from_current_folder, import_function, is_import_name, is_object_name
from spo.quoting import is_raised_by_package, quote
from spo.types import (
    Action,
    ActionSpec,
    Array,
    DiscreteActions,
    Environment,
    Integer,
    PRNGKey,
    State,
    Task,
    TimeStep,
)

# --- Names ------------------------------------------------------------------------------------------------------------


def is_own(name: str) -> bool:
    """Returns True for `module:function` and `object:NAME`: names that the registry does not list."""
    return is_import_name(name) or is_object_name(name)


def own_maker(name: str) -> Callable[..., Task]:
    """Returns the function `module:function`, with a `Task` as its result. Its signature has the options of the task.

    Raises ValueError for `object:NAME`, which can't be made again by name.
    """
    if is_object_name(name):
        raise ValueError(
            f"The environment {name.removeprefix(OBJECT)!r} was given as an object and has no name to import. Use "
            "Python: `spo.load(path, env=env)` loads its agent and `spo.train(env, run=path, resume=True)` continues "
            "its run. The command line needs a function that returns the environment, `--task module:function`."
        )
    function = import_function(name, returns="an environment")
    _refuse_foreign(name, function)
    try:
        hints = option_types(function)
    except ValueError:
        raise ValueError(
            f"{name} has no parameters to read: name a Python function that returns an environment."
        ) from None

    @functools.wraps(function)
    def make(**options: Any) -> Task:
        given = {option: typed_option(value, hints.get(option)) for option, value in options.items()}
        check_arguments(function, given, owner=name)
        return call_maker(calling_from_current_folder(function), name, **given)

    return make


def call_maker(function: Callable[..., Any], name: str, /, **options: Any) -> Task:
    """Returns the task that a user's function makes. Raises ValueError for what it raises or returns instead.

    Errors of this package pass through, because they are sentences for users.
    """
    try:
        made = function(**options)
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, ValueError | OSError | ImportError) and is_raised_by_package(error):
            raise
        raise ValueError(f"The function {name} raised {quote(error)}.") from error
    return to_task(made, f"The function {name} returned")


def _refuse_foreign(name: str, function: Callable[..., Any]) -> None:
    """Raises ValueError for a function of a module that uses nothing of this package.

    The name and its options may come from a file. Without this rule, that file could call any function of any library,
    such as one that starts a program.
    """
    inner = function.func if isinstance(function, functools.partial) else function
    inner = inner.__init__ if inspect.isclass(inner) else inspect.unwrap(inner)
    names = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    package = __name__.partition(".")[0]

    def is_of_package(value: Any) -> bool:
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        return isinstance(module, str) and module.partition(".")[0] == package

    if names.get("__name__", "").partition(".")[0] == package:
        raise ValueError(f"{name} is a function of {package} itself: `spo envs` lists the names of its environments.")
    if not any(map(is_of_package, list(names.values()))):
        raise ValueError(
            f"{name} is not called: its module imports nothing of {package}, so it makes no environment. Import what "
            f"the function needs, such as {package}.types.Environment, at the top of the module."
        )


def option_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the type of each parameter: its annotation, or the type of its default."""
    try:
        # A partial function has the hints of the function inside.
        hints = typing.get_type_hints(getattr(function, "func", function), include_extras=True)
    except (NameError, TypeError):  # names that exist for a type checker only
        hints = {}
    types = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        guess = type(default) if default is not None and default is not parameter.empty else Any
        types[name] = hints.get(name, guess)
    return types


def plain_option(value: Any) -> Any:
    """Returns an option as JSON has it: a path as text, a tuple as a list."""
    if isinstance(value, Path):
        return str(value)
    return list(map(plain_option, value)) if isinstance(value, tuple | list) else value


def typed_option(value: Any, kind: Any) -> Any:
    """Returns a stored option in its own type."""
    kinds = (kind, *typing.get_args(kind))
    if isinstance(value, str) and Path in kinds and str not in kinds:
        return Path(value)
    is_tuple = any(k is tuple or typing.get_origin(k) is tuple for k in kinds)
    return tuple(value) if isinstance(value, list) and is_tuple else value


def to_task(environment: Any, origin: str) -> Task:
    """Returns a task: an environment gets all three roles. `origin` begins the error for anything else."""
    if isinstance(environment, Task):
        return environment
    if isinstance(environment, Environment):
        return Task(train=environment, evaluation=environment, model=environment)
    raise ValueError(
        f"{origin} an object of type {type(environment).__name__}: it must be a spo.types.Environment or a "
        "spo.types.Task."
    )


# --- Defaults of what an environment may leave out --------------------------------------------------------------------


def with_names(task: Task, name: str) -> Task:
    """Returns the task with a name for each environment that has none."""
    return _map_roles(lambda environment: environment if environment.name else environment._replace(name=name), task)


def with_masks(task: Task) -> Task:
    """Returns the task with masks in every time step of discrete actions: all actions are allowed without one."""
    return _map_roles(_with_masks, task)


def _map_roles(function: Callable[[Environment], Environment], task: Task) -> Task:
    """Applies a function to each role. Roles that are the same environment stay the same one."""
    mapped = {id(environment): function(environment) for environment in task}
    return Task(*(mapped[id(environment)] for environment in task))


def _with_masks(environment: Environment) -> Environment:
    spec = environment.action_spec
    if not isinstance(spec, DiscreteActions):
        return environment
    make_first, make_next = environment.reset, environment.step

    def reset(key: PRNGKey) -> tuple[State, TimeStep]:
        state, timestep = unpack_output("reset", make_first, make_first(key))
        return state, fill_mask(timestep, spec)

    def step(key: PRNGKey, state: State, action: Action) -> tuple[State, TimeStep]:
        state, timestep = unpack_output("step", make_next, make_next(key, state, action))
        return state, fill_mask(timestep, spec)

    starts = environment.starts
    if starts is not None:
        make_chosen = starts.reset

        def start(key: PRNGKey, number: Integer[Array, ""]) -> tuple[State, TimeStep]:
            state, timestep = make_chosen(key, number)
            return state, fill_mask(timestep, spec)

        starts = starts._replace(reset=start)
    return environment._replace(reset=reset, step=step, starts=starts)


def fill_mask(timestep: TimeStep, action_spec: ActionSpec) -> TimeStep:
    """Returns the time step, or a batch of them, with all discrete actions allowed if it has no mask."""
    if timestep.action_mask is not None or not isinstance(action_spec, DiscreteActions):
        return timestep
    shape = (*jnp.shape(timestep.reward), action_spec.num_actions)
    return timestep._replace(action_mask=jnp.ones(shape, bool))


# --- Description ------------------------------------------------------------------------------------------------------


def describe_specs(environment: Environment) -> dict[str, Any]:
    """Returns observations and actions as plain data, to be stored with a run and compared when it is loaded."""
    leaves = jax.tree_util.tree_leaves_with_path(environment.observation_spec)
    observation = {
        jax.tree_util.keystr(path, simple=True, separator="."): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in leaves
    }
    actions = environment.action_spec
    return {
        # A single array has no name.
        "observation": observation.get("", observation),
        "actions": {"kind": type(actions).__name__, **{k: plain_option(v) for k, v in actions._asdict().items()}},
    }


__all__ = [
    "call_maker",
    "describe_specs",
    "fill_mask",
    "is_own",
    "option_types",
    "own_maker",
    "plain_option",
    "to_task",
    "typed_option",
    "with_masks",
    "with_names",
]
