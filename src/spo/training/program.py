"""What is compiled: an algorithm over many seeds and a mesh of devices.

The learner is replicated and the workers are split: each device has its own environments and its own share of the
replay, and the algorithm averages gradients over `DEVICE_AXIS`. One device is a mesh of length 1. Seeds are a vmapped
axis inside. So learners have leading axes [seed, ...] and workers [device, seed, ...].
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spo.acting import Episodes, run_episodes
from spo.algorithms.base import DEVICE_AXIS, Algorithm, Metrics, TrainState
from spo.types import Environment, PRNGKey

REPLICATED = PartitionSpec()
SPLIT = PartitionSpec(DEVICE_AXIS)
STATE_SPECS = TrainState(learner=REPLICATED, worker=SPLIT)


class Program(NamedTuple):
    """The compiled functions of a training run."""

    init: Callable[[PRNGKey], TrainState]
    #: (state, number of iterations) -> state, metrics per seed: means, and sums of what starts with "episode/"
    run: Callable[[TrainState, int], tuple[TrainState, Metrics]]
    #: (learner, key, episodes, use_search, greedy) -> episodes per seed, [seed, episode]
    evaluate: Callable[..., Episodes]
    mesh: Mesh
    num_seeds: int


def make_mesh(num_devices: int | None = None) -> Mesh:
    """All devices (of all hosts) in a row, or the first few of them."""
    devices = jax.devices()
    if num_devices is not None:
        if not 1 <= num_devices <= len(devices):
            raise ValueError(
                f"num_devices must lie between 1 and the {len(devices)} devices there are, got {num_devices}."
            )
        devices = devices[:num_devices]
    if len({device.process_index for device in devices}) < jax.process_count():
        raise ValueError(
            f"The {jax.process_count()} processes train together, and {num_devices} devices would leave some of them "
            "without one: leave num_devices out to use all."
        )
    return Mesh(np.array(devices), (DEVICE_AXIS,))


def make_program(algorithm: Algorithm, evaluation_environment: Environment, mesh: Mesh, num_seeds: int) -> Program:
    num_devices = mesh.devices.size
    over_mesh = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)

    def init(key: PRNGKey) -> TrainState:
        def init_seed(key: PRNGKey) -> TrainState:
            key_learner, key_worker = jax.random.split(key)
            return algorithm.init(key_learner, jax.random.fold_in(key_worker, jax.lax.axis_index(DEVICE_AXIS)))

        # One seed after the other: a vmapped orthogonal initialisation is a batched QR, and several of those at once
        # wait for each other's threads for ever on a CPU with few cores (seen with jaxlib 0.10.2 on two).
        return _add_device_axis(jax.lax.map(init_seed, seed_keys(key, num_seeds)))

    def run(num_iterations: int, state: TrainState) -> tuple[TrainState, Metrics]:
        def iterate(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
            return jax.vmap(algorithm.step)(state)

        state, metrics = jax.lax.scan(iterate, _drop_device_axis(state), None, length=num_iterations)
        reduced = {
            name: (jnp.sum if name.startswith("episode/") or name == "skipped_updates" else jnp.mean)(value, axis=0)
            for name, value in metrics.items()
        }
        averaged = {
            name: value if name.startswith("episode/") else jax.lax.pmean(value, DEVICE_AXIS)
            for name, value in reduced.items()
        }
        return _add_device_axis(state), averaged

    def evaluate(num_episodes: int, use_search: bool, greedy: bool, learner: Any, key: PRNGKey) -> Episodes:
        episodes_per_device = -(-num_episodes // num_devices)

        def evaluate_seed(learner: Any, key: PRNGKey) -> Episodes:
            act = functools.partial(algorithm.act, learner, use_search=use_search, greedy=greedy)
            key = jax.random.fold_in(key, jax.lax.axis_index(DEVICE_AXIS))
            return run_episodes(evaluation_environment, act, key, episodes_per_device)

        return jax.vmap(evaluate_seed)(learner, seed_keys(key, num_seeds))

    @functools.partial(jax.jit, static_argnums=(2, 3, 4))
    def jitted_evaluate(learner: Any, key: PRNGKey, num_episodes: int, use_search: bool, greedy: bool) -> Episodes:
        function = functools.partial(evaluate, num_episodes, use_search, greedy)
        split_episodes = PartitionSpec(None, DEVICE_AXIS)
        episodes = over_mesh(function, in_specs=(REPLICATED, REPLICATED), out_specs=split_episodes)(learner, key)
        return jax.tree.map(lambda x: x[:, :num_episodes], episodes)

    @functools.partial(jax.jit, static_argnums=1)
    def jitted_run(state: TrainState, num_iterations: int) -> tuple[TrainState, Metrics]:
        function = functools.partial(run, num_iterations)
        return over_mesh(function, in_specs=(STATE_SPECS,), out_specs=(STATE_SPECS, REPLICATED))(state)

    return Program(
        init=jax.jit(over_mesh(init, in_specs=REPLICATED, out_specs=STATE_SPECS)),
        run=jitted_run,
        evaluate=jitted_evaluate,
        mesh=mesh,
        num_seeds=num_seeds,
    )


def seed_keys(key: PRNGKey, num_seeds: int) -> Any:
    """One key per seed. Seed s gets the same key however many others run beside it."""
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num_seeds))


def shardings(mesh: Mesh) -> TrainState:
    """Where the two halves of a `TrainState` live."""
    return TrainState(learner=NamedSharding(mesh, REPLICATED), worker=NamedSharding(mesh, SPLIT))


def _add_device_axis(state: TrainState) -> TrainState:
    return state._replace(worker=jax.tree.map(lambda x: x[None], state.worker))


def _drop_device_axis(state: TrainState) -> TrainState:
    return state._replace(worker=jax.tree.map(lambda x: x[0], state.worker))
