"""Where a run lives: one folder that says what was run, on what, and what came of it."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Literal

import jax

from spo._version import __version__
from spo.training import checkpoints, processes
from spo.training.experiment import Experiment, build, from_json, to_json
from spo.training.program import shardings

#: What a result may depend on, named in environment.json.
PACKAGES = ("spo-jax", "jax", "jaxlib", "flax", "optax", "flashbax", "mctx", "brax", "jumanji", "orbax-checkpoint")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths of a run, and what it was made for."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The experiment, the version that runs it, and where its first parameters came from."""
        return self.path / "config.json"

    @property
    def environment_path(self) -> Path:
        """Versions, devices and commit of every start of this run."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """One record per line, seed and interval, see `intervals`."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard_path(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def start_path(self) -> Path:
        """A copy of the learner that the run began from, if it began from one: a run needs nothing outside itself."""
        return self.path / "start.npz"

    @property
    def summary_path(self) -> Path:
        """Written last: a run with a summary is finished."""
        return self.path / "summary.json"

    @property
    def picture_path(self) -> Path:
        return self.path / "learning_curve.png"

    @classmethod
    def unused(cls, path: Path) -> "RunFolder":
        """A folder for a new run. One that holds a run already is refused: nothing is ever written over."""
        folder = cls(Path(path).absolute())
        if folder.config_path.exists():
            raise ValueError(
                f"{folder.path} holds a run already: go on with `spo train --resume {folder.path}`, or choose another "
                "folder."
            )
        if folder.path.exists() and not folder.path.is_dir():
            raise ValueError(f"{folder.path} is a file: choose another folder for the run.")
        return folder

    def create(self, experiment: Experiment, start_from: Path | None = None) -> None:
        """Makes the folder, with what is to be run in it."""
        origin = None
        if start_from is not None:
            header = checkpoints.read_header(start_from)
            origin = {"file": Path(start_from).name, "env_steps": header["env_steps"], "which": header["which"]}
        processes.wait_for_all("the folder is free")
        if processes.is_first():
            self.path.mkdir(parents=True, exist_ok=True)
            if start_from is not None:
                shutil.copyfile(start_from, self.start_path)
            # Last, and at once: a folder with this file is a run, whatever happens from here on.
            write_json(self.config_path, {"spo_version": __version__, "start_from": origin, **to_json(experiment)})
        processes.wait_for_all("the folder is there")

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of an earlier run of this version of spo."""
        folder = cls(Path(path).absolute())
        version = read_config(folder.path)["spo_version"]
        if version != __version__:
            raise ValueError(
                f"{folder.path} was written by spo {version} and this is spo {__version__}: install "
                f"spo-jax=={version} to use the run, or to export its learner, from which this version can begin "
                "(`spo train --from FILE`)."
            )
        return folder

    @property
    def experiment(self) -> Experiment:
        record = read_config(self.path)
        return from_json({name: value for name, value in record.items() if name not in ("spo_version", "start_from")})

    def check_same(self, experiment: Experiment) -> None:
        """Refuses to go on with anything but what the run was made for."""
        mine, other = (_flat(_as_read(to_json(e))) for e in (self.experiment, experiment))
        changed = [name for name in sorted(mine | other) if mine.get(name) != other.get(name)]
        if changed:
            named = ", ".join(f"{name} ({mine.get(name)!r}, now {other.get(name)!r})" for name in changed)
            raise ValueError(
                f"{self.path} was started with another experiment: {named}. Resume it as it was, or start a new run."
            )

    def record_start(self, **facts: Any) -> None:
        """Adds this start of the run to environment.json."""
        starts = json.loads(self.environment_path.read_text())["starts"] if self.environment_path.exists() else []
        write_json(self.environment_path, {"starts": [*starts, {**_environment(), **facts}]})


def load_experiment(source: Path) -> Experiment:
    """What a run's folder, or a file that `spo export` wrote, is a run of."""
    if Path(source).is_file():
        return from_json(checkpoints.read_header(source)["experiment"])
    return RunFolder.open(source).experiment


def load_learner(source: Path, which: Literal["best", "last"]) -> tuple[Experiment, Any]:
    """The experiment of a run and what it learned, on one device however many trained it; leaves are [seed, ...].

    `source` is the run's folder, or a file that `spo export` wrote, which holds one of the two.
    """
    if which not in ("best", "last"):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}.")
    # A learner is the same on every device, so it can be read where there are fewer of them than it was trained on.
    experiment = dataclasses.replace(load_experiment(source), num_devices=1)
    program = build(experiment).program
    abstract = checkpoints.abstract_state(program.init, shardings(program.mesh)).learner
    if Path(source).is_file():
        exported = checkpoints.read_header(source)["which"]
        if exported != which:
            raise ValueError(f"{source} holds the {exported} parameters of its run, not the {which} ones.")
        return experiment, checkpoints.read_learner(source, abstract)
    return experiment, checkpoints.restore_learner(RunFolder.open(source).checkpoints_path, abstract, which)


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Every run under `root`, oldest first: what it is, how far it came, and its summary if it is finished."""
    runs = []
    for config_path in Path(root).rglob("config.json"):
        try:
            record = read_config(config_path.parent)
        except ValueError:  # somebody else's config.json
            continue
        path = config_path.parent
        summary_path = path / "summary.json"
        last = _last_record(path / "metrics.jsonl")
        runs.append(
            {
                "path": path,
                "spo_version": record["spo_version"],
                "task": record["task"],
                "algorithm": record["algorithm"],
                "steps": record["steps"],
                "seed": record["seed"],
                "num_seeds": record["num_seeds"],
                "started": config_path.stat().st_mtime,
                "env_steps": 0 if last is None else last["env_steps"],
                "finished": summary_path.exists(),
                "summary": json.loads(summary_path.read_text()) if summary_path.exists() else None,
            }
        )
    return sorted(runs, key=lambda run: (run["started"], str(run["path"])))


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a run of any version."""
    config_path = Path(path) / "config.json"
    if not config_path.exists():
        raise ValueError(f"{path} holds no run: there is no config.json in it.")
    try:
        record = json.loads(config_path.read_text())
    except ValueError:
        record = None
    if not isinstance(record, dict) or not {"spo_version", "task", "algorithm"} <= record.keys():
        raise ValueError(f"{config_path} is not the record of a run.")
    return record


def write_json(path: Path, data: Any) -> None:
    """All of it or nothing: readers never see half a file."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w") as file:
        json.dump(data, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _last_record(metrics_path: Path) -> dict[str, Any] | None:
    if not metrics_path.exists():
        return None
    with metrics_path.open("rb") as file:
        file.seek(max(0, metrics_path.stat().st_size - 65_536))
        lines = file.read().split(b"\n")
    # What follows the last newline is empty, or a line that is being written.
    return json.loads(lines[-2]) if len(lines) > 1 else None


def _environment() -> dict[str, Any]:
    devices = jax.devices()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "git_commit": _git_commit(),
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


def _git_commit() -> str | None:
    """The commit of the source that runs, with "-dirty" where files were changed since; None outside a repository.

    A package that was installed somewhere inside another project's repository is no part of it.
    """
    is_tracked = ["git", "ls-files", "--error-unmatch", Path(__file__).name]
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        tracked, commit = (
            subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
            for command in (is_tracked, describe)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() or None if tracked.returncode == 0 else None


def _as_read(data: Any) -> Any:
    """As it would come back from a file: JSON has no tuples."""
    return json.loads(json.dumps(data))


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
