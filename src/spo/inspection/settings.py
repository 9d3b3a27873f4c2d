"""Settings of one decision that the page can change.

A control is one setting with the values that it can take. All but the temperature take few values, because each
combination of them is a program of its own.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from spo.algorithms.planning import SearchConfig
from spo.algorithms.registry import search_kind
from spo.checks import shorten
from spo.training.experiment import Experiment

#: Settings of one decision by name, such as {"num_particles": 16, "temperature": 0.1}.
Settings = Mapping[str, Any]

#: Range of temperatures.
LOWEST, HIGHEST = 1e-6, 1e6
POWERS = {
    "num_particles": (2, 4, 8, 16, 32, 64, 128, 256),
    "horizon": (1, 2, 4, 8, 16, 32),
    "resample_period": (None, 1, 2, 4, 8, 16),
    "num_simulations": (4, 8, 16, 32, 64, 128, 256),
}
LABELS = {
    "use_search": "Search",
    "num_particles": "Particles N",
    "horizon": "Horizon h",
    "temperature": "Temperature",
    "resample_period": "Resample every",
    "resampling": "Resampling",
    "readout": "Read-out",
    "num_simulations": "Simulations",
    "greedy": "Greedy",
}
HELP = {
    "use_search": "Without the search, the policy network alone chooses the action.",
    "num_particles": "Number of imagined futures. More of them cost time and give a better estimate.",
    "horizon": "Number of steps that each particle looks ahead.",
    "temperature": "A low temperature lets the best particles decide, a high one keeps to the policy network.",
    "resample_period": "Steps after which promising particles are copied and others dropped.",
    "resampling": "Method that draws which particles are copied.",
    "readout": "Estimate of the improved policy: from the last weights, those of all depths, or mean returns.",
    "num_simulations": "Number of times that the tree grows by one state.",
    "greedy": "Take the most likely action instead of a random one.",
}


class Control(NamedTuple):
    """One setting, and the values that it can take."""

    name: str
    label: str
    help: str
    #: "choice": one of `values`. "number": between the two `values`; None stands for the agent's own.
    kind: Literal["choice", "number"]
    values: tuple[Any, ...]


def own_settings(experiment: Experiment) -> dict[str, Any]:
    """Returns the settings that the run itself evaluates with. Their names depend on the kind of search."""
    config, evaluation = experiment.config, experiment.evaluation
    settings: dict[str, Any] = {"greedy": evaluation.greedy}
    kind = search_kind(config)
    if kind is None:
        return settings
    settings["use_search"] = evaluation.use_search
    if kind == "tree":
        return settings | {"num_simulations": config.num_simulations}
    names = [f.name for f in dataclasses.fields(config.search) if f.name in LABELS and f.name != "temperature"]
    return settings | {name: getattr(config.search, name) for name in names} | {"temperature": None}


def make_controls(experiment: Experiment) -> tuple[Control, ...]:
    """Returns the controls of a run. The run's own values are always among those to choose from."""
    own = own_settings(experiment)
    return tuple(_control(name, own[name]) for name in LABELS if name in own)


def check_settings(experiment: Experiment, given: Any) -> dict[str, Any]:
    """Returns the run's own settings with the given ones in their place. Raises ValueError for one that is unknown."""
    settings = own_settings(experiment)
    if not isinstance(given, Mapping):
        raise ValueError(f"settings must be an object with names and values, got {shorten(given)}.")
    controls = {control.name: control for control in make_controls(experiment)}
    for name, value in given.items():
        if name not in controls:
            raise ValueError(f"There is no setting {shorten(name)}: choose from {', '.join(controls)}.")
        _check(controls[name], value)
    settings |= given
    apply_settings(experiment, settings)  # combinations that the configuration refuses
    return settings


def apply_settings(experiment: Experiment, settings: Settings) -> Experiment:
    """Returns the experiment with the settings of its search. The temperature is an argument of the program."""
    config = experiment.config
    kind = search_kind(config)
    if kind == "tree":
        config = dataclasses.replace(config, num_simulations=settings["num_simulations"])
    elif kind == "particles":
        names = {f.name for f in dataclasses.fields(config.search)} & settings.keys() - {"temperature"}
        search = dataclasses.replace(config.search, **{name: settings[name] for name in names})
        config = dataclasses.replace(config, search=search)
    return dataclasses.replace(experiment, config=config)


def _control(name: str, own: Any) -> Control:
    if name == "temperature":
        return Control(name, LABELS[name], HELP[name], "number", (LOWEST, HIGHEST))
    if isinstance(own, bool):
        values: tuple[Any, ...] = (True, False)
    elif name in POWERS:
        numbers = sorted({*POWERS[name], own} - {None})
        values = (*([None] if None in POWERS[name] else []), *numbers)
    else:
        values = get_args(get_type_hints(SearchConfig)[name])
    return Control(name, LABELS[name], HELP[name], "choice", values)


def _check(control: Control, value: Any) -> None:
    if control.kind == "number":
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        low, high = control.values
        if value is not None and not (is_number and low <= value <= high):
            raise ValueError(f"{control.name} must lie between {low:g} and {high:g}, got {shorten(value)}.")
    # `1 == True` in Python: the types must agree too.
    elif not any(value == allowed and type(value) is type(allowed) for allowed in control.values):
        allowed = ", ".join(map(str, control.values))
        raise ValueError(f"{control.name} must be one of {allowed}, got {shorten(value)}.")


__all__ = ["Control", "Settings", "apply_settings", "check_settings", "make_controls", "own_settings"]
