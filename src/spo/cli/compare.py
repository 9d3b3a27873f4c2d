"""The command `spo compare`."""

import datetime
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from spo.reports.comparison import Comparison, Judgement
    from spo.reports.runs import Run


def compare(
    runs: tuple[str, ...],
    /,
    *,
    out: Path | None = None,
    by: str = "algorithm",
    metric: Literal["auto", "solve_rate", "return"] = "auto",
    title: str = "",
    resamples: int = 10_000,
    seed: int = 0,
) -> None:
    """Compare runs: tables, figures, verdicts and a report to send around.

    Args:
        runs: folders of runs, or folders above them; * and ? are understood.
        out: where to write figures, numbers and report.html; None: runs/comparison- and the time.
        by: the setting that tells groups apart, such as algorithm or search.num_particles.
        metric: what tasks are judged by; auto: the share of solved episodes where there is one, else the return.
        title: of the report; empty: the groups' names.
        resamples: bootstrap samples for an interval.
        seed: where the randomness of the bootstrap comes from.
    """
    from spo.reports import comparison as comparing
    from spo.reports import figures
    from spo.reports.html_report import write_report
    from spo.reports.runs import load_runs

    if not runs:
        raise ValueError("Name the runs to compare: spo compare runs/one runs/another, or a folder that holds them.")
    if resamples < 100:
        raise ValueError(f"--resamples must be at least 100 for the ends of an interval, got {resamples}.")
    loaded = load_runs(runs, say=print)
    comparison = comparing.compare(loaded, by, metric)
    judgement = comparing.judge(comparison, num_resamples=resamples, seed=seed)
    folder = out or Path("runs") / f"comparison-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    svgs = {}
    for name, figure in figures.draw_all(comparison, judgement).items():
        _, svg_path = figures.save(figure, folder / name)
        svgs[name] = svg_path.read_text("utf-8")
    comparing.write_json(folder / "comparison.json", comparison, judgement)
    title = title or f"Comparison of {_listed(judgement.ranking)}"
    write_report(folder / "report.html", comparison, judgement, svgs, commands=_commands(loaded), title=title)
    _print_tables(comparison, judgement)
    print(f"\nWrote {folder / 'report.html'}, {len(svgs)} figures beside it (PNG and SVG) and comparison.json.")


def _commands(runs: "Sequence[Run]") -> dict[Path, str]:
    """Commands that repeat the runs, by folder. Without the libraries that train there are none, and no need of any."""
    try:
        commands = {run.folder: repeating_command(run) for run in runs}
    except ImportError:
        return {}
    return {folder: command for folder, command in commands.items() if command is not None}


def repeating_command(run: "Run") -> str | None:
    """The shortest `spo train` that repeats a run of this version; None for one of another version."""
    from spo import presets
    from spo._version import __version__
    from spo.algorithms.registry import ALGORITHMS
    from spo.reports.runs import flatten
    from spo.training.experiment import to_json

    config = {name: value for name, value in run.config.items() if name not in ("spo_version", "start_from")}
    if run.config["spo_version"] != __version__ or config["algorithm"] not in ALGORITHMS:
        return None
    mine, candidates = flatten(config), []
    for name in (name for name in presets.PRESETS if presets.has(name, config["algorithm"])):
        # As a file would have it: JSON has no tuples.
        preset, experiment = presets.get(name), presets.get(name, config["algorithm"], config["task"])
        start = flatten(json.loads(json.dumps(to_json(experiment))))
        if start.keys() - mine.keys():
            continue  # an option of the preset's task that the run leaves at its default, or one that is newer than it
        changed = {key: value for key, value in mine.items() if key not in start or start[key] != value}
        changed = {key: config[key] for key in ("algorithm", "task") if getattr(preset, key) != config[key]} | changed
        words = ["spo", "train", *([] if name == presets.DEFAULT else [name]), *_flags(changed, config["task"])]
        candidates.append(shlex.join(words))
    if not candidates:
        return None
    # Where a run began from a file, the file has a name only: the folder keeps a copy of it.
    origin = f" --from {shlex.quote(str(run.folder / 'start.npz'))}" if run.config.get("start_from") else ""
    return min(candidates, key=len) + origin


def _flags(changed: dict[str, Any], task: str) -> Iterator[str]:
    from spo.cli.options import named_task_options

    named = {f"task_options.{name}" for name in named_task_options(task)}
    for key, value in changed.items():
        name = key.removeprefix("config.").replace("task_options.", "task.").replace("_", "-")
        # What a task only hands on to another library is written with its value: nobody here knows its type.
        if isinstance(value, bool) and (key in named or not key.startswith("task_options.")):
            parent, _, last = name.rpartition(".")
            yield f"--{parent}{'.' if parent else ''}{'' if value else 'no-'}{last}"
            continue
        yield f"--{name}"
        for item in value if isinstance(value, list) else [value]:
            yield f"{item:g}" if isinstance(item, float) and float(f"{item:g}") == item else str(item)


def _print_tables(comparison: "Comparison", judgement: "Judgement") -> None:
    import rich
    from rich.markup import escape
    from rich.table import Table

    from spo.reports.comparison import estimate_in_words
    from spo.reports.html_report import dominance_in_words
    from spo.reports.runs import HEADLINES

    finals = Table(box=None)
    finals.add_column(comparison.by)
    for task in comparison.tasks:
        finals.add_column(f"{task}, {HEADLINES[comparison.metrics[task]]}")
    for group in judgement.ranking:
        cells = []
        for task in comparison.tasks:
            seeds = len(comparison.of(group, task))
            words = estimate_in_words(comparison.metrics[task], judgement.finals[group, task]) if seeds else "not run"
            cells.append(_on_two_lines(words.replace(" (", f" x {seeds} (")))
        finals.add_row(escape(group), *map(escape, cells))
    rich.print("Final scores: IQM over seeds, number of seeds, 95 % interval")
    rich.print(finals)

    metrics = list(judgement.aggregates[judgement.ranking[0]])
    aggregates = Table(comparison.by, *metrics, box=None)
    for group in judgement.ranking:
        cells = [_on_two_lines(estimate_in_words(name, judgement.aggregates[group][name])) for name in metrics]
        aggregates.add_row(escape(group), *map(escape, cells))
    rich.print("\nNormalised scores")
    rich.print(aggregates)
    for verdict in judgement.verdicts:
        colour = "yellow" if verdict.better is None else "green"
        rich.print(f"\n[{colour}]{escape(verdict.sentence)}[/{colour}] {escape(dominance_in_words(verdict))}")
    for note in comparison.notes:
        rich.print(f"\n[dim]Note: {escape(note)}[/dim]")


def _on_two_lines(estimate: str) -> str:
    return estimate.replace(" (", "\n").replace(")", "")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
