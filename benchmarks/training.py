"""Environment steps per second of every algorithm at the paper's settings, learner and records included.

    python benchmarks/training.py --out results/benchmarks/h200/training.json
    python benchmarks/training.py --tiny                    sizes for a CPU: that it runs, not how fast

One call of the compiled program is an interval of iterations, as in `spo train`, and ends when its metrics are on the
host. A figure is the median over intervals after the first one, which compiles; its spread is half the interquartile
range.

A search in a tree slows down as the policy sharpens, so that its figure would depend on how long it was timed for. It
is that of an untrained network: every interval is the first iteration of a run. The others go on learning.

The reference figures are of Stoix, the code that the paper's authors published, with the same settings on the same kind
of GPU (H200, jax 0.11.2), AlphaZero's with an untrained network as well. They are compared on that GPU alone.
"""

import argparse
import dataclasses
import pathlib
import subprocess
import time
from typing import Any

import _timing
import jax
import numpy as np

from spo import presets
from spo.training.experiment import ALGORITHMS, Experiment, build

TASKS = ("paper/rubiks_cube", "paper/ant")
REFERENCE = {
    ("spo", "paper/rubiks_cube"): 160_000,
    ("spo", "paper/ant"): 64_800,
    ("ppo", "paper/ant"): 435_000,
    ("alphazero", "paper/rubiks_cube"): 10_400,
}
REFERENCE_DEVICE = "NVIDIA H200"
CAN_NOT = {("alphazero", "paper/ant"), ("gumbel_alphazero", "paper/ant"), ("sampled_alphazero", "paper/rubiks_cube")}
#: With these a CPU does an iteration in a second or so.
TINY = {
    "num_envs": 8,
    "rollout_length": 4,
    "sequence_length": 4,
    "batch_size": 8,
    "num_updates": 2,
    "replay_size": 1024,
    "num_simulations": 4,
    "num_minibatches": 2,
    "num_epochs": 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=sorted(ALGORITHMS), choices=sorted(ALGORITHMS))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(presets.PRESETS))
    parser.add_argument("--num-seeds", type=int, default=1, help="independent runs in one program")
    parser.add_argument("--dtype", default="float32", help="what the network computes in")
    parser.add_argument("--option", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="of the task")
    parser.add_argument("--intervals", type=int, default=6, help="how many to time; at least 5 for a figure to keep")
    parser.add_argument("--iterations", type=int, default=20, help="of an interval; of a tree search there is one")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()

    rows = []
    for task in options.tasks:
        for algorithm in options.algorithms:
            if (algorithm, task) in CAN_NOT:
                continue
            rows.append(measure(experiment(task, algorithm, options), task, options) | _timing.provenance())
            _timing.write_rows(rows, options.out)
            print(sentence(rows[-1]), flush=True)


def experiment(task: str, algorithm: str, options: argparse.Namespace) -> Experiment:
    chosen = presets.get(task, algorithm)
    network = dataclasses.replace(chosen.network, dtype=options.dtype)
    task_options = chosen.task_options | dict(options.option)
    chosen = dataclasses.replace(chosen, network=network, num_seeds=options.num_seeds, task_options=task_options)
    if not options.tiny:
        return chosen
    sizes = {name: value for name, value in TINY.items() if hasattr(chosen.config, name)}
    small = dataclasses.replace(chosen.config, **sizes)
    return dataclasses.replace(chosen, config=small, network=dataclasses.replace(network, width=16, depth=1))


def measure(chosen: Experiment, task: str, options: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    _, algorithm, program = build(chosen)
    state = jax.block_until_ready(program.init(jax.random.key(0)))
    # A tree search takes seconds for an iteration, the others milliseconds.
    num_iterations = 1 if hasattr(chosen.config, "num_simulations") else options.iterations

    run = program.run.lower(state, num_iterations).compile()
    seconds = []
    for number in range(1 + options.intervals):
        began = time.perf_counter()
        state, metrics = jax.block_until_ready(run(state))
        for name, value in metrics.items():
            assert np.all(np.isfinite(value)), f"{name} is {value}"
        seconds.append((time.perf_counter() - began) / num_iterations)
        if number == 0:
            to_first_update = time.perf_counter() - start - (num_iterations - 1) * seconds[0]
    # The first interval warms up, and is left out.
    rates = algorithm.env_steps_per_iteration * chosen.num_seeds / np.array(seconds[1:])
    lower, upper = np.quantile(rates, [0.25, 0.75])
    reference = REFERENCE.get((chosen.algorithm, task))
    comparable = not options.tiny and jax.devices()[0].device_kind == REFERENCE_DEVICE and chosen.num_seeds == 1
    return {
        "algorithm": chosen.algorithm,
        "task": chosen.task,
        "task_options": chosen.task_options,
        "settings": "tiny" if options.tiny else "paper",
        "num_seeds": chosen.num_seeds,
        "num_envs": chosen.config.num_envs,
        "dtype": options.dtype,
        "env_steps_per_second": float(np.median(rates)),
        "spread": float(upper - lower) / 2,
        "intervals": options.intervals,
        "iterations_per_interval": num_iterations,
        "model_steps_per_env_step": algorithm.model_steps_per_env_step,
        "network_evaluations_per_env_step": algorithm.network_evaluations_per_env_step,
        "by_interval": rates.round().tolist(),  # a search in a tree slows down while the network learns
        "seconds_to_first_update": to_first_update,  # from nothing to the end of the first iteration
        "reference_env_steps_per_second": reference if comparable else None,
        "commit": commit(),
    }


def commit() -> str | None:
    """Of the code that was measured, if it lies in a git repository that has it as it is."""
    try:
        return subprocess.check_output(
            ["git", "describe", "--always", "--dirty"],
            text=True,
            stderr=subprocess.DEVNULL,
            cwd=pathlib.Path(__file__).parent,
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def sentence(row: dict[str, Any]) -> str:
    text = f"{row['algorithm']} on {row['task']}: {row['env_steps_per_second']:,.0f} env-steps/s ± {row['spread']:,.0f}"
    if row["reference_env_steps_per_second"]:
        times = row["env_steps_per_second"] / row["reference_env_steps_per_second"]
        text += f", {times:.2f} times the reference"
    return f"{text}; first update after {row['seconds_to_first_update']:.0f} s"


if __name__ == "__main__":
    main()
