"""Programs that search the Rubik's cube with the paper's network, and their time and memory."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from _timing import typical_seconds

import spo.search
from spo.algorithms.planning import environment_model, evaluate_root
from spo.environments.rubiks_cube import rubiks_cube
from spo.networks import cube_architecture, make_network


def make_problem(dtype: str, width: int, num_roots: int) -> tuple[Any, Any, Any, Any]:
    environment = rubiks_cube().model
    architecture = cube_architecture(width=width, head_sizes=(width,), dtype=jnp.dtype(dtype))
    network = make_network(environment.observation_spec, environment.action_spec, architecture)
    params = network.init(jax.random.key(0), environment.observation_spec)
    state, timestep = jax.vmap(environment.reset)(jax.random.split(jax.random.key(1), num_roots))
    root = jax.vmap(functools.partial(evaluate_root, network))(_repeat(params, num_roots), state, timestep)
    return environment, network, params, root


def _repeat(tree: Any, times: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (times, *x.shape)), tree)


def search_program(
    environment: Any, network: Any, num_particles: int, horizon: int, *, resampling: spo.search.Resampling
) -> Callable:
    def program(params: Any, root: Any, key: Any) -> Any:
        return spo.search.search(
            key,
            root,
            environment_model(environment, network, params),
            num_particles=num_particles,
            horizon=horizon,
            temperature=0.5,
            resampling=resampling,
            distribution=network.distribution,
        )

    return program


def paper_resampling(period: int, *, last: bool) -> spo.search.Resampling:
    return spo.search.Resampling(period, spo.search.resampling.by_weight(spo.search.resampling.multinomial), last=last)


def milliseconds(program: Callable, params: Any, root: Any, repeats: int, calls: int) -> float:
    """Returns the time of one call among `calls` in one compiled loop, so that dispatch by the host does not count."""

    @jax.jit
    def run(params: Any, root: Any, keys: Any) -> Any:
        return jax.lax.scan(lambda carry, key: (carry, program(params, root, key)), None, keys)[1]

    keys = jax.random.split(jax.random.key(2), calls)
    return 1e3 * typical_seconds(lambda: run(params, root, keys), repeats)[0] / calls


def temporary_bytes(program: Callable, params: Any, root: Any) -> int:
    analysis = jax.jit(program).lower(params, root, jax.random.key(0)).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes)
