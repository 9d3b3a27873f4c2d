"""Tests of networks as single vectors: the same numbers and the same learning, in fewer operations."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spo.algorithms.packing import move_average, pack, unpack
from spo.algorithms.updates import actor_critic_optimiser, gradient_step, run_updates
from spo.networks import ActorCriticParams
from spo.types import DEVICE_AXIS


class Learner(NamedTuple):
    params: ActorCriticParams
    optimiser: Any


def network(seed: int, *sizes: int) -> dict:
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    return {
        f"Dense_{index}": {"kernel": jax.random.normal(key, (size, 3)), "bias": jnp.full(3, float(index))}
        for index, (key, size) in enumerate(zip(keys, sizes, strict=True))
    }


PARAMS = ActorCriticParams(torso={}, actor=network(0, 2, 4), critic=network(1, 5))
OPTIMISER = actor_critic_optimiser(1e-2, 2e-2, 0.5)


def loss(params: ActorCriticParams, scale: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    total = sum(jnp.sum(jnp.sin(scale * leaf)) for leaf in jax.tree.leaves(params))
    return total, {"loss": total, "scale": scale}


def test_a_network_becomes_one_vector_and_back():
    packed = pack(PARAMS)
    assert packed.torso == {}
    assert (packed.actor.shape, packed.critic.shape) == ((6 * 3 + 6,), (5 * 3 + 3,))
    jax.tree.map(np.testing.assert_array_equal, unpack(packed, like=PARAMS), PARAMS)


@pytest.mark.parametrize(
    "other",
    [
        {"one": jnp.zeros(3)},
        {"integers": jnp.zeros(3, int), "more": jnp.ones(2, int)},
        {"mixed": jnp.zeros(3), "half": jnp.zeros(3, jnp.bfloat16)},
        {"outer": {"a": jnp.zeros(3), "b": jnp.ones(3)}, "tuple": (jnp.zeros(3),), "none": None},
    ],
    ids=["one array", "integers", "two types", "not only dictionaries"],
)
def test_other_trees_survive(other: dict):
    packed = pack(other)
    jax.tree.map(np.testing.assert_array_equal, unpack(packed, like=other), other)
    assert jax.tree.structure(unpack(packed, like=other)) == jax.tree.structure(other)
    assert len(jax.tree.leaves(packed)) == (2 if "outer" in other else len(other)), "only whole networks are packed"


def test_moments_of_an_optimiser_are_packed():
    state = OPTIMISER.init(PARAMS)
    assert max(leaf.ndim for leaf in jax.tree.leaves(pack(state))) == 1
    jax.tree.map(np.testing.assert_array_equal, unpack(pack(state), like=state), state)


def test_updates_on_vectors_learn_the_same():
    """Three updates are those of the same optimiser on the networks themselves, and keep the layout of the learner."""
    scales, learner = jnp.array([0.5, 1.0, 2.0]), Learner(PARAMS, OPTIMISER.init(PARAMS))

    def update(learner: Learner, scale: jax.Array) -> tuple[Learner, dict[str, jax.Array]]:
        return gradient_step(learner, lambda params: loss(params, scale), OPTIMISER)

    def run(learner: Learner) -> tuple[Learner, dict[str, jax.Array]]:
        return run_updates(update, learner, scales, skip_nonfinite=False)

    batched = jax.tree.map(lambda x: x[None], learner)
    updated, metrics = jax.vmap(run, axis_name=DEVICE_AXIS)(batched)
    params, state, norms = PARAMS, learner.optimiser, []
    for scale in scales:
        gradients, _ = jax.grad(loss, has_aux=True)(params, scale)
        norms.append(optax.tree.norm(gradients))
        changes, state = OPTIMISER.update(gradients, state, params)
        params = optax.apply_updates(params, changes)
    assert jax.tree.structure(updated) == jax.tree.structure(learner)
    expected = jax.tree.map(lambda x: x[None], Learner(params, state))
    jax.tree.map(lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6), updated, expected)
    np.testing.assert_allclose(metrics["gradient_norm"], [np.mean(norms)], rtol=1e-5)
    np.testing.assert_allclose(metrics["scale"], [np.mean(scales)], rtol=1e-6)


def test_moving_averages():
    doubled = jax.tree.map(lambda x: 2.0 * x, PARAMS)
    expected = jax.tree.map(lambda x: 1.25 * x, PARAMS)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(close, move_average(PARAMS, doubled, 0.25), expected)


def test_the_loop_packs_gradients_only():
    """XLA cancels all other packing: per update, one concatenation for each network's gradient and one for metrics."""

    def update(learner: Learner, scale: jax.Array) -> tuple[Learner, dict[str, jax.Array]]:
        return gradient_step(learner, lambda params: loss(params, scale), OPTIMISER)

    def run(learner: Learner) -> tuple[Learner, dict[str, jax.Array]]:
        return run_updates(update, learner, jnp.ones(3), skip_nonfinite=False)

    learner = jax.tree.map(lambda x: x[None], Learner(PARAMS, OPTIMISER.init(PARAMS)))
    text = jax.jit(jax.vmap(run, axis_name=DEVICE_AXIS)).lower(learner).compile().as_text()
    in_loop = [line for line in text.splitlines() if " concatenate(" in line and "/while/body/" in line]
    assert len(in_loop) <= 3, "\n".join(in_loop)
