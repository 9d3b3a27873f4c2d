"""Time of a step with spring physics in one kernel, compared with Brax's own step in the same run.

Every program computes the same: some steps of a batch of environments inside one compiled scan, with actions drawn
beforehand and without resets. It returns observations, rewards and ends, so the compiler cannot remove them.

Each row also has the deviation of one step from Brax's in full precision, from states that random play has reached.
Brax's default lets a GPU round the moments on its bodies to the ten bits of TF32, before they are multiplied by the
inertia. The kernel is tried in several shapes at the first batch; the fastest is used for the others.

    python benchmarks/physics.py --out results/physics.json      # for a GPU
    python benchmarks/physics.py --tiny --environments ant       # on a CPU, the kernel interpreted
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import tyro
from _timing import provenance, typical_seconds, write_rows
from brax import envs
from rich.console import Console
from rich.table import Table

from spo.environments.spring import fused_environment


@dataclass(frozen=True)
class Options:
    """Times a step of Brax's environments: Brax's physics, the fused physics by XLA, and the same as one kernel."""

    environments: tuple[str, ...] = ("ant", "halfcheetah", "humanoid")
    """Names in Brax."""
    implementations: tuple[Literal["brax", "kernel", "xla"], ...] = ("brax", "kernel", "xla")
    """Implementations to time."""
    out: Path | None = None
    """File for the rows, as JSON."""
    tiny: bool = False
    """A small batch and few steps, for a CPU. Only the ratios are meaningful."""
    batches: tuple[int, ...] = (16384, 65536, 1024)
    """Batch sizes. A search of 1024 roots with 16 particles steps 16384 environments at once."""
    warps: tuple[int, ...] = (4, 2, 1, 8)
    """Warps of 32 threads per program of the kernel. Ant takes four threads, HalfCheetah and Humanoid two."""
    steps: int = 20
    """Steps per call."""
    repeats: int = 5
    """Timed calls. The result is their median, on a CPU the mean processor time."""
    seconds: float = 150.0
    """Time after which no further program is started."""


class Program(NamedTuple):
    """One implementation of the step."""

    implementation: str
    step: Callable[[Any, Any], Any]  # Brax's state, action -> Brax's state
    from_brax: Callable[[Any], Any]  # of the pipeline's state


def kernel_programs(brax_env: Any, warps: Iterable[int]) -> list[Program]:
    implementation = "pallas" if jax.default_backend() == "gpu" else "interpret"
    return [
        fused_program(brax_env, f"kernel {num_warps}", implementation=implementation, num_warps=num_warps)
        for num_warps in warps
    ]


def fused_program(brax_env: Any, name: str, **options: Any) -> Program:
    fused = fused_environment(brax_env, **options)
    return Program(name, fused.step, fused.from_brax)


class Played(NamedTuple):
    """Outputs of each step, with axes [steps, batch]."""

    observation: Any
    reward: Any
    done: Any


def compile_play(program: Program, states: Any, actions: Any) -> tuple[Any, float]:
    """Compiles `(states, actions) -> (states, Played)`. Returns it and the seconds of compilation."""

    def body(states: Any, actions: Any) -> Any:
        # Brax returns some leaves with a weak type, which a scan refuses.
        states = jax.tree.map(
            lambda before, after: jax.lax.convert_element_type(after, before.dtype),
            states,
            jax.vmap(program.step)(states, actions),
        )
        return states, Played(states.obs, states.reward, states.done)

    began = time.perf_counter()
    compiled = jax.jit(lambda states, actions: jax.lax.scan(body, states, actions)).lower(states, actions).compile()
    return compiled, time.perf_counter() - began


class Setting(NamedTuple):
    """Start states, actions, and the outputs of Brax."""

    states: Any
    actions: Any
    played: Played


def row_of(program: Program, setting: Setting, repeats: int) -> dict:
    actions, reference = setting.actions, setting.played
    num_steps, batch, _ = actions.shape
    states = setting.states.replace(pipeline_state=jax.vmap(program.from_brax)(setting.states.pipeline_state))
    play, compile_seconds = compile_play(program, states, actions)
    seconds, spread = typical_seconds(lambda: play(states, actions), repeats)
    _, played = play(states, actions)
    # Only the first step has the same start as Brax's. Contacts make the later ones diverge.
    deviation = jnp.abs(played.observation[0] - reference.observation[0]).max(-1)
    return {
        "implementation": program.implementation,
        "batch": batch,
        "microseconds_per_step": 1e6 * seconds / num_steps,  # one step of the whole batch
        "spread_microseconds": 1e6 * spread / num_steps,
        "steps_per_second": batch * num_steps / seconds,
        "largest_deviation": float(deviation.max()),
        "median_deviation": float(jnp.median(deviation)),
        "different_ends": int((played.done[0] != reference.done[0]).sum()),
        "bytes_per_state": sum(leaf.nbytes for leaf in jax.tree.leaves(states.pipeline_state)) // batch,
        # Of the program text: an instruction inside a loop counts once.
        "instructions": len(re.findall(r" (?:fusion|custom-call|copy|transpose)\(", play.as_text())),
        "compile_seconds": compile_seconds,
    }


def main(options: Options) -> None:
    if options.tiny:
        options = replace(options, batches=(64,), warps=(4,), steps=5, repeats=20)
    console = Console()
    timing = Timing(options, console, time.perf_counter(), rows=[])
    for name in options.environments:
        time_environment(name, timing)
    print_rows(console, timing.rows)


class Timing(NamedTuple):
    options: Options
    console: Console
    began: float
    rows: list[dict]


def time_environment(name: str, timing: Timing) -> None:
    """Times all implementations of one environment."""
    options = timing.options
    brax_env = envs.get_environment(name, backend="spring")
    brax_program = Program("brax", brax_env.step, lambda pipeline_state: pipeline_state)
    kernels = kernel_programs(brax_env, options.warps) if "kernel" in options.implementations else []
    starts = jax.jit(jax.vmap(brax_env.reset))(jax.random.split(jax.random.key(0), max(options.batches)))
    settings = []
    for batch in options.batches:
        states = jax.tree.map(lambda leaf, batch=batch: leaf[:batch], starts)
        settings.append(reach_setting(brax_program, states, options.steps, brax_env.action_size))
        for program in (*([brax_program] if "brax" in options.implementations else []), *kernels):
            time_program(name, program, settings[-1], timing)
        rows = [row for row in timing.rows if row["environment"] == name and "error" not in row]
        timed = {row["implementation"]: row["microseconds_per_step"] for row in rows}
        kernels = sorted(kernels, key=lambda kernel: timed.get(kernel.implementation, float("inf")))[:1]
    if "xla" in options.implementations:
        xla_program = fused_program(brax_env, "xla", implementation="xla")
        for setting in settings:  # last, because it is slow to compile
            time_program(name, xla_program, setting, timing)


def reach_setting(brax_program: Program, states: Any, num_steps: int, action_size: int) -> Setting:
    """States of random play: feet on the ground, some bodies on their side."""
    size = (num_steps, len(states.done), action_size)
    actions = jax.random.uniform(jax.random.key(1), size, minval=-1.0, maxval=1.0)
    with jax.default_matmul_precision("highest"):
        play, _ = compile_play(brax_program, states, actions)
    for _ in range(3):
        states, _ = play(states, actions)
    return Setting(states, actions, play(states, actions)[1])


def time_program(name: str, program: Program, setting: Setting, timing: Timing) -> None:
    elapsed, batch = time.perf_counter() - timing.began, setting.actions.shape[1]
    timing.console.print(f"[dim]{elapsed:.0f} s: {name}, {program.implementation}, batch {batch}")
    row = {"implementation": program.implementation, "batch": batch}
    if elapsed > timing.options.seconds:
        row["error"] = f"not run after {elapsed:.0f} s"
    else:
        try:
            row = row_of(program, setting, timing.options.repeats)
        except Exception as error:  # a shape that does not compile must not stop the others
            row["error"] = f"{type(error).__name__}: {error}"[:2000]
            timing.console.print(row["error"][:300], markup=False)
    timing.rows.append({"environment": name, **row, **provenance()})
    write_rows(timing.rows, timing.options.out)  # after every row: the run may be stopped


def print_rows(console: Console, rows: list[dict]) -> None:
    table = Table(
        "environment",
        "implementation",
        "batch",
        "µs / batched step",
        "steps / s",
        "largest deviation",
        "median",
        "compile s",
    )
    for row in rows:
        if "error" in row:
            table.add_row(
                row["environment"], row["implementation"], str(row["batch"]), row["error"].splitlines()[0][:60]
            )
            continue
        table.add_row(
            row["environment"],
            row["implementation"],
            str(row["batch"]),
            f"{row['microseconds_per_step']:.1f} ± {row['spread_microseconds']:.1f}",
            f"{row['steps_per_second']:.3g}",
            f"{row['largest_deviation']:.1e}",
            f"{row['median_deviation']:.1e}",
            f"{row['compile_seconds']:.1f}",
        )
    console.print(table)
    console.print(f"{rows[0]['device']}, jax {rows[0]['jax']}")


if __name__ == "__main__":
    main(tyro.cli(Options))
