"""`smc_policy` keeps mctx's contract: the same root, the same recurrent_fn, an output to act by."""

import functools

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

import spo.search
from oracles import enumeration
from spo.search import Resampling

B, A = 3, 4
SIZES = {"num_particles": 16, "horizon": 3, "temperature": 1.0, "resampling": Resampling(1), "unroll": 1}


def simple_root(**fields):
    return mctx.RootFnOutput(
        **{"prior_logits": jnp.zeros((B, A)), "value": jnp.zeros(B), "embedding": jnp.zeros((B, 2)), **fields}
    )


def simple_recurrent_fn(params, rng_key, action, embedding):
    assert action.shape == (B,), "the function must see the batch of roots and nothing else"
    assert embedding.shape == (B, 2)
    return (
        mctx.RecurrentFnOutput(
            reward=action.astype(jnp.float32), discount=jnp.ones(B), prior_logits=jnp.zeros((B, A)), value=jnp.zeros(B)
        ),
        embedding + 1.0,
    )


@functools.cache
def compiled(recurrent_fn=simple_recurrent_fn, **settings):
    return jax.jit(
        lambda params, key, root, **arrays: spo.search.smc_policy(
            params, key, root, recurrent_fn, **{**SIZES, **settings, **arrays}
        )
    )


@pytest.mark.parametrize("call", ["positional", "keywords"])
@pytest.mark.parametrize("policy", [mctx.gumbel_muzero_policy, spo.search.smc_policy], ids=["mctx", "spo"])
def test_swaps_with_mctx(policy, call):
    """One call, two planners: what differs is the budget's name."""
    budget = SIZES if policy is spo.search.smc_policy else {"num_simulations": 16}
    root, invalid = simple_root(), jnp.zeros((B, A)).at[:, 3].set(1.0)
    arguments = {"params": {"w": jnp.ones(2)}, "rng_key": jax.random.PRNGKey(0), "root": root}
    with jax.numpy_rank_promotion("allow"):  # mctx promotes ranks
        if call == "keywords":
            run = functools.partial(policy, recurrent_fn=simple_recurrent_fn, invalid_actions=invalid, **budget)
            output = jax.jit(lambda: run(**arguments))()
        else:
            run = functools.partial(policy, invalid_actions=invalid, **budget)
            output = jax.jit(lambda: run(*arguments.values(), simple_recurrent_fn))()
    assert output.action.shape == (B,)
    assert output.action_weights.shape == (B, A)
    np.testing.assert_allclose(output.action_weights.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(output.action_weights[:, 3], 0.0)
    assert np.all(np.asarray(output.action) < 3)


def test_batch_position_means_the_root():
    """A model may look up tables by batch position; particles must not be folded into that axis."""
    table = jnp.arange(B * A, dtype=jnp.float32).reshape(B, A) ** 2

    def recurrent_fn(params, rng_key, action, embedding):
        position = jnp.arange(B)
        output, _ = simple_recurrent_fn(params, rng_key, action, embedding)
        return output.replace(reward=table[position, action], discount=jnp.zeros(B)), embedding

    output = compiled(recurrent_fn, horizon=1)(None, jax.random.key(0), simple_root())
    np.testing.assert_array_equal(
        output.search.temperature_advantages,
        np.take_along_axis(np.asarray(table), np.asarray(output.search.root_actions), axis=1),
    )


def test_every_particle_and_depth_has_its_own_key():
    def recurrent_fn(params, rng_key, action, embedding):
        output, _ = simple_recurrent_fn(params, rng_key, action, embedding)
        return output.replace(reward=jax.random.uniform(rng_key, (B,))), embedding

    output = compiled(recurrent_fn, with_ancestry=True)(None, jax.random.key(0), simple_root())
    rewards = np.asarray(output.search.ancestry.reward)
    assert np.unique(rewards).size == rewards.size


def test_model_runs_horizon_times_and_the_root_is_not_evaluated_again():
    """The embedding counts the calls; one count earns a reward, and the root's own value is the baseline."""
    calls_to_reward = 5

    def recurrent_fn(params, rng_key, action, embedding):
        output, embedding = simple_recurrent_fn(params, rng_key, action, embedding)
        return output.replace(reward=jnp.where(embedding[:, 0] == calls_to_reward, 1.0, 0.0)), embedding

    root = simple_root(value=jnp.array([0.5, -0.5, 2.0]))
    for horizon, reward in ((4, 0.0), (5, 1.0), (6, 1.0)):
        output = compiled(recurrent_fn, horizon=horizon, resampling=Resampling(None))(None, jax.random.key(0), root)
        np.testing.assert_allclose(output.search.value, reward)
        expected = np.broadcast_to(reward - np.asarray(root.value)[:, None], (B, 16))
        np.testing.assert_allclose(output.search.temperature_advantages, expected)


def test_first_prior_is_the_roots_and_later_ones_the_models():
    """Root logits allow action 1 or 2, the model's logits only action 3: a step that broke this would pay."""
    only = jnp.where(jnp.arange(A) == 3, 0.0, -jnp.inf)

    def recurrent_fn(params, rng_key, action, embedding):
        output, embedding = simple_recurrent_fn(params, rng_key, action, embedding)
        return output.replace(prior_logits=jnp.broadcast_to(only, (B, A))), embedding

    logits = jnp.broadcast_to(jnp.log(jnp.array([0.0, 0.5, 0.5, 0.0])), (B, A))
    output = compiled(recurrent_fn, with_ancestry=True)(None, jax.random.key(0), simple_root(prior_logits=logits))
    actions = np.asarray(output.search.ancestry.action)
    assert set(np.unique(actions[:, 0])) == {1, 2}
    assert set(np.unique(actions[:, 1:])) == {3}, "an action masked by the model is never taken"
    assert np.all(output.search.diagnostics.valid)


def test_invalid_actions_mask_the_root_only():
    invalid = jnp.zeros((B, A)).at[0, 3].set(1.0).at[1, :3].set(1.0)
    output = compiled(with_ancestry=True, num_particles=64)(
        None, jax.random.key(1), simple_root(), invalid_actions=invalid
    )
    assert np.all(np.asarray(output.action_weights)[np.asarray(invalid) == 1] == 0.0)
    np.testing.assert_allclose(output.action_weights[1], [0, 0, 0, 1], rtol=1e-6)
    assert output.action[1] == 3
    actions = np.asarray(output.search.ancestry.action)
    assert not np.any(actions[0, 0] == 3)
    assert np.any(actions[0, 1:] == 3)
    assert np.any(actions[1, 1:] == 0)


def test_resamples_by_the_period_and_never_after_the_last_step():
    def resampled(period, last=False):
        output = compiled(horizon=5, resampling=Resampling(period, last=last))(None, jax.random.key(0), simple_root())
        return np.asarray(output.search.diagnostics.resampled[0]).tolist(), output

    assert resampled(2)[0] == [False, True, False, True, False]
    assert resampled(5)[0] == [False] * 5
    pattern, output = resampled(None)
    assert pattern == [False] * 5
    scores = np.asarray(output.search.temperature_advantages)
    np.testing.assert_allclose(
        output.search.weights, np.exp(scores) / np.exp(scores).sum(1, keepdims=True), rtol=1e-4, atol=1e-7
    )
    pattern, output = resampled(5, last=True)
    assert pattern == [False] * 4 + [True]
    np.testing.assert_allclose(output.search.weights, 1 / 16, rtol=1e-6)


def test_the_last_resample_is_one_of_the_periods():
    """As in Algorithm 1: after step h only if p divides h, and where the effective sample size asks for one."""

    def resampled(period, ess_below=None):
        output = compiled(horizon=5, resampling=Resampling(period, ess_below=ess_below, last=True))(
            None, jax.random.key(0), simple_root()
        )
        return np.asarray(output.search.diagnostics.resampled[0]).tolist(), np.asarray(output.search.weights[0])

    pattern, weights = resampled(2)
    assert pattern == [False, True, False, True, False]
    assert weights.std() > 0.0
    assert resampled(None)[0] == [False] * 5
    assert resampled(5, ess_below=1e-3)[0] == [False] * 5
    assert resampled(1)[0] == [True] * 5


def test_discount_comes_from_the_model_and_zero_ends():
    """discount .5, then 0: weights grow by (r + discount·V(s') − V(s)) / temperature, and the third step by nothing."""

    def recurrent_fn(params, rng_key, action, embedding):
        output, embedding = simple_recurrent_fn(params, rng_key, action, embedding)
        step = embedding[:, 0]
        return (
            output.replace(
                reward=jnp.select([step == 1, step == 2], [2.0, 3.0], 100.0),
                discount=jnp.select([step == 1, step == 2], [0.5, 0.0], 1.0),
                value=jnp.full(B, 8.0),
            ),
            embedding,
        )

    output = compiled(recurrent_fn, resampling=Resampling(None))(
        None, jax.random.key(0), simple_root(value=jnp.ones(B)), temperature=jnp.array([1.0, 2.0, 4.0])
    )
    score = (2.0 + 0.5 * 8.0 - 1.0) + (3.0 + 0.0 - 8.0)
    np.testing.assert_allclose(output.search.temperature_advantages, score)
    np.testing.assert_allclose(output.search.log_normaliser, score / np.array([1.0, 2.0, 4.0]), rtol=1e-5)
    np.testing.assert_allclose(output.search.value, 2.0 + 0.5 * 3.0)
    np.testing.assert_array_equal(output.search.diagnostics.num_live[0], [16, 0, 0])


def test_a_game_of_two_players_makes_its_root_invalid():
    def recurrent_fn(params, rng_key, action, embedding):
        output, embedding = simple_recurrent_fn(params, rng_key, action, embedding)
        return output.replace(discount=jnp.array([1.0, -1.0, 1.0])), embedding

    output = compiled(recurrent_fn)(None, jax.random.key(0), simple_root())
    np.testing.assert_array_equal(output.search.diagnostics.valid, [True, False, True])


def test_meets_exact_enumeration():
    """The posterior of the enumeration, through mctx's interface: z-test at 1e-6."""
    gamma, num_roots = 0.8, 256
    mdp = enumeration.lopsided_mdp(with_truncation=False)
    exact = enumeration.enumerate_trajectories(mdp, 0, horizon=3, temperature=0.8, gamma=gamma)
    root = enumeration.root_of(mdp, np.zeros(num_roots, int))
    output = jax.jit(
        lambda key: spo.search.smc_policy(
            None,
            key,
            mctx.RootFnOutput(prior_logits=root.prior, value=root.value, embedding=root.state),
            enumeration.recurrent_fn_of(mdp, gamma),
            num_particles=256,
            horizon=3,
            temperature=0.8,
            resampling=Resampling(1),
        )
    )(jax.random.key(0))
    weights = np.asarray(output.action_weights, np.float64)
    assert np.all(np.abs(weights.mean(0) - exact.action_posterior) < 4.9 * weights.std(0) / np.sqrt(num_roots))


def test_no_noise_unless_asked():
    """With a prior of one action, nothing else is ever tried; with noise, something is."""
    logits = jnp.broadcast_to(jnp.array([0.0, -50.0, -50.0, -50.0]), (B, A))
    quiet = compiled(num_particles=256)(None, jax.random.key(0), simple_root(prior_logits=logits))
    np.testing.assert_array_equal(quiet.search.root_actions, 0)
    noisy = compiled(num_particles=256, dirichlet_fraction=0.25)(
        None, jax.random.key(0), simple_root(prior_logits=logits), invalid_actions=jnp.zeros((B, A)).at[:, 1].set(1)
    )
    assert np.unique(noisy.search.root_actions).size > 1
    assert not np.any(noisy.search.root_actions == 1), "noise must not fall on an invalid action"


def test_dirichlet_noise_mixes_probabilities():
    """Mean of the noise over many roots is uniform over valid actions: (1 − f)·π + f/A, z-test at 1e-6."""
    logits = jnp.broadcast_to(jnp.array([6.0, 0.0, 0.0, -jnp.inf]), (20_000, A))
    mixed = np.exp(spo.search.add_dirichlet_noise(jax.random.key(0), logits, fraction=0.25, alpha=0.03))
    np.testing.assert_allclose(mixed.sum(1), 1.0, rtol=1e-5)
    assert np.all(mixed[:, 3] == 0)
    prior = np.asarray(jax.nn.softmax(logits[0]))
    expected = 0.75 * prior[:3] + 0.25 / 3
    assert np.all(np.abs(mixed[:, :3].mean(0) - expected) < 4.9 * mixed[:, :3].std(0) / np.sqrt(len(mixed)))
    assert np.all(mixed >= 0.75 * prior - 1e-6)


def test_half_precision_models_are_weighed_in_float32():
    def recurrent_fn(params, rng_key, action, embedding):
        output, embedding = simple_recurrent_fn(params, rng_key, action, embedding)
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16), output), embedding

    root = simple_root(prior_logits=jnp.zeros((B, A), jnp.bfloat16), value=jnp.zeros(B, jnp.bfloat16))
    output = compiled(recurrent_fn)(None, jax.random.key(0), root)
    assert output.action_weights.dtype == jnp.float32
    np.testing.assert_allclose(output.action_weights.sum(1), 1.0, rtol=1e-5)


def test_params_reach_the_model_untouched():
    """mctx hands `params` through as they are, and so must we: any object will do."""

    class Anything:
        bonus = 3.0

    def recurrent_fn(params, rng_key, action, embedding):
        output, embedding = simple_recurrent_fn(params, rng_key, action, embedding)
        return output.replace(reward=jnp.full(B, params.bonus)), embedding

    output = jax.jit(
        lambda key: spo.search.smc_policy(Anything(), key, simple_root(), recurrent_fn, **{**SIZES, "horizon": 1})
    )(jax.random.key(0))
    np.testing.assert_allclose(output.search.value, 3.0)
