"""Time and memory of a search against particles, horizon and roots, and of training against seeds.

    python benchmarks/scaling.py --out results/benchmarks/h200/scaling.json
    python benchmarks/scaling.py --tiny                 small sizes, for a CPU

Each sweep changes one size and keeps the others at the paper's: 16 particles, 4 steps, 768 roots, one seed. Between
two neighbouring sizes the exponent is log(time ratio) / log(size ratio): 0 is free, 1 is proportional. The break point
is the size from which on the exponent stays above 0.8: there the device is full. Growth is linear or better if no
exponent past the break point is above 1.15.
"""

import argparse
import dataclasses
import itertools
import math
import pathlib
from typing import Any

import _timing
import jax
from _search_programs import make_problem, milliseconds, paper_resampling, search_program, temporary_bytes

from spo import presets
from spo.networks.config import NetworkConfig
from spo.training.trainer import Trainer

SWEEPS = {
    "particles": [4, 16, 64, 256, 1024, 4096],
    "horizon": [1, 2, 4, 8, 16, 32, 64],
    "roots": [48, 192, 768, 3072, 12288],
    "seeds": [1, 2, 5, 10],
}
TINY_SWEEPS = {"particles": [16, 64], "horizon": [2, 8], "roots": [16, 64], "seeds": [1, 2]}
FULL, LINEAR = 0.8, 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for sweep in options.only:
        measured = []
        for size in (TINY_SWEEPS if options.tiny else SWEEPS)[sweep]:
            cost = training_cost(size, options) if sweep == "seeds" else search_cost(sweep, size, options)
            measured.append((size, cost["milliseconds"]))
            growth = {"exponent": exponents(measured[-2:])[0]} if len(measured) > 1 else {}
            rows.append({"sweep": sweep, "size": size, **cost, **growth, **_timing.provenance()})
            _timing.write_rows(rows, options.out)
        print(sentence(sweep, measured), flush=True)


def search_cost(sweep: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    sizes = {"particles": 16, "horizon": 4, "roots": 8 if options.tiny else 768} | {sweep: size}
    environment, network, params, root = make_problem("float32", 16 if options.tiny else 512, sizes["roots"])
    program = search_program(
        environment,
        network,
        sizes["particles"],
        sizes["horizon"],
        resampling=paper_resampling(sizes["horizon"], last=True),
    )
    return {
        "milliseconds": milliseconds(program, params, root, options.repeats, calls=5 if options.tiny else 10),
        "temporary_megabytes": temporary_bytes(program, params, root) / 1e6,
    }


def training_cost(num_seeds: int, options: argparse.Namespace) -> dict[str, Any]:
    """Returns time and memory of one iteration of SPO on the cube, all seeds in one program."""
    experiment = dataclasses.replace(presets.get("paper/rubiks_cube"), num_seeds=num_seeds)
    if options.tiny:
        small = dataclasses.replace(presets.get("default").config, num_envs=8, num_updates=2, replay_size=1024)
        experiment = dataclasses.replace(experiment, config=small, network=NetworkConfig(width=16))
    trainer = Trainer(experiment)
    state = trainer.init(jax.random.key(0))
    num_iterations = 1 if options.tiny else 5
    run = trainer.run_fn.lower(state, num_iterations).compile()
    seconds, _ = _timing.typical_seconds(lambda: run(state), options.repeats)
    return {
        "milliseconds": 1e3 * seconds / num_iterations,
        "temporary_megabytes": run.memory_analysis().temp_size_in_bytes / 1e6,
        "env_steps_per_second": trainer.algorithm.env_steps_per_iteration * num_seeds * num_iterations / seconds,
    }


def exponents(measured: list[tuple[int, float]]) -> list[float]:
    pairs = itertools.pairwise(measured)
    return [math.log(time / before) / math.log(size / smaller) for (smaller, before), (size, time) in pairs]


def sentence(sweep: str, measured: list[tuple[int, float]]) -> str:
    growth = exponents(measured)
    full_from = len(growth)
    while full_from > 0 and growth[full_from - 1] > FULL:
        full_from -= 1
    steps = ", ".join(f"{size}: {time:.3g} ms" for size, time in measured)
    text = f"{sweep} ({steps}): "
    if full_from == len(growth):
        text += "no break point: every doubling costs less than twice as much."
    else:
        text += f"proportional from {measured[full_from][0]} on"
        steepest = max(growth[full_from:])
        verdict = "linear or better" if steepest <= LINEAR else "steeper than linear"
        text += f", {verdict} (exponents up to {steepest:.2f})."
    if sweep == "seeds" and measured[0][0] == 1:
        most, time = measured[-1]
        text += f" {most} seeds in one program take {time / measured[0][1]:.2f} times as long as one."
    return text


if __name__ == "__main__":
    main()
