"""Several processes, one per host, that train one run together on a mesh of all their devices.

All of them run the same program on the same numbers. What leaves it, files and words, comes from the first alone; they
share a file system.
"""

import os
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from spo.types import PRNGKey


def join() -> None:
    """Meets the other processes. Before anything else asks JAX for devices.

    Slurm, Open MPI, Kubernetes and Cloud TPUs tell JAX where and how many they are. Elsewhere three variables do.
    """
    number, index = (os.environ.get(name) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
    try:
        jax.distributed.initialize(
            num_processes=None if number is None else int(number), process_id=None if index is None else int(index)
        )
    except ValueError as error:
        raise ValueError(
            f"The other processes can't be found ({str(error).rstrip('.')}): set JAX_COORDINATOR_ADDRESS (host:port of "
            "the first process), JAX_NUM_PROCESSES and JAX_PROCESS_ID (from 0) for each of them."
        ) from None


def is_first() -> bool:
    return jax.process_index() == 0


def wait_for_all(where: str) -> None:
    """Returns once every process has come to the same place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(where)


def as_the_first_says(decision: bool) -> bool:
    """The first process's decision, for all: clocks differ, and what all must do together, all must do or none."""
    return bool(multihost_utils.broadcast_one_to_all(np.array(decision))) if jax.process_count() > 1 else decision


def place_keys(numbers: Any, sharding: jax.sharding.Sharding) -> PRNGKey:
    """Random keys from their numbers, on all devices: `jax.device_put` takes no keys to those of other processes."""
    return jax.jit(jax.random.wrap_key_data, out_shardings=sharding)(numbers)


def to_host(tree: Any) -> Any:
    """NumPy arrays of all of it, also of what other processes hold."""

    def fetch(x: jax.Array) -> np.ndarray:
        if x.is_fully_addressable or x.is_fully_replicated:
            return np.asarray(x)
        return np.asarray(multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(fetch, tree)
