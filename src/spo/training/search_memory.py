"""Memory that a search needs for the states of its environment, and sentences about it at the start of a run.

A search holds many states of the environment at once. A state of most environments has less than a kilobyte; one of
`craftax/full` has 273 kB. What a search needs is therefore computed before anything is compiled.
"""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax

from spo.algorithms.registry import search_kind
from spo.host import abstract_key
from spo.training.experiment import Experiment
from spo.training.memory import format_bytes
from spo.types import Environment, Task

#: A state below this size is not worth a sentence, unless the search needs a large share of the memory.
LARGE_STATE = 10_000
_LARGE_SHARE = 0.25
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class SearchMemory(NamedTuple):
    """Memory of the states that all searches on one device hold at once, in bytes."""

    state: int  # one state of the environment
    states_per_search: int
    training: int
    evaluation: int  # of the evaluation with most episodes; 0 if it does not search

    @property
    def largest(self) -> int:
        return max(self.training, self.evaluation)


def search_memory(experiment: Experiment, model: Environment, num_devices: int) -> SearchMemory | None:
    """Returns what the searches of an experiment need. None: its algorithm does not search."""
    per_search = states_per_search(experiment.config)
    if per_search == 0:
        return None
    state, _ = jax.eval_shape(model.reset, abstract_key())
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    evaluation = experiment.evaluation
    episodes = max(evaluation.episodes, evaluation.final_episodes) if evaluation.use_search else 0

    def total(num_searches: int) -> int:
        return size * per_search * experiment.num_seeds * -(-num_searches // num_devices)

    return SearchMemory(size, per_search, total(experiment.config.num_envs), total(episodes))


def states_per_search(config: Any) -> int:
    """Returns the number of environment states that one search holds at once; 0 for an algorithm without search.

    Particles are held before and after a step, and after it in every sampled outcome. A tree holds a state per node.
    """
    if not hasattr(config, "num_envs"):
        return 0  # an algorithm of another design, a user's own
    kind = search_kind(config)
    if kind is None:
        return 0
    if kind == "tree":
        return config.num_simulations + 1
    return config.search.num_particles * (1 + getattr(config.search, "num_outcomes", 1))


def check_search_memory(experiment: Experiment, task: Task, num_devices: int) -> None:
    """Raises ValueError, with numbers, if the states of the searches alone exceed the memory of a device."""
    need, memory = search_memory(experiment, task.model, num_devices), device_memory()
    if need is None or memory is None or need.largest <= memory:
        return
    in_training = need.training > memory
    num, setting = (
        (experiment.config.num_envs, "--num-envs")
        if in_training
        else (experiment.evaluation.final_episodes, "--evaluation.final-episodes")
    )
    size = "--num-simulations" if search_kind(experiment.config) == "tree" else "--search.num-particles"
    raise ValueError(
        f"{task.model.name}: a state has {format_bytes(need.state)}, and a search holds {need.states_per_search} of "
        f"them. {num} searches at once{_seeds(experiment)} take "
        f"{format_bytes(need.training if in_training else need.evaluation)}, and the device has "
        f"{format_bytes(memory)}: lower {setting}, {size} or --num-seeds."
    )


def describe_search(experiment: Experiment, task: Task, num_devices: int) -> list[str]:
    """Returns sentences for the start of a run: what the search sees and the policy does not, and its memory."""
    need = search_memory(experiment, task.model, num_devices)
    if need is None:
        return []
    sentences = []
    if task.model.hidden:
        sentences.append(
            f"{task.model.name} hides {task.model.hidden} from the observation: the search plans with the true state, "
            "so its results are not those of a player who sees the observation alone."
        )
    memory = device_memory()
    if need.state >= LARGE_STATE or (memory is not None and need.largest > _LARGE_SHARE * memory):
        of_memory = "" if memory is None else f" of {format_bytes(memory)}"
        sentences.append(
            f"A state has {format_bytes(need.state)}, and a search holds {need.states_per_search} of them: all "
            f"searches{_seeds(experiment)} take {format_bytes(need.training)} in training and "
            f"{format_bytes(need.evaluation)} in evaluation{of_memory}."
        )
    return sentences


def device_memory() -> int | None:
    """Returns the memory of one device in bytes, or None if it is not known. CPU devices share that of the host."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # a system without this call
        return None
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else ""
    memory = min(memory, int(limit)) if limit.isdigit() else memory
    return memory // jax.local_device_count()


def _seeds(experiment: Experiment) -> str:
    return f" for {experiment.num_seeds} seeds" if experiment.num_seeds > 1 else ""
