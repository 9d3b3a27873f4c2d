"""Checks of an environment: `check_environment(environment)` runs its contract for a few steps.

Every fault is an `InvalidEnvironment` with one sentence that names the field and the remedy.

| Stage | Faults |
|---|---|
| specs | fields of the environment, `action_spec`, `observation_spec` |
| traces | types of states and time steps, side effects, keys; nothing is compiled |
| steps | NaN, masks without an action, results that differ for the same key, pictures, episodes without an end |

Chance is checked as far as it can be wrong. The same key must give the same result, a state holds no key, and no random
number is drawn with a constant key. A reset that ignores its key is valid: all its episodes have the same start.
"""

from collections.abc import Callable
from typing import Any

import jax

from spo.checks import PositiveInt, check_value, print_message
from spo.environments.checking.specs import check_specs
from spo.environments.checking.steps import check_steps
from spo.environments.checking.traces import check_traces
from spo.environments.checking.tracing import InvalidEnvironment
from spo.environments.checking.words import find_difference, title
from spo.environments.outputs import describe
from spo.quoting import quote
from spo.types import Environment, Task


def check_environment(
    environment: Environment | Task,
    *,
    num_steps: PositiveInt = 8,
    max_steps_for_time_limit: PositiveInt = 10_000,
    message: Callable[[str], None] = print_message,
) -> None:
    """Raises `InvalidEnvironment` if an environment breaks the contract of `spo.types.Environment`.

    It returns nothing and prints nothing if there is no fault and an episode has ended.

    Args:
      environment: an environment; or a task, whose environments are checked and compared.
      num_steps: number of steps with random actions that are compared and checked in detail.
      max_steps_for_time_limit: an episode of random actions must end within this number of steps. An environment
        whose steps are slow is only played for 8 seconds.
      message: receives a sentence if no episode has ended in these 8 seconds.
    """
    check_value("num_steps", num_steps, PositiveInt)
    check_value("max_steps_for_time_limit", max_steps_for_time_limit, PositiveInt)
    if isinstance(environment, Task):
        notes = _check_task(environment, num_steps, max_steps_for_time_limit)
    else:
        notes = _check_one(environment, num_steps, max_steps_for_time_limit)
    for note in notes[:1]:
        message(note)


def _check_one(environment: Environment, num_steps: int, max_steps_for_time_limit: int) -> list[str]:
    """Checks one environment, and returns a note if no episode has ended."""
    if not isinstance(environment, Environment):
        raise InvalidEnvironment(
            f"An environment must be a spo.types.Environment, got {describe(environment)}: build one from reset, "
            "step, observation_spec and action_spec."
        )
    try:
        check_specs(environment)
        types = check_traces(environment)
        steps_without_end = check_steps(environment, types, num_steps, max_steps_for_time_limit)
    except InvalidEnvironment as error:
        sentence = " ".join(str(error).split())  # the text of a value may have several lines
        raise InvalidEnvironment(f"{title(environment)}: {sentence}") from None
    except Exception as error:  # such as a dictionary whose keys can't be sorted
        raise InvalidEnvironment(
            f"{title(environment)}: its specs, states or time steps are no valid pytrees of arrays: {quote(error)}. "
            "Use tuples, named tuples and dictionaries with text as keys."
        ) from None
    if steps_without_end is None:
        return []
    return [
        f"{title(environment)}: no episode of random actions ended in the {steps_without_end:,} steps that the check "
        "had time for. If its episodes have no time limit, add one: "
        "spo.environments.wrappers.episode_limit(environment, 1000)."
    ]


def _check_task(task: Task, num_steps: int, max_steps_for_time_limit: int) -> list[str]:
    """Checks the environments of a task, and returns their notes."""
    checked: list[Environment] = []
    notes: list[str] = []
    for environment in task:
        if not any(_is_copy(environment, other) for other in checked):
            notes += _check_one(environment, num_steps, max_steps_for_time_limit)
            checked.append(environment)
    key = jax.random.key(0)
    expected = jax.eval_shape(task.train.reset, key)
    for role, environment in (("evaluation", task.evaluation), ("model", task.model)):
        if environment.action_spec != task.train.action_spec:
            raise InvalidEnvironment(
                f"{title(environment)}: the action_spec of task.{role} is {environment.action_spec}, that "
                f"of task.train is {task.train.action_spec}: give all environments of a task the same action_spec."
            )
        difference = find_difference("(state, time step)", expected, jax.eval_shape(environment.reset, key))
        if difference:
            raise InvalidEnvironment(
                f"{title(environment)}: reset of task.train and of task.{role} differ: {difference}. "
                "All environments of a task must have the same layout of states and observations."
            )
    return notes


def _is_copy(environment: Any, other: Environment) -> bool:
    """Returns True if two environments have the same functions. Copies differ in the name at most."""
    return isinstance(environment, Environment) and environment[:2] == other[:2]


__all__ = ["InvalidEnvironment", "check_environment"]
