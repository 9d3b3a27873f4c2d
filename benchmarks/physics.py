"""Time of a step of Ant with its spring physics in one kernel, compared with Brax's own step in the same run.

Every program computes the same: some steps of a batch of ants inside one compiled scan, with actions drawn beforehand
and without resets. It returns observations, rewards and ends, so the compiler cannot remove them.

Each row also has the deviation of one step from Brax's in full precision, from states that random play has reached.
Brax's default lets a GPU round the moments on its bodies to the ten bits of TF32, before they are multiplied by the
inertia. The kernel is tried in several shapes at the first batch; the fastest is used for the others.

    python benchmarks/physics.py --out results/physics.json      # for a GPU
    python benchmarks/physics.py --tiny                          # seconds on a CPU, the kernel interpreted
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import tyro
from _timing import provenance, typical_seconds, write_rows
from brax import envs
from rich.console import Console
from rich.table import Table

from spo.environments.spring import from_brax, fused_environment


@dataclass(frozen=True)
class Options:
    """Times a step of Brax's Ant: Brax's physics, the fused physics by XLA, and the fused physics as one kernel."""

    out: Path | None = None
    """File for the rows, as JSON."""
    tiny: bool = False
    """A small batch and few steps, for a CPU. Only the ratios are meaningful."""
    batches: tuple[int, ...] = (16384, 65536, 1024)
    """Batch sizes. A search of 1024 roots with 16 particles steps 16384 environments at once."""
    blocks: tuple[str, ...] = ("32x4", "16x2", "8x1", "64x8", "32x2", "64x4")
    """Shapes of the kernel: environments per program x warps of 32 threads. An ant takes four threads."""
    steps: int = 20
    """Steps per call."""
    repeats: int = 5
    """Timed calls. The result is their median, on a CPU the least processor time."""
    seconds: float = 150.0
    """Time after which no further program is started."""


class Program(NamedTuple):
    """One implementation of the step."""

    implementation: str
    step: Callable[[Any, Any], Any]  # Brax's state, action -> Brax's state
    from_brax: Callable[[Any], Any]  # of the pipeline's state


def kernel_programs(brax_env: Any, blocks: Iterable[str]) -> list[Program]:
    implementation = "pallas" if jax.default_backend() == "gpu" else "interpret"
    shapes = [(block, *map(int, block.split("x"))) for block in blocks]
    return [
        fused_program(
            brax_env, f"kernel {block}", implementation=implementation, block_size=block_size, num_warps=num_warps
        )
        for block, block_size, num_warps in shapes
    ]


def fused_program(brax_env: Any, name: str, **options: Any) -> Program:
    return Program(name, fused_environment(brax_env, **options).step, from_brax)


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
    began = time.perf_counter()
    batches, blocks, num_steps, repeats = options.batches, options.blocks, options.steps, options.repeats
    if options.tiny:
        batches, blocks, num_steps, repeats = (64,), ("64x1",), 5, 20

    brax_env = envs.get_environment("ant", backend="spring")
    brax_program = Program("brax", brax_env.step, lambda pipeline_state: pipeline_state)
    xla_program = fused_program(brax_env, "xla", implementation="xla")
    kernels = kernel_programs(brax_env, blocks)
    starts = jax.jit(jax.vmap(brax_env.reset))(jax.random.split(jax.random.key(0), max(batches)))

    console = Console()
    rows: list[dict] = []

    def time_program(program: Program, setting: Setting) -> None:
        elapsed, batch = time.perf_counter() - began, setting.actions.shape[1]
        console.print(f"[dim]{elapsed:.0f} s: {program.implementation}, batch {batch}")
        row = {"implementation": program.implementation, "batch": batch}
        if elapsed > options.seconds:
            row["error"] = f"not run after {elapsed:.0f} s"
        else:
            try:
                row = row_of(program, setting, repeats)
            except Exception as error:  # a shape that does not compile must not stop the others
                row["error"] = f"{type(error).__name__}: {error}"[:2000]
                console.print(row["error"][:300], markup=False)
        rows.append({**row, **provenance()})
        write_rows(rows, options.out)  # after every row: the run may be stopped

    settings = []
    for batch in batches:
        states = jax.tree.map(lambda leaf, batch=batch: leaf[:batch], starts)
        size = (num_steps, batch, brax_env.action_size)
        actions = jax.random.uniform(jax.random.key(1), size, minval=-1.0, maxval=1.0)
        with jax.default_matmul_precision("highest"):
            play, _ = compile_play(brax_program, states, actions)
        for _ in range(3):  # to states of random play: feet on the ground, some ants on their side
            states, _ = play(states, actions)
        settings.append(Setting(states, actions, play(states, actions)[1]))
        for program in (brax_program, *kernels):
            time_program(program, settings[-1])
        timed = {row["implementation"]: row["microseconds_per_step"] for row in rows if "error" not in row}
        kernels = sorted(kernels, key=lambda kernel: timed.get(kernel.implementation, float("inf")))[:1]
    for setting in settings:  # last, because it is slow to compile
        time_program(xla_program, setting)
    print_rows(console, rows)


def print_rows(console: Console, rows: list[dict]) -> None:
    table = Table(
        "implementation", "batch", "µs / batched step", "steps / s", "largest deviation", "median", "compile s"
    )
    for row in rows:
        if "error" in row:
            table.add_row(row["implementation"], str(row["batch"]), row["error"].splitlines()[0][:60])
            continue
        table.add_row(
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
