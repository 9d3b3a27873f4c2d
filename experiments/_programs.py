"""Programs that run side by side on one device until their time is over."""

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

MEMORY = 0.9
"""Share of the GPU's memory that all programs together reserve."""
START_SECONDS = 60.0
"""Compilation and evaluations of a program, beside its training."""
STOP_SECONDS = 30.0
"""Time before the end at which programs are asked to stop. Each saves its state first."""


class Limits(NamedTuple):
    """Number of programs at the same time, the seconds of this call, and those of later calls on the same machine."""

    side_by_side: int
    seconds: float
    later: float = 0.0


def run_side_by_side(
    programs: Mapping[str, float], command: Callable[[str], list[str]], folder: pathlib.Path, limits: Limits
) -> dict[str, int | None]:
    """Starts programs in their order, each when there is a place and it can end before the machine goes back.

    A program that has not ended at the end of this call is stopped: a later call resumes it. Programs side by side are
    taken to share the device without a gain. The output of a program goes to NAME.log in `folder`.

    Args:
        programs: name -> seconds of the program alone.
        command: name -> words of the command.
        folder: folder of the logs.
        limits: numbers and times.

    Returns:
        Exit code of each program that was started; None for one that was stopped.
    """
    end = time.monotonic() + limits.seconds - STOP_SECONDS
    waiting, running, codes = dict(programs), {}, {}
    started: dict[str, float] = {}
    while True:
        for name in [name for name, process in running.items() if process.poll() is not None]:
            codes[name] = running.pop(name).returncode
            print(f"{name}: {'finished' if codes[name] == 0 else f'failed with code {codes[name]}'}", flush=True)
        now = time.monotonic()
        reserved = sum(
            max(programs[name] - (now - started[name]) / limits.side_by_side, START_SECONDS) for name in running
        )
        free = end - now + limits.later - reserved
        name = first_fitting(waiting, free) if len(running) < limits.side_by_side and now < end else None
        if name is not None:
            del waiting[name]
            started[name] = now
            running[name] = start(command(name), folder / f"{name}.log", limits.side_by_side)
        elif not running or now >= end:
            break
        else:
            time.sleep(0.2)
    return codes | stop(running)


def first_fitting(waiting: Mapping[str, float], free: float) -> str | None:
    """Returns the first program whose seconds fit into the free ones."""
    return next((name for name, seconds in waiting.items() if seconds <= free), None)


def start(words: list[str], log: pathlib.Path, side_by_side: int) -> subprocess.Popen[bytes]:
    """Starts a program with its share of the GPU's memory."""
    variables = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{MEMORY / side_by_side:.3f}"}
    with log.open("ab") as output:
        return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=variables)


def stop(running: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, int | None]:
    """Asks programs to save their state and stop."""
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    for name, process in running.items():
        try:
            process.wait(STOP_SECONDS)
            print(f"{name}: stopped, the next call resumes it", flush=True)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            print(f"{name}: killed, the next call resumes it from its last checkpoint", flush=True)
    return dict.fromkeys(running)
