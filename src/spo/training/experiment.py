"""What is run: a task, an algorithm, a network and how they are judged, as plain data that JSON can hold."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jax.sharding import Mesh

from spo import environments
from spo.algorithms.base import Algorithm, Setting
from spo.algorithms.registry import find_algorithm
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig, make_architecture
from spo.training.program import Program, make_mesh, make_program
from spo.types import Task


@dataclass(frozen=True)
class EvaluationConfig:
    """How a run is judged, on the evaluation variant of the task."""

    num_evaluations: int = 20
    """Evaluations during training; the parameters of the best one are kept."""
    episodes: int = 128
    """Episodes of each."""
    final_episodes: int = 1280
    """Episodes at the end, with the best parameters."""
    use_search: bool = True
    """Act by search, or by the bare policy."""
    greedy: bool = False
    """Take the most likely action, or draw one."""


@dataclass(frozen=True)
class Experiment:
    """One run: everything that decides its result."""

    task: str = "rubiks_cube"
    """Environment, as `spo envs` lists them."""
    task_options: dict[str, Any] = field(default_factory=dict)
    """Options of the environment."""
    algorithm: str = "spo"
    """Learning algorithm."""
    steps: float = 1e8
    """Environment steps, per seed. The last interval between two lines of metrics is finished."""
    seed: int = 0
    """Where all randomness comes from."""
    num_seeds: int = 1
    """Independent runs in one program; run s is the same however many run beside it."""
    num_devices: int | None = None
    """Devices to share the work; None: all there are."""
    logs_per_evaluation: int = 5
    """Lines of metrics between two evaluations."""
    skip_nonfinite_updates: bool = False
    """Leave out updates that would make a number infinite or NaN, and go on, instead of stopping there."""
    config: Any = field(default_factory=SPOConfig)
    """The algorithm's hyper-parameters."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The network."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """The evaluations."""


class Built(NamedTuple):
    """An experiment made ready to run."""

    setting: Setting
    algorithm: Algorithm
    program: Program

    @property
    def task(self) -> Task:
        return self.setting.task


def build(experiment: Experiment, task: Task | None = None) -> Built:
    """`task` is what `experiment.task` names, unless it is given: a world of the user's own can't be made by name."""
    _, make_algorithm = find_algorithm(experiment.algorithm)
    if not math.isfinite(experiment.steps):
        raise ValueError(f"steps must be a number, got {experiment.steps}: rates decay over them, and a run ends.")
    task = environments.make(experiment.task, **experiment.task_options) if task is None else task
    mesh: Mesh = make_mesh(experiment.num_devices)
    architecture = make_architecture(task.train, experiment.network)
    setting = Setting(
        task,
        architecture,
        experiment.steps,
        mesh.devices.size,
        skip_nonfinite_updates=experiment.skip_nonfinite_updates,
    )
    algorithm = make_algorithm(setting, experiment.config)
    return Built(setting, algorithm, make_program(algorithm, task.evaluation, mesh, experiment.num_seeds))


def to_json(experiment: Experiment) -> dict[str, Any]:
    return dataclasses.asdict(experiment)


def from_json(data: dict[str, Any]) -> Experiment:
    """The experiment that `to_json` wrote. Anything unknown is refused: it would be silently lost."""
    config_type, _ = find_algorithm(data["algorithm"])
    _refuse_unknown(Experiment, data)
    return Experiment(
        **{
            **data,
            "config": _dataclass_from_json(config_type, data["config"]),
            "network": _dataclass_from_json(NetworkConfig, data["network"]),
            "evaluation": _dataclass_from_json(EvaluationConfig, data["evaluation"]),
        }
    )


def _dataclass_from_json(kind: type, data: dict[str, Any]) -> Any:
    _refuse_unknown(kind, data)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    values = {}
    for name, value in data.items():
        default = fields[name].default_factory
        nested = isinstance(value, dict) and default is not dataclasses.MISSING and dataclasses.is_dataclass(default)
        if nested:
            value = _dataclass_from_json(default, value)  # type: ignore[arg-type]
        # JSON has no tuples, and no configuration has a list.
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _refuse_unknown(kind: type, data: dict[str, Any]) -> None:
    unknown = set(data) - {field_.name for field_ in dataclasses.fields(kind)}
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}: was it written by another version?")
