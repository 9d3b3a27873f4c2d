"""Option classes of `spo train`, `spo evaluate` and `spo inspect`.

tyro reads the name, type, default and help text of every option from these classes and from the configuration classes
that they contain. The docstring below a field is its help text. A new field of a configuration is a new option.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import Positional, arg

from spo.algorithms.planning import SearchConfig
from spo.algorithms.registry import ALGORITHMS, search_kind
from spo.checks import NonNegativeFloat, PositiveInt, check_fields
from spo.cli.parsing import parse
from spo.cli.task_options import chosen_task_options, make_task_options, split_other_task_options
from spo.training.experiment import Experiment
from spo.training.saved_learners import load_experiment

#: A name from the registry, or your own: `module:function`.
AlgorithmName = Annotated[str, arg(metavar="{" + ",".join(sorted(ALGORITHMS)) + "}|MODULE:FUNCTION")]


# --- spo train --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(Experiment):
    """An experiment with the option names of the command line.

    The hyperparameters of the algorithm have no prefix (`--learning-rate`).
    """

    task_options: Annotated[Any, arg(name="task")]
    """Options of the environment. One from another library also accepts that library's own options."""
    algorithm: AlgorithmName
    config: Annotated[Any, arg(name="")]
    specs: Annotated[Any, tyro.conf.Suppress]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `spo train`: where and how to run an experiment, and the experiment itself."""

    preset: Annotated[Positional[str], arg(metavar="[PRESET]")]
    """Named experiment that provides the defaults of all other options."""
    run: Path | None = None
    """New folder for settings, metrics and checkpoints. None: one in runs/, named after task, algorithm and time."""
    resume: Path | None = None
    """Folder of an interrupted run, to continue from its last checkpoint with its own settings. With `--run FOLDER
    --resume auto`, the run in FOLDER is continued if there is one, and started if not."""
    like: Path | None = None
    """Folder of an earlier run, or a file written by `spo export`: a new run with its settings."""
    config_file: Annotated[Path | None, arg(name="config")] = None
    """TOML file with settings, as `spo config` prints them; -: standard input. The preset has what it leaves out."""
    start_from: Annotated[Path | None, arg(name="from")] = None
    """File written by `spo export`: start with its learned parameters and its network. Without a preset, the other
    settings are those of the file too."""
    checkpoint_seconds: NonNegativeFloat | None = None
    """Least time between two checkpoints. None: 60, and after an evaluation less, if writing takes at most 5 % of the
    time. A run that is killed continues from the last one."""
    deterministic: bool = False
    """Give the same bits in every run on a GPU too, by slower operations. A CPU always gives the same bits."""
    distributed: bool = False
    """Train together with other processes, one on each host. Start the same command on every host."""
    quiet: bool = False
    """Print nothing while training, and one line at the end."""
    wandb: str | None = None
    """Project of Weights & Biases that receives the metrics as well."""
    experiment: Annotated[ExperimentOptions, arg(name="")]

    def __post_init__(self) -> None:
        check_fields(self)


def make_experiment_options(experiment: Experiment) -> ExperimentOptions:
    """Returns the options whose defaults are the values of an experiment."""
    values = {field.name: getattr(experiment, field.name) for field in dataclasses.fields(Experiment)}
    values["task_options"] = make_task_options(experiment.task, experiment.task_options)
    return ExperimentOptions(**values)


def to_experiment(options: ExperimentOptions, other_task_options: dict[str, Any]) -> Experiment:
    """Returns the experiment of parsed options. Task options that equal their default are left out."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(Experiment)}
    values["task_options"] = chosen_task_options(options.task, options.task_options) | other_task_options
    return Experiment(**values)


# --- spo evaluate and spo inspect -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoBudget:
    """No options: the algorithm does not search."""


@dataclass(frozen=True)
class SearchBudget:
    """Options of a search with particles."""

    search: Any
    """The search that chooses the actions. The defaults are those of the run."""
    policy_only: bool = False
    """Choose actions with the policy network alone, without the search."""


@dataclass(frozen=True)
class TreeSearchBudget:
    """Options of a tree search."""

    num_simulations: PositiveInt
    """Simulations of the tree search for each decision."""
    policy_only: bool = False
    """Choose actions with the policy network alone, without the search."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class AnyBudget:
    """Options of all kinds of search, for the help without a run."""

    search: Any = dataclasses.field(default_factory=SearchConfig)
    """Runs that search with particles: the search that chooses the actions. The defaults are those of the run."""
    num_simulations: int = 64
    """Runs that search with a tree: simulations for each decision."""
    policy_only: bool = False
    """Runs with a search: choose actions with the policy network alone, without the search."""


@dataclass(frozen=True, kw_only=True)
class SavedRunOptions:
    """Options of the commands that let a saved run act with any search budget."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run, or a file written by `spo export`."""
    greedy: bool = False
    """Take the most likely action instead of a random one."""
    last: bool = False
    """Use the parameters from the end of training instead of those of the best evaluation. A file has one of them."""
    seed: int = 0
    """Random seed of the episodes."""
    budget: Annotated[Any, arg(name="")] = NoBudget()
    """The search's settings."""
    task_options: Annotated[Any, arg(name="task")] = NoBudget()
    """Another variant of the run's task. The defaults are the options of the run."""

    @property
    def use_search(self) -> bool:
        """True if the run has a search and it chooses the actions."""
        return not getattr(self.budget, "policy_only", True)

    @property
    def changed_settings(self) -> dict[str, Any]:
        """Settings of the algorithm that replace those of the run."""
        return {name: value for name, value in vars(self.budget).items() if name != "policy_only"}


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(SavedRunOptions):
    """Options of `spo evaluate`."""

    episodes: int = 1280
    """Number of episodes for each random seed of the run."""
    out: Path | None = None
    """File for the result as JSON."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions(SavedRunOptions):
    """Options of `spo inspect`."""

    out: Path = Path("inspect.html")
    """File for the page."""
    member: int = 0
    """Number of the agent that decides. A run trains one for each random seed; they are counted from 0."""
    max_steps: int = 200
    """Most steps that are shown of the episode."""
    serve: bool = False
    """Serve the page live until Ctrl-C, on this computer only: settings can be changed and actions played by hand."""
    port: int = 0
    """Port of the live page. 0: any free one."""


Options = TypeVar("Options", bound=SavedRunOptions)


def make_saved_run_options(kind: type[Options], run: Path | None, experiment: Experiment | None) -> Options:
    """Returns the options whose defaults are the settings of a run's own evaluations; without a run, all options."""
    if run is None or experiment is None:
        options = make_task_options(Experiment().task, {})
        return kind(run=tyro.MISSING, budget=AnyBudget(), task_options=options)
    evaluation = experiment.evaluation
    return kind(
        run=run,
        greedy=evaluation.greedy,
        budget=_make_budget(experiment.config, policy_only=not evaluation.use_search),
        task_options=make_task_options(experiment.task, experiment.task_options),
    )


def parse_saved_run_options(
    kind: type[Options], command: str, description: str, without_run: str, arguments: Sequence[str]
) -> tuple[Options, dict[str, Any]]:
    """Parses `spo COMMAND RUN ...`, whose options depend on the run.

    Args:
      kind: class of the options.
      command: name of the command.
      description: text of the help with a run.
      without_run: text of the help without one.
      arguments: the command line after the command's name.

    Returns:
      The options, and those of the task that the run was not trained with.
    """
    run = Path(arguments[0]) if arguments and not arguments[0].startswith("-") else None
    experiment = None if run is None else load_experiment(run)
    rest, others = (arguments, {}) if experiment is None else split_other_task_options(arguments, experiment)
    chosen = parse(
        f"spo {command}",
        lambda: tyro.cli(
            kind,
            prog=f"spo {command}",
            description=without_run if run is None else description,
            default=make_saved_run_options(kind, run, experiment),
            args=rest,
        ),
    )
    if run is None:
        raise ValueError(f"Name the run first: spo {command} {chosen.run} ...")
    return chosen, others


def _make_budget(config: Any, policy_only: bool) -> NoBudget | SearchBudget | TreeSearchBudget:
    kind = search_kind(config)
    if kind is None:
        return NoBudget()
    if kind == "tree":
        return TreeSearchBudget(config.num_simulations, policy_only)
    return SearchBudget(config.search, policy_only)


def to_evaluated(experiment: Experiment, chosen: SavedRunOptions, other_task_options: dict[str, Any]) -> Experiment:
    """Returns the experiment of a run with the search and the variant of the task to evaluate."""
    options = chosen_task_options(experiment.task, chosen.task_options) | other_task_options
    config = dataclasses.replace(experiment.config, **chosen.changed_settings)
    # The specs are those of the run's own variant. `check_variant` compares those of another one.
    specs = experiment.specs if options == experiment.task_options else None
    return dataclasses.replace(experiment, config=config, task_options=options, specs=specs)


__all__ = [
    "EvaluateOptions",
    "ExperimentOptions",
    "InspectOptions",
    "SavedRunOptions",
    "TrainOptions",
    "make_experiment_options",
    "make_saved_run_options",
    "to_evaluated",
    "to_experiment",
]
