"""Actor and critic: the paper's sizes, shared and separate parameters, batches, number formats and gradients."""

import functools
from collections import Counter

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.distributions import Gaussian, categorical
from spo.networks import (
    actor_critic,
    boxoban_architecture,
    cube_architecture,
    make_network,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.heads import GaussianHead
from spo.networks.torsos import MLP, CubeTorso, ResNet, dense
from spo.types import ContinuousActions, DiscreteActions

KEY = jax.random.key(11)
CUBE = jax.ShapeDtypeStruct((6, 3, 3), jnp.int8)
BOXOBAN = jax.ShapeDtypeStruct((10, 10), jnp.int32)
SMALL_GRID = jax.ShapeDtypeStruct((4, 5), jnp.int32)
ANT = jax.ShapeDtypeStruct((27,), jnp.float32)
TREE = {"position": jax.ShapeDtypeStruct((2, 2), jnp.float32), "clock": jax.ShapeDtypeStruct((), jnp.int32)}

# Small networks of every kind: (observation_spec, action_spec, dtype -> architecture)
SMALL = {
    "cube": (CUBE, DiscreteActions(18), lambda dtype: cube_architecture(width=16, head_sizes=(16,), dtype=dtype)),
    "boxoban": (
        SMALL_GRID,
        DiscreteActions(4),
        lambda dtype: boxoban_architecture(channels=(8, 8), head_sizes=(16, 16), dtype=dtype),
    ),
    "brax": (ANT, ContinuousActions(8), lambda dtype: mlp_architecture(depth=2, width=16, dtype=dtype)),
    "tree": (TREE, DiscreteActions(3), lambda dtype: mlp_architecture(depth=1, width=16, dtype=dtype)),
}


@functools.cache
def small(name, dtype=jnp.float32):
    """Returns a small network, the spec of its observations and its parameters."""
    spec, actions, architecture = SMALL[name]
    network = make_network(spec, actions, architecture(dtype))
    return network, spec, network.init(KEY, spec)


def observations(key, spec, *batch):
    """Returns random observations: small integers or normal numbers, by the spec's type."""
    leaves, structure = jax.tree.flatten(spec)

    def draw(key, leaf):
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jax.random.randint(key, (*batch, *leaf.shape), 0, 6).astype(leaf.dtype)
        return jax.random.normal(key, (*batch, *leaf.shape), leaf.dtype)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [draw(key, leaf) for key, leaf in zip(keys, leaves, strict=True)])


def count_parameters(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def equations(jaxpr):
    """Yields every equation of a jaxpr, nested ones included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def products(function, *arguments):
    """Returns the matrix products and convolutions of a function."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return [e for e in equations(jaxpr) if e.primitive.name in ("dot_general", "conv_general_dilated")]


# --- The paper's networks ---------------------------------------------------------------------------------------------


def test_cube_has_the_papers_sizes():
    params = jax.eval_shape(lambda: make_network(CUBE, DiscreteActions(18)).init(KEY, CUBE))
    square = 512 * 512 + 512
    assert count_parameters(params.torso) == 6 * 4 + (216 * 512 + 512) + square
    assert count_parameters(params.actor) == square + 512 * 18 + 18
    assert count_parameters(params.critic) == square + 512 + 1
    assert count_parameters(params) == 908843


def test_brax_ant_has_the_papers_sizes():
    params = jax.eval_shape(lambda: make_network(ANT, ContinuousActions(8)).init(KEY, ANT))
    torso = (27 * 256 + 256) + 3 * (256 * 256 + 256)
    assert count_parameters(params.torso) == 0
    assert count_parameters(params.actor) == torso + 2 * (256 * 8 + 8)
    assert count_parameters(params.critic) == torso + 256 + 1
    assert count_parameters(params) == 413_457


def test_boxoban_has_the_papers_sizes():
    params = jax.eval_shape(lambda: make_network(BOXOBAN, DiscreteActions(4)).init(KEY, BOXOBAN))

    def convolution(channels_in, channels_out):
        return 9 * channels_in * channels_out + channels_out

    groups = (convolution(7, 256) + 4 * convolution(256, 256)) + 5 * convolution(256, 256)
    groups += (convolution(256, 512) + 4 * convolution(512, 512)) + 5 * convolution(512, 512)
    head = (10 * 10 * 512 * 128 + 128) + (128 * 128 + 128)
    assert count_parameters(params.torso) == groups
    assert count_parameters(params.actor) == head + 128 * 4 + 4
    assert count_parameters(params.critic) == head + 128 + 1
    assert count_parameters(params) == 40_886_661


def test_the_papers_network_follows_from_the_observation():
    cube, boxoban, brax = paper_architecture(CUBE), paper_architecture(BOXOBAN), paper_architecture(ANT)
    assert isinstance(cube.torso, CubeTorso)
    assert isinstance(boxoban.torso, ResNet)
    assert isinstance(brax.torso, MLP)
    assert (cube.share_torso, boxoban.share_torso, brax.share_torso) == (True, True, False)
    assert (cube.head_activation, boxoban.head_activation, brax.torso.activation) == (nn.relu, nn.relu, nn.silu)
    for other in (
        jax.ShapeDtypeStruct((6, 3, 3), jnp.float32),
        jax.ShapeDtypeStruct((10, 10), jnp.float32),
        jax.ShapeDtypeStruct((9, 10), jnp.int32),
        (CUBE, ANT),
        TREE,
    ):
        assert isinstance(paper_architecture(other).torso, MLP)
    assert paper_architecture(CUBE, jnp.bfloat16).dtype == jnp.bfloat16
    assert paper_architecture(CUBE, jnp.bfloat16).torso.dtype == jnp.bfloat16


def test_an_architecture_overrides_the_papers_choice():
    network = make_network(CUBE, DiscreteActions(18), mlp_architecture(depth=3, width=8))
    params = jax.eval_shape(lambda: network.init(KEY, CUBE))
    assert params.torso == {}
    assert {name: layer["kernel"].shape for name, layer in params.actor["torso"].items()} == {
        "Dense_0": (54, 8),
        "Dense_1": (8, 8),
        "Dense_2": (8, 8),
    }


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: mlp_architecture(depth=0), "mlp_architecture needs positive whole numbers for depth"),
        (lambda: mlp_architecture(width=-1), "mlp_architecture needs positive whole numbers for width"),
        (lambda: cube_architecture(head_sizes=(0,)), "cube_architecture needs positive whole numbers for head_sizes"),
        (lambda: boxoban_architecture(head_sizes=(0,)), "boxoban_architecture needs positive whole numbers for head"),
        (lambda: make_network(ANT, DiscreteActions(0)), "CategoricalHead needs positive whole numbers"),
        (lambda: make_network(ANT, ContinuousActions(0)), "GaussianHead needs positive whole numbers"),
        (lambda: make_network(ANT, ContinuousActions(2, 1.0, -1.0)), "low < high"),
        (lambda: make_network(ANT, DiscreteActions(3), cube_architecture()).init(KEY, ANT), "CubeTorso takes one"),
    ],
)
def test_bad_sizes_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# --- Outputs ----------------------------------------------------------------------------------------------------------


def test_the_distribution_follows_the_actions():
    network, spec, params = small("cube")
    logits = network.actor(params, observations(KEY, spec), None)
    assert network.distribution is categorical
    assert logits.shape == (18,)

    network = make_network(ANT, ContinuousActions(8, -3.0, 5.0), mlp_architecture(depth=1, width=4))
    gaussian = network.actor(network.init(KEY, ANT), observations(KEY, ANT), None)
    assert isinstance(gaussian, Gaussian)
    assert gaussian.mean.shape == gaussian.scale.shape == (8,)
    np.testing.assert_allclose(network.distribution.to_environment(jnp.asarray([-50.0, 50.0])), [-3.0, 5.0])


@pytest.mark.parametrize("name", ["cube", "boxoban", "tree"])
def test_masks_are_respected(name):
    network, spec, params = small(name)
    observation = observations(KEY, spec)
    mask = jnp.arange(SMALL[name][1].num_actions) != 1
    for logits in (network.actor(params, observation, mask), network.both(params, observation, mask)[0]):
        np.testing.assert_array_equal(np.isneginf(logits), ~mask)
        np.testing.assert_array_equal(logits[mask], network.actor(params, observation, None)[mask])


@pytest.mark.parametrize("name", SMALL)
def test_both_returns_the_outputs_of_actor_and_critic(name):
    network, spec, params = small(name)
    observation = observations(KEY, spec)
    policy, value = network.both(params, observation, None)
    jax.tree.map(np.testing.assert_array_equal, policy, network.actor(params, observation, None))
    np.testing.assert_array_equal(value, network.critic(params, observation))
    assert value.shape == ()


@pytest.mark.parametrize("name", SMALL)
def test_actor_then_critic_returns_the_same(name):
    network, spec, params = small(name)
    observation = observations(KEY, spec)
    outputs = (network.actor_then_critic(params, observation, None), network.both(params, observation, None))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6), *outputs)
    assert network.separate == (name in ("brax", "tree"))


def test_stacked_torsos_are_two_torsos(monkeypatch):
    """A GPU evaluates both torsos in one batched product per layer: the same outputs and gradients."""
    network, spec, params = small("brax")
    monkeypatch.setattr(actor_critic, "torsos_in_turn", actor_critic.stacked_torsos)
    _, actions, architecture = SMALL["brax"]
    stacked, batch = make_network(spec, actions, architecture(jnp.float32)), observations(KEY, spec, 5)

    def loss(network, params):
        policies, values = jax.vmap(lambda observation: network.both(params, observation, None))(batch)
        return jnp.sum(policies.mean * policies.scale) + jnp.sum(values**2)

    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, *(jax.value_and_grad(functools.partial(loss, one))(params) for one in (stacked, network)))
    row = jax.tree.map(lambda leaf: leaf[0], batch)
    assert len(products(stacked.both, params, row, None)) < len(products(network.both, params, row, None))


@pytest.mark.parametrize(
    ("name", "in_torso", "in_head"),
    [
        ("cube", 1 + 2, 2),  # embedding, two layers
        ("boxoban", 2 * (1 + 4), 3),  # two groups of a convolution and two blocks of two
    ],
)
def test_a_shared_torso_is_evaluated_once(name, in_torso, in_head):
    network, spec, params = small(name)
    observation = observations(KEY, spec)
    assert len(products(network.actor, params, observation, None)) == in_torso + in_head
    assert len(products(network.critic, params, observation)) == in_torso + in_head
    assert len(products(network.both, params, observation, None)) == in_torso + 2 * in_head


# --- Batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_vmap_is_a_loop(name):
    network, spec, params = small(name)
    batch = observations(KEY, spec, 2, 3)
    batched = jax.vmap(jax.vmap(lambda observation: network.both(params, observation, None)))(batch)
    for i, j in np.ndindex(2, 3):
        one = network.both(params, jax.tree.map(lambda leaf, at=(i, j): leaf[at], batch), None)
        jax.tree.map(lambda got, want, at=(i, j): np.testing.assert_allclose(got[at], want, atol=1e-5), batched, one)


@pytest.mark.parametrize("name", SMALL)
def test_a_search_batch_is_one_product_per_layer(name):
    """A batch of roots times particles is one large product per layer, never a batch of small products."""
    network, spec, params = small(name)
    roots, particles = 2, 3

    def one(observation):
        return network.both(params, observation, None)

    single = products(one, observations(KEY, spec))
    batched = products(jax.vmap(jax.vmap(one)), observations(KEY, spec, roots, particles))
    assert Counter(e.primitive.name for e in batched) == Counter(e.primitive.name for e in single)
    for equation, alone in zip(batched, single, strict=True):
        left, right = (variable.aval.shape for variable in equation.invars)
        if left == alone.invars[0].aval.shape and name == "cube":
            continue  # a product of parameters only: the cube's embedding with its first layer
        assert np.prod(left) == roots * particles * np.prod(alone.invars[0].aval.shape)
        assert right == alone.invars[1].aval.shape  # the parameters are not repeated
        if equation.primitive.name == "dot_general":
            assert equation.params["dimension_numbers"][1] == ((), ())  # no batch dimensions: one product
        else:
            assert equation.params["feature_group_count"] == equation.params["batch_group_count"] == 1
            assert left[0] == roots * particles


@pytest.mark.parametrize("name", SMALL)
def test_parameters_stack_over_seeds(name):
    network, spec, _ = small(name)
    keys = jax.random.split(KEY, 2)
    observation = observations(KEY, spec)
    stacked = jax.lax.map(lambda key: network.init(key, spec), keys)
    values = jax.vmap(network.critic, in_axes=(0, None))(stacked, observation)
    for seed in range(2):
        params = jax.tree.map(lambda leaf, seed=seed: leaf[seed], stacked)
        np.testing.assert_allclose(values[seed], network.critic(params, observation), atol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), params, network.init(keys[seed], spec))


@pytest.mark.parametrize("name", SMALL)
def test_values_start_near_zero(name):
    """For millions of steps, a critic with an initial constant changes the temperature of SPO's search."""
    spec, actions, architecture = SMALL[name]
    network = make_network(spec, actions, architecture(jnp.float32))
    for seed in range(5):
        params = network.init(jax.random.key(seed), spec)
        values = jax.vmap(lambda observation, params=params: network.critic(params, observation))(
            observations(KEY, spec, 32)
        )
        assert np.abs(values).max() < 0.1


# --- Types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_dtype_is_that_of_the_computation_only(name):
    network, spec, params = small(name, jnp.bfloat16)
    plain, _, plain_params = small(name)
    observation = observations(KEY, spec)
    jax.tree.map(np.testing.assert_array_equal, params, plain_params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}
    outputs = network.both(params, observation, None)
    assert {leaf.dtype for leaf in jax.tree.leaves(outputs)} == {np.dtype("float32")}

    # Everything runs in bfloat16, with two exceptions: the outputs (logits or mean and scale, and the value), and
    # products of parameters only (the cube's embedding times its first layer).
    num_in_float32 = {"cube": 3}.get(name, 2)
    types = Counter(str(e.invars[0].aval.dtype) for e in products(network.both, params, observation, None))
    assert types["float32"] == num_in_float32
    assert types["bfloat16"] == sum(types.values()) - num_in_float32 > 0

    expected = plain.both(params, observation, None)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.05), outputs, expected)
    assert any(
        not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(outputs), jax.tree.leaves(expected), strict=True)
    )


# --- Gradients and initialisation -------------------------------------------------------------------------------------


def losses(network, spec):
    """Returns a policy loss and a value loss of a batch that depend on every output."""
    batch = observations(jax.random.key(5), spec, 32)

    def policy_loss(params):
        policies = jax.vmap(lambda observation: network.actor(params, observation, None))(batch)
        return sum(jnp.sum(jnp.sin(leaf + jnp.arange(leaf.shape[-1])[None])) for leaf in jax.tree.leaves(policies))

    def value_loss(params):
        return jnp.sum(jax.vmap(lambda observation: network.critic(params, observation))(batch))

    return policy_loss, value_loss


def norms(tree):
    return [float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", SMALL)
def test_each_loss_reaches_its_own_parameters_and_no_others(name):
    network, spec, params = small(name)
    for_policy, for_value = (jax.jit(jax.grad(loss))(params) for loss in losses(network, spec))
    assert all(norm > 1e-6 for norm in norms((for_policy.torso, for_policy.actor)))
    assert all(norm > 1e-6 for norm in norms((for_value.torso, for_value.critic)))
    assert all(norm == 0.0 for norm in norms((for_policy.critic, for_value.actor)))
    assert bool(jax.tree.leaves(params.torso)) == (name in ("cube", "boxoban"))


@pytest.mark.parametrize("name", SMALL)
def test_the_key_decides_the_parameters(name):
    network, spec, first = small(name)
    again, other = network.init(KEY, spec), network.init(jax.random.key(12), spec)
    jax.tree.map(np.testing.assert_array_equal, first, again)

    def kernels(tree):
        return [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree) if path[-1].key == "kernel"]

    assert all(not np.allclose(a, b) for a, b in zip(kernels(first), kernels(other), strict=True))
    # No two kernels of one network are equal.
    drawn = [
        np.asarray(kernel).ravel()[:8] / np.linalg.norm(np.asarray(kernel).ravel()[:8]) for kernel in kernels(first)
    ]
    assert all(not np.array_equal(np.round(a, 5), np.round(b, 5)) for i, a in enumerate(drawn) for b in drawn[i + 1 :])


def test_raw_keys_are_accepted():
    network, spec, _ = small("brax")
    typed = network.init(jax.random.key(0), spec)
    raw = network.init(jax.random.PRNGKey(0), spec)
    jax.tree.map(np.testing.assert_array_equal, typed, raw)


def test_a_gaussian_head_is_two_linear_layers():
    """Names, initial values and outputs are those of two layers, which the head computes as one product."""

    class TwoLayers(nn.Module):
        @nn.compact
        def __call__(self, features: jax.Array) -> Gaussian:
            bias = float(np.log(np.expm1(0.7 - 1e-3)))
            mean = dense(3, 0.01, jnp.float32, name="mean")(features)
            raw_scale = dense(3, 0.01, jnp.float32, bias=bias, name="raw_scale")(features)
            return Gaussian(mean, nn.softplus(raw_scale) + 1e-3)

    features = jax.random.normal(KEY, (5,))
    expected, variables = TwoLayers().init_with_output(KEY, features)
    output, own_variables = GaussianHead(3).init_with_output(KEY, features)
    jax.tree.map(np.testing.assert_array_equal, own_variables, variables)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), output, expected)
