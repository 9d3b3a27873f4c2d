"""The reader of run folders: config.json, environment.json, metrics.jsonl and summary.json.

It reads runs of any algorithm and any version.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from spo.reports.formatting import HEADLINES
from spo.reports.run_files import (
    Record,
    check_config,
    check_metrics,
    read_config,
    read_records,
    read_starts,
    read_summary,
)
from spo.reports.run_finding import find_runs


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One run folder: one experiment with one or more seeds."""

    folder: Path
    """Folder of the run."""
    config: Record
    """The experiment, as stored in config.json."""
    starts: tuple[Record, ...]
    """Versions, devices and commit of every start of the run, as stored in environment.json."""
    records: tuple[Record, ...]
    """All lines of metrics.jsonl."""
    summary: Record | None
    """Results of a finished run, as stored in summary.json. None: the run is not finished."""

    @functools.cached_property
    def training(self) -> dict[int, tuple[Record, ...]]:
        """Training records of each seed, in order of environment steps."""
        return _by_seed(self.records, "train")

    @functools.cached_property
    def evaluations(self) -> dict[int, tuple[Record, ...]]:
        """Evaluations of each seed during training, in order of environment steps."""
        return _by_seed(self.records, "evaluation")

    @functools.cached_property
    def finals(self) -> dict[int, Record]:
        """Final evaluation of each seed. A run that is not finished has none."""
        return {record["seed"]: record for record in latest_per_seed(self.records, "final")}

    @property
    def finished(self) -> bool:
        return self.summary is not None

    @property
    def env_steps(self) -> int:
        """Environment steps of one seed so far."""
        return self.records[-1]["env_steps"] if self.records else 0


def load_run(folder: Path) -> Run:
    """Reads everything that a run folder contains, except checkpoints. Raises ValueError that names a damaged file."""
    folder = Path(folder)
    metrics_path = folder / "metrics.jsonl"
    config = read_config(folder)
    check_config(folder, config)
    try:
        check_metrics(folder)
        return Run(
            folder=folder,
            config=config,
            starts=read_starts(folder),
            records=tuple(read_records(metrics_path)) if metrics_path.exists() else (),
            summary=read_summary(folder),
        )
    except OSError as error:
        raise ValueError(f"{error.filename or folder} can't be read: {error.strerror}.") from error


def load_runs(paths: Iterable[str | Path], warn: Callable[[str], None] = lambda _: None) -> list[Run]:
    """Reads the runs in these folders and below them, to compare them. A run that is found twice counts once.

    Args:
        paths: folders of runs, or folders above them. Names may contain * and ?.
        warn: receives a message for each run that is left out: damaged ones, and those without an evaluation. If
            `paths` names a run without an evaluation, it is an error.
    """
    paths = list(paths)
    runs: dict[Path, Run] = {}
    damaged: dict[Path, str] = {}
    for path in paths:
        for folder in find_runs(path):
            place = folder.resolve()
            if place in runs or place in damaged:
                continue
            try:
                run = load_run(folder)
            except ValueError as error:
                damaged[place] = f"{folder} is damaged and left out: {error}"
                warn(damaged[place])
                continue
            if run.evaluations:
                runs[place] = run
                continue
            message = f"{folder} has no evaluation in its metrics.jsonl yet: leave it out, or continue its training."
            if folder == Path(path):
                raise ValueError(message)
            warn(message)
    if not runs:
        named = ", ".join(map(str, paths)) or "no folder"
        if damaged:
            raise ValueError(f"There is no run in {named} that can be read: {'; '.join(damaged.values())}")
        raise ValueError(f"There is no run in {named}: name folders that `spo train` wrote, or one above them.")
    return list(runs.values())


def latest_per_seed(records: Iterable[Record], kind: str) -> list[Record]:
    """Returns the last record of this kind of each seed, in order of seeds."""
    by_seed = {record["seed"]: record for record in records if record["kind"] == kind}
    return [by_seed[seed] for seed in sorted(by_seed)]


def headline(records: Iterable[Record]) -> str:
    """Returns the metric that scores these records: the share of solved episodes if there is one, else the return."""
    records = list(records)
    for name in HEADLINES:
        if any(name in record["metrics"] for record in records):
            return name
    raise ValueError("These records contain no episode: train until the first evaluation.")


def find_setting(config: Record, name: str) -> Any:
    """Returns a setting by its dotted name. The algorithm's own settings need no "config." before them."""
    for path in (name, f"config.{name}"):
        value: Any = config
        for part in path.split("."):
            value = value.get(part, _Missing) if isinstance(value, dict) else _Missing
        if value is not _Missing:
            return value
    raise ValueError(
        f"A run of {config['algorithm']} on {config['task']} has no setting {name!r}: its config.json lists them "
        "(search.num_particles and network.width are such names)."
    )


def flatten(config: Record, prefix: str = "") -> Record:
    """Returns nested settings under one dotted name each."""
    flat: Record = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


class _Missing:
    """Marks a setting that is absent, because None is a value."""


def _by_seed(records: Iterable[Record], kind: str) -> dict[int, tuple[Record, ...]]:
    """Groups records by seed and sorts them by steps. Of two records at the same step, the later one is kept."""
    found: dict[int, dict[int, Record]] = {}
    for record in records:
        if record["kind"] == kind:
            found.setdefault(record["seed"], {})[record["env_steps"]] = record
    return {seed: tuple(by_steps[steps] for steps in sorted(by_steps)) for seed, by_steps in sorted(found.items())}


__all__ = ["Run", "find_setting", "flatten", "headline", "latest_per_seed", "load_run", "load_runs"]
