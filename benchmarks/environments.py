"""Time of an environment step, compared with Jumanji's cube and Sokoban and with Brax itself, in the same run.

Every implementation computes the same: a batch of environments, some steps of uniformly random actions inside one
compiled scan, and no resets. Both sides step past the ends of episodes. Observations, rewards and ends are summed, so
the compiler cannot remove their computation.

    python benchmarks/environments.py --out results/environments.json      # for a GPU
    python benchmarks/environments.py --tiny                               # seconds on a CPU
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import tyro
from _timing import provenance, typical_seconds, write_rows
from rich.console import Console
from rich.table import Table

from spo.environments.brax import brax
from spo.environments.rubiks_cube import rubiks_cube
from spo.environments.sokoban import sokoban
from spo.environments.sokoban_generator import generate_levels
from spo.types import Environment


@dataclass(frozen=True)
class Options:
    """Times a random step of the cube, of Sokoban and of Brax's environments, in this package and in the original."""

    out: Path | None = None
    """File for the rows, as JSON."""
    tiny: bool = False
    """Small batches and few steps, for a CPU. Only the ratios are meaningful."""
    only: str = ""
    """Times only environments with this text in their name."""
    puzzle_batches: tuple[int, ...] = (1024, 12288, 65536)
    """Batch sizes of the cube and of Sokoban. A search of 768 roots with 16 particles steps 12288 at once."""
    physics_batches: tuple[int, ...] = (1024, 4096, 16384)
    """Batch sizes of Brax's environments."""
    physics: tuple[str, ...] = ("ant", "halfcheetah", "humanoid")
    """Names of Brax's environments."""
    puzzle_steps: int = 100
    """Steps per call of the cube and of Sokoban."""
    physics_steps: int = 20
    """Steps per call of Brax's environments."""
    repeats: int = 10
    """Timed calls. The result is their median, on a CPU the mean processor time."""


class Program(NamedTuple):
    """One implementation of an environment, reduced to what both sides have in common."""

    implementation: str
    reset: Callable[[Any], Any]  # key -> state
    step: Callable[[Any, Any, Any], tuple[Any, Any]]  # (key, state, action) -> (state, all outputs)
    sample_action: Callable[[Any], Any]  # key -> action


def our_program(environment: Environment, sample_action: Callable[[Any], Any]) -> Program:
    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any]:
        state, timestep = environment.step(key, state, action)
        return state, (timestep.observation, timestep.reward, timestep.terminated, timestep.truncated)

    return Program("ours", lambda key: environment.reset(key)[0], step, sample_action)


def jumanji_program(env: Any, sample_action: Callable[[Any], Any]) -> Program:
    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any]:
        del key
        state, timestep = env.step(state, action)
        return state, (timestep.observation, timestep.reward, timestep.step_type, timestep.discount)

    return Program("jumanji", lambda key: env.reset(key)[0], step, sample_action)


def brax_program(env: Any, sample_action: Callable[[Any], Any]) -> Program:
    dtypes = jax.tree.map(lambda leaf: leaf.dtype, jax.eval_shape(env.reset, jax.random.key(0)))

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any]:
        del key
        # Brax returns some leaves with a weak type, which a scan refuses.
        state = jax.tree.map(jax.lax.convert_element_type, env.step(state, action), dtypes)
        return state, (state.obs, state.reward, state.done)

    return Program("brax", env.reset, step, sample_action)


def cube_programs() -> list[Program]:
    from jumanji.environments import RubiksCube

    def sample_index(key: Any) -> Any:
        return jax.random.randint(key, (), 0, 18)

    def sample_turn(key: Any) -> Any:
        index = sample_index(key)  # the same draw, as Jumanji's face, depth and amount
        return jnp.stack([index // 3, jnp.zeros_like(index), index % 3])

    return [our_program(rubiks_cube().model, sample_index), jumanji_program(RubiksCube(time_limit=20), sample_turn)]


def sokoban_programs() -> list[Program]:
    from jumanji.environments import Sokoban
    from jumanji.environments.routing.sokoban.generator import SimpleSolveGenerator

    def sample_direction(key: Any) -> Any:
        return jax.random.randint(key, (), 0, 4)

    # Jumanji's other generator downloads levels. A step takes the same time on every 10 x 10 board.
    jumanji_sokoban = Sokoban(generator=SimpleSolveGenerator())
    return [
        our_program(sokoban(generate_levels(0, 100)).model, sample_direction),
        jumanji_program(jumanji_sokoban, sample_direction),
    ]


def brax_programs(name: str) -> list[Program]:
    from brax import envs

    environment = brax(name).model
    size = environment.action_spec.size
    options = {"exclude_current_positions_from_observation": False} if name == "halfcheetah" else {}

    def sample_torques(key: Any) -> Any:
        return jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0)

    raw = envs.get_environment(name, backend="spring", **options)
    return [our_program(environment, sample_torques), brax_program(raw, sample_torques)]


def compiled(program: Program, batch: int, num_steps: int) -> Callable[[], Any]:
    """Compiles `num_steps` random steps of `batch` environments, from start states that are made beforehand."""

    @jax.jit
    def play(states: Any, key: Any) -> Any:
        def body(carry: Any, key: Any) -> Any:
            states, total = carry
            key_action, key_step = jax.random.split(key)
            actions = jax.vmap(program.sample_action)(jax.random.split(key_action, batch))
            states, seen = jax.vmap(program.step)(jax.random.split(key_step, batch), states, actions)
            total += sum(jnp.sum(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(seen))
            return (states, total), None

        return jax.lax.scan(body, (states, jnp.zeros(())), jax.random.split(key, num_steps))[0]

    states = jax.jit(jax.vmap(program.reset))(jax.random.split(jax.random.key(0), batch))
    return lambda: play(states, jax.random.key(1))


def rows_of(name: str, programs: list[Program], batch: int, num_steps: int, repeats: int) -> list[dict]:
    rows: list[dict] = []
    for program in programs:
        seconds, spread = typical_seconds(compiled(program, batch, num_steps), repeats)
        rows.append(
            {
                "environment": name,
                "implementation": program.implementation,
                "batch": batch,
                "steps_per_call": num_steps,
                "microseconds_per_step": 1e6 * seconds / num_steps,  # one step of the whole batch
                "spread_microseconds": 1e6 * spread / num_steps,
                "steps_per_second": batch * num_steps / seconds,
            }
        )
    peer = rows[-1]["steps_per_second"]
    return [{**row, "ratio_to_peer": row["steps_per_second"] / peer, **provenance()} for row in rows]


def main(options: Options) -> None:
    puzzle_batches, physics_batches, physics = options.puzzle_batches, options.physics_batches, options.physics
    puzzle_steps, physics_steps, repeats = options.puzzle_steps, options.physics_steps, options.repeats
    if options.tiny:
        puzzle_batches, physics_batches, physics = (256,), (64,), ("inverted_pendulum",)
        puzzle_steps, physics_steps, repeats = 20, 20, 20

    environments: list[tuple[str, Callable[[], list[Program]], tuple[int, ...], int]] = [
        ("rubiks_cube", cube_programs, puzzle_batches, puzzle_steps),
        ("sokoban", sokoban_programs, puzzle_batches, puzzle_steps),
    ]
    environments += [
        (f"brax/{name}", lambda name=name: brax_programs(name), physics_batches, physics_steps) for name in physics
    ]

    rows: list[dict] = []
    console = Console()
    for name, make_programs, batches, num_steps in environments:
        if options.only not in name:
            continue
        programs = make_programs()
        for batch in batches:
            console.print(f"[dim]{name}, batch {batch}")
            rows += rows_of(name, programs, batch, num_steps, repeats)
    if not rows:
        known = ", ".join(entry[0] for entry in environments)
        raise SystemExit(f"No environment has {options.only!r} in its name. There are {known}.")
    print_rows(console, rows)
    write_rows(rows, options.out)


def print_rows(console: Console, rows: list[dict]) -> None:
    table = Table("environment", "implementation", "batch", "µs / batched step", "steps / s", "ratio to peer")
    for row in rows:
        table.add_row(
            row["environment"],
            row["implementation"],
            str(row["batch"]),
            f"{row['microseconds_per_step']:.1f} ± {row['spread_microseconds']:.1f}",
            f"{row['steps_per_second']:.3g}",
            f"{row['ratio_to_peer']:.2f}",
        )
    console.print(table)
    console.print(f"{rows[0]['device']}, jax {rows[0]['jax']}")


if __name__ == "__main__":
    main(tyro.cli(Options))
