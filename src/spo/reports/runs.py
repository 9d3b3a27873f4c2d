"""Runs as they lie in their folders: config.json, environment.json and metrics.jsonl, of any algorithm and any version.

Nothing here imports JAX.
"""

import glob
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]

#: What a task is judged by, in order of preference, with its name for people. Shares are shown in per cent.
HEADLINES = {"episode/solved": "solved", "episode/return": "return"}


class Run(NamedTuple):
    """One run folder: one experiment, of one or more seeds."""

    folder: Path
    config: Record
    starts: tuple[Record, ...]  # versions and device of every start of the run
    evaluations: dict[int, tuple[Record, ...]]  # seed -> its evaluations, in order of steps
    finals: dict[int, Record]  # seed -> its final evaluation; a run that is not finished has none


def load_runs(paths: Iterable[str | Path], say: Callable[[str], None] = lambda _: None) -> list[Run]:
    """The runs in these folders and below them. Names may hold * and ?; a run that is found twice counts once.

    A run without an evaluation is refused if it was named, and left out, with a sentence to `say`, if it was found.
    """
    paths = list(paths)
    runs: dict[Path, Run] = {}
    for path in paths:
        for folder in _run_folders(path):
            if folder.resolve() in runs:
                continue
            try:
                runs[folder.resolve()] = load_run(folder)
            except NoEvaluationError as error:
                if folder == Path(path):
                    raise
                say(str(error))
    if not runs:
        named = ", ".join(map(str, paths)) or "no folder"
        raise ValueError(f"There is no run in {named}: name folders that `spo train` wrote, or one above them.")
    return list(runs.values())


class NoEvaluationError(ValueError):
    """A run that has not come to its first evaluation yet."""


def load_run(folder: Path) -> Run:
    config = _read_config(folder / "config.json")
    if config is None:
        raise ValueError(f"{folder} holds no run: there is no config.json of one in it.")
    metrics_path = folder / "metrics.jsonl"
    records = read_records(metrics_path) if metrics_path.exists() else []
    evaluations: dict[int, dict[int, Record]] = {}
    for record in records:
        if record["kind"] == "evaluation":
            evaluations.setdefault(record["seed"], {})[record["env_steps"]] = record
    if not evaluations:
        raise NoEvaluationError(
            f"{folder} has no evaluation in its metrics.jsonl yet: leave it out, or let it train on."
        )
    environment_path = folder / "environment.json"
    starts = json.loads(environment_path.read_text("utf-8"))["starts"] if environment_path.exists() else []
    return Run(
        folder,
        config,
        tuple(starts),
        {seed: tuple(by_steps[steps] for steps in sorted(by_steps)) for seed, by_steps in sorted(evaluations.items())},
        {record["seed"]: record for record in latest_per_seed(records, "final")},
    )


def read_records(path: Path) -> list[Record]:
    """The records of a metrics file. A last line that a killed run left half written is skipped."""
    lines = path.read_text("utf-8").splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise ValueError(
                    f"Line {number} of {path} is no JSON: the file was changed or is no metrics file."
                ) from None
    return records


def latest_per_seed(records: Iterable[Record], kind: str) -> list[Record]:
    """The last record of each seed, in order of seeds."""
    by_seed = {record["seed"]: record for record in records if record["kind"] == kind}
    return [by_seed[seed] for seed in sorted(by_seed)]


def headline(records: Iterable[Record]) -> str:
    """The metric these records are judged by."""
    records = list(records)
    for name in HEADLINES:
        if any(name in record["metrics"] for record in records):
            return name
    raise ValueError("There is no episode in these records: train until the first evaluation.")


def in_words(name: str, value: float) -> str:
    """A metric's value for people: shares in per cent, others with three or four digits."""
    if not math.isfinite(value):
        return "none"
    if name == "episode/solved":
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def find_setting(config: Record, name: str) -> Any:
    """A setting by its dotted name. The algorithm's own ones need no "config." before them."""
    for path in (name, f"config.{name}"):
        value: Any = config
        for part in path.split("."):
            value = value.get(part, _Missing) if isinstance(value, dict) else _Missing
        if value is not _Missing:
            return value
    raise ValueError(
        f"A run of {config['algorithm']} on {config['task']} has no setting {name!r}: its config.json lists them "
        '(search.num_particles and "network.width" are such names).'
    )


def flatten(config: Record, prefix: str = "") -> Record:
    """Settings of settings under one dotted name."""
    flat: Record = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


class _Missing:
    """Stands for a setting that is not there: None is a value."""


def _run_folders(path: str | Path) -> Sequence[Path]:
    if _read_config(Path(path) / "config.json") is not None:
        return [Path(path)]
    if glob.has_magic(str(path)) and not Path(path).exists():
        return [folder for match in sorted(glob.glob(str(path))) for folder in _run_folders(match)]
    if not Path(path).is_dir():
        raise ValueError(f"{path} is no folder: name folders that `spo train` wrote, or one above them.")
    below = (Path(root) for root, _, files in os.walk(path) if "config.json" in files)
    return sorted(folder for folder in below if _read_config(folder / "config.json") is not None)


def _read_config(path: Path) -> Record | None:
    """config.json of a run; None where there is none, or somebody else's."""
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError:
        return None
    return config if isinstance(config, dict) and {"spo_version", "task", "algorithm"} <= config.keys() else None


__all__ = [
    "HEADLINES",
    "Record",
    "Run",
    "duration",
    "find_setting",
    "flatten",
    "headline",
    "in_words",
    "latest_per_seed",
    "load_run",
    "load_runs",
    "read_records",
]
