"""The schedule of a run: numbers and lengths of its intervals, and the intervals that end with an evaluation."""

from typing import NamedTuple

from spo.checks import MAX_INT
from spo.training.experiment import Experiment


class Schedule(NamedTuple):
    """Lengths and numbers of the intervals of a run. All intervals are equally long: one program serves them all."""

    iterations_per_interval: int  # between two log records
    num_intervals: int  # in the whole run
    num_evaluations: int  # during training

    @property
    def num_iterations(self) -> int:
        return self.num_intervals * self.iterations_per_interval

    def intervals_after(self, iteration: int) -> range:
        """Returns the intervals, counted from 1, that remain after this iteration."""
        return range(iteration // self.iterations_per_interval + 1, self.num_intervals + 1)

    def evaluates_after(self, interval: int) -> bool:
        """Returns True if the interval ends with an evaluation. They are evenly spaced; the last one ends the run."""
        due = interval * self.num_evaluations // self.num_intervals
        return due > (interval - 1) * self.num_evaluations // self.num_intervals


def make_schedule(experiment: Experiment, env_steps_per_iteration: int) -> Schedule:
    """Returns the schedule of at least `experiment.steps` steps. Raises ValueError if they are too many to count."""
    num_iterations = count_iterations(experiment.steps, env_steps_per_iteration)
    if num_iterations > MAX_INT:  # iterations and updates are counted with 32 bits on the device
        raise ValueError(
            f"steps={experiment.steps:g} are {num_iterations:,} iterations of {env_steps_per_iteration:,} steps, and a "
            f"run has at most {MAX_INT:,}: choose fewer steps, or more num_envs."
        )
    return divide(num_iterations, experiment.evaluation.num_evaluations, experiment.logs_per_evaluation)


def count_iterations(steps: float, env_steps_per_iteration: int) -> int:
    """Returns the number of iterations that have at least these steps."""
    return -(-round(steps) // env_steps_per_iteration)


def divide(num_iterations: int, num_evaluations: int, logs_per_evaluation: int) -> Schedule:
    """Returns the schedule of at least `num_iterations` iterations. The excess is less than one interval."""
    length = -(-num_iterations // (num_evaluations * logs_per_evaluation))
    num_intervals = -(-num_iterations // length)
    return Schedule(length, num_intervals, min(num_evaluations, num_intervals))


__all__ = ["Schedule", "count_iterations", "divide", "make_schedule"]
