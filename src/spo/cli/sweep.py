"""The command `spo sweep`."""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import UseAppendAction, arg

from spo.checks import PositiveInt, Seed, check_fields

if TYPE_CHECKING:
    from spo.sweeps.folder import Sweep, SweepFolder, Trial

#: Trials of a sweep over a range, if their number is not given.
NUM_TRIALS = 20
#: Options of `spo train` that a sweep sets, or that it can't have.
_REFUSED = ("--run", "--resume", "--distributed")
#: Options that may differ when a sweep continues.
_CHANGEABLE = ("trials", "jobs", "retry_failed")


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of `spo sweep`. All others are those of `spo train`, for every trial."""

    vary: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="NAME VALUE ...")] = ()
    """An option of `spo train` without its dashes, and its values: several of them, or a range LOW..HIGH, which ends in
    :log to be uniform in the logarithm. A value with commas is several words. Give it once for each setting."""
    trials: PositiveInt | None = None
    """Number of trials. None: all combinations, or 20 if there is a range."""
    sampler: Literal["auto", "grid", "random", "tpe"] = "auto"
    """Choice of the points: all combinations, at random, or by Optuna's estimator (tpe). auto: a grid, or random if
    there is a range or fewer trials than combinations."""
    jobs: PositiveInt = 1
    """Number of trials at a time. They share the GPUs of this machine."""
    folder: Path | None = None
    """Folder of the sweep. None: a new one in runs/. A folder that holds this sweep continues it."""
    stop_early: bool = False
    """Stop a trial whose best evaluation is below the median of at least four others at the same step."""
    retry_failed: bool = False
    """Try failed trials again."""
    sweep_seed: Seed = 0
    """Random seed of the points."""

    def __post_init__(self) -> None:
        check_fields(self)


def sweep(*arguments: str) -> None:
    """Train with many settings: `spo sweep --task jumanji/snake --vary learning-rate 3e-4 1e-3`."""
    import tyro

    from spo.cli.parsing import parse
    from spo.sweeps.workers import ending_on_signals, run_trials

    _check_vary(arguments)
    options, rest = parse(
        "spo sweep",
        lambda: tyro.cli(
            SweepOptions,
            prog="spo sweep",
            description="Train with many settings and compare them. `spo sweep FOLDER` continues a sweep.",
            args=list(arguments) or ["--help"],
            return_unknown_args=True,
        ),
    )
    environment = dict(os.environ)
    os.environ["JAX_PLATFORMS"] = "cpu"  # this process trains nothing: GPUs belong to the trials
    folder, chosen = _open(options, rest) if _names_sweep(rest) else _create(options, rest)
    if options.retry_failed:
        for trial in folder.read_trials(chosen):
            if trial.state == "failed":
                folder.retry_trial(trial.number)
    command = f"spo sweep {shlex.quote(str(folder.path))}"
    print(
        f"{chosen.num_trials} trials ({chosen.sampler}) in {folder.path}. `{command}` continues after an interruption."
    )
    try:
        with ending_on_signals(), _display(folder) as on_change:
            run_trials(folder, chosen, options.jobs, environment, on_change)
    except (KeyboardInterrupt, SystemExit) as interruption:
        _report(folder, chosen)
        print(f"\nInterrupted. Continue with: {command}", file=sys.stderr)
        raise SystemExit(getattr(interruption, "code", None) or 130) from None
    _report(folder, chosen)
    trials = folder.read_trials(chosen)
    if all(trial.state == "failed" for trial in trials):
        raise ValueError(f"All trials failed. The output of the first one is in {folder.output_path(0)}.")


# --- Settings ---------------------------------------------------------------------------------------------------------


def _check_vary(arguments: Sequence[str]) -> None:
    """Raises ValueError for `--vary` without a name. The parser would take a name with dashes for another option."""
    for word, name in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == "--vary" and (name.startswith("--") or not name):
            named = name.removeprefix("--") or "learning-rate"
            advice = f"write --vary {named} VALUE VALUE" + (", without dashes before the name" if name else "")
            raise ValueError(f"--vary needs the name of an option and its values: {advice}.")


def _names_sweep(rest: Sequence[str]) -> bool:
    from spo.sweeps.folder import SweepFolder

    return bool(rest) and not rest[0].startswith("-") and SweepFolder(Path(rest[0])).is_sweep()


def _open(options: SweepOptions, rest: Sequence[str]) -> "tuple[SweepFolder, Sweep]":
    """Returns the sweep of a folder, with more trials if they are asked for."""
    from spo.sweeps.folder import SweepFolder

    given = [
        field.name
        for field in fields(SweepOptions)
        if field.name not in _CHANGEABLE and getattr(options, field.name) != field.default
    ]
    if len(rest) > 1 or given:
        option = rest[1] if len(rest) > 1 else f"--{given[0].replace('_', '-')}"
        raise ValueError(f"{rest[0]} is continued with its own settings: leave {option} out.")
    folder = SweepFolder(Path(rest[0]))
    stored = folder.read()
    if options.trials is not None:
        stored = replace(stored, num_trials=options.trials)
        folder.create(stored)
    return folder, stored


def _create(options: SweepOptions, rest: Sequence[str]) -> "tuple[SweepFolder, Sweep]":
    """Checks a new sweep, and creates its folder."""
    from spo import presets
    from spo.sweeps.folder import SweepFolder

    if not options.vary and rest and not rest[0].startswith("-") and rest[0] not in presets.PRESETS:
        raise ValueError(
            f"{rest[0]} holds no sweep to continue. A new one varies a setting: spo sweep --vary NAME VALUE VALUE."
        )
    chosen = make_sweep(options, rest)
    check_points(chosen)
    folder = SweepFolder(options.folder or Path("runs") / f"sweep-{time.strftime('%Y%m%d-%H%M%S')}")
    folder.create(chosen)
    return folder, chosen


def make_sweep(options: SweepOptions, rest: Sequence[str]) -> "Sweep":
    """Returns the sweep that a command line describes."""
    from spo.cli.unparsed import find_value, is_set
    from spo.sweeps.folder import Sweep
    from spo.sweeps.space import Space, num_points, parse_values

    for option in _REFUSED:
        if find_value(rest, option) is not None or is_set(rest, option):
            raise ValueError(f"Leave {option} out: every trial of a sweep has a folder of its own, below --folder.")
    vary: dict[str, tuple[str, ...]] = {}
    space: Space = {}
    for name, *words in options.vary:
        name = name.removeprefix("--")
        if name in vary:
            raise ValueError(f"--vary {name} is given twice: list all of its values at once.")
        if find_value(rest, f"--{name}") is not None or is_set(rest, f"--{name}"):
            raise ValueError(f"--{name} is varied: leave it out of the other options.")
        vary[name], space[name] = tuple(words), parse_values(name, words)
    most = num_points(space)
    num_trials = options.trials or (NUM_TRIALS if most == float("inf") else int(most))
    sampler = options.sampler
    if sampler == "auto":
        sampler = "grid" if num_trials == most else "random"
    return Sweep(tuple(rest), vary, sampler, num_trials, options.sweep_seed, options.stop_early)


def check_points(chosen: "Sweep") -> None:
    """Raises ValueError if `spo train` refuses a value. Each is tried beside the first values of the other settings."""
    from spo.cli.training import read_command
    from spo.sweeps.space import Choices, Point
    from spo.sweeps.workers import train_words

    ends = {
        name: values.values if isinstance(values, Choices) else (values.at(0.0), values.at(1.0))
        for name, values in chosen.space.items()
    }
    first: Point = {name: values[0] for name, values in ends.items()}
    points = [first, *({**first, name: value} for name, values in ends.items() for value in values[1:])]
    for point in points:
        read_command(train_words(chosen, point))


# --- Display ----------------------------------------------------------------------------------------------------------


@contextmanager
def _display(folder: "SweepFolder") -> Iterator[Any]:
    """Yields the callback of `run_trials`: a line for each trial that has ended; in a terminal, also those that run."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if not console.is_terminal:
        yield lambda _running, ended: None if ended is None else print(_line(folder.read_trial(ended)), flush=True)
        return
    with Live(console=console, transient=True, refresh_per_second=2) as live:

        def show(running: Sequence[int], ended: int | None) -> None:
            if ended is not None:
                console.print(_line(folder.read_trial(ended)), markup=False)
            live.update("\n".join(_line(folder.read_trial(number)) for number in running))

        yield show


def _line(trial: "Trial") -> str:
    """Returns a trial in one line: its settings, its result and its state."""
    from spo.checks import printable
    from spo.sweeps.results import format_score

    state: str = trial.state
    if state == "unfinished":
        state = "starting" if trial.run is None else trial.run.state
    parts = [f"{name} {value}" for name, value in trial.point.items()]
    score = format_score(trial)
    note = f" ({trial.note})" if trial.note else ""
    return printable(f"trial {trial.number}: {', '.join(parts)}: {f'{score}, ' if score else ''}{state}{note}")


def _report(folder: "SweepFolder", chosen: "Sweep") -> None:
    """Writes and prints the table, draws the figure, and names the best trial."""
    from spo.cli.tables import print_table
    from spo.reports import figures
    from spo.sweeps import results

    trials = folder.read_trials(chosen)
    ordered = results.ranked(trials)
    if not ordered:
        return
    folder.write_table(trials)
    header, rows = results.table_rows(trials)
    print()
    print_table(header, rows, cut=("state",))
    figure = results.draw(trials, chosen.space)
    if figure is not None:
        figures.save(figure, folder.path / "sweep.png")
    print(f"\nWrote {folder.path / 'sweep.csv'}{' and sweep.png' if figure is not None else ''}.")
    best = ordered[0]
    if best.state == "finished" and len(ordered) > 1:
        print(best_text(chosen, best))


def best_text(chosen: "Sweep", best: "Trial") -> str:
    """Returns the command that trains with the best settings, for other random seeds."""
    from spo.cli.unparsed import find_value, without_value
    from spo.sweeps.workers import train_words

    words = train_words(chosen, best.point)
    other = int(find_value(words, "--seed") or 0) + int(find_value(words, "--num-seeds") or 1)
    words = list(without_value(words, "--seed"))
    return (
        "The best of many trials looks better than it is. Train it again with other random seeds:\n"
        f"  spo train {shlex.join(words)} --seed {other}"
    )
