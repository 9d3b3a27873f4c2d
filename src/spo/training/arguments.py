"""Arguments of `spo.train`: their checks, and dictionaries that change single settings."""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spo.algorithms.registry import default_config, name_algorithm
from spo.checks import check_value, shorten, suggest_names
from spo.networks.config import NetworkConfig
from spo.training.config_files import change_values
from spo.training.experiment import EvaluationConfig, Experiment, ScalingConfig

#: Arguments that are an object with all settings of their kind, or a dictionary with some of them.
GROUPS = ("config", "network", "evaluation", "scaling")


def check_arguments(run: Any, resume: Any, progress: Any, **functions: Any) -> None:
    """Raises ValueError for arguments of `spo.train` that have the wrong type. Functions may be None."""
    check_value("run", run, Path | None)
    if not isinstance(resume, bool) and not (isinstance(resume, str) and resume == "auto"):
        raise ValueError(f"resume must be True, False or 'auto', got {shorten(resume)}.")
    check_value("progress", progress, bool)
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ValueError(f"{name} must be a function, got {shorten(function)}.")


#: Names of other libraries.
_OTHER_NAMES = {"lr": "learning_rate"}


def refuse_unknown(given: Iterable[str], known: Iterable[str], algorithm: Any) -> None:
    """Raises ValueError for the first argument that `spo.train` does not have. A setting is named with its place.

    Args:
      given: names of the arguments.
      known: names of all arguments of `spo.train`.
      algorithm: the algorithm, whose hyperparameters are recognised.
    """
    known = list(known)
    for name in sorted(set(given) - set(known)):
        if place := _find_setting(_OTHER_NAMES.get(name, name), algorithm):
            kind = "a hyperparameter" if place.startswith("config=") else "a setting"
            raise ValueError(f"{name} is {kind}: {place}.")
        raise ValueError(f"spo.train has no argument {name}. {suggest_names(name, known)}")


def _find_setting(name: str, algorithm: Any) -> str | None:
    """Returns the argument of `spo.train` with which a setting of this name is given, such as `config={...}`."""
    groups: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # an algorithm that does not exist is refused later
        groups["config"] = default_config("spo" if algorithm is None else name_algorithm(algorithm))
    groups |= {"network": NetworkConfig(), "evaluation": EvaluationConfig(), "scaling": ScalingConfig()}
    for argument, group in groups.items():
        values = {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}
        if name in values:
            inner = "{...}" if dataclasses.is_dataclass(values[name]) else "..."
            return f'{argument}={{"{name}": {inner}}}'
        for inner, value in values.items():
            if dataclasses.is_dataclass(value) and hasattr(value, name):
                return f'{argument}={{"{inner}": {{"{name}": ...}}}}'
    # PPO, for example, has two learning rates.
    longer = [field.name for field in dataclasses.fields(groups.get("config", NetworkConfig()))]
    found = [f'"{field}": ...' for field in longer if field.endswith(f"_{name}")]
    return f"config={{{', '.join(found)}}}" if found else None


def split_single_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Splits arguments into whole ones, and dictionaries that change single settings."""
    single = {name: given[name] for name in GROUPS if isinstance(given.get(name), dict)}
    return {name: value for name, value in given.items() if name not in single}, single


def change_settings(experiment: Experiment, single: Mapping[str, dict[str, Any]]) -> Experiment:
    """Returns the experiment with single settings of `GROUPS`. Raises ValueError for an unknown name or a wrong value.

    Another kind of network does not keep the sizes of the first kind, as on the command line.
    """
    kind = single.get("network", {}).get("kind", experiment.network.kind)
    if kind != experiment.network.kind:
        experiment = dataclasses.replace(experiment, network=NetworkConfig(kind=kind))
    return change_values(experiment, single)


__all__ = ["GROUPS", "change_settings", "check_arguments", "refuse_unknown", "split_single_settings"]
