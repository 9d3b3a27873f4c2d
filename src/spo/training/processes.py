"""Training with several processes, one on each host, over a mesh of all their devices.

All processes run the same program on the same numbers. Only process 0 writes files and messages. The processes share a
file system.
"""

import os
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from spo.types import PRNGKey


def join() -> None:
    """Connects this process to the others. Call it before any other use of JAX.

    Under Slurm, Open MPI, Kubernetes and on Cloud TPUs, JAX finds the other processes by itself. Elsewhere, set
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    num_processes, process_id = (os.environ.get(name) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
    try:
        jax.distributed.initialize(
            num_processes=None if num_processes is None else int(num_processes),
            process_id=None if process_id is None else int(process_id),
        )
    except ValueError as error:
        raise ValueError(
            f"The other processes can't be found ({str(error).rstrip('.')}): set JAX_COORDINATOR_ADDRESS (host:port of "
            "process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID (from 0) for each of them."
        ) from None


def is_first() -> bool:
    """Returns True in process 0, which writes files and messages."""
    return jax.process_index() == 0


def wait_for_all(where: str) -> None:
    """Waits until every process has called this function with the same name."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(where)


def broadcast_from_process_0(decision: bool) -> bool:
    """Returns the decision of process 0 in every process. Clocks differ, and a checkpoint needs all processes."""
    return bool(multihost_utils.broadcast_one_to_all(np.array(decision))) if jax.process_count() > 1 else decision


def max_over_processes(number: int) -> int:
    """Returns the largest number of all processes in every process."""
    return int(np.max(multihost_utils.process_allgather(np.array(number)))) if jax.process_count() > 1 else number


def place_keys(key_data: Any, sharding: jax.sharding.Sharding) -> PRNGKey:
    """Returns random keys on the devices of `sharding`. `jax.device_put` can't place keys on other hosts."""
    return jax.jit(jax.random.wrap_key_data, out_shardings=sharding)(key_data)


def to_host(tree: Any) -> Any:
    """Returns a tree of whole NumPy arrays. The parts that other processes hold are gathered."""

    def fetch(x: jax.Array) -> np.ndarray:
        if x.is_fully_addressable or x.is_fully_replicated:
            return np.asarray(x)
        return np.asarray(multihost_utils.process_allgather(x, tiled=True))

    return jax.tree.map(fetch, tree)
