"""The environments of an experiment: made by name or given as an object, and checked when they are a user's own."""

import dataclasses

from spo import environments
from spo.environments.own import complete, describe_specs, is_own
from spo.reports.runs import flatten
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
    task = environments.make(name, **experiment.task_options) if task is None else task
    task = complete(task, name.rpartition(":")[2])
    if is_own(name) and experiment.specs is not None:
        _check_specs(name, experiment.specs, describe_specs(task.train))
    return task


def prepare_task(experiment: Experiment, task: Task | None = None) -> tuple[Experiment, Task]:
    """Makes the task for a start of a run. Checks an own environment, and stores its specs in the experiment."""
    task = make_task(experiment, task)
    if not is_own(experiment.task):
        return experiment, task
    return dataclasses.replace(experiment, specs=describe_specs(task.train)), task


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
