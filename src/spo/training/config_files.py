"""Settings of a run as a TOML file that people can change: `spo config default > FILE`, `spo train --config FILE`.

The names are those of config.json. TOML has no null: the text "None" takes its place, as on the command line. A file
may hold a part of the settings.
"""

import dataclasses
import inspect
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from spo._version import __version__
from spo.checks import check_arguments, check_value, shorten, suggest_names
from spo.environments.own import is_own
from spo.environments.registry import maker_of
from spo.reports.run_files import check_config, read_config
from spo.reports.runs import flatten
from spo.training import exports
from spo.training.experiment import Experiment, from_json, to_json
from spo.training.run_folder import RunFolder

#: A table of TOML: the settings of a file, or a part of them.
Table = dict[str, Any]

NONE = "None"
#: Fields of an experiment that a run stores about itself.
_NOT_IN_FILES = ("specs",)

# --- Writing ----------------------------------------------------------------------------------------------------------


def to_toml(experiment: Experiment, title: str) -> str:
    """Returns all settings of an experiment as TOML, below a comment with the title."""
    settings = {name: value for name, value in to_json(experiment).items() if name not in _NOT_IN_FILES}
    lines = [
        f"# {' '.join(title.split())}",
        "# `spo train --config FILE` starts a run with these settings. `spo train --help` describes them.",
        *_table_lines(settings, ()),
    ]
    return "\n".join(lines) + "\n"


def _table_lines(table: Table, path: tuple[str, ...]) -> list[str]:
    """Returns the lines of a table: its own values, then the tables in it, as TOML demands."""
    lines = ["", f"[{'.'.join(map(_key, path))}]"] if path else []
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    lines += [f"{_key(name)} = {_value((*path, name), value)}" for name, value in table.items() if name not in inner]
    for name, value in inner.items():
        lines += _table_lines(value, (*path, name))
    return lines


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(path: tuple[str, ...], value: Any) -> str:
    if value is None:
        return _text(NONE)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)  # inf, -inf and nan
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value != NONE:
        return _text(value)
    if isinstance(value, list | tuple) and not any(isinstance(item, dict) or item is None for item in value):
        return f"[{', '.join(_value(path, item) for item in value)}]"
    raise ValueError(f"{'.'.join(path)} can't be written to a TOML file: it is {shorten(value)}.")


def _text(text: str) -> str:
    """Returns a TOML string. Its escapes are those of JSON, except for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_toml(path: Path) -> Table:
    """Reads the settings of a file; `-` is the standard input. Raises ValueError for a file that is not TOML."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
        return _with_none(tomllib.loads(text))
    except OSError as error:
        raise ValueError(f"The settings {path} can't be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # an error of TOML or of UTF-8
        hint = " The settings of a run are read with `spo train --like RUN`." if path.name == "config.json" else ""
        raise ValueError(f"{name_of_file(path)} is not TOML: {str(error).rstrip('.')}.{hint}") from error


def name_of_file(path: Path) -> str:
    """Returns the name of a file for messages."""
    return "The standard input" if str(path) == "-" else str(path)


def change(experiment: Experiment, settings: Mapping[str, Any], source: str) -> Experiment:
    """Returns the experiment with the settings of a file. Its task and its algorithm must be those of the file.

    Raises ValueError with the name of the file, `source`, for an unknown name or a wrong value.
    """
    try:
        changed = change_values(experiment, settings)
        to_json(changed)  # TOML has dates, which no run can store
        if {"task", "task_options"} & settings.keys():
            _check_task_options(changed.task, changed.task_options)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    return changed


def text_setting(settings: Mapping[str, Any], name: str, source: str) -> str | None:
    """Returns the task or the algorithm that a file names, or None."""
    value = settings.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{source}: {name} must be text, got {shorten(value)}.")
    return value


def _with_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_none(item) for name, item in value.items()}
    return None if value == NONE else value


def change_values(config: Any, settings: Mapping[str, Any], prefix: str = "") -> Any:
    """Returns a dataclass with the values of a table, and so for the dataclasses in it.

    Raises ValueError for an unknown name or a wrong value. The prefix precedes names in messages.
    """
    fields = {field.name for field in dataclasses.fields(config)} - set(_NOT_IN_FILES if not prefix else ())
    kinds = _kinds(type(config))
    changes = {}
    for name, value in settings.items():
        if name not in fields:
            raise ValueError(f"There is no setting {prefix + name!r}. {_suggest(config, name, prefix, fields)}")
        old = getattr(config, name)
        if dataclasses.is_dataclass(old) and not isinstance(value, type(old)):
            if not isinstance(value, dict):
                raise ValueError(f"{prefix}{name} must be a table, [{prefix}{name}], got {shorten(value)}.")
            changes[name] = change_values(old, value, f"{prefix}{name}.")
            continue
        # TOML has no tuples, and no configuration has a list.
        changes[name] = tuple(value) if isinstance(value, list) else value
        if name in kinds:
            check_value(f"{prefix}{name}", changes[name], kinds[name])
    return dataclasses.replace(config, **changes)


def _kinds(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # annotations of someone else's class, which may name what is not imported
        return {}


def _suggest(config: Any, name: str, prefix: str, fields: set[str]) -> str:
    """Returns a sentence with the nearest names of this table, or of the tables in it."""
    inner = {field: getattr(config, field) for field in fields}
    below = [
        f"{prefix}{table}.{name}"
        for table, value in inner.items()
        if dataclasses.is_dataclass(value) and name in {field.name for field in dataclasses.fields(value)}
    ]
    if below:
        return f"Did you mean {' or '.join(map(repr, sorted(below)))}?"
    return suggest_names(prefix + name, [prefix + field for field in fields])


def _check_task_options(task: str, options: Table) -> None:
    maker = maker_of(task)
    parameters = inspect.signature(maker).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return  # the library to which they are passed checks them
    for name in options:
        if name not in parameters:
            known = suggest_names(name, parameters) if parameters else "It has none."
            raise ValueError(f"The environment {task} has no option {name!r} for [task_options]. {known}")
    if not is_own(task):  # one of a user is checked when its options have their own types
        check_arguments(maker, options, owner=task)


# --- Settings of earlier runs -----------------------------------------------------------------------------------------


def settings_of(source: Path, message: Callable[[str], None]) -> Experiment:
    """Returns the settings of a run of any version, or of an exported file, for a new run.

    Raises ValueError if another version wrote settings that this one does not have. `message` receives a sentence about
    settings that the other version did not have, and about a run that started from an exported learner.
    """
    try:
        stored, experiment = _read_export(source) if source.is_file() else _read_folder(source)
    except ValueError as error:
        version = _version_of(source)
        if version in (None, __version__):
            raise
        raise ValueError(
            f"{source} was written by spo {version} and this is spo {__version__}, which has other settings: {error} "
            "Start from a preset instead, or install that version."
        ) from error
    new = flatten(to_json(experiment)).keys() - flatten(stored).keys() - {*_NOT_IN_FILES, "num_devices"}
    if new and _version_of(source) != __version__:
        message(
            f"{source} was written by spo {_version_of(source)}, which had no {', '.join(sorted(new))}: they get the "
            f"defaults of spo {__version__}."
        )
    if stored.get("start_from") is not None:
        start = RunFolder(source).start_path
        message(f"{source} started from a learner, which is no setting: add --from {start} to start from it again.")
    return dataclasses.replace(experiment, specs=None)


def _read_folder(folder: Path) -> tuple[Table, Experiment]:
    config = read_config(folder)
    check_config(folder, config)
    return config, RunFolder(folder).experiment


def _read_export(file: Path) -> tuple[Table, Experiment]:
    stored = exports.read_header(file)["experiment"]
    return stored, from_json(stored)


def _version_of(source: Path) -> str | None:
    try:
        header = exports.read_header(source) if source.is_file() else read_config(source)
    except (ValueError, OSError):
        return None
    return header.get("spo_version")


__all__ = ["Table", "change", "change_values", "name_of_file", "read_toml", "settings_of", "text_setting", "to_toml"]
