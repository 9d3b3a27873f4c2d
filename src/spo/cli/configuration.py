"""Settings from which `spo train` starts: those of a preset, a file or an earlier run. The command `spo config`."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from tyro.conf import arg

from spo.cli.unparsed import find_value

if TYPE_CHECKING:
    from spo.training.experiment import Experiment


def config(
    source: Annotated[str, arg(metavar="PRESET|RUN")],
    /,
    *,
    algorithm: str | None = None,
    task: str | None = None,
) -> None:
    """Print the settings of a preset or a run as TOML: `spo config default > FILE.toml`.

    `spo train --config FILE.toml` starts a run with them.

    Args:
        source: Name of a preset, folder of a run, or a file written by `spo export`.
        algorithm: Another algorithm. None: that of the preset or the run.
        task: Another environment. None: that of the preset or the run.
    """
    from spo import presets
    from spo._version import __version__
    from spo.checks import suggest_names
    from spo.training.config_files import to_toml

    if source in presets.PRESETS:
        experiment, origin = presets.get(source, algorithm or "spo", task), f"the preset {source}"
    elif Path(source).exists():
        experiment, origin = like(Path(source), algorithm, task), f"the run {source}"
    else:
        names = suggest_names(source, presets.PRESETS)
        raise ValueError(f"{source} is neither a preset nor the folder of a run. {names}")
    print(to_toml(experiment, f"Settings of {origin}, spo {__version__}."), end="")


class Source(NamedTuple):
    """The source of the defaults of `spo train`, which a command line that is not parsed yet names."""

    kind: Literal["resume", "like", "config", "from", "task", "preset"]  # "task": chosen for it
    name: str  # of the run, the file, the task or the preset


def find_source(arguments: Sequence[str], preset: str | None, resume: str | None) -> Source:
    """Returns the source of the defaults. Raises ValueError if there are several.

    Args:
        arguments: The command line.
        preset: The preset that it names, or None.
        resume: The folder of the run to continue, or None.
    """
    from spo import presets

    run, file = find_value(arguments, "--like"), find_value(arguments, "--config")
    _refuse_several(preset, {"--resume": resume, "--like": run, "--config": file})
    if resume is not None:
        return Source("resume", resume)
    if run is not None:
        return Source("like", run)
    if file is not None:
        return Source("config", file)
    if preset is not None:
        return Source("preset", preset)
    if (saved := _saved_learner(arguments)) is not None:
        return Source("from", str(saved))
    task = find_value(arguments, "--task")
    if task is not None and find_value(arguments, "--from") is None:
        return Source("task", task)
    return Source("preset", presets.DEFAULT)


def start_experiment(arguments: Sequence[str], preset: str | None, source: Source) -> "Experiment":
    """Returns the experiment that provides the defaults of `spo train`: of a run, of a file, or of the preset.

    Algorithm and task decide which options exist, so they are read before the command line is parsed. An exported
    learner (`--from`) provides its network, and the other settings too if nothing else does.
    """
    from spo import presets
    from spo.training.saved_learners import load_experiment

    algorithm, task = find_value(arguments, "--algorithm"), find_value(arguments, "--task")
    match source.kind:
        case "resume":
            return _resumed_experiment(Path(source.name), algorithm, task)
        case "like" | "from":
            experiment = like(Path(source.name), algorithm, task, find_value(arguments, "--network.kind"))
        case "config":
            experiment = _with_choice(_from_file(Path(source.name), preset or presets.DEFAULT), algorithm, task)
        case "task":
            experiment = _choose(arguments, algorithm or "spo", source.name)
        case "preset":
            experiment = presets.get(source.name, algorithm or "spo", task)
    if (saved := _saved_learner(arguments)) is not None:  # its parameters fit no other network and no other scaling
        earlier = load_experiment(saved)
        experiment = dataclasses.replace(experiment, network=earlier.network, scaling=earlier.scaling)
    return experiment


def describe_source(source: Source) -> str:
    """Returns words for the help text: where the defaults of the options come from."""
    match source.kind:
        case "resume" | "like":
            return f"the run {source.name}"
        case "config":
            return "the standard input" if source.name == "-" else f"the file {source.name}"
        case "from":
            return f"the learner {source.name}"
        case "task":
            return f"the choice for {source.name}"
        case "preset":
            return f"the preset {source.name}"


def _resumed_experiment(run: Path, algorithm: str | None, task: str | None) -> "Experiment":
    """Returns the settings of a run to continue. Raises ValueError for another algorithm or another task."""
    from spo.training.run_folder import RunFolder

    stored = RunFolder.open(run).experiment
    for option, given, own in (("--task", task, stored.task), ("--algorithm", algorithm, stored.algorithm)):
        if given not in (None, own):
            raise ValueError(f"A run is resumed with its own settings, {option} {own}: leave {option} {given} out.")
    return stored


def _choose(arguments: Sequence[str], algorithm: str, task: str) -> "Experiment":
    """Returns the settings for the task, its options and the steps of a command line that is not parsed yet."""
    from spo.algorithms.registry import default_config, find_algorithm
    from spo.cli.task_options import find_task_options, missing_task_options
    from spo.networks.config import NetworkConfig
    from spo.training.defaults import choose_experiment
    from spo.training.experiment import Experiment

    find_algorithm(algorithm)
    if {"-h", "--help"} & set(arguments) and missing_task_options(arguments, task):
        return Experiment(task=task, algorithm=algorithm, config=default_config(algorithm))  # nothing can be chosen
    try:
        steps = float(find_value(arguments, "--steps") or "nan")
    except ValueError:
        steps = math.nan  # the parser explains what is wrong with it
    is_number = 1 <= steps <= 1e15
    chosen = choose_experiment(
        task, algorithm, steps if is_number else None, task_options=find_task_options(arguments, task)
    )
    chosen = dataclasses.replace(chosen, task_options={})  # the parser reads them with their types
    kind = find_value(arguments, "--network.kind")
    if kind is None or kind == chosen.network.kind:
        return chosen
    return dataclasses.replace(chosen, network=NetworkConfig(kind=kind))  # the sizes chosen are those of another kind


def _saved_learner(arguments: Sequence[str]) -> Path | None:
    """Returns the file of `--from`. None if it is absent, or no file: the run is refused later."""

    saved = Path(find_value(arguments, "--from") or "")
    return saved if saved.is_file() else None


def like(run: Path, algorithm: str | None, task: str | None, network: str | None = None) -> "Experiment":
    """Returns the settings of an earlier run for a new one. Raises ValueError if it can't be made by name.

    Args:
        run: Folder of the run, or an exported learner.
        algorithm: Another algorithm, or None.
        task: Another environment, or None.
        network: Another kind of network, which the caller will choose, or None.
    """
    from spo.checks import print_message
    from spo.importing import OBJECT, is_object_name
    from spo.training.config_files import settings_of

    earlier = settings_of(run, message=print_message)
    experiment = _with_choice(earlier, algorithm, task)
    objects = {
        "environment": (experiment.task, "--task"),
        "network": (network or experiment.network.kind, "--network.kind"),
    }
    for what, (name, option) in objects.items():
        if is_object_name(name):
            raise ValueError(
                f"The {what} {name.removeprefix(OBJECT)!r} of {run} was given as an object and has no name to import: "
                f"write a function that returns it and add {option} module:function, or use `spo.train` in Python."
            )
    return experiment


def _from_file(path: Path, preset: str) -> "Experiment":
    """Returns the settings of a file. What it leaves out is that of the preset, for its algorithm and task."""
    from spo import presets
    from spo.training import config_files

    settings, name = config_files.read_toml(path), config_files.name_of_file(path)
    algorithm = config_files.text_setting(settings, "algorithm", name)
    task = config_files.text_setting(settings, "task", name)
    try:
        start = presets.get(preset, algorithm or "spo", task)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return config_files.change(start, settings, name)


def _with_choice(experiment: "Experiment", algorithm: str | None, task: str | None) -> "Experiment":
    """Returns the experiment with another algorithm, which has its own defaults, or another task."""
    from spo import presets
    from spo.algorithms.registry import default_config

    if algorithm is not None and algorithm != experiment.algorithm:
        experiment = dataclasses.replace(experiment, algorithm=algorithm, config=default_config(algorithm))
    return experiment if task is None else presets.for_task(experiment, task)


def _refuse_several(preset: str | None, sources: dict[str, str | None]) -> None:
    """Raises ValueError if two places would provide the settings. A file may leave out what a preset then has."""
    given = {option: value for option, value in sources.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} both provide the settings: use one of them.")
    for option, value in given.items():
        if preset is not None and option != "--config":
            raise ValueError(f"{option} uses the settings of {value}: leave {preset} out.")
