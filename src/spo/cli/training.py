"""The command `spo train`."""

import dataclasses
import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from spo.training.experiment import Experiment

DEFAULT_PRESET = "default"


def train(*arguments: str) -> None:
    """Train an agent: `spo train`, or `spo train paper/ant --num-seeds 5`."""
    import tyro

    from spo import presets
    from spo.cli import options
    from spo.training.run_folder import RunFolder

    preset = arguments[0] if arguments and not arguments[0].startswith("-") else None
    resume = options.first_value(arguments, "--resume")
    if resume is not None and preset is not None:
        raise ValueError(f"--resume goes on with the settings of {resume}: leave {preset} out.")
    start = RunFolder.open(Path(resume)).experiment if resume else named_experiment(preset or DEFAULT_PRESET, arguments)
    rest, other_task_options = options.take_other_task_options(arguments, start)
    kind = dataclasses.make_dataclass("TrainOptions", [*_run_fields(preset), *options.experiment_fields(start)])
    parsed: Any = tyro.cli(
        kind,
        prog="spo train",
        description=(
            f"Train an agent. Defaults below are those of the preset {preset or DEFAULT_PRESET}; "
            f"presets are {', '.join(presets.PRESETS)}."
        ),
        args=rest,
    )
    if preset is None and parsed.preset != DEFAULT_PRESET:
        raise ValueError(f"Name the preset first: spo train {parsed.preset} ...")
    if resume and parsed.run is not None:
        raise ValueError(f"A run is resumed where it lies, in {resume}: leave --run out.")
    experiment = options.experiment_from(parsed, other_task_options)
    if parsed.distributed and not resume and parsed.run is None:
        raise ValueError("Several processes write one folder: name it, with --run FOLDER, the same for all of them.")
    folder = Path(resume) if resume else parsed.run or _new_folder(preset or DEFAULT_PRESET)
    run(
        experiment,
        folder,
        resume=bool(resume),
        start_from=parsed.start_from,
        deterministic=parsed.deterministic,
        quiet=parsed.quiet,
        wandb=parsed.wandb,
        distributed=parsed.distributed,
    )


def run(
    experiment: "Experiment",
    folder: Path,
    *,
    resume: bool = False,
    start_from: Path | None = None,
    deterministic: bool = False,
    quiet: bool = False,
    wandb: str | None = None,
    distributed: bool = False,
) -> None:
    """Train with a display, then draw the learning curve and say what came of it."""
    from spo.reports import run_report
    from spo.training import intervals, loop, processes, progress

    if distributed:
        processes.join()
    reporter = progress.make_reporter(quiet)
    if wandb is not None:
        from spo.training.wandb import WandbReporter

        reporter = WandbReporter(wandb, reporter or loop.SilentReporter())
    try:
        loop.train(
            experiment,
            folder,
            reporter=reporter,
            resume=resume,
            start_from=start_from,
            deterministic=deterministic,
        )
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # what a shell expects; the loop has said how to go on
    except intervals.NonFiniteError as error:
        print(f"spo: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if not processes.is_first():
        return
    run_report.draw_learning_curve(
        folder / "metrics.jsonl", folder / "learning_curve.png", f"{experiment.algorithm} on {experiment.task}"
    )
    if not quiet:
        print(run_report.report(folder))


def _run_fields(preset: str | None) -> list[tuple[str, Any, Any]]:
    from tyro.conf import Positional, arg

    def option(field: str, kind: Any, default: Any, help: str, **naming: Any) -> tuple[str, Any, Any]:
        return field, Annotated[kind, arg(help=help, **naming)], dataclasses.field(default=default)

    return [
        option("preset", Positional[str], preset or DEFAULT_PRESET, "What to start from.", metavar="PRESET"),
        option("run", Path | None, None, "Folder of the run; None: runs/, then the preset and the time."),
        option("resume", Path | None, None, "Go on with this run, as it was set up, from its last checkpoint."),
        option("start_from", Path | None, None, "Start with what an exported file has learned.", name="from"),
        option("deterministic", bool, False, "The same bits every time, on a GPU too: slower there."),
        option("distributed", bool, False, "One of several processes, one per host, that train together."),
        option("quiet", bool, False, "Show nothing while it runs."),
        option("wandb", str | None, None, "Log to this project of Weights & Biases too."),
    ]


def named_experiment(preset: str, arguments: tuple[str, ...]) -> "Experiment":
    """The preset by the algorithm that is asked for. Another task has other options and another network: the preset's
    make no sense there.

    A name that doesn't exist is left to the parser, which says what there is.
    """
    from spo import presets
    from spo.algorithms.registry import ALGORITHMS
    from spo.cli.options import first_value
    from spo.networks.config import NetworkConfig

    algorithm, task = first_value(arguments, "--algorithm"), first_value(arguments, "--task")
    experiment = presets.get(preset, algorithm) if algorithm in ALGORITHMS else presets.get(preset)
    if task is not None and task != experiment.task:
        network = NetworkConfig(dtype=experiment.network.dtype)
        experiment = dataclasses.replace(experiment, task=task, task_options={}, network=network)
    return experiment


def _new_folder(preset: str) -> Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{preset.replace('/', '-')}-{now}"
