"""Time of one training iteration by phase, with the slowest kernels of each phase, from a profiler trace.

    python benchmarks/phases.py paper/rubiks_cube --out results/benchmarks/h200/profile_cube.json

Phases are the `jax.named_scope`s in the code. The trace contains operations of the compiled program, and the text of
that program gives the scope of each operation. "(idle)" is the time in which the device ran nothing. On a CPU several
threads run at once, so that all phases together may take longer than the iteration. CUDA graphs are switched off while
tracing, so that each kernel is recorded. `seconds_per_iteration` is measured before, with CUDA graphs.
"""

import argparse
import collections
import dataclasses
import glob
import math
import pathlib
import re
import tempfile
import time
from collections.abc import Callable
from typing import Any

import _timing
import jax

from spo import presets
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer

#: Operation of the program, start and end in seconds.
Event = tuple[str, float, float]
#: Names of all scopes in src/.
SCOPES = ("environment", "propose", "model", "simulate", "network", "resample", "decide", "replay", "update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=list(presets.PRESETS), help="preset to profile")
    parser.add_argument("--algorithm", default="spo", help="algorithm to profile")
    parser.add_argument("--envs", type=int, help="number of environments, instead of the preset's")
    parser.add_argument("--unroll", type=int, help="unrolled steps of the search, instead of the preset's")
    parser.add_argument("--dtype", default="float32", help="data type in which the network computes")
    parser.add_argument("--kernels", type=int, default=6, help="number of kernels to list per phase")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()

    trainer = Trainer(chosen(options))
    state = trainer.init(jax.random.key(0))
    as_users_run_it = trainer.run_fn.lower(state, 1).compile()
    seconds, _ = _timing.typical_seconds(lambda: as_users_run_it(state), 10)
    kernel_by_kernel = {"xla_gpu_enable_command_buffer": ""} if jax.default_backend() == "gpu" else None
    compiled = trainer.run_fn.lower(state, 1).compile(compiler_options=kernel_by_kernel)
    events, traced_seconds = trace(lambda: compiled(state))
    print(f"{seconds * 1e3:.2f} ms per iteration; {traced_seconds * 1e3:.2f} ms while traced")
    rows = []
    for phase in phases(events, scopes(compiled.as_text()), traced_seconds, options.kernels):
        named = ", ".join(f"{name} {milliseconds:.2f}" for name, milliseconds in phase["heaviest"].items())
        print(f"{phase['phase']:<12} {phase['milliseconds']:9.2f} ms {phase['kernels']:7d} kernels   {named}")
        iteration = {
            "seconds_per_iteration": seconds,
            "env_steps_per_iteration": trainer.algorithm.env_steps_per_iteration,
        }
        rows.append(phase | iteration | _timing.provenance())
    _timing.write_rows(rows, options.out)


def chosen(options: argparse.Namespace) -> Experiment:
    """Returns the preset with the sizes of the options."""
    experiment = presets.get(options.preset, options.algorithm)
    config = experiment.config
    if options.envs:
        config = dataclasses.replace(config, num_envs=options.envs)
    if options.unroll:
        config = dataclasses.replace(config, search=dataclasses.replace(config.search, unroll=options.unroll))
    network = dataclasses.replace(experiment.network, dtype=options.dtype)
    return dataclasses.replace(experiment, config=config, network=network)


def trace(function: Callable[[], object]) -> tuple[list[Event], float]:
    """Returns the operations of one traced call, and its seconds. A first call warms up."""
    jax.block_until_ready(function())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            start = time.perf_counter()
            jax.block_until_ready(function())
            seconds = time.perf_counter() - start
        [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        return kernels(jax.profiler.ProfileData.from_file(path)), seconds


def phases(events: list[Event], scope_of: dict[str, str], seconds: float, num_kernels: int) -> list[dict[str, Any]]:
    """Returns time, number of kernels and slowest kernels of each phase, the longest phase first."""
    total: dict[str, float] = collections.Counter()
    count: dict[str, int] = collections.Counter()
    by_kernel: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, start, end in events:
        scope = scope_of.get(name, "(other)")
        total[scope] += end - start
        count[scope] += 1
        by_kernel[scope][name] += end - start  # type: ignore[assignment]
    total["(idle)"] = seconds - covered([(start, end) for _, start, end in events])
    return [
        {
            "phase": scope,
            "milliseconds": spent * 1e3,
            "kernels": count[scope],
            "heaviest": {name: kernel * 1e3 for name, kernel in by_kernel[scope].most_common(num_kernels)},
        }
        for scope, spent in sorted(total.items(), key=lambda item: -item[1])
    ]


def kernels(profile: Any) -> list[Event]:
    """Returns (operation, start, end in seconds) of everything that ran on the device, or on the threads of a CPU."""
    found = []
    for plane in profile.planes:
        if not (plane.name.startswith("/device:GPU") or plane.name == "/host:CPU"):
            continue
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats and ("correlation_id" in stats or plane.name == "/host:CPU"):
                    found.append((str(stats["hlo_op"]), event.start_ns * 1e-9, event.end_ns * 1e-9))
    return found


def covered(spans: list[tuple[float, float]]) -> float:
    """Returns the seconds covered by at least one span. Spans overlap: threads run at once, and operations nest."""
    seconds, until = 0.0, -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, until))
        until = max(until, end)
    return seconds


def scopes(program: str) -> dict[str, str]:
    """Returns operation -> innermost of our scopes around it, from the text of the compiled program."""
    found = {}
    for line in program.splitlines():
        match = re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = .*op_name=\"([^\"]*)\"", line)
        if match:
            parts = re.split(r"[/()]", match[2])
            inside = [part for part in parts if part in SCOPES]
            if inside:
                found[match[1]] = inside[-1]
    return found


if __name__ == "__main__":
    main()
