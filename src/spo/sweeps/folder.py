"""The files of a sweep: its settings, its trials and their results.

    sweep.json          the settings of the sweep
    000/trial.json      the point of a trial, and how it ended if it failed or was stopped early
    000/run/            its run, a folder like that of any `spo train`
    000/output.log      what the run printed
    sweep.csv, .png     table and figure of all trials

All state of a sweep is in these files. So it continues after any interruption, and processes of several hosts can share
it: each trains the trials whose lock it gets.
"""

import csv
import dataclasses
import functools
import io
import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from spo import files
from spo.checks import PositiveInt, Seed, check_fields
from spo.reports.overview import Overview, read_overview
from spo.reports.run_files import read_records
from spo.reports.runs import headline
from spo.sweeps.space import Point, Result, Sampler, Space, num_points, parse_values, pick
from spo.training.locks import RunLock

State: TypeAlias = Literal["waiting", "unfinished", "finished", "stopped early", "failed"]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The settings of a sweep."""

    arguments: tuple[str, ...]
    """Words of `spo train` that all trials share."""
    vary: Mapping[str, tuple[str, ...]]
    """Name of each setting that is varied, and its values as on the command line."""
    sampler: Sampler
    num_trials: PositiveInt
    seed: Seed
    """Random seed of "random" and "tpe"."""
    stop_early: bool
    """Stop a trial whose best evaluation is below the median of the others."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.vary:
            raise ValueError(
                "A sweep varies a setting: add --vary NAME VALUE VALUE, such as --vary learning-rate 1e-4 1e-3."
            )
        most = num_points(self.space)
        if self.sampler == "grid" and most == float("inf"):
            raise ValueError("A grid has no ranges: write single values, or add --sampler random and --trials N.")
        if self.sampler != "tpe" and self.num_trials > most:
            raise ValueError(
                f"There are {most:g} different points: --trials must be at most that, got {self.num_trials}."
            )

    @property
    def space(self) -> Space:
        return {name: parse_values(name, words) for name, words in self.vary.items()}


class Trial(NamedTuple):
    """One run of a sweep."""

    number: int
    point: Point
    state: State
    note: str = ""
    """Reason of a failure, or of an early stop."""
    run: Overview | None = None

    @property
    def score(self) -> float | None:
        """Mean score over the seeds: of the final evaluation, or of the latest one. None before the first."""
        if self.run is None or not self.run.metric or self.state == "failed":
            return None
        return self.run.result


class SweepFolder:
    """The folder of a sweep."""

    def __init__(self, path: Path):
        self.path = Path(path)

    @property
    def settings_path(self) -> Path:
        return self.path / "sweep.json"

    def trial_path(self, number: int) -> Path:
        return self.path / f"{number:03d}"

    def run_path(self, number: int) -> Path:
        return self.trial_path(number) / "run"

    def output_path(self, number: int) -> Path:
        return self.trial_path(number) / "output.log"

    # --- Settings -----------------------------------------------------------------------------------------------------

    def is_sweep(self) -> bool:
        return self.settings_path.is_file()

    def create(self, sweep: Sweep) -> None:
        """Writes the settings. If the folder holds a sweep, it must be the same one; the number of trials may grow."""
        if self.is_sweep():
            stored = self.read()
            if dataclasses.replace(stored, num_trials=sweep.num_trials) != sweep:
                raise ValueError(
                    f"{self.path} holds another sweep: continue it with `spo sweep {self.path}`, or choose another "
                    "--folder."
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise ValueError(f"{self.path} is not empty and holds no sweep: choose another --folder.")
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_json(self.settings_path, dataclasses.asdict(sweep))

    def read(self) -> Sweep:
        """Returns the settings. Raises ValueError if they are damaged."""
        try:
            stored = json.loads(self.settings_path.read_text("utf-8"))
            vary = {name: tuple(values) for name, values in stored["vary"].items()}
            return Sweep(**stored | {"arguments": tuple(stored["arguments"]), "vary": vary})
        except OSError as error:
            raise ValueError(f"{self.path} holds no sweep: it has no sweep.json ({error.strerror}).") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.settings_path} is damaged: restore the file, or start a new sweep.") from error

    # --- Trials -------------------------------------------------------------------------------------------------------

    def lock_trial(self, number: int) -> RunLock | None:
        """Returns the lock of a trial, whose folder is created. None if another process has it."""
        self.trial_path(number).mkdir(exist_ok=True)
        lock = RunLock(self.trial_path(number))
        try:
            lock.acquire_here()
        except ValueError:
            return None
        return lock

    def choose_point(self, sweep: Sweep, number: int) -> Point:
        """Returns the point of a trial. It is stored when it is chosen, because "tpe" would later choose another."""
        if (stored := self._read_trial(number)) is not None:
            return stored["point"]
        trials = [trial for trial in self.read_trials(sweep) if trial.number != number]
        point = pick(
            sweep.space,
            sweep.sampler,
            number,
            sweep.seed,
            results=[
                Result(trial.point, trial.score) for trial in trials if is_over(trial) and trial.score is not None
            ],
            running=[trial.point for trial in trials if trial.state == "unfinished"],
        )
        self._write_trial(number, {"point": point})
        return point

    def end_trial(self, number: int, state: State, note: str) -> None:
        """Stores why a trial ended before its run was finished."""
        self._write_trial(number, {"point": self.read_trial(number).point, "state": state, "note": note})

    def retry_trial(self, number: int) -> None:
        """Lets a trial continue, from its last checkpoint if there is one."""
        self._write_trial(number, {"point": self.read_trial(number).point})

    def read_trial(self, number: int) -> Trial:
        """Returns a trial with the results of its run so far."""
        stored = self._read_trial(number)
        if stored is None:
            return Trial(number, {}, "waiting")
        point, run = stored["point"], None
        if (self.run_path(number) / "config.json").is_file():
            run = read_overview(self.run_path(number))
            if run.state == "finished":
                return Trial(number, point, "finished", run=run)
        if "state" in stored:
            return Trial(number, point, stored["state"], stored["note"], run)
        if run is not None and run.state == "damaged":
            return Trial(number, point, "failed", run.damage, run)
        return Trial(number, point, "unfinished", run=run)

    def read_trials(self, sweep: Sweep) -> list[Trial]:
        """Returns all trials, in order of their numbers."""
        return [self.read_trial(number) for number in range(sweep.num_trials)]

    def read_curve(self, number: int) -> dict[int, float]:
        """Returns environment steps -> score of the evaluations of a trial, without that before training."""
        path = self.run_path(number) / "metrics.jsonl"
        return _read_curve(path, path.stat().st_size) if path.is_file() else {}

    def _read_trial(self, number: int) -> dict[str, Any] | None:
        path = self.trial_path(number) / "trial.json"
        try:
            stored = json.loads(path.read_text("utf-8"))
            return stored if isinstance(stored["point"], dict) else None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged: delete the folder {path.parent}, and its trial starts anew."
            ) from error

    def _write_trial(self, number: int, content: dict[str, Any]) -> None:
        files.write_json(self.trial_path(number) / "trial.json", content)

    # --- Results ------------------------------------------------------------------------------------------------------

    def write_table(self, trials: Iterable[Trial]) -> Path:
        """Writes sweep.csv: a row for each trial that has begun, in order of their numbers."""
        rows = [row_of(trial) for trial in trials if trial.state != "waiting"]
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["trial"])
        writer.writeheader()
        writer.writerows(rows)
        path = self.path / "sweep.csv"
        with files.replacing(path) as file:
            file.write(text.getvalue().encode())
        return path


@functools.lru_cache(maxsize=4096)
def _read_curve(path: Path, _num_bytes: int) -> dict[int, float]:
    """Returns environment steps -> score. The file only grows, so it is read again when it has become longer."""
    evaluations = [
        record for record in read_records(path) if record["kind"] == "evaluation" and record["env_steps"] > 0
    ]
    scores: dict[int, list[float]] = {}
    for record in evaluations:
        scores.setdefault(int(record["env_steps"]), []).append(record["metrics"][headline(evaluations)])
    return {steps: statistics.fmean(of_seeds) for steps, of_seeds in sorted(scores.items())}


def is_over(trial: Trial) -> bool:
    """Returns True for a trial that has ended and is not tried again."""
    return trial.state in ("finished", "stopped early", "failed")


def row_of(trial: Trial) -> dict[str, Any]:
    """Returns a trial as a row of the table: its settings, result and state."""
    run = trial.run
    return {
        "trial": trial.number,
        **trial.point,
        "metric": run.metric if run else "",
        "score": "" if trial.score is None else trial.score,
        "env_steps": run.env_steps if run else 0,
        "state": trial.state,
        "note": trial.note,
        "run": str(run.folder) if run else "",
    }
