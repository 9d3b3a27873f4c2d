"""Settings chosen for a task, for `spo train --task X` and `spo.train(env)` without a preset or a configuration.

One table, by algorithm, kind of actions and device. Sizes follow from the number of steps: a run has at least fifty
iterations where its steps allow, ten evaluations, and ends within one iteration of the steps that were asked for. The
network follows from the observation. Observations and rewards are scaled (`spo.training.scaling`).

The settings were made on the tasks that `experiments/out_of_the_box.toml` calls developed, and SPO's for continuous
actions also on Brax's inverted_double_pendulum, reacher and hopper. They are no presets: another version may choose
others. A run stores the values that it used.
"""

import dataclasses
import shutil
import textwrap
from typing import Any, NamedTuple

import jax

from spo import environments
from spo.algorithms.alphazero import AlphaZeroConfig, GumbelAlphaZeroConfig
from spo.algorithms.mpo import MPOConfig
from spo.algorithms.planning import SearchConfig
from spo.algorithms.ppo import PPOConfig
from spo.algorithms.registry import default_config
from spo.algorithms.sampled_alphazero import SampledAlphaZeroConfig
from spo.algorithms.smc_ent import SMCEntConfig, SoftSearchConfig
from spo.algorithms.spo import SPOConfig
from spo.algorithms.vmpo import VMPOConfig
from spo.checks import check_value
from spo.environments.own import is_own
from spo.networks.config import NetworkConfig
from spo.networks.grids import is_board, is_picture, is_small
from spo.reports.runs import flatten
from spo.training import schedule
from spo.training.experiment import EvaluationConfig, Experiment, NumSteps, ScalingConfig
from spo.types import DiscreteActions, Environment

#: Iterations that a run has at least, if its steps allow it.
MIN_ITERATIONS = 50
NUM_EVALUATIONS = 10
#: Numbers of logs from one evaluation to the next, in the order in which they are tried.
NUMBERS_OF_LOGS = (2, 3, 4, 5, 6, 7, 8, 1)
#: Length of an episode where no time limit is known.
UNKNOWN_TIME_LIMIT = 500


class Facts(NamedTuple):
    """Facts about a task that decide its settings."""

    is_discrete: bool
    observation: str  # "image", "board", "cube" or "numbers"
    time_limit: int  # longest episode in steps
    on_gpu: bool


def make_facts(environment: Environment, time_limit: int | None = None, on_gpu: bool | None = None) -> Facts:
    """Returns the facts of an environment. Without `on_gpu`, those of the device that JAX uses."""
    # A user's own specs are checked later, with better messages than one from here.
    leaves = [leaf for leaf in jax.tree.leaves(environment.observation_spec) if isinstance(leaf, jax.ShapeDtypeStruct)]
    grids = [leaf for leaf in leaves if is_picture(leaf) or is_board(leaf)]
    observation = "numbers" if not grids else "board" if all(map(is_small, grids)) else "image"
    if [leaf.shape for leaf in leaves] == [(6, 3, 3)]:
        observation = "cube"
    actions = environment.action_spec
    return Facts(
        is_discrete=isinstance(actions, DiscreteActions),
        observation=observation,
        time_limit=time_limit or UNKNOWN_TIME_LIMIT,
        on_gpu=jax.default_backend() == "gpu" if on_gpu is None else on_gpu,
    )


class Sizes(NamedTuple):
    """Environments, length of their rollouts, and logs from one evaluation to the next."""

    num_envs: int
    rollout_length: int
    logs_per_evaluation: int


# --- The table --------------------------------------------------------------------------------------------------------

_REPLAY: dict[str, Any] = {"num_envs": 16, "rollout_length": 16, "sequence_length": 16, "replay_size": 16_384}
_TREE: dict[str, Any] = {
    **_REPLAY,
    "num_updates": 16,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "num_simulations": 32,
}
#: Steps of a run for which none were asked, on a CPU. Searches take longer for each step, tree searches longest.
_STEPS = {"ppo": 3e6, "vmpo": 3e6, "mpo": 2e5, "spo": 3e5}
_OTHER_STEPS = 1e5
#: A GPU has room for more environments and larger batches at once.
_GPU_FACTOR = 32
_GPU_STEPS_FACTOR = 50

#: Both kinds of actions, on a CPU.
_COMMON: dict[str, Any] = {
    "spo": SPOConfig(
        **_REPLAY,
        num_updates=16,
        batch_size=32,
        learning_rate=1e-3,
        dual_learning_rate=5e-3,
        root_exploration_weight=0.0,
        initial_temperature=0.1,
        trust_region=False,
        # Different first actions: a search also tries those that the policy has come to avoid.
        search=SearchConfig(num_particles=16, horizon=4, num_root_candidates=16),
    ),
    "ppo": PPOConfig(
        num_envs=16,
        rollout_length=128,
        num_epochs=4,
        num_minibatches=8,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        clip_epsilon=0.2,
    ),
    "mpo": MPOConfig(
        **_REPLAY,
        num_updates=16,
        batch_size=32,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        dual_learning_rate=1e-2,
        decay_learning_rates=False,
        gamma=0.99,
        initial_temperature=0.1,
        temperature_kl_bound=0.1,
        kl_bound=1e-2,
        initial_multiplier=0.1,
        num_samples=16,
    ),
    "vmpo": VMPOConfig(
        num_envs=16,
        rollout_length=128,
        num_epochs=4,
        num_minibatches=8,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        target_period=32,
        initial_temperature=0.5,
        kl_bound=0.02,
        initial_multiplier=0.5,
    ),
    "alphazero": AlphaZeroConfig(**_TREE, dirichlet_alpha=0.3),
    "gumbel_alphazero": GumbelAlphaZeroConfig(**_TREE),
    "sampled_alphazero": SampledAlphaZeroConfig(**_TREE, num_samples=8, entropy_coefficient=1e-3),
    "smc_ent": SMCEntConfig(
        num_envs=16,
        rollout_length=16,
        num_updates=16,
        batch_size=128,
        replay_size=65_536,
        critic_learning_rate=1e-3,
        actor_learning_rate=1e-3,
        gamma=0.99,
        reward_scale=1.0,
        search=SoftSearchConfig(num_particles=16, horizon=4, temperature=0.1),
    ),
}
#: Differences for continuous actions.
_CONTINUOUS: dict[str, dict[str, Any]] = {
    # A Gaussian narrows slowly. On inverted_double_pendulum, 1e5 steps gave a return of 692 at a rate of 1e-3.
    "spo": {
        "search": SearchConfig(num_particles=16, horizon=4),
        "learning_rate": 3e-3,
        "target_smoothing": 0.02,
    },
    "ppo": {"entropy_coefficient": 1e-3, "actor_learning_rate": 5e-4},
    "vmpo": {"mean_kl_bound": 0.02, "scale_kl_bound": 1e-3, "initial_mean_multiplier": 1.0},
    "mpo": {"mean_kl_bound": 0.02, "scale_kl_bound": 1e-3, "initial_mean_multiplier": 1.0},
}
_NETWORKS = {
    "numbers": NetworkConfig(kind="mlp", width=64, depth=2),
    "board": NetworkConfig(kind="resnet", width=128),
    "image": NetworkConfig(kind="cnn", width=128),
    "cube": NetworkConfig(kind="auto", width=256),
}


# --- Choice -----------------------------------------------------------------------------------------------------------


def choose_experiment(
    task: str,
    algorithm: str = "spo",
    steps: float | None = None,
    *,
    task_options: dict[str, Any] | None = None,
    environment: Environment | None = None,
    on_gpu: bool | None = None,
) -> Experiment:
    """Returns an experiment with the settings for a task.

    Args:
      task: name of the environment.
      algorithm: name of the algorithm. One of your own keeps the defaults of its configuration.
      steps: number of environment steps; None: chosen as well.
      task_options: options of the environment.
      environment: the environment, if its name can't make it.
      on_gpu: settings for a GPU; None: if JAX uses one.
    """
    if steps is not None:
        check_value("steps", steps, NumSteps)
    options = task_options or {}
    environment, time_limit = _describe_task(task, options, environment)
    facts = make_facts(environment, time_limit, on_gpu)
    if steps is None:
        steps = _STEPS.get(algorithm, _OTHER_STEPS) * (_GPU_STEPS_FACTOR if facts.on_gpu else 1)
    experiment = Experiment(
        task=task,
        task_options=options,
        algorithm=algorithm,
        steps=steps,
        config=default_config(algorithm),
        network=_NETWORKS[facts.observation],
        evaluation=choose_evaluation(facts, steps),
    )
    if algorithm not in _COMMON:
        return experiment
    config = choose_config(facts, algorithm)
    sizes = fit_sizes(config.num_envs, config.rollout_length, steps)
    return dataclasses.replace(
        experiment,
        config=resize(config, sizes),
        logs_per_evaluation=sizes.logs_per_evaluation,
        scaling=ScalingConfig(observations=True, rewards=True),
    )


def choose_config(facts: Facts, algorithm: str) -> Any:
    """Returns the hyperparameters of an algorithm for a task, before its sizes are fitted to the steps."""
    config = _COMMON[algorithm]
    if not facts.is_discrete:
        config = dataclasses.replace(config, **_CONTINUOUS.get(algorithm, {}))
    if facts.on_gpu:
        config = dataclasses.replace(config, num_envs=config.num_envs * _GPU_FACTOR, **_grown(config))
    return config


def resize(config: Any, sizes: Sizes) -> Any:
    """Returns the configuration with other sizes, and with sequences and minibatches that fit them."""
    length = sizes.rollout_length
    changed = dataclasses.replace(config, num_envs=sizes.num_envs, rollout_length=length, **_sequence(config, length))
    return _with_minibatches(changed)


def _grown(config: Any) -> dict[str, int]:
    names = ("batch_size", "replay_size")
    return {name: getattr(config, name) * _GPU_FACTOR for name in names if hasattr(config, name)}


def choose_evaluation(facts: Facts, steps: float) -> EvaluationConfig:
    """Returns ten evaluations that take about a fifth of the steps, of 8 to 64 episodes each."""
    episodes = round(0.02 * steps / facts.time_limit)
    episodes = min(max(episodes, 8), 64)
    return EvaluationConfig(num_evaluations=NUM_EVALUATIONS, episodes=episodes, final_episodes=2 * episodes)


# --- Sizes that fit the steps -----------------------------------------------------------------------------------------


def fit_sizes(num_envs: int, length: int, steps: float) -> Sizes:
    """Returns sizes near those given with which a run ends within one iteration of the steps.

    Rollouts are shortened, and then environments taken away, until there are fifty iterations. All intervals of a
    schedule are equally long, so their number must divide that of the iterations: lengths near the one that is left,
    and numbers of logs, are tried until it does.
    """
    while steps / (num_envs * length) < MIN_ITERATIONS and length > 16:
        length //= 2
    while steps / (num_envs * length) < MIN_ITERATIONS and num_envs > 4:
        num_envs //= 2
    lengths = sorted(range(max(1, length - length // 4), length + length // 4 + 1), key=lambda near: abs(near - length))
    tried = [Sizes(num_envs, near, logs) for near in lengths for logs in NUMBERS_OF_LOGS]
    return min(tried, key=lambda sizes: _excess(steps, sizes))  # the first of those that fit best


def _excess(steps: float, sizes: Sizes) -> int:
    """Returns the iterations that a run has beyond the steps asked for."""
    num_iterations = schedule.count_iterations(steps, sizes.num_envs * sizes.rollout_length)
    intervals = schedule.divide(num_iterations, NUM_EVALUATIONS, sizes.logs_per_evaluation)
    return intervals.num_iterations - num_iterations


def _sequence(config: Any, length: int) -> dict[str, int]:
    if not hasattr(config, "sequence_length"):
        return {}
    return {"sequence_length": min(config.sequence_length, length)}


def _with_minibatches(config: Any) -> Any:
    """Returns the configuration with a number of minibatches that divides the rollout."""
    if not hasattr(config, "num_minibatches"):
        return config
    size = config.num_envs * config.rollout_length
    fits = [number for number in range(1, config.num_minibatches + 1) if size % number == 0]
    return dataclasses.replace(config, num_minibatches=max(fits))


# --- Facts and words --------------------------------------------------------------------------------------------------


def _describe_task(
    task: str, options: dict[str, Any], environment: Environment | None
) -> tuple[Environment, int | None]:
    """Returns the environment, or one with the same specs, and its time limit if it is known."""
    if environment is not None:
        return environment, None
    if is_own(task):
        return environments.make(task, **options).train, _time_limit(options, None)
    # Options change the sizes of a task, not its kind: a preview loads no data and needs none of them.
    described = environments.registry.describe(task)
    return described.environment, _time_limit(options, described.time_limit)


def _time_limit(options: dict[str, Any], usual: int | None) -> int | None:
    """Returns the time limit among the options of a task. A wrong one is refused when the task is made."""
    given = options.get("time_limit")
    return given if isinstance(given, int) and given > 0 else usual


def describe_choice(experiment: Experiment, width: int | None = None) -> str:
    """Returns the settings of a run that were chosen for its task, as options of the command line.

    Each group of settings begins a line. Lines have at most `width` characters; None: those of the terminal.
    """
    width = width or shutil.get_terminal_size().columns
    groups: list[dict[str, Any]] = [
        {"steps": f"{experiment.steps:g}"},
        *(
            {f"{group}.{name}": value for name, value in values.items()}
            for group, values in (
                ("network", _given(experiment.network)),
                ("scaling", dataclasses.asdict(experiment.scaling)),
                ("evaluation", _given(experiment.evaluation)),
            )
        ),
        *_by_group(flatten(_differences(experiment.config, default_config(experiment.algorithm)))),
    ]
    lines = ["Chosen for this task (each is an option):"]
    for group in filter(None, groups):
        items = (f"{name} {_format(value)}".replace(" ", _NO_BREAK) for name, value in group.items())
        wrapper = textwrap.TextWrapper(
            width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        wrapped = wrapper.wrap(", ".join(items))
        lines += [line.replace(_NO_BREAK, " ") for line in wrapped]
    return "\n".join(lines)


#: Stands for a space at which a line is not broken.
_NO_BREAK = "\u00a0"


def _by_group(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns settings with dotted names by the part before the last dot."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        groups.setdefault(name.rpartition(".")[0], {})[name] = value
    return list(groups.values())


def _given(config: Any) -> dict[str, Any]:
    """Returns the values of a configuration that differ from the defaults of its class."""
    return _differences(config, type(config)())


def _differences(config: Any, usual: Any) -> dict[str, Any]:
    """Returns the values of a configuration that differ from those of another one of its class."""
    return _differing(dataclasses.asdict(config), dataclasses.asdict(usual))


def _differing(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _differing(value, usual[name]) if isinstance(value, dict) else value
        for name, value in values.items()
        if value != usual[name]
    }


def _format(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_format, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["Facts", "choose_config", "choose_experiment", "describe_choice", "make_facts"]
