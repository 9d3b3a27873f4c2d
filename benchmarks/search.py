"""Time of one search, beside its floor and beside mctx at the same budget, measured in the same run.

The floor is the fastest program that we can write for the same model and network evaluations in the same batches. It
has no draws, no weights and no resampling. mctx gets the same budget (simulations = particles x horizon), the same
model and the same network. `spo.search.mcts` is the same search as mctx's. The floor of a tree search is as many
model and network evaluations one after another, each for one leaf per root.

    python benchmarks/search.py                    # the paper's cube network, for a GPU
    python benchmarks/search.py --tiny             # seconds on a CPU
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import tyro
from _search_programs import make_problem, milliseconds, paper_resampling, search_program, temporary_bytes
from _timing import provenance, write_rows
from rich.console import Console
from rich.table import Table

from spo.search import mcts

# Roots, particles, horizon. The last one is a single root, as for acting in real time.
SIZES = ((768, 16, 4), (128, 256, 8), (128, 64, 8), (16, 4096, 4), (1, 1024, 8))
TINY_SIZES = ((32, 16, 4),)
# Larger budgets are left out: mctx searches 128 roots with 2048 simulations in 3.5 s (Gumbel) or 35 s (MuZero).
MCTX_BUDGET_LIMITS = {"mctx_gumbel_ms": 2048, "mctx_muzero_ms": 64}
TREE_BUDGET_LIMIT = 2048


@dataclass(frozen=True)
class Options:
    """Times the SMC search, its floor and mctx on the Rubik's cube with the paper's network."""

    out: Path | None = None
    """File for the rows, as JSON."""
    tiny: bool = False
    """Use a small network and one small size, for a CPU."""
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    """Compute types of the network."""
    repeats: int = 20
    """Timed calls of each program. The median counts, on a CPU the mean processor time."""
    skip_mctx: bool = False
    """Leave mctx out."""
    only: int | None = None
    """Number of the one size to measure, from 0; None: all."""


def floor_program(environment: Any, network: Any, num_particles: int, horizon: int, unroll: int) -> Callable:
    """The same evaluations and nothing else. Actions are given; outputs are added up, so that none is left out."""
    num_actions = environment.action_spec.num_actions

    def program(params: Any, root: Any, key: Any) -> Any:
        states = jax.tree.map(lambda x: jnp.repeat(x, num_particles, axis=0), root.state)
        # The actions must not be constants: one integer per particle.
        first = jax.random.randint(key, (root.value.shape[0] * num_particles,), 0, num_actions)

        def advance(carry: Any, depth: Any) -> Any:
            states, total = carry
            # Without this dependence, XLA would join the evaluations of all depths to one: a search can't, since its
            # actions follow from the evaluation before. The number added is always 0.
            actions = (first + depth + (total[:, 0] > 1e30)) % num_actions
            states, timestep = jax.vmap(environment.step, in_axes=(None, 0, 0))(key, states, actions)
            prior, value = jax.vmap(network.both, in_axes=(None, 0, 0))(
                params, timestep.observation, timestep.action_mask
            )
            return (states, total + prior + value[:, None]), None

        start = (states, jnp.zeros((first.shape[0], num_actions)))
        return jax.lax.scan(advance, start, jnp.arange(horizon), unroll=unroll)[0][1]

    return program


def tree_program(policy: Callable, environment: Any, network: Any, num_particles: int, horizon: int) -> Callable:
    def recurrent_fn(params: Any, key: Any, action: Any, embedding: Any) -> Any:
        state, timestep = jax.vmap(environment.step, in_axes=(None, 0, 0))(key, embedding, action)
        prior, value = jax.vmap(network.both, in_axes=(None, 0, 0))(params, timestep.observation, timestep.action_mask)
        output = mctx.RecurrentFnOutput(
            reward=timestep.reward, discount=timestep.discount, prior_logits=prior, value=value
        )
        return output, state

    def program(params: Any, root: Any, key: Any) -> Any:
        mctx_root = mctx.RootFnOutput(prior_logits=root.prior, value=root.value, embedding=root.state)
        output = policy(params, key, mctx_root, recurrent_fn, num_simulations=num_particles * horizon)
        return output.action, output.action_weights

    return program


def tree_times(size: tuple[Any, Any, int, int], timed: Callable[[Callable], float]) -> dict[str, float]:
    """Returns the milliseconds of our tree searches with the same budget, and of their floor."""
    environment, network, num_particles, horizon = size
    num_simulations = num_particles * horizon
    times = {
        "tree_floor_ms": min(
            timed(floor_program(environment, network, 1, num_simulations, unroll)) for unroll in (1, 4)
        ),
        "tree_gumbel_ms": timed(tree_program(mcts.gumbel_muzero_policy, *size)),
        "tree_muzero_ms": timed(tree_program(mcts.muzero_policy, *size)),
    }
    return times | {"tree_over_floor": times["tree_muzero_ms"] / times["tree_floor_ms"]}


def run(options: Options) -> list[dict]:
    sizes = TINY_SIZES if options.tiny else SIZES
    sizes = sizes if options.only is None else sizes[options.only : options.only + 1]
    width = 64 if options.tiny else 512
    calls = 5 if options.tiny else 20
    rows = []
    for num_roots, num_particles, horizon in sizes:
        for dtype in options.dtypes:
            environment, network, params, root = make_problem(dtype, width, num_roots)
            size = (environment, network, num_particles, horizon)
            timed = functools.partial(milliseconds, params=params, root=root, repeats=options.repeats, calls=calls)
            # The paper's setting resamples at the end. A resample in the middle also gathers the particles' states.
            paper_search = search_program(*size, resampling=paper_resampling(horizon, last=True))
            mid_search = search_program(*size, resampling=paper_resampling(max(horizon // 2, 1), last=False))
            row: dict[str, Any] = {
                "batch": num_roots,
                "num_particles": num_particles,
                "horizon": horizon,
                "dtype": dtype,
                # As a loop or unrolled: the faster one.
                "floor_ms": min(timed(floor_program(*size, unroll=unroll)) for unroll in (1, horizon)),
                "search_ms": timed(paper_search),
                "search_with_mid_resample_ms": timed(mid_search),
                "search_temporary_bytes": temporary_bytes(paper_search, params, root),
            }
            row["over_floor"] = row["search_ms"] / row["floor_ms"]
            if num_particles * horizon <= TREE_BUDGET_LIMIT:
                row |= tree_times(size, timed)
            few = options.repeats if options.tiny else min(options.repeats, 3)
            slow = functools.partial(milliseconds, params=params, root=root, repeats=few, calls=1)
            for name, policy in (("mctx_gumbel_ms", mctx.gumbel_muzero_policy), ("mctx_muzero_ms", mctx.muzero_policy)):
                if not options.skip_mctx and num_particles * horizon <= MCTX_BUDGET_LIMITS[name]:
                    row[name] = slow(tree_program(policy, *size))
            if "mctx_gumbel_ms" in row:
                row["over_mctx"] = row["search_ms"] / min(row[name] for name in MCTX_BUDGET_LIMITS if name in row)
            rows.append(row | provenance())
            write_rows(rows, options.out)  # after every row, so that an interrupted run loses nothing
            print(
                {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True
            )
    return rows


def show(rows: list[dict]) -> None:
    table = Table(title=f"One search, milliseconds ({rows[0]['device']}, jax {rows[0]['jax']})")
    columns = ("batch", "num_particles", "horizon", "dtype", "floor_ms", "search_ms", "over_floor")
    columns += ("search_with_mid_resample_ms", "tree_floor_ms", "tree_gumbel_ms", "tree_muzero_ms")
    columns += ("mctx_gumbel_ms", "mctx_muzero_ms", "over_mctx")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        cells = (row.get(column, "-") for column in columns)
        table.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells))
    Console().print(table)


if __name__ == "__main__":
    options = tyro.cli(Options)
    rows = run(options)
    show(rows)
