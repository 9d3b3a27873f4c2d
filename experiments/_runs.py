"""Training runs of the experiments. A run is trained once and used by every claim that needs it."""

import dataclasses
import hashlib
import json
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from _claims import ROOT, Origin, Setup, format_hardware

from spo.reports.run_files import read_starts, read_summary

CORE_RUNS = ROOT / "results" / "runs" / "core"
SPEEDS = ROOT / "results" / "benchmarks" / "h200" / "training.json"


def train_all(setup: Setup, experiments: Mapping[str, Any]) -> dict[str, pathlib.Path]:
    """Trains missing runs, resumes interrupted ones, and returns the folders by name.

    The folder of a run is named after its settings, so claims share the runs that they have in common. At the core
    scale nothing is trained: `campaign.py` trains these runs, and they are stored.
    """
    if setup.scale == "core":
        return stored_runs(experiments)
    changes = {"steps": setup.steps, "num_seeds": setup.num_seeds}
    changes = {name: value for name, value in changes.items() if value is not None}
    experiments = {name: dataclasses.replace(experiment, **changes) for name, experiment in experiments.items()}
    folders = {name: setup.runs.parent / run_name(experiment) for name, experiment in experiments.items()}
    missing = {name: experiment for name, experiment in experiments.items() if read_summary(folders[name]) is None}
    print(expected_cost(setup, list(missing.values())), flush=True)
    for name, experiment in missing.items():
        start = time.perf_counter()
        train_or_resume(experiment, folders[name])
        print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return folders


def train_or_resume(experiment: Any, folder: pathlib.Path) -> None:
    """Trains a run, or resumes it. A finished one is left as it is."""
    from spo.training import loop

    if read_summary(folder) is None:
        loop.train(experiment, folder, resume=(folder / "config.json").exists())


def stored_runs(experiments: Mapping[str, Any]) -> dict[str, pathlib.Path]:
    """Returns the folders of the stored runs of the core scale. Stops if one is missing."""
    folders = {name: CORE_RUNS / run_name(experiment) for name, experiment in experiments.items()}
    missing = [name for name, folder in folders.items() if read_summary(folder) is None]
    if missing:
        raise SystemExit(f"Not stored: {', '.join(missing)}. `python experiments/campaign.py` lists and trains them.")
    return folders


def stored_speeds() -> dict[tuple[str, str], float]:
    """Reads the speeds of one seed alone on an H200, by task and algorithm, in environment steps per second."""
    return {key: row["env_steps_per_second"] for key, row in _speed_rows().items()}


def commits_of_speeds() -> dict[tuple[str, str], str]:
    """Reads the commit at which each of the stored speeds was measured."""
    return {key: str(row["commit"]) for key, row in _speed_rows().items()}


def _speed_rows() -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads(SPEEDS.read_text("utf-8"))
    alone = [row for row in rows if row["num_seeds"] == 1 and row["settings"] in ("paper", "core")]
    return {(row["task"], row["algorithm"]): row for row in alone}


def run_name(experiment: Any) -> str:
    """Returns the folder name of a run: task, algorithm and a hash of all settings."""
    from spo.training.experiment import to_json

    digest = hashlib.sha256(json.dumps(to_json(experiment), sort_keys=True).encode()).hexdigest()
    return f"{experiment.task.replace('/', '-')}-{experiment.algorithm}-{digest[:8]}"


def with_settings(experiment: Any, **settings: Any) -> Any:
    """Returns the experiment with other settings. `search` takes a dictionary of search settings."""
    config = experiment.config
    if "search" in settings:
        config = dataclasses.replace(config, search=dataclasses.replace(config.search, **settings.pop("search")))
    of_config = {name: settings.pop(name) for name in list(settings) if hasattr(config, name)}
    return dataclasses.replace(experiment, config=dataclasses.replace(config, **of_config), **settings)


def origin_of(folders: Iterable[pathlib.Path]) -> Origin:
    """Returns hardware and commit of the runs, which may come from another machine."""
    starts = [start for folder in folders for start in read_starts(folder)]
    hardware = dict.fromkeys(format_hardware(start["num_devices"], start["device"]) for start in starts)
    commits = dict.fromkeys(str(start.get("git_commit")) for start in starts)
    return Origin(", ".join(hardware), ", ".join(commits))


def expected_cost(setup: Setup, missing: Sequence[Any]) -> str:
    """Returns a sentence about the training ahead: steps, and hours if the speed of this device is known."""
    if not missing:
        return "All runs exist already."
    steps = sum(experiment.steps * experiment.num_seeds for experiment in missing)
    text = f"{len(missing)} runs to train, {steps:,.0f} environment steps"
    if setup.scale != "paper":
        return text
    seconds = [_expected_seconds(experiment) for experiment in missing]
    if any(s is None for s in seconds):
        return f"{text}; the duration is unknown: results/benchmarks has no speed of some of them on this device"
    hours = sum(s for s in seconds if s is not None) / 3600
    return f"{text}: about {hours:.1f} hours at the speeds of results/benchmarks"


def _expected_seconds(experiment: Any) -> float | None:
    import jax

    for path in (ROOT / "results" / "benchmarks").glob("*/training*.json"):
        for row in json.loads(path.read_text("utf-8")):
            same = (row["algorithm"], row["task"]) == (experiment.algorithm, experiment.task)
            if same and row["device"] == jax.devices()[0].device_kind and row["num_seeds"] == 1:
                return experiment.steps * experiment.num_seeds / row["env_steps_per_second"]
    return None
