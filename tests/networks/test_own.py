"""An own network: what the function may return, the sentences for everything else, and the line that names it."""

import re
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.distributions import Gaussian, categorical, tanh_gaussian
from spo.environments import make
from spo.networks import (
    ActorCritic,
    ActorCriticParams,
    Architecture,
    Networks,
    default_architecture,
    make_network,
    make_q_network,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.config import NetworkConfig, make_architecture, network_config
from spo.networks.description import count_parameters, describe_network
from spo.networks.own import build_own_network, give_network
from spo.networks.torsos import CNN, MLP
from spo.types import ContinuousActions, DiscreteActions

KEY = jax.random.key(5)
IMAGE = jax.ShapeDtypeStruct((12, 10, 3), jnp.uint8)
ACTIONS = DiscreteActions(4)


class SmallCNN(nn.Module):
    """Torso of the tests: one convolution."""

    @nn.compact
    def __call__(self, observation):
        x = nn.relu(nn.Conv(4, (3, 3), 4)(observation / 255.0))
        return nn.relu(nn.Dense(8)(jnp.ravel(x)))


def small_cnn(observation_spec, action_spec):
    return SmallCNN()


def linear_actor_critic(observation_spec, action_spec) -> ActorCritic:
    size = observation_spec.size

    def init(key, spec):
        return ActorCriticParams({}, jnp.zeros((size, action_spec.num_actions)), jnp.zeros(size))

    def actor(params, observation, action_mask):
        return jnp.where(action_mask, jnp.ravel(observation).astype(float) @ params.actor, -jnp.inf)

    def critic(params, observation):
        return jnp.ravel(observation).astype(float) @ params.critic

    return ActorCritic(init, actor, critic, lambda p, o, m: (actor(p, o, m), critic(p, o)), categorical)


def build(function: Any, actions: Any = ACTIONS) -> Architecture | Networks:
    return build_own_network("mine:network", function, IMAGE, actions)


def test_a_torso_serves_policies_values_and_q():
    image = jax.random.randint(KEY, IMAGE.shape, 0, 255).astype(jnp.uint8)
    for actions, num_outputs in ((ACTIONS, 4), (ContinuousActions(2), 2)):
        built = build(small_cnn, actions)
        network, q_network = make_network(IMAGE, actions, built), make_q_network(IMAGE, actions, built)
        policy, value = network.both(network.init(KEY, IMAGE), image, None)
        assert jax.tree.leaves(policy)[0].shape == (num_outputs,)
        assert value.shape == ()
        action = jnp.ones((), int) if isinstance(actions, DiscreteActions) else jnp.asarray([0.5, -0.5])
        assert q_network.value(q_network.init(KEY, IMAGE), image, action).shape == ()


def test_q_of_a_continuous_action_behind_a_torso_is_no_sum():
    q_network = make_q_network(IMAGE, ContinuousActions(2), build(small_cnn, ContinuousActions(2)))
    params = q_network.init(KEY, IMAGE)
    images = jax.random.randint(KEY, (2, *IMAGE.shape), 0, 255).astype(jnp.uint8)
    slopes = [jax.grad(q_network.value, argnums=2)(params, image, jnp.asarray([0.5, -0.5])) for image in images]
    assert np.abs(slopes[0] - slopes[1]).max() > 1e-4


def test_a_whole_actor_critic_is_used_as_it_is():
    built = build(linear_actor_critic)
    network = make_network(IMAGE, ACTIONS, built)
    params = network.init(KEY, IMAGE)
    assert count_parameters(params) == IMAGE.size * 5
    assert network.critic(params, jnp.ones(IMAGE.shape, jnp.uint8)) == 0.0
    with pytest.raises(ValueError, match=re.escape("return Networks(actor_critic, q_network), or a torso")):
        make_q_network(IMAGE, ACTIONS, built)
    q_network = make_q_network(IMAGE, ACTIONS, mlp_architecture(depth=1, width=4))
    both = build(lambda *specs: Networks(linear_actor_critic(*specs), q_network))
    assert make_q_network(IMAGE, ACTIONS, both) is q_network


def fails(observation_spec, action_spec):
    raise KeyError("no size")


class Broken(nn.Module):
    """A torso with one fault."""

    fault: str

    @nn.compact
    def __call__(self, observation):
        x = observation.astype(jnp.float32)
        if self.fault == "batch_norm":
            return nn.BatchNorm(use_running_average=False)(jnp.ravel(x)[None])[0]
        if self.fault == "half":
            return nn.Dense(3, param_dtype=jnp.float16)(jnp.ravel(x))
        return x @ jnp.zeros((7, 2)) if self.fault == "shapes" else x


class Converted(nn.Module):
    """A torso with features of a given type."""

    dtype: Any

    def __call__(self, observation):
        return jnp.ravel(observation).astype(self.dtype)


def with_part(**parts: Any) -> Any:
    return lambda *specs: linear_actor_critic(*specs)._replace(**parts)


def with_q_part(**parts: Any) -> Any:
    q_network = make_q_network(IMAGE, ACTIONS, mlp_architecture(depth=1, width=4))._replace(**parts)
    return lambda *specs: Networks(linear_actor_critic(*specs), q_network)


def test_the_features_of_a_torso_may_have_another_float_type():
    built = build(lambda *_: Converted(jnp.bfloat16))
    network = make_network(IMAGE, ACTIONS, built)
    observation = jnp.ones(IMAGE.shape, jnp.uint8)
    assert network.actor(network.init(KEY, IMAGE), observation, None).dtype == jnp.float32
    policy = Gaussian(jnp.zeros(2), jnp.ones(2, jnp.float16))
    network = linear_actor_critic(IMAGE, ACTIONS)._replace(distribution=tanh_gaussian(), actor=lambda *_: policy)
    with pytest.raises(ValueError, match=re.escape("each dimension in float32, got float16[2]: convert it")):
        build(lambda *_: network, ContinuousActions(2))


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        pytest.param(function, sentence, id=name)
        for name, function, sentence in [
            ("raises", fails, "The network mine:network raised KeyError (in test_own.py, line "),
            (
                "class",
                SmallCNN,
                "is a class: name a function (observation_spec, action_spec) -> module, such as one th",
            ),
            ("nothing", lambda *_: None, "mine:network returned a NoneType: return a Flax module"),
            (
                "image",
                lambda *_: Broken("image"),
                "one vector of features, float32[F], got float32[12, 10, 3]: end with",
            ),
            ("state", lambda *_: Broken("batch_norm"), "(batch_stats), and nothing would update them: use layers"),
            ("half", lambda *_: Broken("half"), "parameters of float16 (['Dense_0']['bias']): set param_dtype"),
            ("shapes", lambda *_: Broken("shapes"), "without a batch axis, raised TypeError (in test_own.py, line "),
            ("family", with_part(distribution=None), "an ActorCritic whose distribution is a spo.distributions"),
            ("logits", with_part(actor=lambda p, o, m: jnp.zeros(3)), "one logit for each action, float32[4], got"),
            (
                "bfloat16",
                with_part(actor=lambda p, o, m: jnp.zeros(4, jnp.bfloat16)),
                "one logit for each action in float32, got bfloat16[4]: convert it with .astype(jnp.float32).",
            ),
            (
                "float16",
                with_part(critic=lambda p, o: jnp.zeros((), jnp.float16)),
                "one value in float32, got float16[]: convert it with .astype(jnp.float32).",
            ),
            (
                "q_bfloat16",
                with_q_part(all_values=lambda p, o: jnp.zeros(4, jnp.bfloat16)),
                "one value for each action in float32, got bfloat16[4]: convert it with .astype(jnp.float32).",
            ),
            ("value", with_part(critic=lambda p, o: jnp.zeros(1)), "`critic` of the network mine:network must return"),
            ("both", with_part(both=lambda p, o, m: jnp.zeros(4)), "must return (policy, value), got float32[4]"),
            ("init", with_part(init=lambda k, s: 1 / 0), "`init` of the network mine:network raised ZeroDivisionError"),
            ("q", with_q_part(value=lambda p, o, a: jnp.zeros(1)), "`value` of the Q network of mine:network must ret"),
            ("q_all", with_q_part(all_values=lambda p, o: jnp.zeros(3)), "one value for each action, float32[4], got"),
            (
                "q_values",
                with_q_part(values=lambda p, o, a: jnp.zeros(())),
                "`values` of the Q network of mine:network must return one value for each of three actions, float32[3]",
            ),
            ("q_type", lambda *s: Networks(*[linear_actor_critic(*s)] * 2), "The Q network of mine:network is a Actor"),
            (
                "q_none",
                with_q_part(all_values=None),
                "is None: give a function that returns Q of every",
            ),
        ]
    ],
)
def test_a_fault_is_named_in_one_sentence(function: Any, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)) as raised:
        build(function)
    assert "\n" not in str(raised.value)


def test_the_kind_is_the_name_of_the_function(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(
        "from spo.networks.torsos import MLP\nimport jax\n\n\ndef small(*specs):\n"
        "    return MLP((4,), jax.nn.relu)\n\n\ndef wrong(*specs):\n    return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    environment = make("tiny/chain").train
    imported = make_architecture(environment, NetworkConfig(kind="my_networks:small"))
    assert imported.torso.hidden_sizes == (4,)
    with pytest.raises(ValueError, match="my_networks:wrong returned a int"):
        make_architecture(environment, NetworkConfig(kind="my_networks:wrong"))
    with pytest.raises(ValueError, match=re.escape("has no 'smal'. Did you mean 'small'")):
        make_architecture(environment, NetworkConfig(kind="my_networks:smal"))
    import my_networks

    assert network_config(my_networks.small) == (NetworkConfig(kind="my_networks:small"), my_networks.small)

    assert network_config("my_networks:small") == (NetworkConfig(kind="my_networks:small"), None)

    def local(*specs):
        return MLP((5,), nn.relu)

    config, function = network_config(local)
    assert config.kind == "object:local"
    with give_network(function):
        assert make_architecture(environment, config).torso.hidden_sizes == (5,)
    with pytest.raises(ValueError, match=r"The network 'local' was given as an object .* pass its function again"):
        make_architecture(environment, config)
    with pytest.raises(ValueError, match=r"network must be a NetworkConfig, a function .*, got 3\."):
        network_config(3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"channels": ()}, r"network.channels must have at least one number"),
        ({"channels": (0,)}, r"network.channels contains a value that must be 1 or more"),
        ({"kind": "transformer"}, r"network.kind must be auto, mlp, cnn, resnet, paper or the name of a function"),
        ({"kind": "mine:network", "width": 8}, r"network.width is a size of the default networks"),
    ],
    ids=["none", "zero", "unknown", "sized"],
)
def test_settings_are_checked(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        NetworkConfig(**options)


# --- Defaults ---------------------------------------------------------------------------------------------------------
def with_observation(spec: Any) -> Any:
    return make("tiny/chain").train._replace(observation_spec=spec, name="mine")


def test_images_get_a_cnn_alone_and_beside_other_arrays():
    images = [IMAGE, jax.ShapeDtypeStruct((84, 84, 4), jnp.float32), jax.ShapeDtypeStruct((8, 8, 1), jnp.bool_)]
    for spec in images:
        assert isinstance(default_architecture(spec).torso, CNN)
        assert isinstance(paper_architecture(spec).torso, MLP)
        assert isinstance(make_architecture(with_observation(spec), NetworkConfig(kind="paper")).torso, MLP)
    mixed = {
        "image": IMAGE,
        "speed": jax.ShapeDtypeStruct((2,), jnp.float32),
        "lives": jax.ShapeDtypeStruct((), jnp.int32),
    }
    torso = make_architecture(with_observation(mixed), NetworkConfig(channels=(4, 8), width=16)).torso
    observation = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), mixed)
    features, variables = torso.init_with_output(KEY, observation)
    assert features.shape == (16,)
    # 12 x 10 is halved once, to 6 x 5.
    assert variables["params"]["Dense_0"]["kernel"].shape == (6 * 5 * 8 + 3, 16)
    other = torso.apply(variables, {**observation, "speed": jnp.zeros(2)})
    assert not np.array_equal(features, other)
    with pytest.raises(ValueError, match=r"network.depth does not apply to images, and mine shows one"):
        make_architecture(with_observation(IMAGE), NetworkConfig(depth=2))


@pytest.mark.parametrize(
    "spec",
    [
        jax.ShapeDtypeStruct((6, 3, 3), jnp.int8),
        jax.ShapeDtypeStruct((10, 10), jnp.int32),
        jax.ShapeDtypeStruct((27,), jnp.float32),
        jax.ShapeDtypeStruct((6, 4, 4), jnp.int32),
        {"position": jax.ShapeDtypeStruct((2, 2), jnp.float32), "clock": jax.ShapeDtypeStruct((), jnp.int32)},
    ],
    ids=["cube", "boxoban", "ant", "large_cube", "dictionary"],
)
def test_without_images_the_default_is_the_papers(spec: Any):
    assert default_architecture(spec) == paper_architecture(spec)


@pytest.mark.parametrize(
    ("network", "kind", "words"),
    [
        (mlp_architecture(), "auto", "MLP of 4 x 256"),
        (
            paper_architecture(jax.ShapeDtypeStruct((6, 3, 3), jnp.int8)),
            "auto",
            "residual MLP of 2 x 512 over embedded",
        ),
        (paper_architecture(jax.ShapeDtypeStruct((10, 10), int)), "auto", "ResNet with 256, 256, 512 and 512 channels"),
        (default_architecture(IMAGE), "auto", "CNN with 32, 64, 64 and 64 channels and 256 units"),
        (Architecture(SmallCNN(), (), nn.relu, True, jnp.float32), "mine:network", "mine:network (torso SmallCNN)"),
        (Networks(None), "object:network", "network"),
    ],
    ids=["mlp", "cube", "resnet", "cnn", "own", "own_object"],
)
def test_a_network_is_described_with_its_number_of_parameters(network: Any, kind: str, words: str):
    line = describe_network(network, kind, 271_000)
    assert line.startswith(f"Network: {words}")
    assert line.endswith(", 271,000 parameters")
