"""Tests of the arguments of `Agent.act`: the usual mistakes get sentences, and valid arguments pass."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.environments.wrappers import episode_limit
from spo.training.act_inputs import make_check
from spo.types import DiscreteActions, Environment, TimeStep

KEY = jax.random.key(0)


def observe(position: Any) -> TimeStep:
    never = jnp.zeros((), bool)
    return TimeStep({"place": position}, jnp.zeros(()), never, never)


INNER = Environment(
    reset=lambda key: ({"position": jnp.zeros(2)}, observe(jnp.zeros(2))),
    step=lambda key, state, action: (state, observe(state["position"])),
    observation_spec={"place": jax.ShapeDtypeStruct((2,), jnp.float32)},
    action_spec=DiscreteActions(3),
    name="warehouse",
)
ENVIRONMENT = episode_limit(INNER, 10)
STATE, TIMESTEP = ENVIRONMENT.reset(KEY)
CHECK = make_check(ENVIRONMENT, searches=True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0, STATE, TIMESTEP, True), r"key must be one random key, such as jax\.random\.key\(0\), got 0\."),
        ((None, STATE, TIMESTEP, False), "key must be one random key"),
        ((jax.random.split(KEY, 3), STATE, TIMESTEP, True), r"got key<fry>\[3\]"),
        ((KEY, None, TIMESTEP, True), "state is None: the search needs the state .* or .* use_search=False"),
        ((KEY, INNER.reset(KEY)[0], TIMESTEP, True), r"state has no \.inner\['position'\].* such as episode_limit"),
        ((KEY, jax.tree.map(lambda x: x[None], STATE), TIMESTEP, True), r"is float32\[1, 2\] and must be float32\[2\]"),
        (
            (KEY, STATE, TIMESTEP.observation, True),
            "timestep must be the TimeStep .* all of it and the state.*act by the",
        ),
        ((KEY, TIMESTEP, STATE, True), "state has no"),
        ((KEY, None, observe(jnp.zeros((4, 2))), False), r"float32\[4, 2\] and must be float32\[2\]: .*jax\.vmap"),
        ((KEY, None, TIMESTEP._replace(observation=jnp.zeros(2)), False), r"timestep\.observation has no \['place'\]"),
        ((KEY, None, TIMESTEP._replace(reward=None), False), r"timestep\.reward is None"),
        ((KEY, None, TIMESTEP._replace(action_mask=np.ones(4, bool)), False), r"bool\[4\] and must be bool\[3\]"),
    ],
)
def test_a_mistake_gets_a_sentence(arguments: tuple, sentence: str):
    for _ in range(2):  # a refusal is not stored as a success
        with pytest.raises(ValueError, match=sentence):
            CHECK(*arguments)


@pytest.mark.parametrize("key", [KEY, jax.random.PRNGKey(0)], ids=["key", "raw key"])
def test_valid_arguments_pass(key: Any):
    CHECK(key, STATE, TIMESTEP, True)
    CHECK(key, None, TIMESTEP, False)
    CHECK(key, "anything", observe(np.zeros(2)), False)
    by_hand = TimeStep({"place": np.zeros(2)}, 0.0, False, False, np.ones(3, bool))
    CHECK(key, None, by_hand, False)
    make_check(ENVIRONMENT, searches=False)(key, None, TIMESTEP, True)


def test_arguments_inside_of_jit_and_vmap_pass():
    def call(key: Any, state: Any, timestep: TimeStep) -> Any:
        CHECK(key, state, timestep, True)
        return timestep.reward

    many = jax.tree.map(lambda x: jnp.stack([x] * 3), (STATE, TIMESTEP))
    jax.jit(jax.vmap(call))(jax.random.split(KEY, 3), *many)


def test_arguments_of_the_same_shapes_are_checked_once():
    """A call of `act` takes less than half a millisecond."""
    resets = 0

    def reset(key: Any) -> Any:
        nonlocal resets
        resets += 1
        return ENVIRONMENT.reset(key)

    check: Callable[..., None] = make_check(ENVIRONMENT._replace(reset=reset), searches=True)
    for _ in range(3):
        check(KEY, *ENVIRONMENT.reset(KEY), True)
    assert resets == 1
