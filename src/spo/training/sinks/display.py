"""The progress of a run in the terminal: redrawn in place, or as lines of text if the output is a file or a pipe."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as ProgressBar

from spo.checks import printable
from spo.reports.formatting import format_duration, format_metric
from spo.training.experiment import Experiment
from spo.training.records import Record
from spo.training.sinks.base import RunInfo, Sink

#: Metrics on the display, with their names there. Of evaluations, only the first two.
SHOWN = {
    "episode/return": "return",
    "episode/solved": "solved",
    "temperature": "temperature",
    "search/kl": "KL",
    "search/ess": "ESS",
}
SECONDS_BETWEEN_LINES = 10.0

#: Experiment -> the first text of its run.
Introduction = Callable[[Experiment], str]


def make_display(introduce: Introduction | None = None) -> Sink:
    """Returns the display for the standard output. A new run begins with the text that `introduce` returns."""
    console = Console()
    display = LiveDisplay(console) if console.is_terminal else LineDisplay()
    display.introduce = introduce
    return display


class _Display(Sink):
    """Common part of the displays: the latest numbers as text. Subclasses show them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.total_env_steps = 1
        self.env_steps = 0
        self.kind = ""  # of the latest records
        self.lines: dict[str, str] = {}  # kind of record -> means over seeds, as text
        self.pace = ""  # speed and remaining time, as text
        self.introduce: Introduction | None = None
        # Time and steps at the end of the first interval. The remaining time is counted from there: the start compiles.
        self._first: tuple[float, int] | None = None

    def start(self, info: RunInfo) -> None:
        self.total_env_steps = info.total_env_steps
        self.env_steps = 0 if info.resumed_from is None else info.resumed_from.env_steps
        if self.introduce is not None and info.resumed_from is None:
            self.message(self.introduce(info.experiment))
        self.show_title(_title(info))

    def log(self, records: Sequence[Record]) -> None:
        kind = self.kind = records[0]["kind"]
        self.env_steps = records[0]["env_steps"]
        names = SHOWN if kind == "train" else ("episode/return", "episode/solved")
        means = {
            name: statistics.fmean(record["metrics"][name] for record in records)
            for name in names
            if all(name in record["metrics"] for record in records)
        }
        self.lines[kind] = "  ".join(f"{SHOWN[name]} {format_metric(name, mean)}" for name, mean in means.items())
        self.pace = self._format_pace(kind, records[0]["time"]["env_steps_per_second"])
        self.show_numbers()

    def show_title(self, title: str) -> None:
        raise NotImplementedError

    def show_numbers(self) -> None:
        raise NotImplementedError

    def _format_pace(self, kind: str, env_steps_per_second: float) -> str:
        """Formats the training speed of all seeds, and the remaining time at the pace of the run so far."""
        now = self.clock()
        if self._first is None and kind == "train":
            self._first = (now, self.env_steps)
        if self._first is None:
            return ""
        first_time, first_steps = self._first
        steps_left = self.total_env_steps - self.env_steps
        if steps_left <= 0 or self.env_steps <= first_steps:
            return ""
        seconds_left = steps_left * (now - first_time) / (self.env_steps - first_steps)
        return f"{env_steps_per_second:,.0f} steps/s  {format_duration(seconds_left)} left"


def _print_at_once(text: str) -> None:
    print(text, flush=True)  # Python would hold the lines of a pipe or a file back


class LineDisplay(_Display):
    """Writes a line for each evaluation, and in between a line of training metrics every few seconds."""

    def __init__(
        self,
        write: Callable[[str], None] = _print_at_once,
        seconds_between_lines: float = SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(clock)
        self._write = write
        self._seconds_between_lines = seconds_between_lines
        self._last_line = -float("inf")

    def message(self, text: str) -> None:
        self._write(printable(text))

    def show_title(self, title: str) -> None:
        self.message(title)

    def show_numbers(self) -> None:
        now = self.clock()
        if self.kind == "train" and now - self._last_line < self._seconds_between_lines:
            return
        self._last_line = now
        done = f"{min(1.0, self.env_steps / self.total_env_steps):4.0%}  {self.env_steps:,} steps"
        label = "" if self.kind == "train" else f"{self.kind}: "
        self._write("  ".join(part for part in (done, label + self.lines[self.kind], self.pace) if part))


class LiveDisplay(_Display):
    """Redraws a progress bar, the current training metrics and those of the last evaluation."""

    def __init__(self, console: Console):
        super().__init__()
        self._bar = ProgressBar(
            BarColumn(bar_width=None), TaskProgressColumn(), TextColumn("{task.description}"), expand=True
        )
        self._task = self._bar.add_task("compiling ...", total=1)
        self._live = Live(console=console, refresh_per_second=4)

    def message(self, text: str) -> None:
        self._live.console.print(escape(printable(text)), highlight=False)

    def show_title(self, title: str) -> None:
        self._bar.update(self._task, total=self.total_env_steps, completed=self.env_steps)
        self.message(title)
        self._live.start()
        self._live.update(self._bar)

    def show_numbers(self) -> None:
        steps = f"{self.env_steps:,} / {self.total_env_steps:,} steps  {self.pace}"
        self._bar.update(self._task, completed=self.env_steps, description=steps)
        titles = {"train": "training  ", "evaluation": "evaluation", "final": "final     "}
        rows = [f"{title}  {self.lines[kind]}" for kind, title in titles.items() if kind in self.lines]
        self._live.update(Group(self._bar, *map(escape, rows)))

    def close(self) -> None:
        self._live.stop()


@contextlib.contextmanager
def evaluation_progress(
    time_limit: int | None = None, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int, int], None]]:
    """Shows the progress of an evaluation: a bar in a terminal, or else a line every ten seconds.

    Yields the function (ended episodes, all episodes, steps so far) -> None. It writes to the standard error: the
    standard output has the result only.
    """
    console = console or Console(stderr=True)
    columns = (BarColumn(bar_width=30), TaskProgressColumn(), TextColumn("{task.description}"))
    bar = ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal)
    task, last_line = bar.add_task("compiling ...", total=1.0), clock()

    def show(ended: int, total: int, steps: int) -> None:
        nonlocal last_line
        words = f"{ended:,} of {total:,} episodes ended, step {steps:,}"
        share = max(ended / total, min(1.0, steps / time_limit) if time_limit else 0.0)
        bar.update(task, completed=share, description=words)
        if not console.is_terminal and clock() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = clock()
            console.print(words, highlight=False)

    with bar:
        yield show


def _title(info: RunInfo) -> str:
    experiment = info.experiment
    seeds = f", {experiment.num_seeds} seeds" if experiment.num_seeds > 1 else ""
    resumed = "" if info.resumed_from is None else f", resumed at {info.resumed_from.env_steps:,}"
    length = info.env_steps_per_interval
    whole = f" (whole intervals of {length:,})" if length > 1 and info.total_env_steps != experiment.steps else ""
    place = "" if info.folder is None else f", in {info.folder}"
    return f"{experiment.algorithm} on {experiment.task}{seeds}: {info.total_env_steps:,} steps{whole}{resumed}{place}"
