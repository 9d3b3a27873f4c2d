"""The folder of a run: its settings, metrics, checkpoints and results."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from spo import files
from spo._version import __version__
from spo.provenance import git_commit
from spo.reports.runs import flatten, read_config, read_starts
from spo.training import checkpoints, exports, processes
from spo.training.experiment import Experiment, from_json, to_json
from spo.training.run_state import Progress
from spo.training.trainer import Trainer
from spo.types import Task

#: Packages whose versions environment.json records, because a result may depend on them.
PACKAGES = ("spo-jax", "jax", "jaxlib", "flax", "optax", "flashbax", "mctx", "brax", "jumanji", "orbax-checkpoint")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Paths of a run, with functions that create and open its folder."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The experiment, the version of spo, and the origin of the first parameters."""
        return self.path / "config.json"

    @property
    def environment_path(self) -> Path:
        """Versions, devices and commit of every start of the run."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """One record per line, see `spo.training.records`."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard_path(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def start_path(self) -> Path:
        """A copy of the exported learner from which the run started, if any: a run depends on no other file."""
        return self.path / "start.npz"

    @property
    def summary_path(self) -> Path:
        """The results. Written last: a run with a summary is finished."""
        return self.path / "summary.json"

    @property
    def log_path(self) -> Path:
        """Warnings and errors that other libraries reported during the run, see `spo.training.run_log`."""
        return self.path / "run.log"

    @classmethod
    def unused(cls, path: Path) -> "RunFolder":
        """Returns a folder for a new run. Raises ValueError if it holds a run: nothing is overwritten."""
        folder = cls(Path(path).absolute())
        if folder.config_path.exists():
            raise ValueError(
                f"{folder.path} holds a run already: continue it with `spo train --resume {folder.path}`, or choose "
                "another folder."
            )
        if folder.path.exists() and not folder.path.is_dir():
            raise ValueError(f"{folder.path} is a file: choose another folder for the run.")
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Returns the folder of an earlier run. Raises ValueError if another version of spo wrote it."""
        folder = cls(Path(path).absolute())
        version = read_config(folder.path)["spo_version"]
        if version != __version__:
            raise ValueError(
                f"{folder.path} was written by spo {version} and this is spo {__version__}: install version {version} "
                "from its tag in a clone to use the run, or to export its learner, from which this version can start "
                "a new run (`spo train --from FILE`)."
            )
        return folder

    def create(self, experiment: Experiment, start_from: Path | None = None) -> None:
        """Creates the folder and writes config.json.

        Args:
          experiment: the settings of the run.
          start_from: an exported learner from which the run starts; it is copied.
        """
        origin = None
        if start_from is not None:
            header = exports.read_header(start_from)
            origin = {"file": Path(start_from).name, "env_steps": header["env_steps"], "which": header["which"]}
        processes.wait_for_all("the folder is free")
        if processes.is_first():
            self.path.mkdir(parents=True, exist_ok=True)
            if start_from is not None:
                shutil.copyfile(start_from, self.start_path)
            # Written last and at once: a folder with this file is a run that can be resumed.
            write_json(self.config_path, {"spo_version": __version__, "start_from": origin, **to_json(experiment)})
        processes.wait_for_all("the folder is there")

    @property
    def experiment(self) -> Experiment:
        """The settings in config.json."""
        config = read_config(self.path)
        return from_json({name: value for name, value in config.items() if name not in ("spo_version", "start_from")})

    def check_same(self, experiment: Experiment) -> None:
        """Raises ValueError if the run was started with other settings."""
        stored, given = (flatten(json.loads(json.dumps(to_json(e)))) for e in (self.experiment, experiment))
        changed = [name for name in sorted(stored | given) if stored.get(name) != given.get(name)]
        if changed:
            named = ", ".join(f"{name} ({stored.get(name)!r}, now {given.get(name)!r})" for name in changed)
            raise ValueError(
                f"{self.path} was started with another experiment: {named}. Resume it with its own settings, or start "
                "a new run."
            )

    def record_start(self, **facts: Any) -> None:
        """Adds this start of the run to environment.json."""
        start = {**_describe_environment(), **facts}
        write_json(self.environment_path, {"starts": [*read_starts(self.path), start]})


# --- Learners of saved runs -------------------------------------------------------------------------------------------


def load_experiment(source: Path) -> Experiment:
    """Returns the settings of a run folder, or of a file that `spo export` wrote."""
    if Path(source).is_file():
        return from_json(exports.read_header(source)["experiment"])
    return RunFolder.open(source).experiment


def load_learner(
    source: Path, which: Literal["best", "last"] | None = None, task: Task | None = None
) -> tuple[Experiment, Any]:
    """Returns the settings of a run and its learner, on one device; its leaves are [seed, ...].

    Args:
      source: the folder of the run, or a file that `spo export` or `agent.save` wrote.
      which: the parameters of the best evaluation, or the last ones. A file holds one of the two. None: those of the
        file, or the best ones of a folder.
      task: the environments, if they can't be made by name.
    """
    if which not in ("best", "last", None):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}.")
    # A learner is the same on every device, so one device can read it however many have trained it.
    experiment = dataclasses.replace(load_experiment(source), num_devices=1)
    abstract = Trainer(experiment, task).abstract_state.learner
    if Path(source).is_file():
        exported = exports.read_header(source)["which"]
        if which not in (None, exported):
            raise ValueError(f"{source} holds the {exported} parameters of its run, not the {which} ones.")
        return experiment, exports.read_learner(source, abstract)
    return experiment, checkpoints.restore_learner(RunFolder.open(source).checkpoints_path, abstract, which or "best")


class Origin(NamedTuple):
    """Settings and length of the training from which a learner comes."""

    experiment: Experiment
    which: Literal["best", "last"]  # the parameters of the best evaluation, or the last ones
    iterations: tuple[int, ...]  # of each seed
    env_steps: tuple[int, ...]  # of each seed


def find_origin(source: Path, which: Literal["best", "last"] | None = None) -> Origin:
    """Returns the origin of the learner that `load_learner` loads."""
    if Path(source).is_file():
        header = exports.read_header(source)
        iterations, env_steps = tuple(header["iteration"]), tuple(header["env_steps"])
        return Origin(load_experiment(source), header["which"], iterations, env_steps)
    run = RunFolder.open(source)
    return make_origin(run.experiment, which or "best", checkpoints.restore_progress(run.checkpoints_path))


def make_origin(experiment: Experiment, which: Literal["best", "last"], progress: Progress) -> Origin:
    """Returns the origin of the best or the last learner of a run."""
    last = (progress.iteration,) * len(progress.best_scores)
    iterations = progress.best_iterations if which == "best" else last
    return Origin(experiment, which, iterations, tuple(i * progress.env_steps_per_iteration for i in iterations))


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


def export_learner(folder: Path, target: Path, which: Literal["best", "last"] = "best") -> None:
    """Writes the learner of a run, without its replay, to one small file from which another run can start."""
    _, learner = load_learner(folder, which)
    save_learner(target, learner, find_origin(folder, which))


# --- Files ------------------------------------------------------------------------------------------------------------


def write_json(path: Path, data: Any) -> None:
    """Writes a JSON file at once: readers never see a part of it."""
    with files.replacing(path) as file:
        file.write(json.dumps(data, indent=2).encode() + b"\n")


def _describe_environment() -> dict[str, Any]:
    devices = jax.devices()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "git_commit": git_commit(),
        "platform": devices[0].platform,
        "device": devices[0].device_kind,
        "num_devices": len(devices),
        "num_processes": jax.process_count(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
