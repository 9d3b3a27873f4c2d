"""What a run says while it goes: a live display in a terminal, a line now and then elsewhere."""

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from spo.reports.runs import duration, in_words

if TYPE_CHECKING:
    from spo.training.experiment import Experiment
    from spo.training.loop import Reporter
    from spo.training.run_folder import RunFolder

#: What is worth a glance while training runs, with its name for people.
GLANCE = {
    "episode/return": "return",
    "episode/solved": "solved",
    "temperature": "temperature",
    "search/kl": "KL",
    "search/ess": "ESS",
}


class _Follower:
    """Follows the records of all seeds; `changed` is called when a set of them is complete."""

    def __init__(self, changed: Callable[[str], None], clock: Callable[[], float] = time.monotonic):
        self._changed = changed
        self._clock = clock
        self._records: dict[int, dict[str, Any]] = {}
        self._first: tuple[float, int] | None = (
            None  # when and where the first interval ended: compiling is done by then
        )
        self.num_seeds = 1
        self.total_env_steps = 1
        self.env_steps = 0
        self.lines: dict[str, str] = {}  # kind of record -> its numbers in words
        self.pace = ""

    def start(self, experiment: "Experiment", total_env_steps: int, resumed_at: int) -> None:
        self.num_seeds, self.total_env_steps, self.env_steps = experiment.num_seeds, total_env_steps, resumed_at

    def log(self, record: dict[str, Any]) -> None:
        self._records[record["seed"]] = record
        if len(self._records) < self.num_seeds:
            return
        complete, self._records = list(self._records.values()), {}
        self.env_steps = record["env_steps"]
        names = GLANCE if record["kind"] == "train" else ("episode/return", "episode/solved")
        means = {
            name: statistics.fmean(r["metrics"][name] for r in complete)
            for name in names
            if all(r["metrics"].get(name) is not None for r in complete)
        }
        self.lines[record["kind"]] = "  ".join(f"{GLANCE[name]} {in_words(name, mean)}" for name, mean in means.items())
        self.pace = self._pace(record["kind"], record["time"]["env_steps_per_second"])
        self._changed(record["kind"])

    def _pace(self, kind: str, env_steps_per_second: float) -> str:
        """Steps per second of all seeds while training, and the time left as the clock on the wall has gone so far."""
        now = self._clock()
        if self._first is None and kind == "train":
            self._first = (now, self.env_steps)
        if self._first is None:
            return ""
        then, steps_then = self._first
        steps_left = self.total_env_steps - self.env_steps
        if steps_left <= 0 or self.env_steps <= steps_then:
            return ""
        seconds_left = steps_left * (now - then) / (self.env_steps - steps_then)
        return f"{env_steps_per_second:,.0f} steps/s  {duration(seconds_left)} left"


class PlainReporter:
    """A line per evaluation, and one now and then between them."""

    def __init__(
        self,
        write: Callable[[str], None] = print,
        seconds_between_lines: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._write = write
        self._seconds_between_lines = seconds_between_lines
        self._clock = clock
        self._last_line = -float("inf")
        self._follower = _Follower(self._changed, clock)

    def start(self, experiment: "Experiment", folder: "RunFolder", total_env_steps: int, resumed_at: int) -> None:
        self._follower.start(experiment, total_env_steps, resumed_at)
        self._write(_opening(experiment, folder, total_env_steps, resumed_at))

    def log(self, record: dict[str, Any]) -> None:
        self._follower.log(record)

    def message(self, text: str) -> None:
        self._write(text)

    def stop(self) -> None:
        """Nothing is left open."""

    def _changed(self, kind: str) -> None:
        now = self._clock()
        if kind == "train" and now - self._last_line < self._seconds_between_lines:
            return
        self._last_line = now
        seen = self._follower
        done = f"{min(1.0, seen.env_steps / seen.total_env_steps):4.0%}  {seen.env_steps:,} steps"
        what = "" if kind == "train" else f"{kind}: "
        self._write("  ".join(part for part in (done, what + seen.lines[kind], seen.pace) if part))


class LiveReporter:
    """A bar, the numbers of the moment and those of the last evaluation, redrawn in place."""

    def __init__(self, console: Console):
        self._follower = _Follower(self._redraw)
        self._bar = Progress(
            BarColumn(bar_width=None), TaskProgressColumn(), TextColumn("{task.description}"), expand=True
        )
        self._task = self._bar.add_task("compiling ...", total=1)
        self._live = Live(console=console, refresh_per_second=4)

    def start(self, experiment: "Experiment", folder: "RunFolder", total_env_steps: int, resumed_at: int) -> None:
        self._follower.start(experiment, total_env_steps, resumed_at)
        self._bar.update(self._task, total=total_env_steps, completed=resumed_at)
        self._live.console.print(escape(_opening(experiment, folder, total_env_steps, resumed_at)), highlight=False)
        self._live.start()
        self._live.update(self._bar)

    def log(self, record: dict[str, Any]) -> None:
        self._follower.log(record)

    def message(self, text: str) -> None:
        self._live.console.print(escape(text), highlight=False)

    def stop(self) -> None:
        self._live.stop()

    def _redraw(self, _kind: str) -> None:
        seen = self._follower
        self._bar.update(
            self._task,
            completed=seen.env_steps,
            description=f"{seen.env_steps:,} / {seen.total_env_steps:,} steps  {seen.pace}",
        )
        titles = {"train": "training  ", "evaluation": "evaluation", "final": "final     "}
        rows = [f"{title}  {seen.lines[kind]}" for kind, title in titles.items() if kind in seen.lines]
        self._live.update(Group(self._bar, *map(escape, rows)))


def make_reporter(quiet: bool = False) -> "Reporter | None":
    if quiet:
        return None
    console = Console()
    return LiveReporter(console) if console.is_terminal else PlainReporter()


def _opening(experiment: "Experiment", folder: "RunFolder", total_env_steps: int, resumed_at: int) -> str:
    seeds = f", {experiment.num_seeds} seeds" if experiment.num_seeds > 1 else ""
    going_on = f", going on at {resumed_at:,}" if resumed_at else ""
    return (
        f"{experiment.algorithm} on {experiment.task}{seeds}: {total_env_steps:,} steps{going_on}, into {folder.path}"
    )


__all__ = ["GLANCE", "LiveReporter", "PlainReporter", "make_reporter"]
