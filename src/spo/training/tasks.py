"""The environments of an experiment: made by name or given as an object, and checked when they are a user's own."""

import dataclasses
from collections.abc import Callable

from spo import environments
from spo.environments.checking import check_environment
from spo.environments.own import describe_specs, is_own, with_masks, with_names
from spo.reports.runs import flatten
from spo.training.defaults import UNKNOWN_TIME_LIMIT
from spo.training.experiment import Experiment
from spo.types import Task


def make_task(experiment: Experiment, task: Task | None = None) -> Task:
    """Returns the task of an experiment, with what its environments left out.

    Raises ValueError if an own environment has other observations or actions than the experiment has stored.

    Args:
      experiment: the settings.
      task: the environments, if they can't be made by name. `experiment.task` is then only a label.
    """
    name = experiment.task
    task = with_masks(_make(experiment) if task is None else with_names(task, _label(experiment)))
    if is_own(name) and experiment.specs is not None:
        _check_specs(name, experiment.specs, describe_specs(task.train))
    return task


def prepare_task(
    experiment: Experiment, task: Task | None = None, *, message: Callable[[str], None]
) -> tuple[Experiment, Task | None]:
    """Makes and checks an own environment before its run starts, and stores its specs in the experiment.

    The other environments are returned as they are: `make_task` makes them, and tests have checked them.

    Args:
      experiment: the settings.
      task: the environments, if they can't be made by name.
      message: receives a sentence if no episode has ended during the check.
    """
    if not is_own(experiment.task):
        return experiment, task
    task = _make(experiment) if task is None else with_names(task, _label(experiment))
    steps = experiment.task_options.get("time_limit") or UNKNOWN_TIME_LIMIT
    assumption = f"Settings that are chosen for it assume episodes of at most {steps} steps."
    check_environment(task, message=lambda note: message(f"{note} {assumption}"))
    task = make_task(experiment, task)
    return dataclasses.replace(experiment, specs=describe_specs(task.train)), task


def _make(experiment: Experiment) -> Task:
    return with_names(environments.make(experiment.task, **experiment.task_options), _label(experiment))


def _label(experiment: Experiment) -> str:
    """Returns the name of an environment that has none: that of the function which makes it."""
    return experiment.task.rpartition(":")[2]


def _check_specs(name: str, stored: dict, now: dict) -> None:
    stored, now = flatten(stored), flatten(now)
    changed = [key for key in sorted(stored | now) if stored.get(key) != now.get(key)]
    if changed:
        named = ", ".join(f"{key} was {stored.get(key)} and is {now.get(key)}" for key in changed)
        raise ValueError(
            f"The environment {name} has changed since this agent was trained: {named}. Use the environment it was "
            "trained in, or train a new agent."
        )


__all__ = ["make_task", "prepare_task"]
