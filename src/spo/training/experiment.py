"""What is run: a task, an algorithm, a network and how they are judged, as plain data that JSON can hold."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from spo import environments
from spo.algorithms.alphazero import AlphaZeroConfig, GumbelAlphaZeroConfig, make_alphazero, make_gumbel_alphazero
from spo.algorithms.base import Algorithm, Setting
from spo.algorithms.mpo import MPOConfig, make_mpo
from spo.algorithms.ppo import PPOConfig, make_ppo
from spo.algorithms.sampled_alphazero import SampledAlphaZeroConfig, make_sampled_alphazero
from spo.algorithms.smc_ent import SMCEntConfig, make_smc_ent
from spo.algorithms.spo import SPOConfig, make_spo
from spo.algorithms.vmpo import VMPOConfig, make_vmpo
from spo.networks import (
    Architecture,
    boxoban_architecture,
    cube_architecture,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.torsos import MLP, CubeTorso
from spo.training.program import Program, make_mesh, make_program
from spo.types import Environment, PyTree, Task

#: name -> its configuration and (setting, configuration) -> Algorithm
ALGORITHMS: dict[str, tuple[type, Callable[..., Algorithm]]] = {
    "alphazero": (AlphaZeroConfig, make_alphazero),
    "gumbel_alphazero": (GumbelAlphaZeroConfig, make_gumbel_alphazero),
    "mpo": (MPOConfig, make_mpo),
    "ppo": (PPOConfig, make_ppo),
    "sampled_alphazero": (SampledAlphaZeroConfig, make_sampled_alphazero),
    "smc_ent": (SMCEntConfig, make_smc_ent),
    "spo": (SPOConfig, make_spo),
    "vmpo": (VMPOConfig, make_vmpo),
}

#: Settings that are a share of something.
SHARES = ("gamma", "gae_lambda", "retrace_lambda", "target_smoothing", "root_exploration_weight")
#: Settings that scale or bound something: with 0 nothing would be learned, below it the wrong. KL bounds are such, too.
POSITIVE = ("max_grad_norm", "clip_epsilon", "reward_scale", "entropy_temperature", "huber_delta")


@dataclass(frozen=True)
class NetworkConfig:
    """The paper's network for the task, in other sizes if wanted."""

    width: int | None = None
    """Units per layer (cube 512, Brax 256); None: the paper's."""
    depth: int | None = None
    """Layers of the network (cube 2, Brax 4); None: the paper's."""
    channels: tuple[int, ...] | None = None
    """Channels of the groups of Boxoban's ResNet; None: the paper's (256, 256, 512, 512)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the network computes in; parameters are float32 always."""


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
    _, make_algorithm = _find_algorithm(experiment.algorithm)
    if not math.isfinite(experiment.steps):
        raise ValueError(f"steps must be a number, got {experiment.steps}: rates decay over them, and a run ends.")
    _check_settings(experiment.config)
    _check_settings(experiment.network, "network.")
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


def make_architecture(environment: Environment, config: NetworkConfig) -> Architecture:
    """The paper's network for the environment in the sizes of `config`. Channels make a ResNet for a grid of any size,
    whose heads are the paper's."""
    dtype = jnp.dtype(config.dtype)
    if config.channels is None:
        architecture = paper_architecture(environment.observation_spec, dtype)
    elif _is_grid(environment.observation_spec):
        architecture = boxoban_architecture(config.channels, dtype=dtype)
    else:
        raise ValueError(
            f"network.channels are those of a ResNet over a grid of cells such as Boxoban's, and {environment.name} "
            "shows no such grid: leave them out; network.width and network.depth size other networks."
        )
    if config.width is None and config.depth is None:
        return architecture
    if isinstance(architecture.torso, CubeTorso):
        width = config.width or 512
        return cube_architecture(width=width, num_layers=config.depth or 2, head_sizes=(width,), dtype=dtype)
    if isinstance(architecture.torso, MLP):
        return mlp_architecture(depth=config.depth or 4, width=config.width or 256, dtype=dtype)
    raise ValueError(
        f"network.width and network.depth apply to the cube and to flat observations only, and {environment.name} "
        "shows a grid: leave them out (None) and set network.channels, one number for each group of the ResNet."
    )


def _is_grid(observation_spec: PyTree[jax.ShapeDtypeStruct]) -> bool:
    leaves = jax.tree.leaves(observation_spec)
    return len(leaves) == 1 and len(leaves[0].shape) == 2 and jnp.issubdtype(leaves[0].dtype, jnp.integer)


def _check_settings(config: Any, prefix: str = "") -> None:
    """Refuses settings that no algorithm can do anything with, nested ones included."""
    kinds = get_type_hints(type(config))
    for field_ in dataclasses.fields(config):
        name, value, kind = prefix + field_.name, getattr(config, field_.name), kinds[field_.name]
        if dataclasses.is_dataclass(value):
            _check_settings(value, f"{name}.")
        elif get_origin(kind) is Literal:
            if value not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value}.")
        elif value is None:
            continue  # what may be None says what that means
        elif kind in (int, int | None) and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")
        elif field_.name in SHARES and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie between 0 and 1, got {value}.")
        elif field_.name.endswith("learning_rate") and not 0.0 <= value < math.inf:
            raise ValueError(f"{name} must be 0 or more, got {value}.")
        elif (field_.name in POSITIVE or field_.name.endswith("kl_bound")) and not value > 0.0:
            raise ValueError(f"{name} must be above 0, got {value}.")


def default_config(algorithm: str) -> Any:
    """The configuration of an algorithm with nothing changed."""
    return _find_algorithm(algorithm)[0]()


def to_json(experiment: Experiment) -> dict[str, Any]:
    return dataclasses.asdict(experiment)


def from_json(data: dict[str, Any]) -> Experiment:
    """The experiment that `to_json` wrote. Anything unknown is refused: it would be silently lost."""
    config_type, _ = _find_algorithm(data["algorithm"])
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


def _find_algorithm(name: str) -> tuple[type, Callable[..., Algorithm]]:
    if name not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {name!r}: choose from {', '.join(sorted(ALGORITHMS))}.")
    return ALGORITHMS[name]
