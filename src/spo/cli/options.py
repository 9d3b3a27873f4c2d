"""Options of the command line, made from the dataclasses that they set: a new field is a new option with its help."""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from spo.algorithms.registry import ALGORITHMS
from spo.environments import registry
from spo.training.experiment import Experiment


def experiment_fields(experiment: Experiment) -> list[tuple[str, Any, Any]]:
    """The fields of an experiment for `dataclasses.make_dataclass`, with its values as the defaults.

    The algorithm's hyper-parameters stand without a prefix (`--learning-rate`). The task's options become
    `--task.NAME`, typed as its maker says.
    """
    helps = _sentences(Experiment)
    types = typing.get_type_hints(Experiment)
    fields: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(Experiment):
        value = getattr(experiment, field.name)
        kind, name = types[field.name], None
        if field.name == "task_options":
            kind, name = _task_options_type(experiment.task, value), "task"
            value = kind()
        elif field.name == "config":
            kind, name = type(value), ""
        elif field.name == "algorithm":
            kind = typing.Literal[tuple(sorted(ALGORITHMS))]
        naming = tyro.conf.arg(name=name, help=helps.get(field.name))
        fields.append((field.name, Annotated[kind, naming], dataclasses.field(default=value)))
    return fields


def experiment_from(parsed: Any, other_task_options: dict[str, Any]) -> Experiment:
    """The experiment that parsed options describe. Options of the task that say nothing new are left out."""
    values = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(Experiment)}
    defaults = named_task_options(parsed.task)
    chosen = {name: value for name, value in vars(parsed.task_options).items() if value != defaults[name]}
    # Plain data only: JSON has no paths.
    chosen = {name: str(value) if isinstance(value, Path) else value for name, value in chosen.items()}
    values["task_options"] = chosen | other_task_options
    return Experiment(**values)


def take_other_task_options(arguments: Sequence[str], experiment: Experiment) -> tuple[list[str], dict[str, Any]]:
    """Splits off `--task.NAME VALUE` where a task hands options on to another library, which alone knows their names.

    Values are read as Python literals, and as text where they are none. The experiment's own such options are kept.
    """
    known = named_task_options(experiment.task)
    others = {name: value for name, value in experiment.task_options.items() if name not in known}
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in _maker_parameters(experiment.task)):
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


def first_value(arguments: Sequence[str], option: str) -> str | None:
    """The value of `--option` on a command line that isn't parsed yet."""
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == option:
            return value if equals else next(iter(arguments[index + 1 :]), None)
    return None


def _sentences(kind: type) -> dict[str, str]:
    """The sentence under each field of a dataclass, as its source has it."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        line.target.id: " ".join(str(following.value.value).split())
        for line, following in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }


def _literal(text: str) -> Any:
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _maker_parameters(task: str) -> list[inspect.Parameter]:
    return list(inspect.signature(registry.maker_of(task)).parameters.values())


def named_task_options(task: str) -> dict[str, Any]:
    """The options that a task's maker names itself. All of them have a default."""
    parameters = _maker_parameters(task)
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def _task_options_type(task: str, values: dict[str, Any]) -> type:
    """A dataclass of the options that a task's maker names, with `values` in place of their defaults."""
    annotations = {parameter.name: parameter.annotation for parameter in _maker_parameters(task)}
    fields = [
        (name, annotations[name], dataclasses.field(default=values.get(name, default)))
        for name, default in named_task_options(task).items()
    ]
    return dataclasses.make_dataclass("TaskOptions", fields, frozen=True)


__all__ = ["experiment_fields", "experiment_from", "first_value", "named_task_options", "take_other_task_options"]
