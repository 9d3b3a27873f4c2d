"""The GPU kernel of Q(s, a), interpreted on a CPU, beside the same MLP in Flax."""

import dataclasses
import functools
import re
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo import presets
from spo.networks import QNetwork, joint_kernel, make_q_network, mlp_architecture, q_network
from spo.networks.joint_kernel import BLOCK_SIZE, Layers, can_use_kernel, make_values_fn
from spo.networks.torsos import MLP
from spo.training.trainer import Trainer
from spo.types import ContinuousActions

OBSERVATION_SIZE, ACTION_SIZE = 5, 3
SPEC = jax.ShapeDtypeStruct((OBSERVATION_SIZE,), jnp.float32)
#: Share of the standard deviation of Q over actions. Ten bits of each factor remain.
TOLERANCE = 0.02


def make_network(depth=2, width=128, action_size=ACTION_SIZE, **architecture) -> QNetwork:
    chosen = mlp_architecture(depth, width)._replace(**architecture)
    return make_q_network(SPEC, ContinuousActions(action_size), chosen)


@pytest.fixture
def interpreted(monkeypatch):
    """Q networks made in this test run the kernel on the CPU, whatever the number of actions."""
    monkeypatch.setattr(q_network, "make_values_fn", lambda *args: make_values_fn(*args, interpret=True))


def inputs(num_actions=128, action_size=ACTION_SIZE, seed=0):
    key_observation, key_actions = jax.random.split(jax.random.key(seed))
    actions = jax.random.uniform(key_actions, (num_actions, action_size), minval=-1.0, maxval=1.0)
    return jax.random.normal(key_observation, (OBSERVATION_SIZE,)), actions


def init(network, seed=1):
    """Returns parameters whose biases count and whose last layer is as large as the others."""
    params = network.init(jax.random.key(seed), SPEC)
    leaves, treedef = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [leaf + 0.1 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(treedef, noisy)


def one_by_one(network, params, observation, actions):
    return jax.vmap(network.value, in_axes=(None, None, 0))(params, observation, actions)


def assert_close(found, wanted):
    assert np.std(wanted) > 0
    np.testing.assert_allclose(found, wanted, atol=TOLERANCE * np.std(wanted), rtol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"depth": 1},
        {"depth": 4, "width": 256},
        {"torso": MLP((128, 128), nn.relu)},
        {"action_size": 1},
        {"action_size": 17},  # more than the 16 of the smallest product
    ],
)
@pytest.mark.parametrize("num_actions", [64, 192])
def test_the_kernel_is_the_mlp(interpreted, changes, num_actions):
    network = make_network(**changes)
    params = init(network)
    observation, actions = inputs(num_actions, changes.get("action_size", ACTION_SIZE))
    found = network.values_of(params, observation, actions)
    wanted = one_by_one(network, params, observation, actions)
    assert not np.array_equal(found, wanted)  # the kernel did run
    assert_close(found, wanted)


def test_batches_of_states_and_of_parameters(interpreted):
    network = make_network()
    twins = jax.tree.map(lambda *leaves: jnp.stack(leaves), init(network, 1), init(network, 5))
    observations, actions = (jnp.stack(pair) for pair in zip(inputs(seed=0), inputs(seed=1), strict=True))

    def of_twins(evaluate):
        over_states = jax.vmap(evaluate, in_axes=(None, 0, 0))
        return jax.vmap(over_states, in_axes=(0, None, None))(twins, observations, actions)

    found = of_twins(network.values_of)
    assert found.shape == (2, 2, 128)
    assert_close(found, of_twins(lambda *args: one_by_one(network, *args)))


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_numbers_beyond_float16_are_scaled(interpreted, size):
    """float16 ends at 65504, and its spacing near 0 is 6e-8."""
    network = make_network(torso=MLP((128, 128), nn.relu))
    params = init(network)
    biases = {name: jnp.zeros_like(layer["bias"]) for name, layer in params["torso"].items()}
    params["torso"] = {
        name: {"kernel": layer["kernel"], "bias": biases[name]} for name, layer in params["torso"].items()
    }
    params["head"]["value"]["bias"] *= 0.0
    observation, actions = inputs()
    found = network.values_of(params, size * observation, size * actions)
    wanted = size * one_by_one(
        network, params, observation, actions
    )  # without biases, a ReLU network is linear in size
    assert_close(found / size, wanted / size)


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_weights_beyond_float16_are_scaled(interpreted, size):
    network = make_network(torso=MLP((128, 128), nn.relu))
    params, arguments = init(network), inputs()
    wanted = one_by_one(network, params, *arguments)
    hidden, output = params["torso"]["Dense_1"], params["head"]["value"]
    hidden |= {"kernel": size * hidden["kernel"], "bias": size * hidden["bias"]}
    output |= {"kernel": output["kernel"] / size}
    assert_close(network.values_of(params, *arguments), wanted)


def test_columns_of_weights_have_their_own_scale(interpreted):
    """One unit with large weights, which never fires, does not make the others less exact."""
    network = make_network()
    params, arguments = init(network), inputs()
    params["torso"]["Dense_0"]["bias"] = params["torso"]["Dense_0"]["bias"].at[0].set(10.0)
    params["torso"]["Dense_1"]["kernel"] = params["torso"]["Dense_1"]["kernel"].at[0, 0].set(-1e5)
    assert_close(network.values_of(params, *arguments), one_by_one(network, params, *arguments))


@pytest.mark.parametrize("activation", [nn.silu, nn.relu])
def test_zeros_need_no_scale(interpreted, activation):
    """All actions are 0, and so are all weights of one layer."""
    network = make_network(3, torso=MLP((128, 128, 128), activation))
    params, (observation, actions) = init(network), inputs()
    params["torso"]["Dense_1"] = jax.tree.map(jnp.zeros_like, params["torso"]["Dense_1"])
    arguments = (params, observation, jnp.zeros_like(actions))
    np.testing.assert_allclose(network.values_of(*arguments), one_by_one(network, *arguments), rtol=1e-2)


def test_rows_have_their_own_scale(interpreted):
    network = make_network(torso=MLP((128, 128), nn.relu))
    params, (observation, actions) = init(network), inputs()
    huge = actions.at[3].set(1e9)
    found, wanted = (network.values_of(params, observation, chosen) for chosen in (huge, actions))
    np.testing.assert_array_equal(np.delete(found, 3), np.delete(wanted, 3))
    assert abs(found[3]) > 1e6


@pytest.mark.parametrize("activation", [nn.silu, nn.relu])
def test_nan_stays_in_its_row(interpreted, activation):
    network = make_network(torso=MLP((128, 128), activation))
    observation, actions = inputs()
    found = network.values_of(init(network), observation, actions.at[5, 1].set(jnp.nan))
    assert np.flatnonzero(np.isnan(found)).tolist() == [5]


def test_derivatives_are_those_of_the_mlp(interpreted):
    network = make_network()
    arguments = (init(network), *inputs())

    def gradients(evaluate):
        return jax.grad(lambda *args: jnp.sum(evaluate(*args) ** 2), argnums=(0, 1, 2))(*arguments)

    found, wanted = gradients(network.values_of), gradients(lambda *args: one_by_one(network, *args))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


# --- Where it is used -------------------------------------------------------------------------------------------------


def layers(depth=2, width=128, dtype=jnp.float32) -> Layers:
    kernels = [
        jnp.zeros((OBSERVATION_SIZE + ACTION_SIZE if not layer else width, width), dtype) for layer in range(depth)
    ]
    return Layers(kernels, [jnp.zeros(width, dtype)] * depth, jnp.zeros(width, dtype), jnp.zeros((), dtype))


@pytest.fixture(autouse=True)
def any_jax(monkeypatch):
    """Lets the kernel be used with the JAX that is installed, which may be too old to compile it with MPO."""
    monkeypatch.setattr(joint_kernel, "OLDEST_JAX", (0, 10))


def test_an_older_jax_does_not_use_the_kernel(monkeypatch):
    monkeypatch.setattr(joint_kernel, "OLDEST_JAX", (*jax.__version_info__[:2], jax.__version_info__[2] + 1))
    assert not can_use_kernel(nn.silu, layers(), jnp.zeros((256, ACTION_SIZE)))


def test_networks_and_actions_that_suit_the_kernel():
    actions = jnp.zeros((256, ACTION_SIZE))
    assert can_use_kernel(nn.silu, layers(), actions)
    assert can_use_kernel(nn.relu, layers(depth=4, width=256), actions)
    assert not can_use_kernel(nn.gelu, layers(), actions)
    assert not can_use_kernel(nn.silu, layers(width=64), actions)
    assert not can_use_kernel(nn.silu, layers(width=512), actions)
    assert not can_use_kernel(nn.silu, layers(depth=0), actions)
    assert not can_use_kernel(nn.silu, layers(dtype=jnp.bfloat16), actions)
    assert not can_use_kernel(nn.silu, layers(), actions.astype(jnp.bfloat16))
    assert not can_use_kernel(nn.silu, layers(), actions[:100])
    uneven = layers()
    uneven.kernels[1] = jnp.zeros((128, 256))
    assert not can_use_kernel(nn.silu, uneven, actions)


@pytest.mark.parametrize(
    ("precision", "suits"),
    [("default", True), ("tensorfloat32", True), ("high", False), ("highest", False), ("float32", False)],
)
def test_only_products_in_tf32_are_replaced(precision, suits):
    with jax.default_matmul_precision(precision):
        assert can_use_kernel(nn.silu, layers(), jnp.zeros((256, ACTION_SIZE))) == suits


def test_tf32_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert not can_use_kernel(nn.silu, layers(), jnp.zeros((256, ACTION_SIZE)))


@pytest.mark.parametrize(("capability", "suits"), [("7.5", False), ("8.0", True), ("10.0", True)])
def test_older_gpus_have_no_tf32(monkeypatch, capability, suits):
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(compute_capability=capability)])
    assert can_use_kernel(nn.silu, layers(), jnp.zeros((256, ACTION_SIZE))) == suits


def has_kernel(network, num_actions=128) -> bool:
    arguments = (jax.eval_shape(lambda: network.init(jax.random.key(0), SPEC)), *inputs(num_actions))
    return "joint_mlp" in str(jax.make_jaxpr(network.values_of)(*arguments))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


class NormalisedMLP(MLP):
    @nn.compact
    def __call__(self, observation):
        return nn.LayerNorm()(super().__call__(observation))


def test_only_a_gpu_runs_it():
    assert not has_kernel(make_network())


def test_a_gpu_runs_it_where_the_network_suits_it(as_on_a_gpu):
    assert has_kernel(make_network())
    assert not has_kernel(make_network(), num_actions=100)
    assert not has_kernel(make_network(torso=MLP((128, 128), nn.silu, jnp.bfloat16)))
    assert not has_kernel(make_network(torso=NormalisedMLP((128, 128), nn.silu)))
    assert not has_kernel(make_network(torso=MLP((), nn.silu)))
    assert not has_kernel(make_network(head_sizes=(8,)))


@pytest.mark.parametrize("torso", [MLP((128, 128), nn.silu), MLP((), nn.silu)])
def test_on_a_cpu_the_values_are_those_of_the_mlp(as_on_a_gpu, torso):
    """Also in a program for the CPU of a machine with a GPU."""
    network = make_network(torso=torso)
    arguments = (init(network), *inputs())
    wanted = one_by_one(network, *arguments)
    np.testing.assert_array_equal(jax.jit(network.values_of)(*arguments), jax.jit(lambda: wanted)())


def test_no_maximum_of_triton_drops_nan_of_features(as_on_a_gpu, monkeypatch, capsys):
    """Triton's maximum of NaN and 0 is 0. The maxima that scale the rows of a block may drop NaN, its features not."""
    pallas = pytest.importorskip("jax.experimental.pallas")
    monkeypatch.setattr(pallas, "pallas_call", functools.partial(pallas.pallas_call, debug=True))
    network = make_network(torso=MLP((128, 128), nn.relu))
    params = jax.eval_shape(lambda: network.init(jax.random.key(0), SPEC))
    jax.jit(network.values_of).trace(params, *inputs()).lower(lowering_platforms=("cuda",))
    shapes = re.findall(r"arith\.max\w+ .*: (\S+)", capsys.readouterr().out)
    assert set(shapes) == {"f32", f"tensor<{BLOCK_SIZE}x1xf32>"}


@pytest.mark.parametrize(
    ("algorithm", "changes"), [("mpo", {"num_samples": 64}), ("smc_ent", {"num_value_samples": 64})]
)
def test_training_uses_it(as_on_a_gpu, algorithm, changes):
    """A gradient through these evaluations would replace the kernel by the MLP."""
    chosen = presets.get("paper/ant", algorithm)
    sizes = {"num_envs": 2, "rollout_length": 2, "batch_size": 4, "num_updates": 2, "replay_size": 64}
    config = dataclasses.replace(chosen.config, **sizes, **changes)
    trainer = Trainer(dataclasses.replace(chosen, config=config))
    program = str(jax.make_jaxpr(lambda state: trainer.run_fn(state, 1))(trainer.abstract_state))
    assert "joint_mlp" in program


# --- Q networks without a function for many actions -------------------------------------------------------------------


def test_a_network_without_values_computes_them_one_by_one():
    network = make_network()._replace(values=None)
    arguments = (init(network), *inputs())
    np.testing.assert_array_equal(network.values_of(*arguments), one_by_one(network, *arguments))


def test_preprocessing_is_for_many_actions_too():
    network = make_network(width=16)
    params, (observation, actions) = init(network), inputs(4)
    doubled = network.with_preprocessing(lambda observation: 2.0 * observation)
    wanted = network.values_of(params, 2.0 * observation, actions)
    np.testing.assert_array_equal(doubled.values_of(params, observation, actions), wanted)
    assert not np.array_equal(wanted, network.values_of(params, observation, actions))
    without = network._replace(values=None)
    np.testing.assert_allclose(
        without.with_preprocessing(lambda observation: 2.0 * observation).values_of(params, observation, actions),
        wanted,
        rtol=1e-6,
    )
