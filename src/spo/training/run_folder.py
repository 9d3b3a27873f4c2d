"""The folder of a run: its settings, metrics, checkpoints and results."""

import dataclasses
import errno
import importlib.metadata
import inspect
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from spo import files
from spo._version import __version__
from spo.environments import registry
from spo.environments.own import plain_option
from spo.importing import is_object_name
from spo.provenance import git_commit
from spo.reports.run_files import CHECKSUM, check_config, read_config, read_starts, with_checksum
from spo.reports.runs import flatten
from spo.training import checkpoints, exports, locks, processes
from spo.training.experiment import Experiment, from_json, to_json

#: Packages whose versions environment.json records, because a result may depend on them.
PACKAGES = ("spo-jax", "jax", "jaxlib", "flax", "optax", "flashbax", "mctx", "brax", "jumanji", "orbax-checkpoint")

#: Settings that a resumed run can change: they concern later evaluations and not what is trained.
CHANGEABLE = frozenset(f"evaluation.{name}" for name in ("episodes", "final_episodes", "use_search", "greedy"))
#: Errors of a folder that can't be replaced by another one: a mounted one, or one in a folder that is not writable.
_CANT_RENAME = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTEMPTY, errno.EEXIST)
#: Beginnings of the names of files in the draft of a folder.
_DRAFT_FILES = (locks.LOCK_NAME, "config.json", "start.npz")
#: Age of an empty draft that no process fills any more. Clocks of a network may differ by less.
_ABANDONED_SECONDS = 3600.0
#: Entries of config.json beside the settings.
_NOT_SETTINGS = ("spo_version", "start_from", CHECKSUM)


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

    @property
    def resume_command(self) -> str:
        """Command or function call that continues the run. What was given as an object needs Python."""
        try:
            config = read_config(self.path)
            names = (config["task"], config["algorithm"], config["network"].get("kind", ""))
            by_name = not any(map(is_object_name, names))
        except (ValueError, KeyError, AttributeError):  # the configuration is damaged
            by_name = True
        if not by_name:
            return f"spo.train(env, run={str(self.path)!r}, resume=True)"
        return f"spo train --resume {shlex.quote(str(self.path))}"

    @classmethod
    def unused(cls, path: Path) -> "RunFolder":
        """Returns a folder for a new run. Raises ValueError unless it is absent or empty: nothing is overwritten."""
        folder = cls(Path(path).absolute())
        if folder.config_path.exists():
            raise ValueError(
                f"{folder.path} holds a run already: continue it with `{folder.resume_command}`, or choose "
                "another folder."
            )
        if folder.path.exists() and not folder.path.is_dir():
            raise ValueError(f"{folder.path} is a file: choose another folder for the run.")
        if folder.path.exists() and (found := _contents(folder.path)):
            raise ValueError(
                f"{folder.path} is not empty and holds no run (it has {_name_some(found)}): choose another folder, or "
                "empty this one."
            )
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Returns the folder of an earlier run. Raises ValueError if another version of spo wrote it."""
        folder = cls(Path(path).absolute())
        config = read_config(folder.path)
        if (version := config["spo_version"]) != __version__:
            raise ValueError(
                f"{folder.path} was written by spo {version} and this is spo {__version__}: install version {version} "
                "from its tag in a clone to use the run, or to export its learner, from which this version can start "
                "a new run (`spo train --from FILE`)."
            )
        check_config(folder.path, config)
        return folder

    def create(self, experiment: Experiment, start_from: Path | None = None) -> locks.RunLock:
        """Creates the folder with config.json and returns its lock.

        The folder gets its name when it is complete: a process that is killed here leaves nothing that looks like a
        run. Raises ValueError if another process has created it meanwhile.

        Args:
          experiment: the settings of the run.
          start_from: an exported learner from which the run starts; it is copied.
        """
        origin = None
        if start_from is not None:
            header = exports.read_header(start_from)
            origin = {"file": Path(start_from).name, "env_steps": header["env_steps"], "which": header["which"]}
        config = {"spo_version": __version__, "start_from": origin, **to_json(experiment)}
        processes.wait_for_all()
        lock, failure = locks.RunLock(self.path), None
        if processes.is_first():
            try:
                lock = self._create(config, start_from)
            except (ValueError, OSError) as error:
                failure = error
        if not processes.broadcast_from_process_0(failure is None):
            raise failure or ValueError(f"{self.path} can't be created: process 0 names the reason.")
        return lock

    def _create(self, config: dict[str, Any], start_from: Path | None) -> locks.RunLock:
        folder = RunFolder(self.path.resolve())  # of a link, the folder to which it points
        try:
            return folder._create_beside(config, start_from)
        except OSError as error:
            self.unused(self.path)
            if not folder.path.is_dir() or error.errno not in _CANT_RENAME:
                reason = error.strerror or str(error)
                raise OSError(f"The folder {self.path} can't be created: {reason.rstrip('.')}.") from error
        return folder._create_inside(config, start_from)

    def _create_beside(self, config: dict[str, Any], start_from: Path | None) -> locks.RunLock:
        """Writes all files to a folder beside this one and renames it, onto an absent or an empty one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{self.path.name}."
        _remove_abandoned(self.path.parent)
        draft = RunFolder(Path(tempfile.mkdtemp(prefix=prefix, suffix=files.DRAFT, dir=self.path.parent)))
        lock = locks.RunLock(draft.path)
        try:
            draft.path.chmod(0o777 & ~_umask())  # the private mode of temporary folders is not meant for runs
            lock.acquire_here()
            draft._write(config, start_from)
            self.unused(self.path)
            draft.path.rename(self.path)
        except BaseException:
            lock.release()
            shutil.rmtree(draft.path, ignore_errors=True)
            raise
        lock.moved_to(self.path)
        files.sync_folder(self.path.parent)
        return lock

    def _create_inside(self, config: dict[str, Any], start_from: Path | None) -> locks.RunLock:
        """Writes all files to this folder, config.json last. For folders that can't be replaced, such as mounted ones.

        A process that is killed here leaves files without a config.json. Such a folder is refused by name.
        """
        lock = locks.RunLock(self.path)
        lock.acquire_here()
        try:
            self.unused(self.path)
            self._write(config, start_from)
        except BaseException:
            lock.release()
            raise
        return lock

    def _write(self, config: dict[str, Any], start_from: Path | None) -> None:
        if start_from is not None:
            with Path(start_from).open("rb") as source, files.replacing(self.start_path) as target:
                shutil.copyfileobj(source, target)
        files.write_json(self.config_path, with_checksum(config))
        files.sync_folder(self.path)

    def open_to_train(self) -> locks.RunLock:
        """Locks the folder of an earlier run, removes what a killed process has left there, and returns the lock."""
        lock = locks.RunLock(self.path).acquire()
        if processes.is_first():
            files.remove_drafts(self.path)
            checkpoints.remove_leftovers(self.checkpoints_path)
        return lock

    @property
    def experiment(self) -> Experiment:
        """The settings in config.json."""
        config = read_config(self.path)
        try:
            return from_json({name: value for name, value in config.items() if name not in _NOT_SETTINGS})
        except ValueError as error:
            raise ValueError(f"{self.config_path}: {error}") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.config_path} is damaged, or another version wrote it: {error!r}.") from error

    @property
    def starts_from_learner(self) -> bool:
        """True if the run started from an exported learner, which is then in start.npz."""
        return read_config(self.path)["start_from"] is not None

    def check_same(self, experiment: Experiment) -> None:
        """Raises ValueError if the run was started with other settings, except those in `CHANGEABLE`."""
        changes = {name: words for name, words in self._changes(experiment).items() if name not in CHANGEABLE}
        if changes.keys() == {"steps"} and experiment.steps > self.experiment.steps:
            path = shlex.quote(str(self.path))
            raise ValueError(
                f"{self.path} has a fixed length: {changes['steps']}. To train its agent for longer, start a new run "
                f"from its last parameters: `spo export {path} FILE.npz --which last`, then `spo train --from FILE.npz "
                f"--steps {experiment.steps - self.experiment.steps:g}`."
            )
        if changes:
            raise ValueError(
                f"{self.path} was started with another experiment: {', '.join(changes.values())}. Resume it with its "
                "own settings, or start a new run."
            )

    def _changes(self, experiment: Experiment) -> dict[str, str]:
        """Returns the settings that differ from those of the run: name -> a description of the change."""
        stored, given = (
            flatten(json.loads(json.dumps(to_json(_without_defaults(e))))) for e in (self.experiment, experiment)
        )
        changed = [name for name in sorted(stored | given) if stored.get(name) != given.get(name)]
        return {name: f"{name} ({stored.get(name)!r}, now {given.get(name)!r})" for name in changed}

    def store_evaluation(self, experiment: Experiment) -> str:
        """Replaces the settings in config.json that `check_same` lets change, and returns a description of the changes.

        environment.json has the settings of each start. Only process 0 writes. The caller holds the lock.
        """
        changes = ", ".join(self._changes(experiment).values())
        if processes.is_first() and changes:
            config = {name: value for name, value in read_config(self.path).items() if name != CHECKSUM}
            config["evaluation"] = to_json(experiment)["evaluation"]
            files.write_json(self.config_path, with_checksum(config))
        return changes

    def record_start(self, **facts: Any) -> None:
        """Adds this start of the run to environment.json."""
        start = {**_describe_environment(), **facts}
        files.write_json(self.environment_path, with_checksum({"starts": [*read_starts(self.path), start]}))


def _without_defaults(experiment: Experiment) -> Experiment:
    """Returns the experiment without the options of its task that equal their defaults. They change nothing."""
    if is_object_name(experiment.task):
        return experiment
    parameters = inspect.signature(registry.maker_of(experiment.task)).parameters
    options = {
        name: value
        for name, value in experiment.task_options.items()
        if name not in parameters or plain_option(value) != plain_option(parameters[name].default)
    }
    return dataclasses.replace(experiment, task_options=options)


def finds_run(path: Path) -> bool:
    """Returns True if the folder holds a run, for `resume="auto"`. All processes get the answer of process 0."""
    return processes.broadcast_from_process_0(RunFolder(Path(path).absolute()).config_path.exists())


def new_run_folder(parent: Path, task: str, algorithm: str) -> Path:
    """Returns a path for a new run, named after task, algorithm and time. It does not exist yet.

    The last part is random: runs that start in the same second get different names.
    """
    name = re.sub(r"[^\w.-]+", "-", f"{task}-{algorithm}").strip("-.")
    ending = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(4))
    return Path(parent) / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{ending}"


# --- Files ------------------------------------------------------------------------------------------------------------


def _contents(folder: Path) -> list[str]:
    """Returns the names in a folder, without those of locks."""
    return sorted(path.name for path in folder.iterdir() if path.name not in (locks.LOCK_NAME, locks.HOLDER_NAME))


def _name_some(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _remove_abandoned(parent: Path) -> None:
    """Removes folders of runs whose creation was killed. One that is being created is locked, or young, and stays."""
    for path in parent.glob(f".*{files.DRAFT}"):
        try:
            names = {entry.name for entry in path.iterdir()}
            is_ours = all(name.startswith(_DRAFT_FILES) for name in names)
            is_old = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
            # Before it is locked, a new draft is empty.
            if not is_ours or not (is_old or locks.LOCK_NAME in names):
                continue
            lock = locks.RunLock(path)
            lock.acquire_here()
        except (ValueError, OSError):
            continue
        shutil.rmtree(path, ignore_errors=True)
        lock.release()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
