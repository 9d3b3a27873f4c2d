"""Where the time of one training iteration goes, from a trace: by phase, and the heaviest kernels of each.

    python benchmarks/profile.py paper/rubiks_cube --out results/benchmarks/h200/profile_cube.json

Phases are the `jax.named_scope`s in the code. The trace names operations of the compiled program, and the program's
text says in which scope each was written. "(idle)" is the time in which the device ran nothing; on a CPU, where threads
run side by side, all phases together may take longer than the iteration. Kernels are traced one by one, so CUDA graphs
are switched off here; `seconds_per_iteration` is measured before, with them on.
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
from typing import Any

import _timing
import jax

from spo import presets
from spo.training.experiment import build

SCOPES = ("environment", "propose", "world", "network", "resample", "decide", "replay", "update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=list(presets.PRESETS), help="what to profile")
    parser.add_argument("--algorithm", default="spo", help="by which algorithm")
    parser.add_argument("--envs", type=int, help="another number of environments")
    parser.add_argument("--unroll", type=int, help="another unroll of the search")
    parser.add_argument("--dtype", default="float32", help="what the network computes in")
    parser.add_argument("--kernels", type=int, default=6, help="how many kernels to name per phase")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()

    experiment = presets.get(options.preset)
    config = experiment.config
    if options.envs:
        config = dataclasses.replace(config, num_envs=options.envs)
    if options.unroll:
        config = dataclasses.replace(config, search=dataclasses.replace(config.search, unroll=options.unroll))
    network = dataclasses.replace(experiment.network, dtype=options.dtype)
    built = build(dataclasses.replace(experiment, config=config, network=network))
    state = built.program.init(jax.random.key(0))
    as_users_run_it = built.program.run.lower(state, 1).compile()
    seconds, _ = _timing.typical_seconds(lambda: as_users_run_it(state), 10)
    kernel_by_kernel = {"xla_gpu_enable_command_buffer": ""} if jax.default_backend() == "gpu" else None
    compiled = built.program.run.lower(state, 1).compile(compiler_options=kernel_by_kernel)
    jax.block_until_ready(compiled(state))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            start = time.perf_counter()
            jax.block_until_ready(compiled(state))
            traced_seconds = time.perf_counter() - start
        [path] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        events = kernels(jax.profiler.ProfileData.from_file(path))

    scope_of = scopes(compiled.as_text())
    total: dict[str, float] = collections.Counter()
    count: dict[str, int] = collections.Counter()
    by_kernel: dict[str, dict[str, float]] = collections.defaultdict(collections.Counter)
    for name, start, end in events:
        duration = end - start
        scope = scope_of.get(name, "(other)")
        total[scope] += duration
        count[scope] += 1
        by_kernel[scope][name] += duration
    total["(idle)"] = traced_seconds - covered([(start, end) for _, start, end in events])
    rows = []
    print(f"{seconds * 1e3:.2f} ms per iteration; {traced_seconds * 1e3:.2f} ms while traced")
    for scope, spent in sorted(total.items(), key=lambda item: -item[1]):
        heaviest = by_kernel[scope].most_common(options.kernels)  # type: ignore[attr-defined]
        rows.append(
            {
                "phase": scope,
                "milliseconds": spent * 1e3,
                "kernels": count[scope],
                "heaviest": {name: kernel * 1e3 for name, kernel in heaviest},
                "seconds_per_iteration": seconds,
                "env_steps_per_iteration": built.algorithm.env_steps_per_iteration,
                **_timing.provenance(),
            }
        )
        named = ", ".join(f"{name} {kernel * 1e3:.2f}" for name, kernel in heaviest)
        print(f"{scope:<12} {spent * 1e3:9.2f} ms {count[scope]:7d} kernels   {named}")
    _timing.write_rows(rows, options.out)


def kernels(profile: Any) -> list[tuple[str, float, float]]:
    """(operation of the program, start, end in seconds) of everything on the device; on a CPU, on its threads."""
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
    """Seconds in which anything ran. On a CPU threads run side by side, and an operation holds those inside it."""
    seconds, until = 0.0, -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, until))
        until = max(until, end)
    return seconds


def scopes(program: str) -> dict[str, str]:
    """operation -> the innermost of our scopes that it was written in."""
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
