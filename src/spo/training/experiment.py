"""Description of a run as plain data: task, algorithm, network and evaluations, with conversion to and from JSON."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from spo.algorithms.registry import find_algorithm
from spo.algorithms.spo import SPOConfig
from spo.checks import Check, Multiplicity, PositiveInt, Seed, check_fields
from spo.networks.config import NetworkConfig

#: A float, because people write 1e8. Up to 1e15, every whole number is a float, so that steps can be counted.
NumSteps = Annotated[float, Check(lambda value: 1 <= value <= 1e15, "must be a number between 1 and 1e15")]


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluations of a run. They use the evaluation variant of the task, such as harder instances or unseen levels."""

    num_evaluations: PositiveInt = 20
    """Number of evaluations during training, evenly spaced. The parameters of the best one are kept."""
    episodes: PositiveInt = 128
    """Number of episodes in each evaluation, for each seed."""
    final_episodes: PositiveInt = 1280
    """Number of episodes in the final evaluation of the best parameters, for each seed."""
    use_search: bool = True
    """Choose actions with the search, if the algorithm has one. Otherwise the policy network alone chooses them."""
    greedy: bool = False
    """Take the most likely action instead of a random one."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="evaluation.")


@dataclass(frozen=True)
class ScalingConfig:
    """Scaling of what is learned from, by statistics that are measured during training and stored with the agent."""

    observations: bool = False
    """Shift and scale large numbers of observations to mean 0 and standard deviation 1. Numbers of size 1 stay nearly
    as they are, and so do images and boards."""
    rewards: bool = False
    """Divide rewards by the standard deviation of discounted returns. Results are in rewards of the environment."""

    def __post_init__(self) -> None:
        check_fields(self, prefix="scaling.")


@dataclass(frozen=True)
class Experiment:
    """All settings that decide the result of a run.

    Training stops when metrics are next written after `steps`, so a run can be slightly longer.
    """

    task: str = "rubiks_cube"
    """Name of the environment. `spo envs` lists them. Your own is `module:function`."""
    task_options: dict[str, Any] = field(default_factory=dict)
    """Options of the environment."""
    algorithm: str = "spo"
    """Learning algorithm."""
    steps: NumSteps = 1e8
    """Number of environment steps to train for, with each seed. Steps that the search simulates do not count."""
    seed: Seed = 0
    """Random seed."""
    num_seeds: Multiplicity = 1
    """Number of independent runs to train side by side. The result of each does not depend on their number."""
    num_devices: PositiveInt | None = None
    """Number of devices (GPUs, for example) that share the work. None: all of them."""
    logs_per_evaluation: PositiveInt = 5
    """Number of times that training metrics are written from one evaluation to the next."""
    skip_nonfinite_updates: bool = False
    """Skip updates that would produce an infinite or undefined number (NaN), instead of stopping at the first."""
    config: Any = field(default_factory=SPOConfig)
    """Hyperparameters of the algorithm."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Kind and sizes of the network."""
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    """Scaling of observations and rewards."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Evaluations during training and at its end."""
    specs: dict[str, Any] | None = None
    """Observations and actions of your own environment, stored by its run. A changed environment is refused."""

    def __post_init__(self) -> None:
        check_fields(self)
        config_type, _ = find_algorithm(self.algorithm)
        if not isinstance(self.config, config_type):
            raise ValueError(
                f"config must be {config_type.__name__} for the algorithm {self.algorithm}, got "
                f"{type(self.config).__name__}."
            )


def to_json(experiment: Experiment) -> dict[str, Any]:
    """Returns the experiment as nested dictionaries that JSON can hold. Raises ValueError for a value that it can't."""
    return {name: _to_plain(name, value) for name, value in dataclasses.asdict(experiment).items()}


def _to_plain(name: str, value: Any) -> Any:
    """Replaces the numbers of NumPy and JAX by Python's, and paths by text."""
    if isinstance(value, dict):
        return {key: _to_plain(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(_to_plain(name, item) for item in value)
    if isinstance(value, Path):
        return str(value)
    plain = value.item() if getattr(value, "shape", None) == () else value
    if plain is not None and not isinstance(plain, bool | int | float | str):
        raise ValueError(
            f"{name} is of type {type(value).__name__}, which can't be stored with a run: use numbers, text, truth "
            "values, or lists of them."
        )
    return plain


def from_json(data: dict[str, Any]) -> Experiment:
    """Returns the experiment of `to_json`. Raises ValueError for an unknown name, which would be lost silently."""
    _refuse_unknown(Experiment, data)
    config_type, _ = find_algorithm(data["algorithm"])
    return Experiment(
        **{
            **data,
            # Runs of versions without a choice of MPO's targets had Retrace.
            "config": _dataclass_from_json(config_type, _add_missing(config_type, data["config"], q_targets="retrace")),
            # Runs of versions without kinds of networks had the paper's.
            "network": _dataclass_from_json(NetworkConfig, {"kind": "paper", **data["network"]}),
            # Runs of versions without scaling had none.
            "scaling": _dataclass_from_json(ScalingConfig, data.get("scaling", {})),
            "evaluation": _dataclass_from_json(EvaluationConfig, data["evaluation"]),
        }
    )


def _add_missing(kind: type, data: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Adds settings that an older version did not store, if this kind has them, with the values that it used."""
    names = {field_.name for field_ in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names} | data


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
