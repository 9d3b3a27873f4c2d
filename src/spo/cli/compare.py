"""The command `spo compare`."""

import contextlib
import datetime
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from spo.checks import printable

if TYPE_CHECKING:
    from spo.reports.comparison import Comparison
    from spo.reports.judgement import Judgement
    from spo.reports.runs import Run
    from spo.training.experiment import Experiment


def compare(
    runs: Annotated[tuple[str, ...], arg(metavar="RUN ...")],
    /,
    *,
    out: Path | None = None,
    task: str = "",
    by: str = "auto",
    metric: Literal["auto", "solve_rate", "return"] = "auto",
    actions: Literal["auto", "drawn", "greedy"] = "auto",
    title: str = "",
    resamples: int = 10_000,
    seed: int = 0,
) -> None:
    """Compare runs: print tables and verdicts, write figures and an HTML report.

    Args:
        runs: Folders of runs, or folders that contain them. Names may contain * and ?.
        out: Folder for report.html, the figures (PNG) and comparison.json. None: a new folder in runs/.
        task: Compare only runs of tasks whose name contains this text, such as brax.
        by: Setting that divides the runs into groups, such as algorithm or search.num_particles. auto: the algorithm
            and, where its runs on one task differ, the settings of learning in which they differ.
        metric: Score of a run. auto: the share of solved episodes if the task has one, else the return.
        actions: Evaluations to compare, the same for all runs: with drawn actions or with the best ones (greedy). auto:
            those of the runs' own setting evaluation.greedy, and drawn ones if the runs differ in it.
        title: Title of the report. Empty: the names of the groups.
        resamples: Number of bootstrap samples of each 95 % interval.
        seed: Random seed of the bootstrap.
    """
    from spo.reports import comparison_figures, figures
    from spo.reports.comparison import compare
    from spo.reports.formatting import format_list
    from spo.reports.html_report import write_report
    from spo.reports.judgement import judge, write_json
    from spo.reports.runs import load_runs

    if not runs:
        raise ValueError("Name the runs to compare: spo compare runs/one runs/another, or a folder with several runs.")
    if resamples < 100:
        raise ValueError(f"--resamples must be at least 100, got {resamples}.")
    found = load_runs(runs, warn=_warn)
    loaded = [run for run in found if task in run.config["task"]]
    if not loaded:
        tasks = ", ".join(sorted({run.config["task"] for run in found}))
        raise ValueError(f"None of the {len(found)} runs has {task!r} in the name of its task: they are of {tasks}.")
    comparison = compare(loaded, by, metric, actions)
    judgement = judge(comparison, num_resamples=resamples, seed=seed)
    folder = out or Path("runs") / f"comparison-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = comparison_figures.draw_all(comparison, judgement)
    for name, figure in drawn.items():
        figures.save(figure, folder / f"{name}.png")
    write_json(folder / "comparison.json", comparison, judgement)
    title = title or f"Comparison of {format_list(judgement.ranking)}"
    write_report(folder / "report.html", comparison, judgement, drawn, commands=_commands(loaded), title=title)
    _print_tables(comparison, judgement)
    print(f"\nWrote {folder / 'report.html'}, and next to it {len(drawn)} figures (PNG) and comparison.json.")


def _warn(text: str) -> None:
    print(printable(text), file=sys.stderr)


def _commands(runs: "Sequence[Run]") -> dict[Path, str]:
    """Returns the commands that repeat the runs, by folder.

    A run has none if the libraries for training are not installed, or if its task does not exist here.
    """
    commands = {}
    for run in runs:
        with contextlib.suppress(ImportError, ValueError):
            if (command := repeating_command(run)) is not None:
                commands[run.folder] = command
    return commands


def repeating_command(run: "Run") -> str | None:
    """Returns the shortest `spo train` that repeats a run.

    None for a run of another version, and for one of an own environment: a report imports no module of a user.
    """
    # config.json names the file that a run started from without its folder. The run folder contains a copy.
    origin = f" --from {shlex.quote(str(run.folder / 'start.npz'))}" if run.config.get("start_from") else ""
    return command_of(run.config, origin)


def command_of(config: dict[str, Any], origin: str = "") -> str | None:
    """Returns the shortest `spo train` with the settings of a run. None as for `repeating_command`.

    Args:
        config: settings of the run, as in its config.json.
        origin: option that names the file from which the run started.
    """
    from spo import presets
    from spo._version import __version__
    from spo.algorithms.registry import ALGORITHMS
    from spo.environments.own import is_own

    if config["spo_version"] != __version__ or config["algorithm"] not in ALGORITHMS or is_own(config["task"]):
        return None
    candidates = []
    for name in (name for name in presets.PRESETS if presets.has(name, config["algorithm"])):
        preset = presets.get(name)
        changed = changed_settings(config, presets.get(name, config["algorithm"], config["task"]))
        if changed is None:
            continue
        changed = {key: config[key] for key in ("algorithm", "task") if getattr(preset, key) != config[key]} | changed
        # Without the name of a preset, `--from` provides the settings, and `--task` chooses them for the task.
        is_implied = name == presets.DEFAULT and preset.task == config["task"] and not origin
        words = ["spo", "train", *([] if is_implied else [name]), *to_flags(changed, config["task"])]
        candidates.append(shlex.join(words))
    if not candidates:
        return None
    return min(candidates, key=len) + origin


def changed_settings(config: dict[str, Any], start: "Experiment") -> dict[str, Any] | None:
    """Returns the settings of a run that differ from those of an experiment, by dotted name.

    None if the run leaves an option at its default that the experiment sets, or if the option is newer than the run.

    Args:
        config: settings of the run, as in its config.json.
        start: settings to start from.
    """
    from spo.reports.runs import flatten
    from spo.training.experiment import to_json

    settings = flatten({name: value for name, value in config.items() if name not in _NO_OPTIONS})
    other = flatten(json.loads(json.dumps(to_json(start))))  # as read from a file: JSON has no tuples
    del other["specs"]
    if other.keys() - settings.keys():
        return None
    return {key: value for key, value in settings.items() if key not in other or other[key] != value}


#: Entries of config.json that are no options of `spo train`.
_NO_OPTIONS = ("spo_version", "start_from", "specs", "sha256")


def to_flags(changed: dict[str, Any], task: str) -> Iterator[str]:
    """Yields the words of the command line that change these settings."""
    from spo.cli.task_options import named_task_options
    from spo.sweeps.workers import flag

    named = {f"task_options.{name}" for name in named_task_options(task)}
    for key, value in changed.items():
        name = key.removeprefix("config.").replace("task_options.", "task.").replace("_", "-")
        # An option that is passed on to another library has no known type, so it is written with its value.
        if isinstance(value, bool) and (key in named or not key.startswith("task_options.")):
            yield flag(name, value)
            continue
        yield f"--{name}"
        for item in value if isinstance(value, list) else [value]:
            yield f"{item:g}" if isinstance(item, float) and float(f"{item:g}") == item else str(item)


def _print_tables(comparison: "Comparison", judgement: "Judgement") -> None:
    import rich
    from rich.table import Table

    from spo.reports.formatting import HEADLINES, format_estimate
    from spo.reports.stats import format_dominance

    finals = Table(box=None)
    finals.add_column(comparison.by)
    for task in comparison.tasks:
        finals.add_column(_plain(f"{task}, {HEADLINES[comparison.metrics[task]]}"))
    for group in judgement.ranking:
        cells = []
        for task in comparison.tasks:
            seeds = len(comparison.results_of(group, task))
            words = format_estimate(comparison.metrics[task], judgement.finals[group, task]) if seeds else "not run"
            cells.append(_on_two_lines(words.replace(" (", f" x {seeds} (")))
        finals.add_row(_plain(group), *map(_plain, cells))
    rich.print(f"Final scores with {comparison.actions} actions: IQM over seeds, number of seeds, 95 % interval")
    rich.print(finals)

    metrics = list(judgement.aggregates[judgement.ranking[0]])
    aggregates = Table(comparison.by, *metrics, box=None)
    for group in judgement.ranking:
        cells = [_on_two_lines(format_estimate(name, judgement.aggregates[group][name])) for name in metrics]
        aggregates.add_row(_plain(group), *map(_plain, cells))
    rich.print("\nNormalised scores")
    rich.print(aggregates)
    for verdict in judgement.verdicts:
        colour = "yellow" if verdict.better is None else "green"
        rich.print(f"\n[{colour}]{_plain(verdict.sentence)}[/{colour}] {_plain(format_dominance(verdict))}")
    for note in (*comparison.notes, *judgement.notes):
        rich.print(f"\n[dim]Note: {_plain(note)}[/dim]")


def _plain(text: str) -> str:
    """Returns a text of the runs that neither styles the terminal nor moves its cursor."""
    from rich.markup import escape

    return escape(printable(text))


def _on_two_lines(estimate: str) -> str:
    return estimate.replace(" (", "\n").replace(")", "")
