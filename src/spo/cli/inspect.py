"""The command that shows how an agent decides: `spo inspect`."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spo.cli.options import InspectOptions
    from spo.inspection.episode import Origin
    from spo.inspection.subject import Subject

#: The code of a shell for Ctrl-C.
INTERRUPTED = 130
INSPECT_WITHOUT_RUN = (
    "Write one episode of a saved run and all of its decisions as a page: `spo inspect RUN ...`, with the run first. "
    "`spo inspect RUN --help` lists the options of a run, with its own settings as defaults."
)


def inspect(*arguments: str) -> None:
    """Write or serve a page that shows how a saved run decides: `spo inspect RUN`, or `spo inspect RUN --serve`."""
    from spo import files
    from spo.checks import Port, PositiveInt, Seed, check_value
    from spo.cli.options import InspectOptions, parse_saved_run_options

    description = "Write a page that shows how a saved run decides."
    chosen, others = parse_saved_run_options(InspectOptions, "inspect", description, INSPECT_WITHOUT_RUN, arguments)
    check_value("--max-steps", chosen.max_steps, PositiveInt)
    check_value("--seed", chosen.seed, Seed)
    check_value("--port", chosen.port, Port)
    if not chosen.serve:
        files.check_target(chosen.out)
    subject, origin = load_subject(chosen, others)
    if chosen.serve:
        _serve(chosen, subject, origin)
    else:
        _write(chosen, subject, origin)


def load_subject(chosen: "InspectOptions", other_task_options: dict[str, Any]) -> tuple["Subject", "Origin"]:
    """Returns the agent of a run that the options choose, ready to decide, and its names."""
    from spo.cli.options import to_evaluated
    from spo.cli.saved import check_variant
    from spo.inspection.episode import Origin
    from spo.inspection.subject import Subject
    from spo.training.agents import select_seed
    from spo.training.saved_learners import load_learner_and_origin

    learner, origin = load_learner_and_origin(chosen.run, "last" if chosen.last else None)
    trained = dataclasses.replace(origin.experiment, num_devices=1)
    experiment = to_evaluated(trained, chosen, other_task_options)
    evaluation = dataclasses.replace(experiment.evaluation, use_search=chosen.use_search, greedy=chosen.greedy)
    subject = Subject(dataclasses.replace(experiment, evaluation=evaluation), select_seed(learner, chosen.member))
    check_variant(trained, experiment, subject.task)
    return subject, Origin(
        Path(chosen.run).absolute().name, origin.which, origin.env_steps[chosen.member], chosen.member
    )


def _write(chosen: "InspectOptions", subject: "Subject", origin: "Origin") -> None:
    from spo.inspection.episode import record_episode
    from spo.inspection.html import write_page

    with _progress(chosen.max_steps) as on_step:
        document = record_episode(
            subject,
            origin,
            seed=chosen.seed,
            settings=subject.own_settings,
            max_steps=chosen.max_steps,
            on_step=on_step,
        )
    write_page(chosen.out, document)
    num_decisions = sum(step["decision"] is not None for step in document["steps"])
    size = chosen.out.stat().st_size / 1e6
    print(f"Wrote {chosen.out}: {num_decisions} decisions, {size:.1f} MB. Open it in a browser.")


def _serve(chosen: "InspectOptions", subject: "Subject", origin: "Origin") -> None:
    from spo.inspection.server import Server, serve
    from spo.inspection.session import Session

    def make_session() -> Session:
        return Session(subject, origin, chosen.seed)

    server = Server(make_session, port=chosen.port, is_compiling=lambda: subject.compiling)
    with contextlib.ExitStack() as stack:
        stack.callback(server.server_close)
        print("Compiling the search ...", file=sys.stderr, flush=True)
        make_session().answer("/api/session", {})  # so that the first page opens at once
        print(f"Open {server.address} in a browser. Ctrl-C ends the server.", flush=True)
        serve(server)
    print("The server has ended.", flush=True)
    # Threads may be left, of a compilation or of open connections. At its own end, Python would wait for the first, and
    # now and then abort by the others.
    sys.stderr.flush()
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def _progress(max_steps: int) -> Iterator[Callable[[int], None]]:
    """Shows the number of decisions so far as a bar in a terminal. It writes to the standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (BarColumn(bar_width=30), TextColumn("{task.description}"))
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("compiling ...", total=max_steps)
    with bar:
        yield lambda steps: bar.update(task, completed=steps, description=f"step {steps:,} of at most {max_steps:,}")


__all__ = ["inspect", "load_subject"]
