"""Tests of networks as single vectors: the same numbers and the same learning, in fewer operations."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from spo.algorithms.packing import in_one_array, move_average, pack, unpack
from spo.algorithms.updates import actor_critic_optimiser, adam, clip_actor_and_critic, gradient_step, run_updates
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


@pytest.fixture(params=["gpu", "cpu"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Updates as they run on that kind of device: networks are packed on a GPU only."""
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)
    return request.param


@pytest.fixture
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


PARAMS = ActorCriticParams(torso={}, actor=network(0, 2, 4), critic=network(1, 5))
OPTIMISER = actor_critic_optimiser(1e-2, 2e-2, 0.5)


def loss(params: ActorCriticParams, scale: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    total = sum(jnp.sum(jnp.sin(scale * leaf)) for leaf in jax.tree.leaves(params))
    return total, {"loss": total, "scale": scale}


@pytest.mark.usefixtures("_on_gpu")
def test_a_network_becomes_one_vector_and_back():
    packed = pack(PARAMS)
    assert packed.torso == {}
    assert (packed.actor.shape, packed.critic.shape) == ((6 * 3 + 6,), (5 * 3 + 3,))
    jax.tree.map(np.testing.assert_array_equal, unpack(packed, like=PARAMS), PARAMS)


def test_a_cpu_packs_nothing():
    assert pack(PARAMS) is PARAMS
    assert unpack(PARAMS, like=PARAMS) == PARAMS
    assert in_one_array(PARAMS) is PARAMS


@pytest.mark.usefixtures("_on_gpu")
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


@pytest.mark.usefixtures("_on_gpu")
def test_moments_of_an_optimiser_are_packed():
    state = OPTIMISER.init(PARAMS)
    assert max(leaf.ndim for leaf in jax.tree.leaves(pack(state))) == 1
    jax.tree.map(np.testing.assert_array_equal, unpack(pack(state), like=state), state)


@pytest.mark.usefixtures("backend")
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


@pytest.mark.usefixtures("backend")
def test_moving_averages():
    doubled = jax.tree.map(lambda x: 2.0 * x, PARAMS)
    expected = jax.tree.map(lambda x: 1.25 * x, PARAMS)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(close, move_average(PARAMS, doubled, 0.25), expected)


@pytest.mark.usefixtures("_on_gpu")
def test_the_loop_packs_gradients_only():
    """XLA cancels all other packing: an update concatenates each network's gradient, both of them, and the metrics."""

    def update(learner: Learner, scale: jax.Array) -> tuple[Learner, dict[str, jax.Array]]:
        return gradient_step(learner, lambda params: loss(params, scale), OPTIMISER)

    def run(learner: Learner) -> tuple[Learner, dict[str, jax.Array]]:
        return run_updates(update, learner, jnp.ones(3), skip_nonfinite=False)

    learner = jax.tree.map(lambda x: x[None], Learner(PARAMS, OPTIMISER.init(PARAMS)))
    text = jax.jit(jax.vmap(run, axis_name=DEVICE_AXIS)).lower(learner).compile().as_text()
    in_loop = [line for line in text.splitlines() if " concatenate(" in line and "/while/body/" in line]
    assert len(in_loop) <= 4, "\n".join(in_loop)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("scale", [0.1, 10.0], ids=["short", "long"])
def test_actor_with_torso_and_critic_are_clipped_separately(scale: float):
    """To the norms of `optax.clip_by_global_norm`, for networks and for their vectors."""
    shared = PARAMS._replace(torso=network(2, 3))
    gradients = jax.tree.map(lambda x: 0.1 * scale * x, shared)._replace(
        critic=jax.tree.map(jnp.ones_like, PARAMS.critic)
    )

    def clip(tree: Any) -> Any:
        return optax.clip_by_global_norm(2.0).update(tree, optax.EmptyState())[0]

    torso, actor = clip((gradients.torso, gradients.actor))
    expected = ActorCriticParams(torso, actor, clip(gradients.critic))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(close, clip_actor_and_critic(gradients, 2.0), expected)
    jax.tree.map(close, clip_actor_and_critic(pack(gradients), 2.0), pack(expected))


def test_a_gradient_that_is_not_finite_spoils_its_own_group_only():
    clipped = clip_actor_and_critic(PARAMS._replace(critic={"kernel": jnp.array([jnp.nan])}), 0.5)
    assert np.all(np.isfinite(ravel_pytree(clipped.actor)[0]))
    assert np.isnan(ravel_pytree(clipped.critic)[0]).all()


def test_the_state_of_the_optimiser_is_that_of_two_optimisers():
    """Clipping outside of them keeps the layout of checkpoints."""
    pair = {name: adam(1e-2, 0.5) for name in ("actor", "critic")}
    labels = ActorCriticParams(torso="actor", actor="actor", critic="critic")
    expected = optax.multi_transform(pair, labels).init(PARAMS)
    assert jax.tree.structure(OPTIMISER.init(PARAMS)) == jax.tree.structure(expected)


@pytest.mark.usefixtures("_on_gpu")
def test_trees_in_one_array_stay_as_they_are():
    jax.tree.map(np.testing.assert_array_equal, in_one_array(PARAMS), PARAMS)
    assert jax.tree.leaves(in_one_array(())) == []


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtypes", [(jnp.bfloat16, jnp.bfloat16), (jnp.bfloat16, jnp.float32)], ids=["one", "two"])
def test_updates_keep_the_data_types_of_parameters(dtypes: tuple):
    """The parameters of a user's own algorithm need not be float32, and its networks may have two types."""
    params = PARAMS._replace(
        actor=jax.tree.map(lambda x: x.astype(dtypes[0]), PARAMS.actor),
        critic=jax.tree.map(lambda x: x.astype(dtypes[1]), PARAMS.critic),
    )
    learner = Learner(params, OPTIMISER.init(params))

    def run(learner: Learner) -> tuple[Learner, dict[str, jax.Array]]:
        update = functools.partial(gradient_step, loss_fn=lambda params: loss(params, 10.0), optimiser=OPTIMISER)
        return run_updates(lambda learner, _: update(learner), learner, jnp.ones(3), skip_nonfinite=False)

    updated, _ = jax.vmap(run, axis_name=DEVICE_AXIS)(jax.tree.map(lambda x: x[None], learner))
    assert jax.tree.map(lambda x: x.dtype, updated) == jax.tree.map(lambda x: x.dtype, learner)
    joined = jax.tree.map(lambda x: x.dtype, in_one_array(params))
    assert joined == jax.tree.map(lambda x: x.dtype, params)
