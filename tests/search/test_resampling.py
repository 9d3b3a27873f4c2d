"""Resampling schemes: what they promise, SciPy's and blackjax's word for it, edge cases, and memory.

Statistical comparisons are z-tests with |z| < 5 (two-sided 6e-7 each) or chi-square tests at 1e-6; seeds are fixed.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from blackjax.smc import resampling as blackjax_resampling

import spo.search
from spo.search import ModelOutput, Resampling, Root, resampling

SCHEMES = {
    "multinomial": resampling.multinomial,
    "stratified": resampling.stratified,
    "systematic": resampling.systematic,
    "residual": resampling.residual,
}
# Zeros at both ends and inside, one weight above 1/2, nothing a multiple of 1/N.
WEIGHTS = np.array([0.0, 0.0, 0.07, 0.13, 0.0, 0.52, 0.01, 0.27, 0.0], np.float32)
N = WEIGHTS.size
NUM_DRAWS = 20_000


@functools.cache
def copies(name: str, by: str = "spo") -> np.ndarray:
    """[NUM_DRAWS, N] how often each particle was chosen."""
    keys = jax.random.split(jax.random.key(0 if by == "spo" else 1), NUM_DRAWS)
    if by == "spo":
        draw = functools.partial(SCHEMES[name], weights=jnp.asarray(WEIGHTS))
    else:
        with jax.numpy_rank_promotion("allow"):
            chosen = getattr(blackjax_resampling, name)
            draw = functools.partial(chosen, weights=jnp.asarray(WEIGHTS), num_samples=N)
            return _count(jax.jit(jax.vmap(draw))(keys))
    return _count(jax.jit(jax.vmap(draw))(keys))


def _count(ancestors) -> np.ndarray:
    return np.asarray((ancestors[:, :, None] == jnp.arange(N)[None, None, :]).sum(1))


@pytest.mark.parametrize("name", SCHEMES)
def test_expected_copies(name):
    """E[copies of n] = N·w_n, which is what keeps the estimate of Z unbiased."""
    counts = copies(name)
    assert np.all(counts.sum(1) == N)
    assert np.all(counts[:, WEIGHTS == 0] == 0)
    standard_error = counts.std(0) / np.sqrt(NUM_DRAWS)
    assert np.all(np.abs(counts.mean(0) - N * WEIGHTS) <= 5 * standard_error + 1e-5)


@pytest.mark.parametrize("name", SCHEMES)
def test_same_distribution_as_blackjax(name):
    """The same mean and spread of copies as an implementation by other hands."""
    ours, theirs = copies(name), copies(name, by="blackjax")
    error_of_mean = np.sqrt((ours.var(0) + theirs.var(0)) / NUM_DRAWS)
    assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) <= 5 * error_of_mean + 1e-5)

    def error_of_variance(counts):
        return np.var((counts - counts.mean(0)) ** 2, axis=0) / NUM_DRAWS

    tolerance = 5 * np.sqrt(error_of_variance(ours) + error_of_variance(theirs))
    assert np.all(np.abs(ours.var(0) - theirs.var(0)) <= tolerance + 1e-5)


def test_multinomial_counts_are_binomial():
    """One particle's copies are Binomial(N, w) by SciPy, two particles' covariance is -N·w·w'."""
    counts = copies("multinomial")
    for n in (2, 5, 7):
        expected = scipy.stats.binom.pmf(np.arange(N + 1), N, WEIGHTS[n]) * NUM_DRAWS
        observed = np.bincount(counts[:, n], minlength=N + 1)
        enough = expected >= 10  # the usual condition of the chi-square approximation; the rest is one bin
        if not enough.all():
            expected = np.append(expected[enough], expected[~enough].sum())
            observed = np.append(observed[enough], observed[~enough].sum())
        expected *= observed.sum() / expected.sum()
        assert scipy.stats.chisquare(observed, expected).pvalue > 1e-6
    covariance = np.cov(counts.T)[5, 7]
    assert abs(covariance + N * WEIGHTS[5] * WEIGHTS[7]) < 0.1


@pytest.mark.parametrize("name", ["stratified", "systematic", "residual"])
def test_variance_is_below_multinomial(name):
    variance, reference = copies(name).var(0), N * WEIGHTS * (1 - WEIGHTS)
    assert np.all(variance <= reference + 0.02)
    assert variance.sum() < 0.6 * reference.sum()


@pytest.mark.parametrize("num_particles", [41, 47, 55, 61, 64, 107])
def test_residual_keeps_every_particle_of_equal_weight(num_particles):
    """The weights are a little less than 1/N for some N: N·w is then 1 only up to rounding."""
    weights = jax.nn.softmax(jnp.zeros(num_particles))
    ancestors = resampling.residual(jax.random.key(0), weights)
    np.testing.assert_array_equal(np.sort(ancestors), np.arange(num_particles))


@pytest.mark.parametrize("name", ["systematic", "residual"])
def test_copies_are_rounded(name):
    """Systematic: N·w rounded down or up. Residual: never less than rounded down."""
    counts, expected = copies(name), N * WEIGHTS
    assert np.all(counts >= np.floor(expected))
    if name == "systematic":
        assert np.all(counts <= np.ceil(expected))


@pytest.mark.parametrize("name", SCHEMES)
class TestEdges:
    @pytest.mark.parametrize("position", [0, 3, 7])
    def test_one_hot(self, name, position):
        weights = jnp.zeros(8).at[position].set(1.0)
        ancestors = jax.vmap(SCHEMES[name], in_axes=(0, None))(jax.random.split(jax.random.key(0), 64), weights)
        assert np.all(ancestors == position)

    def test_one_particle(self, name):
        assert SCHEMES[name](jax.random.key(0), jnp.ones(1)) == jnp.zeros(1, int)

    @pytest.mark.parametrize("size", [65, 1000, 4096])
    @pytest.mark.parametrize("all_pairs", [False, True], ids=["bisection", "all pairs"])
    def test_weight_zero_is_never_chosen_at_any_size(self, name, all_pairs, size, monkeypatch):
        """Both methods, with weights whose float32 sum is not exactly 1."""
        monkeypatch.setattr(resampling, "_ALL_PAIRS_UP_TO", 4096 if all_pairs else 0)
        rng = np.random.default_rng(size)
        weights = rng.exponential(size=size).astype(np.float32) ** 4
        weights[rng.uniform(size=size) < 0.5] = 0.0
        weights[: size // 8] = weights[-size // 8 :] = 0.0
        weights /= weights.sum()
        ancestors = jax.vmap(SCHEMES[name], in_axes=(0, None))(
            jax.random.split(jax.random.key(1), 32), jnp.asarray(weights)
        )
        assert ancestors.shape == (32, size)
        assert np.all(weights[np.asarray(ancestors)] > 0)

    def test_uniform_weights(self, name):
        """Nothing to choose between: the low-variance schemes keep every particle exactly once."""
        ancestors = SCHEMES[name](jax.random.key(2), jnp.full(64, 1 / 64))
        if name == "multinomial":
            assert len(np.unique(ancestors)) < 64
        else:
            np.testing.assert_array_equal(np.sort(ancestors), np.arange(64))

    def test_nan_stays_inside_the_array(self, name):
        ancestors = SCHEMES[name](jax.random.key(0), jnp.full(16, jnp.nan))
        assert ancestors.shape == (16,)

    def test_the_largest_uniform_draw(self, name, monkeypatch):
        """Draws at the very ends of [0, 1) must land on a particle with weight."""
        for extreme in (0.0, np.nextafter(np.float32(1), np.float32(0))):
            monkeypatch.setattr(
                jax.random, "uniform", lambda _, shape, dtype, value=extreme: jnp.full(shape, value, dtype)
            )
            for weights in (WEIGHTS, np.float32([0.0, 1 / 3, 1 / 3, 1 / 3, 0.0])):
                assert np.all(weights[np.asarray(SCHEMES[name](jax.random.key(0), jnp.asarray(weights)))] > 0)


# --- Two methods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_both_methods_choose_the_same_particles(name, monkeypatch):
    """With weights whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    for size in (2, 64, 512, 1024):
        weights = jnp.asarray(rng.multinomial(1024, rng.dirichlet(np.full(size, 0.3))) / 1024, jnp.float32)
        chosen = {}
        for limit in (0, size):
            monkeypatch.setattr(resampling, "_ALL_PAIRS_UP_TO", limit)
            keys = jax.random.split(jax.random.key(size), 20)
            chosen[limit] = jax.vmap(SCHEMES[name], in_axes=(0, None))(keys, weights)
        np.testing.assert_array_equal(chosen[0], chosen[size])


@pytest.mark.parametrize("size", [3, 64, 1000, 4096])
@pytest.mark.parametrize("all_pairs", [False, True], ids=["parallel", "all pairs"])
def test_running_sums(size, all_pairs, monkeypatch):
    """They are those of float64, never fall, and stay where the weight is 0."""
    monkeypatch.setattr(resampling, "_ALL_PAIRS_UP_TO", size if all_pairs else 0)
    rng = np.random.default_rng(size)
    weights = (rng.exponential(size=size) ** 4 * (rng.uniform(size=size) < 0.5)).astype(np.float32)
    weights /= max(weights.sum(), 1.0)
    sums = np.asarray(jax.jit(resampling._running_sums)(weights))
    np.testing.assert_allclose(sums, np.cumsum(weights, dtype=np.float64), rtol=2e-6)
    steps = np.diff(sums, prepend=0.0)
    assert np.all(steps >= 0)
    assert np.all(steps[weights == 0] == 0)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("size", [1024, 1025])
def test_all_pairs_are_compared_on_a_gpu_up_to_a_size(platform, size):
    traced = jax.jit(resampling.multinomial).trace(jax.random.key(0), jnp.ones(size))
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert (f"tensor<{size}x{size}x" in text) == (platform == "cuda" and size == 1024)


# --- Memory ---------------------------------------------------------------------------------------------------------


def _lowered(num_particles, horizon, scheme, *, ess_below=None, with_ancestry=False):
    def model_fn(key, state, action):
        return ModelOutput(
            state=state + action,
            prior=jnp.zeros(3),
            value=jnp.sum(state),
            reward=jnp.sum(state),
            discount=jnp.ones(()),
            ended=jnp.zeros((), bool),
        )

    def run(key, root):
        return spo.search.search(
            key,
            root,
            model_fn,
            num_particles=num_particles,
            horizon=horizon,
            temperature=1.0,
            resampling=Resampling(2, resampling.by_weight(scheme), ess_below),
            unroll=1,
            with_ancestry=with_ancestry,
        )

    root = Root(prior=jnp.zeros((1, 3)), value=jnp.zeros(1), state=jnp.zeros((1, 4)))
    return jax.jit(run).trace(jax.random.key(0), root)


def _sizes(jaxpr):
    """The number of elements of every intermediate, those of inner loops and calls included."""
    for equation in jaxpr.eqns:
        yield from (np.prod(out.aval.shape, dtype=int) for out in equation.outvars)
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _sizes(inner)


@pytest.mark.parametrize("name", SCHEMES)
def test_no_table_of_n_by_n(name):
    num_particles = 4096
    largest = max(_sizes(_lowered(num_particles, 4, SCHEMES[name], ess_below=0.5).jaxpr.jaxpr))
    assert num_particles <= largest <= 16 * num_particles


def test_memory_does_not_grow_with_the_horizon():
    """No tree: what a search holds while it runs is N particles, however deep it looks (ancestry off)."""

    def temporary_bytes(horizon, with_ancestry):
        analysis = _lowered(4096, horizon, resampling.systematic, with_ancestry=with_ancestry).lower().compile()
        return analysis.memory_analysis().temp_size_in_bytes

    shallow, deep = temporary_bytes(16, False), temporary_bytes(64, False)
    assert deep < 1.02 * shallow
    assert temporary_bytes(64, True) > 2 * deep, "the measure must be able to see growth"
