"""Trials of a sweep as child processes of `spo train`: started, watched, stopped early, and ended with a checkpoint."""

import contextlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from spo.sweeps.folder import Sweep, SweepFolder, is_over
from spo.sweeps.space import Point
from spo.training.locks import RunLock

#: Seconds between two looks at the child processes.
POLL_SECONDS = 0.5
#: Trials that must have reached the same step before one is stopped for being below their median.
MIN_OTHERS = 4
#: Variable with the part of a GPU's memory that JAX takes.
MEMORY_SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
#: Exit codes of a run that a signal has ended with a checkpoint: SIGHUP, Ctrl-C, SIGTERM.
INTERRUPTED = (129, 130, 143)


class Worker(NamedTuple):
    """A trial that is being trained."""

    number: int
    slot: int
    process: subprocess.Popen[bytes]
    lock: RunLock


def train_words(sweep: Sweep, point: Point) -> list[str]:
    """Returns the words of `spo train` for a point."""
    words = list(sweep.arguments)
    for name, value in point.items():
        words += option_words(name, value)
    return words


def train_command(folder: SweepFolder, number: int, words: Sequence[str]) -> list[str]:
    """Returns the command of a trial. It continues the run if there is one."""
    own = ["--run", str(folder.run_path(number)), "--resume", "auto", "--quiet"]
    return [sys.executable, "-m", "spo", "train", *words, *own]


def option_words(name: str, value: str) -> list[str]:
    """Returns a setting as an option: `--name value`, or a flag. Commas separate several values."""
    if value.lower() in ("true", "false"):
        return [flag(name, value.lower() == "true")]
    return [f"--{name}", *value.split(",")]


def flag(name: str, value: bool) -> str:
    """Returns the option that sets a truth value: `--a.b` or `--a.no-b`."""
    parent, dot, last = name.rpartition(".")
    return f"--{parent}{dot}{'' if value else 'no-'}{last}"


def run_trials(
    folder: SweepFolder,
    sweep: Sweep,
    num_jobs: int,
    environment: Mapping[str, str],
    on_change: Callable[[Sequence[int], int | None], None],
) -> None:
    """Trains all trials that are left and that no other process trains, up to `num_jobs` at a time.

    If it is interrupted, the runs end with a checkpoint first.

    Args:
      folder: the folder of the sweep.
      sweep: its settings.
      num_jobs: number of trials at a time.
      environment: environment variables of the child processes.
      on_change: called with the numbers of the running trials, and that of one that has just ended, twice a second.
    """
    waiting = iter(range(sweep.num_trials))
    running: list[Worker] = []
    slots = gpu_slots(num_jobs, environment)
    try:
        while True:
            while len(running) < num_jobs:
                slot = min(set(range(num_jobs)) - {worker.slot for worker in running})
                worker = start_next(folder, sweep, waiting, slot, {**environment, **slots[slot]})
                if worker is None:
                    break
                running.append(worker)
            on_change([worker.number for worker in running], None)
            if not running:
                return
            time.sleep(POLL_SECONDS)
            for worker in [worker for worker in running if worker.process.poll() is not None]:
                running.remove(worker)
                _end(folder, worker)
                on_change([other.number for other in running], worker.number)
            if sweep.stop_early:
                for worker in running:
                    stop_if_bad(folder, sweep, worker)
    finally:
        _interrupt(running)


def start_next(
    folder: SweepFolder, sweep: Sweep, numbers: Iterator[int], slot: int, environment: Mapping[str, str]
) -> Worker | None:
    """Starts the next of these trials that has not ended and is not locked. Returns None if there is none."""
    for number in numbers:
        if is_over(folder.read_trial(number)) or (lock := folder.lock_trial(number)) is None:
            continue
        if is_over(folder.read_trial(number)):  # another process ended it between the two lines above
            lock.release()
            continue
        command = train_command(folder, number, train_words(sweep, folder.choose_point(sweep, number)))
        with folder.output_path(number).open("ab") as output:
            # A session of its own: Ctrl-C reaches this process alone, which then ends the runs in order.
            process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
        return Worker(number, slot, process, lock)
    return None


def _end(folder: SweepFolder, worker: Worker) -> None:
    """Stores how a trial ended, and releases its lock."""
    code = worker.process.returncode
    if code not in (0, *INTERRUPTED):
        folder.end_trial(worker.number, "failed", failure(folder.output_path(worker.number), code))
    worker.lock.release()


def failure(output: Path, code: int) -> str:
    """Returns the last line that a failed run has printed, or how it ended."""
    lines = output.read_text("utf-8", errors="replace").strip().splitlines() if output.exists() else []
    if code < 0:
        return f"It was ended by signal {-code} ({signal.Signals(-code).name})."
    return lines[-1].removeprefix("spo: ") if lines else f"It ended with exit code {code}."


def stop_if_bad(folder: SweepFolder, sweep: Sweep, worker: Worker) -> None:
    """Stops a trial whose best evaluation so far is below the median of the others at the same step.

    At least `MIN_OTHERS` others must have reached this step, and the trial must have been evaluated twice.
    """
    curve = folder.read_curve(worker.number)
    if len(curve) < 2 or is_over(folder.read_trial(worker.number)):
        return
    steps = max(curve)
    others = [folder.read_curve(number) for number in range(sweep.num_trials) if number != worker.number]
    reached = [
        max(value for at, value in other.items() if at <= steps) for other in others if max(other, default=0) >= steps
    ]
    if len(reached) < MIN_OTHERS or max(curve.values()) >= statistics.median(reached):
        return
    note = f"at {steps:,} steps: {max(curve.values()):.4g}, median of the others {statistics.median(reached):.4g}"
    folder.end_trial(worker.number, "stopped early", note)
    worker.process.terminate()


def _interrupt(running: Sequence[Worker]) -> None:
    """Ends runs with a checkpoint, and waits for them. A second Ctrl-C kills them."""
    for worker in running:
        worker.process.terminate()
    try:
        for worker in running:
            worker.process.wait()
    except KeyboardInterrupt:
        for worker in running:
            worker.process.kill()
        raise
    finally:
        for worker in running:
            worker.lock.release()


def gpu_slots(num_jobs: int, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the environment variables of each of several jobs, which share the GPUs of this machine.

    Each job gets one GPU. Jobs on the same GPU get equal parts of its memory, most of which JAX takes at its start.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    found = sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    gpus = [gpu for gpu in given.split(",") if gpu] if given is not None else found
    if num_jobs == 1 or not gpus:
        return [{} for _ in range(num_jobs)]
    slots = []
    for job in range(num_jobs):
        slots.append({"CUDA_VISIBLE_DEVICES": gpus[job % len(gpus)]})
        num_sharing = len(range(job % len(gpus), num_jobs, len(gpus)))
        if num_sharing > 1 and MEMORY_SHARE not in environment:
            slots[job][MEMORY_SHARE] = f"{0.9 / num_sharing:.3f}"
    return slots


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into an exit that ends the runs first, with the exit code of a shell."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


__all__ = ["ending_on_signals", "flag", "gpu_slots", "option_words", "run_trials", "train_words"]
