"""Learned parameters of saved runs, with their origin: read from a run folder or an exported file, or exported."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from spo import files
from spo._version import __version__
from spo.checks import print_message
from spo.training import checkpoints, exports
from spo.training.experiment import Experiment, from_json, to_json
from spo.training.run_folder import RunFolder
from spo.training.run_state import Progress
from spo.training.trainer import Trainer
from spo.types import Task


def load_experiment(source: Path) -> Experiment:
    """Returns the settings of a run folder, or of a file that `spo export` wrote."""
    if Path(source).is_file():
        return from_json(exports.read_header(source)["experiment"])
    if Path(source).suffix == ".npz" and not Path(source).exists():
        raise ValueError(f"There is no file {source}: name a folder that `spo train` wrote, or a file of `spo export`.")
    return RunFolder.open(source).experiment


class Origin(NamedTuple):
    """Settings and length of the training from which a learner comes."""

    experiment: Experiment
    which: Literal["best", "last"]  # the parameters of the best evaluation, or the last ones
    iterations: tuple[int, ...]  # of each seed
    env_steps: tuple[int, ...]  # of each seed


def make_origin(experiment: Experiment, which: Literal["best", "last"], progress: Progress) -> Origin:
    """Returns the origin of the best or the last learner of a run."""
    last = (progress.iteration,) * len(progress.best_scores)
    iterations = progress.best_iterations if which == "best" else last
    return Origin(experiment, which, iterations, tuple(i * progress.env_steps_per_iteration for i in iterations))


def load_learner(
    source: Path,
    which: Literal["best", "last"] | None = None,
    task: Task | None = None,
    message: Callable[[str], None] = print_message,
) -> tuple[Experiment, Any]:
    """Returns the settings of a run and its learner, on one device; its leaves are [seed, ...].

    Args:
      source: the folder of the run, or a file that `spo export` or `agent.save` wrote.
      which: the parameters of the best evaluation, or the last ones. A file holds one of the two. None: those of the
        file, or the best ones of a folder.
      task: the environments, if they can't be made by name.
      message: receives a sentence if the last checkpoint is damaged and the one before is used.
    """
    learner, origin = load_learner_and_origin(source, which, task, message)
    return dataclasses.replace(origin.experiment, num_devices=1), learner


def load_learner_and_origin(
    source: Path,
    which: Literal["best", "last"] | None = None,
    task: Task | None = None,
    message: Callable[[str], None] = print_message,
) -> tuple[Any, Origin]:
    """Returns the learner of `load_learner` and its origin, which are of the same checkpoint."""
    if which not in ("best", "last", None):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}.")
    experiment = load_experiment(source)
    # A learner is the same on every device, so one device can read it however many have trained it.
    abstract = Trainer(dataclasses.replace(experiment, num_devices=1), task).abstract_state.learner
    if Path(source).is_file():
        header = exports.read_header(source)
        if which not in (None, header["which"]):
            raise ValueError(f"{source} holds the {header['which']} parameters of its run, not the {which} ones.")
        origin = Origin(experiment, header["which"], tuple(header["iteration"]), tuple(header["env_steps"]))
        return exports.read_learner(source, abstract), origin
    folder, which = RunFolder.open(source).checkpoints_path, which or "best"
    learner, progress = checkpoints.restore_learner(folder, abstract, which, message)
    return learner, make_origin(experiment, which, progress)


def save_learner(target: Path, learner: Any, origin: Origin) -> None:
    """Writes a learner, whose leaves are [seed, ...], to one small file: arrays by name and a JSON header."""
    header = {
        "spo_version": __version__,
        "which": origin.which,
        "iteration": list(origin.iterations),
        "env_steps": list(origin.env_steps),
        "experiment": to_json(origin.experiment),
    }
    exports.write_learner(Path(target), learner, header)


def export_learner(
    folder: Path,
    target: Path,
    which: Literal["best", "last"] = "best",
    message: Callable[[str], None] = print_message,
) -> None:
    """Writes the learner of a run, without its replay, to one small file from which another run can start."""
    RunFolder.open(folder)
    files.check_target(Path(target))  # before a long read
    save_learner(target, *load_learner_and_origin(folder, which, message=message))
