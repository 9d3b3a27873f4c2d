"""The command `spo train`."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from spo.cli.unparsed import find_value, is_set, without_value

if TYPE_CHECKING:
    from spo.cli.options import TrainOptions
    from spo.training.experiment import Experiment

#: Value of `--resume`, beside `--run FOLDER`: continue the run in the folder if there is one, else start it.
AUTO: Final = "auto"


class Command(NamedTuple):
    """A command line of `spo train`, parsed."""

    options: "TrainOptions"
    experiment: "Experiment"
    is_chosen: bool
    """True if the settings were chosen for the task."""
    resume: bool | Literal["auto"]


def train(*arguments: str) -> None:
    """Train an agent: `spo train`, `spo train paper/ant --num-seeds 5`, or `spo train --like RUN --seed 1`."""
    from spo.training.run_folder import new_run_folder

    options, experiment, is_chosen, resume = read_command(arguments)
    run(
        experiment,
        options.resume or options.run or new_run_folder(Path("runs"), experiment.task, experiment.algorithm),
        resume=resume,
        start_from=options.start_from,
        checkpoint_seconds=options.checkpoint_seconds,
        deterministic=options.deterministic,
        is_chosen=is_chosen,
        quiet=options.quiet,
        wandb=options.wandb,
    )


def read_command(arguments: Sequence[str]) -> Command:
    """Parses a command line of `spo train`. Raises ValueError with a sentence if it can't be trained with."""
    import tyro

    from spo import presets
    from spo.cli import configuration, options
    from spo.cli.parsing import parse
    from spo.cli.task_options import split_other_task_options

    arguments = tuple(arguments)
    preset = arguments[0] if arguments and not arguments[0].startswith("-") else None
    resume = find_value(arguments, "--resume")
    is_automatic = resume == AUTO
    if is_automatic and find_value(arguments, "--run") is None:
        raise ValueError("--resume auto needs the folder of the run: add --run FOLDER, or write --resume FOLDER.")
    if is_automatic:  # the settings are those of the command line in any case
        resume, arguments = None, _from_own_start(without_value(arguments, "--resume"))
    _join_processes(arguments, resume)  # before the task is looked at, which may use JAX
    source = configuration.find_source(arguments, preset, resume)
    start = configuration.start_experiment(arguments, preset, source)
    rest, other_task_options = split_other_task_options(arguments, start)
    chosen = parse(
        "spo train",
        lambda: tyro.cli(
            options.TrainOptions,
            prog="spo train",
            description=_description(configuration.describe_source(source), presets.PRESETS),
            default=options.TrainOptions(
                preset=preset or presets.DEFAULT, experiment=options.make_experiment_options(start)
            ),
            args=rest,
        ),
    )
    if preset is None and chosen.preset != presets.DEFAULT:
        if chosen.preset not in presets.PRESETS:
            raise ValueError(
                f"{chosen.preset!r} is no preset, and the option before it takes no value. `spo train --help` lists "
                "the presets and the options."
            )
        raise ValueError(f"Name the preset first: spo train {chosen.preset} ...")
    if resume and chosen.run is not None:
        raise ValueError(f"A run is resumed in its own folder, {resume}: leave --run out.")
    return Command(
        options=chosen,
        experiment=options.to_experiment(chosen.experiment, other_task_options),
        is_chosen=source.kind == "task",
        resume=AUTO if is_automatic else bool(resume),
    )


def run(
    experiment: "Experiment",
    folder: Path,
    *,
    resume: bool | Literal["auto"] = False,
    start_from: Path | None = None,
    checkpoint_seconds: float | None = None,
    deterministic: bool = False,
    is_chosen: bool = False,
    quiet: bool = False,
    wandb: str | None = None,
) -> None:
    """Trains with a live display, draws the learning curve and prints a report."""
    from spo.reports import run_report
    from spo.training import loop, processes, run_folder
    from spo.training.defaults import describe_choice
    from spo.training.records import NonFiniteError
    from spo.training.sinks.base import RunInfo, Sink
    from spo.training.sinks.display import make_display

    class StartInfo(Sink):
        """Keeps the facts about the run. There are none if the run was finished before."""

        info: RunInfo | None = None

        def start(self, info: RunInfo) -> None:
            self.info = info

    if resume == AUTO:
        resume = run_folder.finds_run(folder)
        start_from = None if resume else start_from
    seen = StartInfo()
    sinks: list[Sink] = [seen] if quiet else [seen, make_display(describe_choice if is_chosen else None)]
    if wandb is not None:
        from spo.training.sinks.weights_and_biases import WeightsAndBiases

        sinks.append(WeightsAndBiases(wandb))
    try:
        loop.train(
            experiment,
            folder,
            sinks=sinks,
            resume=bool(resume),
            start_from=start_from,
            checkpoint_seconds=checkpoint_seconds,
            deterministic=deterministic,
        )
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # the code of a shell for Ctrl-C; the loop has printed how to resume
    except NonFiniteError as error:
        print(f"spo: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if not processes.is_first():
        return
    run_report.draw_learning_curve(
        folder / "metrics.jsonl", folder / "learning_curve.png", f"{experiment.algorithm} on {experiment.task}"
    )
    if quiet:
        print(run_report.short_report(folder))
    else:
        can_render = _can_render(experiment) if seen.info is None else seen.info.can_render
        print(run_report.report(folder, can_render=can_render))


def _can_render(experiment: "Experiment") -> bool:
    """Returns True if the environment of a finished run draws pictures."""
    from spo.training.tasks import make_task

    with contextlib.suppress(ValueError, ImportError, OSError):  # such as levels that are not here any more
        return make_task(experiment).evaluation.render is not None
    return False


def _join_processes(arguments: Sequence[str], resume: str | None) -> None:
    """Joins the other processes of a run with `--distributed`."""
    from spo.training import processes

    if not is_set(arguments, "--distributed") or {"-h", "--help"} & set(arguments):
        return
    if resume is None and find_value(arguments, "--run") is None:
        raise ValueError("Several processes write to one folder: give all of them the same --run FOLDER.")
    processes.join()


def _from_own_start(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a command line in which `--from` names the run's own copy of the file, if the run exists and has one.

    The file itself may be gone when the command is repeated.
    """
    from spo.training.run_folder import RunFolder

    run, file = find_value(arguments, "--run"), find_value(arguments, "--from")
    if run is None or file is None or not (copy := RunFolder(Path(run)).start_path).is_file():
        return arguments
    return (*arguments, "--from", str(copy))  # the last value counts


def _description(source: str, presets: tuple[str, ...]) -> str:
    return f"Train an agent. The defaults below are those of {source}. The presets are {', '.join(presets)}."
