"""Families of action distributions against scipy and numerical integration.

Statistical tests have fixed seeds: their result does not change. Their threshold is a p-value of 1e-4: with a random
seed, a correct implementation fails each of them with a probability of 1 in 10 000.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from spo.distributions import (
    Gaussian,
    categorical,
    gaussian,
    gaussian_kl_per_dimension,
    gaussian_log_prob_per_dimension,
    masked_logits,
    mix_log_probabilities,
    sample_and_check,
    tanh_gaussian,
)

FALSE_ALARM_RATE = 1e-4
KEY = jax.random.key(2024)
KEYS = jax.random.split(jax.random.key(2025), 100)

LOGITS = jnp.asarray([0.3, -1.2, 2.0, 0.0, -0.5])
OTHER_LOGITS = jnp.asarray([-0.7, 0.4, 1.0, 0.9, -2.0])
MASK = jnp.asarray([True, False, True, True, False])
MASKED = masked_logits(LOGITS, MASK)
OTHER_MASKED = masked_logits(OTHER_LOGITS, MASK)

P = Gaussian(jnp.asarray([0.4, -1.5]), jnp.asarray([0.6, 1.3]))
Q = Gaussian(jnp.asarray([-0.2, 0.5]), jnp.asarray([1.1, 0.8]))


def softmax(logits):
    return special.softmax(np.asarray(logits, np.float64))


# --- Categorical ------------------------------------------------------------------------------------------------------


def test_masked_logits_change_invalid_actions_only():
    np.testing.assert_array_equal(MASKED, np.where(MASK, LOGITS, -np.inf))
    batch = masked_logits(jnp.stack([LOGITS, OTHER_LOGITS]), jnp.stack([MASK, ~MASK]))
    np.testing.assert_array_equal(np.isneginf(batch), [~MASK, MASK])


@pytest.mark.parametrize("logits", [LOGITS, MASKED, jnp.asarray([1e4, 0.0, -1e4]), jnp.asarray([7.0])])
def test_categorical_log_prob_and_entropy_match_scipy(logits):
    probabilities = softmax(logits)
    with np.errstate(divide="ignore"):
        expected = np.log(probabilities)
    actual = [categorical.log_prob(logits, jnp.asarray(action)) for action in range(len(logits))]
    likely = probabilities > 1e-30
    np.testing.assert_allclose(np.asarray(actual)[likely], expected[likely], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.isneginf(actual), np.isneginf(logits))
    np.testing.assert_allclose(categorical.entropy(logits), stats.entropy(probabilities), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (LOGITS, OTHER_LOGITS),
        (MASKED, OTHER_MASKED),
        (MASKED, OTHER_LOGITS),  # q may allow actions that p does not
        (jnp.asarray([50.0, 0.0]), jnp.asarray([0.0, 0.0])),
    ],
)
def test_categorical_kl_matches_scipy(p, q):
    expected = np.sum(special.rel_entr(softmax(p), softmax(q)))
    np.testing.assert_allclose(categorical.kl(p, q), expected, rtol=1e-5)
    np.testing.assert_allclose(categorical.kl(p, p), 0.0, atol=1e-7)


def test_categorical_kl_is_infinite_if_q_forbids_an_action_of_p():
    assert categorical.kl(LOGITS, MASKED) == np.inf


@pytest.mark.parametrize("logits", [LOGITS, MASKED, LOGITS.astype(jnp.bfloat16), jnp.full(5, -jnp.inf)])
def test_categorical_samples_are_those_of_jax(logits):
    keys = jax.random.split(KEY, 1000)
    actual = jax.vmap(categorical.sample, in_axes=(0, None))(keys, logits)
    # With noise of 16 bits, as JAX draws it for bfloat16, the first of several actions that tie is drawn too often.
    expected = jax.vmap(jax.random.categorical, in_axes=(0, None))(keys, logits.astype(jnp.float32))
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def test_categorical_ignores_a_constant_added_to_the_logits():
    shifted = LOGITS + 100.0
    np.testing.assert_allclose(categorical.entropy(shifted), categorical.entropy(LOGITS), rtol=1e-4)
    np.testing.assert_allclose(categorical.kl(shifted, LOGITS), 0.0, atol=1e-5)


@pytest.mark.parametrize("logits", [LOGITS, MASKED])
def test_categorical_sampling_frequencies(logits):
    num_draws = 20_000
    draws = jax.vmap(categorical.sample, in_axes=(0, None))(jax.random.split(KEY, num_draws), logits)
    counts = np.bincount(draws, minlength=len(logits))
    possible = ~np.isneginf(logits)
    assert counts[~possible].sum() == 0
    expected = num_draws * softmax(logits)[possible]
    assert stats.chisquare(counts[possible], expected).pvalue > FALSE_ALARM_RATE


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_actions_of_narrow_logits_are_sampled_alike(dtype):
    draws, num_actions = 20_000, 200
    keys = jax.random.split(KEY, draws)
    actions = jax.vmap(lambda key: categorical.sample(key, jnp.zeros(num_actions, dtype)))(keys)
    counts = np.bincount(actions, minlength=num_actions)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM_RATE


def test_masked_actions_are_never_sampled_however_large_their_logits():
    mask = jnp.asarray([False, True, False, True])
    logits = masked_logits(jnp.asarray([1e6, -1e6, 30.0, -1e6]), mask)
    draws = jax.vmap(categorical.sample, in_axes=(0, None))(jax.random.split(KEY, 5_000), logits)
    assert set(np.unique(draws)) == {1, 3}
    assert categorical.mode(logits) in (1, 3)


def test_categorical_gradients_are_finite_and_correct_under_a_mask():
    """The gradient through a mask is that of the problem without the invalid actions, and 0 for them."""
    kept = np.flatnonzero(MASK)
    other_kept = OTHER_LOGITS[kept]
    pairs = [
        (lambda logits: categorical.entropy(masked_logits(logits, MASK)), categorical.entropy),
        (
            lambda logits: categorical.log_prob(masked_logits(logits, MASK), jnp.asarray(2)),
            lambda logits: categorical.log_prob(logits, jnp.asarray(1)),
        ),
        (
            lambda logits: categorical.kl(masked_logits(logits, MASK), OTHER_MASKED),
            lambda logits: categorical.kl(logits, other_kept),
        ),
        (
            lambda logits: categorical.kl(OTHER_MASKED, masked_logits(logits, MASK)),
            lambda logits: categorical.kl(other_kept, logits),
        ),
    ]
    for masked, small in pairs:
        gradient = jax.grad(masked)(LOGITS)
        np.testing.assert_allclose(gradient[kept], jax.grad(small)(LOGITS[kept]), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(gradient[~MASK], 0.0)
        assert np.abs(gradient).max() > 1e-2


def test_categorical_gradients_of_minus_infinity_itself_are_not_nan():
    """The logits of a loss may contain -inf themselves, without a mask in between."""
    for function in (
        categorical.entropy,
        lambda logits: categorical.log_prob(logits, jnp.asarray(0)),
        lambda logits: categorical.kl(logits, OTHER_MASKED),
        lambda logits: categorical.kl(OTHER_MASKED, logits),
    ):
        assert np.all(np.isfinite(jax.grad(function)(MASKED)))


@pytest.mark.parametrize(
    ("logits", "valid"),
    [
        ([0.0, 1.0], True),
        ([0.0, -50.0], True),
        ([-np.inf, 1.0], True),
        ([-1e30, -np.inf], True),
        ([-np.inf, -np.inf], False),
        ([np.nan, 1.0], False),
        ([1.0, np.nan], False),
        ([np.nan, -np.inf], False),
        ([np.inf, np.nan], False),
        ([np.inf, 1.0], False),
        ([np.inf, -np.inf], False),
    ],
)
def test_categorical_is_valid(logits, valid):
    assert bool(categorical.is_valid(jnp.asarray(logits))) is valid
    drawn, checks = jax.vmap(lambda key: sample_and_check(categorical, key, jnp.asarray(logits)))(KEYS)
    np.testing.assert_array_equal(checks, valid)
    np.testing.assert_array_equal(drawn, jax.vmap(categorical.sample, in_axes=(0, None))(KEYS, jnp.asarray(logits)))


def test_categorical_mode_num_actions_and_environment():
    assert categorical.mode(LOGITS) == 2
    assert categorical.mode(masked_logits(LOGITS, LOGITS < 1.0)) == 0
    assert categorical.num_actions(LOGITS) == 5
    assert categorical.to_environment(jnp.asarray(3)) == 3


# --- Root noise -------------------------------------------------------------------------------------------------------


def test_probabilities_are_mixed_not_logits():
    noise = jnp.asarray([0.1, 0.2, 0.3, 0.15, 0.25])
    mixed = mix_log_probabilities(LOGITS, noise, 0.25)
    np.testing.assert_allclose(np.exp(mixed), 0.75 * softmax(LOGITS) + 0.25 * np.asarray(noise), rtol=1e-5)
    np.testing.assert_allclose(special.logsumexp(mixed), 0.0, atol=1e-6)


def test_mixing_is_exact_at_the_ends_and_at_zero():
    noise = jnp.asarray([0.5, 0.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(np.exp(mix_log_probabilities(MASKED, noise, 0.0)), softmax(MASKED), rtol=1e-6)
    np.testing.assert_array_equal(np.exp(mix_log_probabilities(MASKED, noise, 1.0)), noise)
    mixed = mix_log_probabilities(MASKED, noise, 0.25)
    np.testing.assert_array_equal(np.isneginf(mixed), ~MASK)


def test_mixing_works_on_batches():
    logits, noise = jnp.stack([LOGITS, OTHER_LOGITS]), jnp.full((2, 5), 0.2)
    mixed = mix_log_probabilities(logits, noise, 0.3)
    for row in range(2):
        np.testing.assert_allclose(mixed[row], mix_log_probabilities(logits[row], noise[row], 0.3), rtol=1e-6)


def test_dirichlet_noise_keeps_most_of_a_greedy_action():
    """Logits [6, 0, 0, 0], weight .25: the greedy action keeps .75 * .9926 + .25 / 4 = .807 in expectation."""
    logits = jnp.asarray([6.0, 0.0, 0.0, 0.0])
    expected = 0.75 * np.exp(6.0) / (np.exp(6.0) + 3.0) + 0.25 * 0.25
    assert round(expected, 2) == 0.81
    # The mixture is linear in the noise: the mean of Dirichlet(.03), which is uniform, gives the expectation exactly.
    at_the_mean = np.exp(mix_log_probabilities(logits, jnp.full(4, 0.25), 0.25))[0]
    np.testing.assert_allclose(at_the_mean, expected, rtol=1e-6)
    # Samples agree with it. They are in float64 on the host: float32 rounds some of them to 0 and 1.
    noise = np.random.default_rng(0).dirichlet(np.full(4, 0.03), 20_000)
    greedy = np.exp(mix_log_probabilities(jnp.tile(logits, (20_000, 1)), jnp.asarray(noise, jnp.float32), 0.25))[:, 0]
    assert stats.ttest_1samp(greedy, expected).pvalue > FALSE_ALARM_RATE


# --- Gaussian ---------------------------------------------------------------------------------------------------------


def normals(params):
    return [stats.norm(float(m), float(s)) for m, s in zip(params.mean, params.scale, strict=True)]


def test_gaussian_log_prob_and_entropy_match_scipy():
    action = jnp.asarray([0.9, -3.0])
    expected = [d.logpdf(float(a)) for d, a in zip(normals(P), action, strict=True)]
    np.testing.assert_allclose(gaussian_log_prob_per_dimension(P, action), expected, rtol=1e-5)
    np.testing.assert_allclose(gaussian.log_prob(P, action), sum(expected), rtol=1e-5)
    np.testing.assert_allclose(gaussian.entropy(P), sum(d.entropy() for d in normals(P)), rtol=1e-5)


def test_gaussian_kl_matches_integration():
    expected = [
        integrate.quad(lambda x, p=p, q=q: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -15.0, 15.0, limit=200)[0]
        for p, q in zip(normals(P), normals(Q), strict=True)
    ]
    np.testing.assert_allclose(gaussian_kl_per_dimension(P, Q), expected, rtol=1e-4)
    np.testing.assert_allclose(gaussian.kl(P, Q), sum(expected), rtol=1e-4)
    np.testing.assert_allclose(gaussian.kl(P, P), 0.0, atol=1e-7)
    assert abs(float(gaussian.kl(P, Q) - gaussian.kl(Q, P))) > 0.1  # the order of the arguments matters


def test_gaussian_samples_pass_kolmogorov_smirnov():
    draws = jax.vmap(gaussian.sample, in_axes=(0, None))(jax.random.split(KEY, 10_000), P)
    assert draws.shape == (10_000, 2)
    for dimension, normal in enumerate(normals(P)):
        assert stats.kstest(draws[:, dimension], normal.cdf).pvalue > FALSE_ALARM_RATE
    assert stats.pearsonr(draws[:, 0], draws[:, 1]).pvalue > FALSE_ALARM_RATE


def test_gaussian_mode_num_actions_and_environment():
    np.testing.assert_array_equal(gaussian.mode(P), P.mean)
    assert gaussian.num_actions(P) is None
    np.testing.assert_array_equal(gaussian.to_environment(jnp.asarray([3.0, -9.0])), [3.0, -9.0])


@pytest.mark.parametrize("family", [gaussian, tanh_gaussian(-2.0, 3.0)])
@pytest.mark.parametrize(
    ("mean", "scale", "valid"),
    [
        ([0.0, 1.0], [1.0, 2.0], True),
        ([0.0, 1.0], [1.0, 1e-6], True),
        ([0.0, np.nan], [1.0, 1.0], False),
        ([0.0, np.inf], [1.0, 1.0], False),
        ([0.0, 1.0], [1.0, 0.0], False),
        ([0.0, 1.0], [-1.0, 1.0], False),
        ([0.0, 1.0], [np.nan, 1.0], False),
        ([0.0, 1.0], [1.0, np.inf], False),
    ],
)
def test_gaussian_is_valid(family, mean, scale, valid):
    params = Gaussian(jnp.asarray(mean), jnp.asarray(scale))
    assert bool(family.is_valid(params)) is valid
    assert bool(sample_and_check(family, KEY, params)[1]) is valid


# --- Gaussian squashed into a box -------------------------------------------------------------------------------------

LOW, HIGH = -2.0, 3.0
SQUASHED = tanh_gaussian(LOW, HIGH)
ONE = Gaussian(jnp.asarray([0.4]), jnp.asarray([0.6]))


def squashed_density(action, params=ONE):
    """Returns the density of the environment's action by the change of variables, as a function of that action."""
    unit = (action - LOW) / (HIGH - LOW) * 2.0 - 1.0
    raw = np.arctanh(unit)
    slope = (1.0 - unit**2) * (HIGH - LOW) / 2.0
    return stats.norm(float(params.mean[0]), float(params.scale[0])).pdf(raw) / slope


def test_tanh_gaussian_log_prob_is_the_density_of_the_environments_action():
    for raw in (-2.5, -0.3, 0.0, 0.4, 1.9):
        action = float(SQUASHED.to_environment(jnp.asarray([raw]))[0])
        actual = SQUASHED.log_prob(ONE, jnp.asarray([raw]))
        np.testing.assert_allclose(actual, np.log(squashed_density(action)), rtol=1e-4, atol=1e-4)


def test_tanh_gaussian_density_integrates_to_the_probability_of_each_interval():
    def density(action):
        raw = np.arctanh((action - LOW) / (HIGH - LOW) * 2.0 - 1.0)
        return float(np.exp(SQUASHED.log_prob(ONE, jnp.asarray([raw], jnp.float32))))

    edges = np.asarray([-1.5, 0.0, 1.2, 2.8])
    raw_edges = np.arctanh((edges - LOW) / (HIGH - LOW) * 2.0 - 1.0)
    expected = np.diff(stats.norm(0.4, 0.6).cdf(raw_edges))
    for left, right, probability in zip(edges[:-1], edges[1:], expected, strict=True):
        grid = np.linspace(left, right, 65)
        actual = integrate.simpson([density(action) for action in grid], x=grid)
        np.testing.assert_allclose(actual, probability, atol=2e-4)


def test_tanh_gaussian_sums_over_dimensions():
    action = jnp.asarray([0.3, -0.8])
    parts = [SQUASHED.log_prob(Gaussian(P.mean[d : d + 1], P.scale[d : d + 1]), action[d : d + 1]) for d in range(2)]
    np.testing.assert_allclose(SQUASHED.log_prob(P, action), sum(parts), rtol=1e-5)


def test_tanh_gaussian_kl_is_that_of_the_squashed_densities():
    q = Gaussian(jnp.asarray([-0.2]), jnp.asarray([0.9]))

    def integrand(action):
        p_density, q_density = squashed_density(action), squashed_density(action, q)
        return special.rel_entr(p_density, q_density)

    with np.errstate(divide="ignore", invalid="ignore"):
        expected = integrate.quad(integrand, LOW + 1e-6, HIGH - 1e-6, limit=500)[0]
    np.testing.assert_allclose(SQUASHED.kl(ONE, q), expected, rtol=1e-3)


@pytest.mark.parametrize("scale", [0.01, 0.7, 3.0])
@pytest.mark.parametrize("mean", [0.0, 0.4, -2.0])
def test_tanh_gaussian_entropy_is_that_of_the_squashed_action(mean, scale):
    normal = stats.norm(mean, scale)

    def integrand(raw):
        log_slope = 2.0 * (np.log(2.0) - raw - np.logaddexp(0.0, -2.0 * raw)) + np.log((HIGH - LOW) / 2.0)
        return normal.pdf(raw) * log_slope

    correction = integrate.quad(integrand, mean - 9 * scale, mean + 9 * scale, limit=500, points=[mean, 0.0])[0]
    params = Gaussian(jnp.asarray([mean]), jnp.asarray([scale]))
    np.testing.assert_allclose(SQUASHED.entropy(params), normal.entropy() + correction, atol=5e-4)


def test_no_tanh_gaussian_is_more_random_than_a_uniform_distribution():
    widths = jnp.asarray([0.1, 0.5, 0.7, 0.9, 2.0, 5.0, 10.0])
    entropies = jax.vmap(lambda scale: SQUASHED.entropy(Gaussian(jnp.zeros(1), scale[None])))(widths)
    assert float(entropies.max()) < np.log(HIGH - LOW)
    # A wide Gaussian is near the two ends of the box most of the time, so its entropy falls with the scale.
    assert float(entropies[-1]) < float(entropies[3])


def test_tanh_gaussian_samples_pass_kolmogorov_smirnov_in_the_environment():
    draws = jax.vmap(SQUASHED.sample, in_axes=(0, None))(jax.random.split(KEY, 10_000), P)
    actions = np.asarray(SQUASHED.to_environment(draws), np.float64)
    for dimension, normal in enumerate(normals(P)):
        # The CDF of a monotone function of a normal is the normal's CDF at the inverse; the ends round to the bounds.
        unit = np.clip((actions[:, dimension] - LOW) / (HIGH - LOW) * 2.0 - 1.0, -1.0 + 1e-7, 1.0 - 1e-7)
        assert stats.kstest(normal.cdf(np.arctanh(unit)), "uniform").pvalue > FALSE_ALARM_RATE


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (LOW, HIGH), (0.0, 0.5), (-7.0, -6.0), (-2.0, 0.7)])
def test_actions_reach_the_bounds_and_never_exceed_them(low, high):
    family = tanh_gaussian(low, high)
    raw = jnp.asarray([-np.inf, -1e4, -1.0, 0.0, 1.0, 1e4, np.inf])
    actions = np.asarray(family.to_environment(raw))
    np.testing.assert_allclose(actions[[0, 1]], low, rtol=1e-6)
    np.testing.assert_allclose(actions[[5, 6]], high, rtol=1e-6)
    assert np.float32(low) <= actions.min()
    assert actions.max() <= np.float32(high)
    np.testing.assert_allclose(actions[3], (low + high) / 2.0, rtol=1e-6)
    np.testing.assert_allclose(actions[4], (low + high) / 2.0 + (high - low) / 2.0 * np.tanh(1.0), rtol=1e-5)


LOWS, HIGHS = (-2.0, 0.0, -0.5), (3.0, 0.25, 7.0)
BOX = tanh_gaussian(LOWS, HIGHS)


def test_each_dimension_reaches_its_own_bounds_and_never_exceeds_them():
    raw = jnp.asarray([-np.inf, -1e4, -1.0, 0.0, 1.0, 1e4, np.inf])[:, None] * jnp.ones((1, 3))
    actions = np.asarray(BOX.to_environment(raw))
    assert actions.shape == raw.shape
    np.testing.assert_array_equal(actions[[0, 1]], np.float32([LOWS, LOWS]))
    np.testing.assert_array_equal(actions[[5, 6]], np.float32([HIGHS, HIGHS]))
    np.testing.assert_allclose(actions[3], np.add(LOWS, HIGHS) / 2.0, rtol=1e-6)
    # Every dimension alone is the family with its bounds.
    for dimension, bounds in enumerate(zip(LOWS, HIGHS, strict=True)):
        alone = tanh_gaussian(*bounds).to_environment(raw[:, dimension])
        np.testing.assert_allclose(actions[:, dimension], alone, rtol=1e-6, atol=1e-7)
    mixed = tanh_gaussian(-2.0, HIGHS).to_environment(raw)
    np.testing.assert_array_equal(np.asarray(mixed)[[0, 6]], np.float32([(-2.0,) * 3, HIGHS]))


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_the_density_of_each_dimension_integrates_to_one_within_its_bounds(dimension):
    """The other dimensions stay at a point, whose density is divided out."""
    params = Gaussian(jnp.asarray([0.3, -0.2, 0.1]), jnp.asarray([0.6, 0.8, 0.5]))
    low, high = LOWS[dimension], HIGHS[dimension]
    actions = np.linspace(low, high, 2001)[1:-1]
    raw = np.zeros((len(actions), 3), np.float32)
    raw[:, dimension] = np.arctanh((actions - low) / (high - low) * 2.0 - 1.0)
    others = [index for index in range(3) if index != dimension]
    rest = sum(
        tanh_gaussian(LOWS[i], HIGHS[i]).log_prob(
            Gaussian(params.mean[i : i + 1], params.scale[i : i + 1]), jnp.zeros(1)
        )
        for i in others
    )
    densities = np.exp(jax.vmap(BOX.log_prob, in_axes=(None, 0))(params, jnp.asarray(raw)) - rest)
    np.testing.assert_allclose(integrate.simpson(densities, x=actions), 1.0, atol=2e-3)


def test_the_entropy_of_a_box_is_the_sum_over_its_dimensions():
    params = Gaussian(jnp.asarray([0.3, -0.2, 0.1]), jnp.asarray([0.6, 0.8, 0.5]))
    parts = [
        tanh_gaussian(low, high).entropy(Gaussian(params.mean[d : d + 1], params.scale[d : d + 1]))
        for d, (low, high) in enumerate(zip(LOWS, HIGHS, strict=True))
    ]
    np.testing.assert_allclose(BOX.entropy(params), sum(parts), rtol=1e-5)


def test_equal_bounds_of_all_dimensions_are_the_same_family():
    one, each = tanh_gaussian(LOW, HIGH), tanh_gaussian([LOW, LOW], [HIGH, HIGH])
    raw = jax.random.normal(KEY, (50, 2)) * 2.0
    np.testing.assert_array_equal(one.to_environment(raw), each.to_environment(raw))
    np.testing.assert_array_equal(jax.vmap(lambda a: one.log_prob(P, a) - each.log_prob(P, a))(raw), 0.0)


def test_a_box_needs_an_interval_in_each_dimension():
    with pytest.raises(ValueError, match="needs low < high"):
        tanh_gaussian((0.0, 1.0), (1.0, 1.0))
    with pytest.raises(ValueError, match="needs as many low as high bounds"):
        tanh_gaussian((0.0, 1.0), (1.0, 2.0, 3.0))


@pytest.mark.parametrize("extreme", [-300.0, -20.0, 20.0, 300.0])
def test_extreme_raw_actions_have_finite_and_correct_densities(extreme):
    raw = jnp.asarray([extreme])
    value, (by_params, by_action) = jax.value_and_grad(SQUASHED.log_prob, argnums=(0, 1))(ONE, raw)
    # For large |u| the slope 1 - tanh(u)^2 is 4 exp(-2|u|).
    log_slope = np.log(4.0) - 2.0 * abs(extreme) + np.log((HIGH - LOW) / 2.0)
    np.testing.assert_allclose(value, stats.norm(0.4, 0.6).logpdf(extreme) - log_slope, rtol=1e-5)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((by_params, by_action)))
    entropy = jax.value_and_grad(SQUASHED.entropy)(Gaussian(raw, jnp.asarray([0.6])))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(entropy))


def test_tanh_gaussian_mode_and_num_actions():
    np.testing.assert_array_equal(SQUASHED.mode(P), P.mean)
    assert SQUASHED.num_actions(P) is None


def test_tanh_gaussian_needs_an_interval():
    for low, high in ((1.0, 1.0), (2.0, -2.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="needs low < high"):
            tanh_gaussian(low, high)


def test_tanh_gaussian_can_be_made_while_tracing():
    action = jax.jit(lambda raw: tanh_gaussian(LOW, HIGH).to_environment(raw))(jnp.zeros(1))
    np.testing.assert_allclose(action, (LOW + HIGH) / 2.0)


# --- All families -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "params"), [(categorical, MASKED), (gaussian, P), (SQUASHED, P)], ids=["categorical", "gaussian", "tanh"]
)
def test_every_family_satisfies_the_contract(family, params):
    """Equal keys give equal samples, outputs are scalars, vmap is a loop, and the mode has the largest density."""
    keys = jax.random.split(KEY, 4)
    draws = jax.vmap(family.sample, in_axes=(0, None))(keys, params)
    scores = jax.vmap(family.log_prob, in_axes=(None, 0))(params, draws)
    for index, key in enumerate(keys):
        draw = family.sample(key, params)
        np.testing.assert_array_equal(draw, draws[index])
        np.testing.assert_allclose(family.log_prob(params, draw), scores[index], rtol=1e-5)
    for number in (family.entropy(params), family.kl(params, params), scores[0]):
        assert number.shape == ()
        assert number.dtype == jnp.float32
    assert family.is_valid(params).shape == ()
    assert family.mode(params).shape == draws[0].shape
    assert family.mode(params).dtype == draws.dtype
