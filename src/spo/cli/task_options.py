"""Options `--task.NAME VALUE`: those of the environment.

An environment's maker decides which options there are: they are its arguments. An environment from another library
also accepts that library's own options, whose names and types are unknown here.
"""

import ast
import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from tyro.conf import arg

from spo.cli.parsing import parse
from spo.environments import registry
from spo.environments.own import option_types, plain_option, typed_option
from spo.training.experiment import Experiment


def named_task_options(task: str) -> dict[str, Any]:
    """Returns the default of every option that the task's maker names; `tyro.MISSING` for one that must be given.

    An option whose type no text can express, such as a function, is left out: it keeps its default.
    """
    maker = registry.maker_of(task)
    kinds = option_types(maker)
    named = [p for p in _parameters(maker) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {
        parameter.name: tyro.MISSING if parameter.default is parameter.empty else parameter.default
        for parameter in named
        if _can_be_typed(kinds[parameter.name])
    }


def make_task_options(task: str, values: dict[str, Any]) -> Any:
    """Returns an instance of a dataclass with the options that the task's maker names.

    The signature of the maker decides the fields, so the class is built here. tyro finds the help texts in the "Args:"
    section of the maker's docstring.
    """
    maker = registry.maker_of(task)
    kinds = option_types(maker)
    defaults = {
        name: typed_option(values[name], kinds[name]) if name in values else default
        for name, default in named_task_options(task).items()
    }
    fields = [(name, kinds[name], _field(default)) for name, default in defaults.items()]
    docstring = getattr(maker, "func", maker).__doc__  # that of a partial function is about `functools.partial`
    return dataclasses.make_dataclass("TaskOptions", fields, frozen=True, namespace={"__doc__": docstring})()


def _field(default: Any) -> Any:
    """Returns the field of a dataclass with this default. A dataclass accepts no list as a default."""
    if isinstance(default, list):
        return dataclasses.field(default_factory=functools.partial(copy.copy, default))
    return dataclasses.field(default=default)


def chosen_task_options(task: str, options: Any) -> dict[str, Any]:
    """Returns the options of a task that differ from their defaults, as JSON has them: without paths and tuples."""
    defaults = named_task_options(task)
    chosen = {name: value for name, value in vars(options).items() if value != defaults[name]}
    return {name: plain_option(value) for name, value in chosen.items()}


def _can_be_typed(kind: Any) -> bool:
    """Returns True for a type whose values can be written on a command line."""
    if get_origin(kind) is Literal:
        return True
    if get_origin(kind) is Annotated:
        return _can_be_typed(get_args(kind)[0])
    if get_origin(kind) is not None:
        return get_origin(kind) in _CONTAINERS and all(map(_can_be_typed, get_args(kind)))
    return kind in (int, float, str, bool, Path, type(None), ...)


#: Types of options that hold other types, as `typing.get_origin` returns them.
_CONTAINERS = (tuple, list, Union, types.UnionType)


# --- Command lines that are not parsed yet ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _TaskOptionsOnly:
    task_options: Annotated[Any, arg(name="task")]


def missing_task_options(arguments: Sequence[str], task: str) -> list[str]:
    """Returns the options without a default that a command line leaves out, as `--task.NAME`."""
    needed = [_flag(name) for name, default in named_task_options(task).items() if default is tyro.MISSING]
    given = {word.partition("=")[0].replace("_", "-") for word in arguments}
    return [flag for flag in needed if flag not in given]


def _flag(name: str) -> str:
    return f"--task.{name.replace('_', '-')}"


def find_task_options(arguments: Sequence[str], task: str) -> dict[str, Any]:
    """Returns the options `--task.NAME VALUE` of a command line that the task has, with their types.

    Raises ValueError, as the parser would, for a value that an option does not accept.
    """
    words: list[str] = []
    is_of_task = False
    for word in arguments:
        is_of_task = word.startswith("--task.") if word.startswith("--") else is_of_task
        words += [word] if is_of_task else []
    if not words:
        return {}
    rest, others = split_other_task_options(words, Experiment(task=task))
    if missing := missing_task_options(arguments, task):
        _refuse_unknown(rest, task, missing)
    # The parser of the whole command line names the options that the task does not have.
    chosen, _ = parse(
        "spo train",
        lambda: tyro.cli(
            _TaskOptionsOnly,
            prog="spo train",
            default=_TaskOptionsOnly(make_task_options(task, {})),
            args=rest,
            return_unknown_args=True,
        ),
    )
    return chosen_task_options(task, chosen.task_options) | others


def _refuse_unknown(words: Sequence[str], task: str, missing: Sequence[str]) -> None:
    """Raises ValueError for options that the task does not have: one of them may be meant for the missing one."""
    known = {_flag(name) for name in named_task_options(task)}
    known |= {flag.replace("--task.", "--task.no-") for flag in known}
    given = [word.partition("=")[0] for word in words if word.startswith("--task.")]
    if unknown := [flag for flag in given if flag.replace("_", "-") not in known]:
        raise ValueError(f"{task} needs {', '.join(missing)}, and has no {', '.join(unknown)}.")


def split_other_task_options(arguments: Sequence[str], experiment: Experiment) -> tuple[list[str], dict[str, Any]]:
    """Splits off `--task.NAME VALUE` for the options that a task passes to another library.

    Their names and types are unknown here. A value is read as a Python literal, or else as text. The experiment's own
    options of this kind are kept.
    """
    known = named_task_options(experiment.task)
    others = {name: value for name, value in experiment.task_options.items() if name not in known}
    parameters = _parameters(registry.maker_of(experiment.task))
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return list(arguments), others
    rest, queue = [], list(arguments)
    while queue:
        argument = queue.pop(0)
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--task.").replace("-", "_")
        if not flag.startswith("--task.") or name.removeprefix("no_") in known:
            rest.append(argument)
            continue
        if not equals and (not queue or queue[0].startswith("--")):
            raise ValueError(f"{flag} needs a value, such as {flag} True.")
        others[name] = _literal(value if equals else queue.pop(0))
    return rest, others


def _parameters(maker: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(maker).parameters.values())


def _literal(text: str) -> Any:
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


__all__ = [
    "chosen_task_options",
    "find_task_options",
    "make_task_options",
    "missing_task_options",
    "named_task_options",
    "split_other_task_options",
]
