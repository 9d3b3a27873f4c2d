"""Environment steps per second of every algorithm at the paper's settings, learner and metrics included.

    python benchmarks/training.py --out results/benchmarks/h200/training.json
    python benchmarks/training.py --num-envs 64             same search and learner, a size for two CPU cores
    python benchmarks/training.py --side-by-side            compile all programs at once, before the first is timed
    python benchmarks/training.py --tiny                    smoke test; its times mean nothing

One call of the compiled program is an interval of iterations, as in `spo train`. It ends when its metrics are on the
host. A figure is the median over all intervals but the first, which warms up. Its spread is half the interquartile
range.

A tree search slows down as the policy sharpens, so its figure would depend on the length of the measurement. It is
measured with an untrained network: every interval is the first iteration of a run. The other algorithms learn while
they are timed.

The reference figures are of Stoix, the code that the paper's authors published. They have the same settings and the
same kind of hardware (H200 with jax 0.11.2, or two CPU cores). AlphaZero's has an untrained network as well. A
reference is shown only for the same hardware and the same number of environments.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import _timing
import jax
import numpy as np

from spo import presets
from spo.algorithms.base import Algorithm
from spo.algorithms.registry import ALGORITHMS, search_kind
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer

TASKS = ("paper/rubiks_cube", "paper/ant")
#: (hardware, algorithm, preset, number of environments) -> environment steps per second
REFERENCE = {
    ("NVIDIA H200", "spo", "paper/rubiks_cube", 768): 160_000,
    ("NVIDIA H200", "spo", "paper/ant", 1024): 64_800,
    ("NVIDIA H200", "ppo", "paper/ant", 1024): 435_000,
    ("NVIDIA H200", "alphazero", "paper/rubiks_cube", 768): 10_400,
    ("CPU, 2 cores", "spo", "paper/rubiks_cube", 64): 200,  # the best of 130 to 200
    ("CPU, 2 cores", "spo", "paper/ant", 64): 98,
}
#: One iteration of these takes about a second: an interval has at most two.
LONG_ITERATIONS = {("mpo", "paper/ant"), ("smc_ent", "paper/ant")}
#: Algorithms that do not support the kind of action of the task.
UNSUPPORTED = {
    ("alphazero", "paper/ant"),
    ("gumbel_alphazero", "paper/ant"),
    ("sampled_alphazero", "paper/rubiks_cube"),
}
#: Sizes with which one iteration takes about a second on a CPU.
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
    parser.add_argument("--num-envs", type=int, help="number of environments, instead of the preset's")
    parser.add_argument("--num-seeds", type=int, default=1, help="independent runs in one program")
    parser.add_argument("--dtype", default="float32", help="data type in which the network computes")
    parser.add_argument(
        "--deterministic", action="store_true", help="deterministic GPU kernels, as in `spo train --deterministic`"
    )
    parser.add_argument(
        "--option", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="option of the task"
    )
    parser.add_argument(
        "--intervals", type=int, default=6, help="number of timed intervals; at least 5 for a stored figure"
    )
    parser.add_argument("--iterations", type=int, default=20, help="iterations per interval; fewer where one is long")
    parser.add_argument(
        "--side-by-side", action="store_true", help="compile all programs at once; omits the time to the first update"
    )
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()

    chosen = [
        (task, experiment(task, algorithm, options))
        for task in options.tasks
        for algorithm in options.algorithms
        if (algorithm, task) not in UNSUPPORTED and presets.has(task, algorithm)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ahead = [pool.submit(prepare, one, task, options) for task, one in chosen] if options.side_by_side else []
        concurrent.futures.wait(ahead)
    rows = []
    for index, (task, one) in enumerate(chosen):
        prepared = ahead[index].result() if ahead else prepare(one, task, options)
        rows.append(measure(prepared, one, task, options) | _timing.provenance())
        _timing.write_rows(rows, options.out)
        print(sentence(rows[-1]), flush=True)


def experiment(task: str, algorithm: str, options: argparse.Namespace) -> Experiment:
    chosen = presets.get(task, algorithm)
    network = dataclasses.replace(chosen.network, dtype=options.dtype)
    task_options = chosen.task_options | dict(options.option)
    sizes = {name: value for name, value in TINY.items() if hasattr(chosen.config, name)} if options.tiny else {}
    if options.num_envs is not None:
        sizes["num_envs"] = options.num_envs
    config = dataclasses.replace(chosen.config, **sizes)
    if options.tiny:
        network = dataclasses.replace(network, width=16, depth=1)
    return dataclasses.replace(
        chosen, config=config, network=network, num_seeds=options.num_seeds, task_options=task_options
    )


def settings(task: str, algorithm: str, num_envs: int, *, tiny: bool) -> str:
    """Returns the name of the settings: the preset's, with the number of environments where that differs."""
    if tiny:
        return "tiny"
    name = task.split("/")[0]
    return name if num_envs == presets.get(task, algorithm).config.num_envs else f"{name}, {num_envs} envs"


class Prepared(NamedTuple):
    """Compiled programs of a run, before its first iteration."""

    algorithm: Algorithm
    init: Callable[..., Any]
    run: Callable[..., Any]
    num_iterations: int  # per interval
    in_a_tree: bool
    began: float


def prepare(chosen: Experiment, task: str, options: argparse.Namespace) -> Prepared:
    began = time.perf_counter()
    trainer = Trainer(chosen)
    in_a_tree = search_kind(chosen.config) == "tree"
    long = (chosen.algorithm, task) in LONG_ITERATIONS
    num_iterations = 1 if in_a_tree else min(2, options.iterations) if long else options.iterations
    run = trainer.run_fn.lower(trainer.abstract_state, num_iterations).compile(
        compiler_options={"xla_gpu_deterministic_ops": True} if options.deterministic else None
    )
    return Prepared(trainer.algorithm, trainer.init_fn, run, num_iterations, in_a_tree, began)


def measure(prepared: Prepared, chosen: Experiment, task: str, options: argparse.Namespace) -> dict[str, Any]:
    algorithm, init, run, num_iterations, in_a_tree, start = prepared
    state = jax.block_until_ready(init(jax.random.key(0)))
    seconds, processor_seconds = [], []
    for number in range(1 + options.intervals):
        began, processor_began = time.perf_counter(), time.process_time()
        after, metrics = jax.block_until_ready(run(state))
        state = state if in_a_tree else after
        for name, value in metrics.items():
            assert np.all(np.isfinite(value)), f"{name} is {value}"
        seconds.append((time.perf_counter() - began) / num_iterations)
        processor_seconds.append((time.process_time() - processor_began) / num_iterations)
        if number == 0:
            to_first_update = time.perf_counter() - start - (num_iterations - 1) * seconds[0]
    # The first interval is warm-up.
    env_steps = algorithm.env_steps_per_iteration * chosen.num_seeds
    rates = env_steps / np.array(seconds[1:])
    lower, upper = np.quantile(rates, [0.25, 0.75])
    num_envs = chosen.config.num_envs
    reference = REFERENCE.get((_timing.hardware(), chosen.algorithm, task, num_envs))
    comparable = not options.tiny and chosen.num_seeds == 1
    return {
        "algorithm": chosen.algorithm,
        "task": chosen.task,
        "task_options": chosen.task_options,
        "settings": settings(task, chosen.algorithm, num_envs, tiny=options.tiny),
        "num_seeds": chosen.num_seeds,
        "num_envs": num_envs,
        "dtype": options.dtype,
        "deterministic": options.deterministic,
        "network": "untrained" if in_a_tree else "learning",
        "env_steps_per_second": float(np.median(rates)),
        "spread": float(upper - lower) / 2,
        "intervals": options.intervals,
        "iterations_per_interval": num_iterations,
        "model_steps_per_env_step": algorithm.model_steps_per_env_step,
        "network_evaluations_per_env_step": algorithm.network_evaluations_per_env_step,
        "by_interval": rates.round().tolist(),
        # Processor time of all our threads: comparable on a CPU that other programs share.
        "processor_seconds_per_env_step": min(processor_seconds[1:]) / env_steps,
        # From the start to the end of the first iteration. Programs that compile at the same time wait for each other.
        "seconds_to_first_update": None if options.side_by_side else to_first_update,
        "reference_env_steps_per_second": reference if comparable else None,
    }


def sentence(row: dict[str, Any]) -> str:
    text = f"{row['algorithm']} on {row['task']}: {row['env_steps_per_second']:,.0f} env-steps/s ± {row['spread']:,.0f}"
    if row["reference_env_steps_per_second"]:
        times = row["env_steps_per_second"] / row["reference_env_steps_per_second"]
        text += f", {times:.2f} times the reference"
    if row["seconds_to_first_update"] is None:
        return text
    return f"{text}; first update after {row['seconds_to_first_update']:.0f} s"


if __name__ == "__main__":
    main()
