"""Time of Q(s, a) for many actions in each of many states: by the GPU kernel, and by XLA.

    python benchmarks/q_values.py --out results/benchmarks/h200/q_values.json
    python benchmarks/q_values.py --tiny                                          smoke test

The network is the paper's for Ant. The sizes are those of one update of MPO, and of one depth of SMC-ENT's search. The
errors are beside XLA with exact products, as root mean squares and relative to the standard deviation of Q. Without a
GPU both columns are XLA's.
"""

import argparse
import pathlib
from typing import Any

import _timing
import jax
import jax.numpy as jnp

from spo.networks import QNetwork, make_q_network, mlp_architecture
from spo.types import ContinuousActions

OBSERVATION_SIZE, ACTION_SIZE = 27, 8
#: States, and actions in each.
SIZES = ((2176, 256), (32768, 64))
TINY_SIZES = ((8, 64),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()
    rows = []
    for num_states, num_actions in TINY_SIZES if options.tiny else SIZES:
        rows.append(measure(num_states, num_actions, options.repeats) | _timing.provenance())
        _timing.write_rows(rows, options.out)
        print(sentence(rows[-1]), flush=True)


def measure(num_states: int, num_actions: int, repeats: int) -> dict[str, Any]:
    spec = jax.ShapeDtypeStruct((OBSERVATION_SIZE,), jnp.float32)
    network = make_q_network(spec, ContinuousActions(ACTION_SIZE), mlp_architecture())
    keys = jax.random.split(jax.random.key(0), 3)
    observations = jax.random.normal(keys[1], (num_states, OBSERVATION_SIZE))
    actions = jax.random.uniform(keys[2], (num_states, num_actions, ACTION_SIZE), minval=-1.0, maxval=1.0)
    inputs = (network.init(keys[0], spec), observations, actions)
    one_by_one = network._replace(values=None)
    with jax.default_matmul_precision("highest"):
        exact = over_states(one_by_one)(*inputs)
    row: dict[str, Any] = {"num_states": num_states, "num_actions": num_actions}
    for name, implementation in (("kernel", network), ("xla", one_by_one)):
        program = over_states(implementation)
        seconds, spread = _timing.typical_seconds(lambda program=program: program(*inputs), repeats)
        error = jnp.sqrt(jnp.mean((program(*inputs) - exact) ** 2)) / jnp.std(exact)
        row |= {f"{name}_ms": 1e3 * seconds, f"{name}_spread_ms": 1e3 * spread, f"{name}_error": float(error)}
    return row | {"speed_ratio": row["xla_ms"] / row["kernel_ms"]}


def over_states(network: QNetwork) -> Any:
    """Returns the compiled function (params, observations, actions) -> Q of each action of each state."""
    return jax.jit(jax.vmap(network.values_of, in_axes=(None, 0, 0)))


def sentence(row: dict[str, Any]) -> str:
    return (
        f"{row['num_actions']} actions in {row['num_states']} states: kernel {row['kernel_ms']:.3g} ms (error "
        f"{row['kernel_error']:.1e}), XLA {row['xla_ms']:.3g} ms (error {row['xla_error']:.1e})"
    )


if __name__ == "__main__":
    main()
