"""Bad input: a sentence where it can be seen, NaN for that root alone where it can't, never a plausible answer."""

import functools

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

import spo.search
from spo.distributions import Gaussian, categorical, gaussian, tanh_gaussian
from spo.search import ModelOutput, Proposal, Proposed, Resampling, Root
from spo.search.proposals import from_prior

B, N, A = 3, 8, 4
SIZES = {"num_particles": N, "horizon": 3, "temperature": 1.0, "resampling": Resampling(1), "unroll": 1}
KEY = jax.random.key(0)
ROOT = Root(prior=jnp.zeros((B, A)), value=jnp.zeros(B), state=jnp.arange(B))


def model_fn(key, state, action):
    return ModelOutput(
        state=state,
        prior=jnp.zeros(A),
        value=jnp.zeros(()),
        reward=action.astype(jnp.float32) + jax.random.uniform(key),
        discount=jnp.ones(()),
        ended=jnp.zeros((), bool),
    )


GAUSSIAN = Gaussian(jnp.zeros((B, 2)), jnp.ones((B, 2)))


def search(root=ROOT, model=model_fn, key=KEY, **settings):
    return spo.search.search(key, root, model, **{**SIZES, **settings})


def both_ways(call):
    """Static mistakes raise when called and when traced."""
    return [call, lambda: jax.jit(call)()]


@pytest.mark.parametrize("jitted", [0, 1], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_particles": 0}, "num_particles must be a whole number of at least 1"),
        ({"num_particles": 2.0}, "num_particles must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"horizon": True}, "horizon must be"),
        ({"resampling": Resampling(0)}, r"Resampling.period must be .* or None"),
        ({"unroll": 0}, "unroll must be"),
        ({"resampling": Resampling(1, ess_below=0.0)}, "ess_below"),
        ({"resampling": Resampling(1, ess_below=1.5)}, "ess_below"),
        ({"resampling": Resampling(None, ess_below=0.5)}, "ess_below needs a period"),
        ({"temperature": jnp.ones(2)}, "temperature must be a scalar or have shape"),
        (
            {"root": ROOT._replace(proposal=jnp.zeros((B, A + 1)))},
            "root.proposal must have the shape and dtype of root.prior",
        ),
        (
            {"root": ROOT._replace(proposal=ROOT.prior), "proposal": Proposal(step_fn=from_prior(categorical))},
            "root.proposal .* is not used if Proposal.step_fn draws the first actions",
        ),
        ({"key": 3}, r"^key must be one random key, such as jax.random.key\(0\), got 3\."),
        ({"key": jax.random.split(KEY)}, r"must be one random key, .* got key<fry>\[2\]"),
        (
            {"root": ROOT._replace(prior=GAUSSIAN)},
            r"^root.prior is a Gaussian: pass distribution=spo.distributions.gaussian, or tanh_gaussian\(low, high\)\.",
        ),
        (
            {"root": ROOT._replace(proposal=GAUSSIAN)},
            "^root.proposal is a Gaussian: pass distribution=spo.distributions.gaussian",
        ),
        (
            {"distribution": gaussian},
            r"root.prior must be a spo.distributions.Gaussian\(mean, scale\) .* got float32\[3, 4\]",
        ),
        ({"distribution": tanh_gaussian(0.0, 1.0)}, "pass distribution=spo.distributions.categorical for logits"),
        (
            {"root": ROOT._replace(prior=[[0.0] * A] * B)},
            r"root.prior must be an array of logits, \[B, A\], got a list: convert it with jnp.asarray",
        ),
        ({"root": None}, "root must be of type Root, got NoneType"),
        ({"root": ROOT._replace(value=3)}, "root.value must be an array of shape .B., got int"),
        ({"num_particles": 2**63}, "num_particles must be at most 2147483647"),
        ({"resampling": 3}, "resampling must be of type Resampling, got int"),
        ({"distribution": 2}, "distribution must be of type Distribution, got int"),
        ({"proposal": -1}, "proposal must be of type Proposal, got int"),
        ({"readout": "last"}, "readout must be of type Readout, got str"),
        ({"with_ancestry": 1}, "with_ancestry must be of type bool, got int"),
        ({"score_fn": None}, "score_fn must be a function, got NoneType"),
        ({"temperature": "hot"}, "temperature must be a real number, got str"),
        ({"root": ROOT._replace(value=jnp.zeros((B, N, 1)))}, "root.value must have shape"),
        ({"root": ROOT._replace(value=jnp.zeros((B, 1)))}, "N must be num_particles = 8"),
        ({"root": ROOT._replace(value=jnp.zeros((B, N)))}, "root.state must have the leading axes B, N = 3, 8"),
        ({"root": ROOT._replace(value=jnp.zeros(B, int))}, "root.value must be floating point"),
        ({"root": ROOT._replace(state={"x": jnp.zeros(B + 1)})}, r"root.state\['x'\] must have the leading axis"),
        ({"root": ROOT._replace(prior=jnp.zeros((B + 1, A)))}, "root.prior must have the leading axis"),
    ],
)
# Some of these values break an annotation too, and the type checker of the test suite would speak first.
@pytest.mark.usefixtures("without_type_checks")
def test_static_arguments(settings, sentence, jitted):
    with pytest.raises(ValueError, match=sentence):
        both_ways(lambda: search(**settings))[jitted]()


@pytest.fixture
def without_type_checks():
    from jaxtyping import config

    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": jnp.zeros((), jnp.float32)}, "state that model_fn returns .* dtype"),
        ({"state": {"x": jnp.zeros((), jnp.int32)}}, "state that model_fn returns must have the structure"),
        ({"prior": jnp.zeros(A + 1)}, "prior that model_fn returns"),
        (
            {"prior": [jnp.zeros(A)]},
            "prior that model_fn returns must have the structure of .*, one array; got a list",
        ),
        ({"prior": jnp.zeros(A, jnp.float16)}, "prior that model_fn returns"),
        ({"value": jnp.zeros(1)}, "one value per particle"),
        ({"reward": jnp.zeros(2)}, "one reward per particle"),
        ({"discount": jnp.zeros((1, 1))}, "one discount per particle"),
        ({"ended": jnp.zeros(())}, "`ended` as a boolean"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_model_output(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        search(model=lambda *args: model_fn(*args)._replace(**change))


@pytest.mark.usefixtures("without_type_checks")
def test_a_model_that_returns_something_else():
    with pytest.raises(ValueError, match="the result of model_fn must be of type ModelOutput, got tuple"):
        search(model=lambda key, state, action: (state, action))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), jnp.array([1.0, 0.0, 1.0])])
def test_temperature_where_it_can_be_seen(temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        search(temperature=temperature)
    # A constant can be seen even while something around it is traced.
    with pytest.raises(ValueError, match="temperature must be positive"):
        jax.jit(lambda root: search(root, temperature=temperature))(ROOT)


@pytest.mark.parametrize("temperature", [1e-50, np.array([1.0, 1e-50, 1.0])])
@pytest.mark.usefixtures("without_type_checks")
def test_a_temperature_that_rounds_to_zero_is_not_positive(temperature):
    sentence = "temperature must be positive, got 1e-50, which is 0 in float32: give a larger one"
    with pytest.raises(ValueError, match=sentence):
        search(temperature=temperature)
    with pytest.raises(ValueError, match=sentence):
        jax.jit(lambda root: search(root, temperature=temperature))(ROOT)


def test_a_model_that_returns_nan_raises_no_error():
    output = search(model=lambda *args: model_fn(*args)._replace(reward=jnp.float32(jnp.nan)))
    assert not output.diagnostics.valid.any()
    assert np.isnan(output.action_weights).all()


def test_prior_without_an_action_where_it_can_be_seen():
    nothing = ROOT._replace(prior=ROOT.prior.at[1].set(-jnp.inf))
    with pytest.raises(ValueError, match="root 1 has no valid action"):
        search(nothing)
    with pytest.raises(ValueError, match="root 1 has no valid action"):
        jax.jit(lambda: search(nothing))()


def recurrent_fn(params, rng_key, action, embedding):
    return mctx.RecurrentFnOutput(
        reward=jnp.zeros(B), discount=jnp.ones(B), prior_logits=jnp.zeros((B, A)), value=jnp.zeros(B)
    ), embedding


MCTX_ROOT = mctx.RootFnOutput(prior_logits=jnp.zeros((B, A)), value=jnp.zeros(B), embedding=jnp.zeros(B))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"invalid_actions": jnp.zeros((B, A)).at[2].set(1)}, "invalid_actions masks every action of root 2"),
        ({"invalid_actions": jnp.zeros((A,))}, "invalid_actions must have the shape of the prior logits"),
        ({"dirichlet_fraction": 1.5}, "dirichlet_fraction must lie between 0 and 1"),
        ({"dirichlet_fraction": 0.1, "dirichlet_alpha": 0.0}, "dirichlet_alpha must be above 0"),
        ({"root": MCTX_ROOT.replace(prior_logits=jnp.zeros(B))}, "root.prior_logits must be floating point"),
        ({"root": MCTX_ROOT.replace(prior_logits=jnp.zeros((B, A), int))}, "root.prior_logits must be floating point"),
        ({"root": MCTX_ROOT.replace(embedding=jnp.zeros(B + 1))}, "leading axis B"),
    ],
)
@pytest.mark.parametrize("jitted", [0, 1], ids=["eager", "jit"])
def test_policy_arguments(settings, sentence, jitted):
    arguments = {"params": None, "rng_key": KEY, "root": MCTX_ROOT, "recurrent_fn": recurrent_fn, **SIZES, **settings}
    with pytest.raises(ValueError, match=sentence):
        both_ways(lambda: spo.search.smc_policy(**arguments))[jitted]()


# --- Traced values: the bad root alone turns into NaN ---------------------------------------------------------------


def assert_only_this_root_is_invalid(bad, good, root):
    """`bad` differs from `good` by one root's fault: that root is NaN, the others have the same bits."""
    assert np.asarray(bad.diagnostics.valid).tolist() == [i != root for i in range(B)]
    assert np.all(good.diagnostics.valid)
    assert np.all(np.isnan(bad.weights[root]))
    assert np.isnan(bad.value[root])
    assert np.isnan(bad.log_normaliser[root])
    for chosen in (bad.action, bad.best_action):
        if jnp.issubdtype(chosen.dtype, jnp.floating):
            assert np.all(np.isnan(chosen[root]))
        else:
            assert chosen[root] == -1
    if bad.action_weights is not None:
        assert np.all(np.isnan(bad.action_weights[root]))
    others = np.arange(B) != root
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[others], y[others]), bad, good)


@functools.partial(jax.jit, static_argnames=("resampling", "proposal"))
def _faulty(fault, temperature, prior, resampling=SIZES["resampling"], proposal=Proposal()):  # noqa: B008 (immutable)
    """A model with the fault of `fault` [H, field] at that depth, for root 1 and root action-independent."""

    def model(key, state, action):
        output = model_fn(key, state["root"], action)
        of_step = jnp.where(state["root"] == 1, fault[state["depth"]], jnp.zeros(4))
        masked = jnp.where(of_step[3] != 0, -jnp.inf, 0.0)
        return output._replace(
            state={"root": state["root"], "depth": state["depth"] + 1},
            # Half of the particles only: a fault of one is a fault of the root.
            reward=output.reward + jnp.where(jax.random.bernoulli(key), of_step[0], 0.0),
            value=output.value + of_step[1],
            discount=output.discount + of_step[2],
            prior=output.prior + masked,
        )

    root = Root(prior=prior, value=jnp.zeros(B), state={"root": jnp.arange(B), "depth": jnp.zeros(B, jnp.int32)})
    return search(root, model, temperature=temperature, resampling=resampling, proposal=proposal)


NO_FAULT = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    "resampling",
    [Resampling(1), Resampling(1, ess_below=0.9), Resampling(1, last=True)],
    ids=["always", "ess", "last"],
)
@pytest.mark.parametrize(
    ("depth", "field", "value"),
    [
        (0, 0, np.nan),  # before two resamples, which must not launder it
        (2, 0, np.nan),
        (0, 0, np.inf),
        (1, 0, np.inf),
        (0, 1, np.nan),
        (1, 2, np.nan),
        (0, 3, 1.0),  # every action masked at depth 1
        (1, 3, 1.0),
    ],
)
def test_fault_of_the_model(depth, field, value, resampling):
    fault = NO_FAULT.copy()
    fault[depth, field] = value
    temperature = jnp.ones(B)
    bad = _faulty(fault, temperature, ROOT.prior, resampling)
    assert_only_this_root_is_invalid(bad, _faulty(NO_FAULT, temperature, ROOT.prior, resampling), 1)


def test_a_prior_without_a_valid_action_under_a_proposal_of_your_own():
    def uniform(key, node):
        return Proposed(jax.random.randint(key, (), 0, A), jnp.zeros_like(node.log_weight))

    fault = NO_FAULT.copy()
    fault[0, 3] = 1.0
    bad, good = (_faulty(x, jnp.ones(B), ROOT.prior, proposal=Proposal(step_fn=uniform)) for x in (fault, NO_FAULT))
    assert_only_this_root_is_invalid(bad, good, 1)


@pytest.mark.parametrize("weighting", ["advantage", "q_value"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_a_critic_says_of_an_end_never_counts(value, weighting):
    """Of the two actions the first ends with a reward of 1, in a state whose value no one should ask for."""

    def model(key, state, action):
        ended = action == 0
        return ModelOutput(
            state=state,
            prior=jnp.zeros(2),
            value=jnp.where(ended, value, 0.0),
            reward=1.0 * ended,
            discount=1.0 - ended,
            ended=ended,
        )

    root = Root(prior=jnp.zeros((1, 2)), value=jnp.zeros(1), state=jnp.zeros(1))
    output = spo.search.search(
        jax.random.key(0),
        root,
        model,
        num_particles=64,
        horizon=3,
        temperature=1.0,
        resampling=Resampling(None),
        score_fn=getattr(spo.search.weighting, weighting),
    )
    assert np.all(output.diagnostics.valid)
    # All that ended have weight e and return 1, the others 1 and 0.
    weights, ended = np.asarray(output.weights[0]), np.asarray(output.weights[0]) > 1 / 64
    assert 0 < ended.sum() < 64
    np.testing.assert_allclose(weights[ended][0] / weights[~ended][0], np.e, rtol=1e-5)
    np.testing.assert_allclose(output.value[0], weights[ended].sum(), rtol=1e-5)


def test_masking_after_the_last_step_is_no_fault():
    fault = NO_FAULT.copy()
    fault[2, 3] = 1.0
    assert np.all(_faulty(fault, jnp.ones(B), ROOT.prior).diagnostics.valid)


@pytest.mark.parametrize("temperature", [0.0, -2.0, np.nan])
def test_traced_temperature(temperature):
    good = _faulty(NO_FAULT, jnp.ones(B), ROOT.prior)
    assert_only_this_root_is_invalid(_faulty(NO_FAULT, jnp.ones(B).at[2].set(temperature), ROOT.prior), good, 2)


@pytest.mark.parametrize("logit", [-np.inf, np.nan])
def test_traced_prior_without_an_action(logit):
    good = _faulty(NO_FAULT, jnp.ones(B), ROOT.prior)
    assert_only_this_root_is_invalid(_faulty(NO_FAULT, jnp.ones(B), ROOT.prior.at[0].set(logit)), good, 0)


def test_traced_gaussian_prior():
    @jax.jit
    def run(scale):
        prior = Gaussian(mean=jnp.zeros((B, 2)), scale=scale)

        def model(key, state, action):
            return ModelOutput(
                state=state,
                prior=Gaussian(mean=jnp.zeros(2), scale=jnp.ones(2)),
                value=jnp.zeros(()),
                reward=jnp.sum(action),
                discount=jnp.ones(()),
                ended=jnp.zeros((), bool),
            )

        return search(ROOT._replace(prior=prior), model, distribution=gaussian)

    good, ones = run(jnp.ones((B, 2))), jnp.ones((B, 2))
    for scale in (0.0, -1.0, jnp.nan, jnp.inf):
        assert_only_this_root_is_invalid(run(ones.at[1, 0].set(scale)), good, 1)


def test_nothing_after_an_end_is_a_fault():
    """The model may return anything once stepped past an end: NaN, infinities, a prior with no action."""

    @jax.jit
    def run(nonsense):
        def model(key, state, action):
            over = state == 1
            output = model_fn(key, state, action)
            return output._replace(
                state=jnp.ones_like(state),
                prior=jnp.where(over, -jnp.inf, output.prior),
                reward=jnp.where(over, nonsense, output.reward),
                value=jnp.where(over, nonsense, output.value),
                discount=jnp.where(over, nonsense, output.discount),
                ended=jnp.ones((), bool),
            )

        return search(ROOT._replace(state=jnp.zeros(B, jnp.int32)), model)

    outputs = [run(jnp.float32(x)) for x in (0.0, np.nan, np.inf, -1e30)]
    assert np.all(outputs[0].diagnostics.valid)
    for other in outputs[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, outputs[0])


# --- Checks that survive jit ----------------------------------------------------------------------------------------


@functools.cache
def _checked():
    policy = functools.partial(
        spo.search.smc_policy, recurrent_fn=recurrent_fn, num_particles=N, horizon=2, resampling=Resampling(1), unroll=1
    )
    return jax.jit(spo.search.checked(policy))


def check(root=MCTX_ROOT, temperature=1.0, invalid_actions=None):
    if invalid_actions is None:
        invalid_actions = jnp.zeros((B, A))
    return _checked()(None, KEY, root, temperature=jnp.float32(temperature), invalid_actions=invalid_actions)


def test_checked_passes_what_is_sound():
    error, output = check()
    error.throw()
    np.testing.assert_allclose(output.action_weights.sum(1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be positive, got 0"),
        ({"temperature": np.nan}, "temperature must be positive"),
        ({"invalid_actions": jnp.zeros((B, A)).at[2].set(1)}, "masks every action of root 2"),
        ({"root": MCTX_ROOT.replace(value=jnp.array([0.0, jnp.nan, 0.0]))}, "the search of root 1 met a NaN"),
    ],
)
def test_checked_speaks_under_jit(settings, sentence):
    error, _ = check(**settings)
    with pytest.raises(Exception, match=sentence):
        error.throw()


def test_checked_takes_a_policy_with_everything_bound():
    run = functools.partial(spo.search.search, root=ROOT, model_fn=model_fn, **SIZES)
    error, output = jax.jit(spo.search.checked(run))(KEY)
    error.throw()
    assert np.all(output.diagnostics.valid)


def test_checked_takes_a_function_that_binds_the_temperature_itself():
    def run(temperature_of_root):
        return search(temperature=temperature_of_root)

    checked = jax.jit(spo.search.checked(run))
    checked(jnp.float32(1.0))[0].throw()
    with pytest.raises(Exception, match="the search of root 0 met a NaN"):
        checked(jnp.float32(-1.0))[0].throw()


def test_checked_takes_a_temperature_function():
    run = functools.partial(spo.search.search, root=ROOT, model_fn=model_fn, **SIZES)
    checked = jax.jit(lambda slope: spo.search.checked(run)(KEY, temperature=lambda depth, _ess: 1.0 + slope * depth))
    checked(1.0)[0].throw()
    with pytest.raises(Exception, match="the search of root 0 met a NaN"):
        checked(-1.0)[0].throw()


def test_checked_outside_jit():
    error, _ = spo.search.checked(spo.search.search)(KEY, ROOT, model_fn, **{**SIZES, "horizon": 1})
    error.throw()


@pytest.mark.parametrize("prior", [-jnp.inf, jnp.nan], ids=["masked", "nan"])
@pytest.mark.parametrize(
    "resampling", [Resampling(4), Resampling(2), Resampling(2, last=True)], ids=["every 4", "every 2", "last"]
)
@pytest.mark.parametrize("horizon", [1, 2, 4])
def test_a_root_is_invalid_in_a_model_whose_scores_are_constants(prior, resampling, horizon):
    """All weights are then constants of the program but for the NaN, which XLA's exponential on a CPU may lose."""

    def nothing_happens(key, state, action):
        zero = jnp.zeros(())
        return ModelOutput(state, jnp.zeros(A), zero, reward=zero, discount=zero + 1, ended=zero > 0)

    @jax.jit
    def plan(prior):
        root = Root(prior=jnp.stack([jnp.zeros(A), prior]), value=jnp.zeros(2), state=jnp.zeros((2, 1)))
        return search(root, nothing_happens, num_particles=16, horizon=horizon, resampling=resampling, unroll=8)

    output = plan(jnp.full(A, prior))
    assert output.diagnostics.valid.tolist() == [True, False]
    assert output.action[1] == -1
    assert np.isnan(output.weights[1]).all()
    assert np.isnan([output.value[1], output.log_normaliser[1]]).all()
    assert np.isfinite(output.weights[0]).all()
