"""Heads: masks, scales and initial outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.networks.heads import ActionValuesHead, CategoricalHead, GaussianHead, ValueHead

KEY = jax.random.key(3)
FEATURES = jax.random.normal(jax.random.key(4), (32,))


def test_masked_actions_have_minus_infinity_and_others_are_unchanged():
    head = CategoricalHead(5)
    mask = jnp.asarray([True, False, True, True, False])
    variables = head.init(KEY, FEATURES)
    plain, masked = head.apply(variables, FEATURES), head.apply(variables, FEATURES, mask)
    assert np.all(np.isfinite(plain))
    np.testing.assert_array_equal(masked, np.where(mask, plain, -np.inf))


def test_a_new_policy_is_nearly_uniform():
    logits, variables = CategoricalHead(7).init_with_output(KEY, FEATURES)
    # The kernel is 0.01 times orthonormal columns: the norm of the logits is at most 0.01 times that of the features.
    kernel = variables["params"]["logits"]["kernel"]
    np.testing.assert_allclose(kernel.T @ kernel, 1e-4 * np.eye(7), atol=1e-9)
    assert 0.0 < np.linalg.norm(logits) <= 0.01 * np.linalg.norm(FEATURES)


@pytest.mark.parametrize("initial_scale", [0.3, 0.7, 3.0])
def test_a_new_gaussian_has_mean_zero_and_the_initial_scale(initial_scale):
    head = GaussianHead(6, initial_scale=initial_scale, min_scale=0.05)
    params, _ = head.init_with_output(KEY, FEATURES)
    bound = 0.01 * np.linalg.norm(FEATURES) + 1e-6
    assert np.abs(params.mean).max() <= bound
    np.testing.assert_allclose(params.scale, initial_scale, atol=bound)
    # The mean and the scale are different functions of the features.
    assert not np.allclose(params.mean, params.scale - initial_scale, atol=1e-6)


def test_the_scale_never_falls_below_its_minimum():
    head = GaussianHead(6, min_scale=0.05)
    variables = head.init(KEY, FEATURES)
    variables["params"]["raw_scale"]["bias"] = jnp.full(6, -1e4)
    np.testing.assert_allclose(head.apply(variables, FEATURES).scale, 0.05, rtol=1e-6)


@pytest.mark.parametrize(("options", "gain"), [({}, 0.01), ({"gain": 1.0}, 1.0)])
def test_value_heads_start_with_a_small_gain_unless_told_otherwise(options, gain):
    value, variables = ValueHead(**options).init_with_output(KEY, FEATURES)
    assert value.shape == ()
    np.testing.assert_allclose(np.linalg.norm(variables["params"]["value"]["kernel"]), gain, rtol=1e-5)
    values, variables = ActionValuesHead(5, **options).init_with_output(KEY, FEATURES)
    assert values.shape == (5,)
    kernel = variables["params"]["values"]["kernel"]
    np.testing.assert_allclose(kernel.T @ kernel, gain**2 * np.eye(5), atol=1e-5 * gain**2)


@pytest.mark.parametrize(
    "head", [CategoricalHead(3, (4, 6)), GaussianHead(3, (4, 6)), ActionValuesHead(3, (4, 6)), ValueHead((4, 6))]
)
def test_hidden_layers_have_the_given_sizes(head):
    hidden = head.init(KEY, FEATURES)["params"]["MLP_0"]
    assert {name: layer["kernel"].shape for name, layer in hidden.items()} == {"Dense_0": (32, 4), "Dense_1": (4, 6)}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CategoricalHead(0), "CategoricalHead needs positive whole numbers for num_actions"),
        (lambda: ActionValuesHead(0), "ActionValuesHead needs positive whole numbers for num_actions"),
        (lambda: GaussianHead(0), "GaussianHead needs positive whole numbers for size"),
        (lambda: GaussianHead(2, min_scale=0.7, initial_scale=0.7), "0 <= min_scale < initial_scale"),
        (lambda: GaussianHead(2, min_scale=-0.1), "0 <= min_scale < initial_scale"),
        (lambda: GaussianHead(2).init(KEY, FEATURES, jnp.asarray([True, True])), "pass action_mask=None"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
