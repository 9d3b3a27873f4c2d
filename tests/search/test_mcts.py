"""`spo.search.mcts` against mctx: the same trees to the bit on a CPU, for the same key."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from mctx._src import seq_halving

from spo.search import mcts
from spo.search.mcts import kernels, policies, simulations, threefry
from spo.search.mcts.rules import considered_visits

POLICIES = ("muzero_policy", "gumbel_muzero_policy")
both_policies = pytest.mark.parametrize("name", POLICIES)
NUM_STATES = 6


@pytest.fixture(autouse=True)
def rank_promotion():
    """mctx promotes ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


class Case(NamedTuple):
    """Sizes of a search."""

    num_roots: int
    num_actions: int
    num_simulations: int
    max_depth: int | None = None
    masked: bool = False


CASES = {
    "masked": Case(7, 5, 20, masked=True),
    "shallow": Case(5, 3, 24, max_depth=3, masked=True),
}


class Model(NamedTuple):
    """Tables of a random environment, policy and value function."""

    next_state: Any  # [S, A]
    reward: Any  # [S, A]
    discount: Any  # [S, A]
    logits: Any  # [S, A]
    value: Any  # [S]
    is_random: Any  # []: 1 if a coin decides between two next states


def random_model(seed: int, num_actions: int) -> Model:
    """Returns tables of random numbers, or with an even seed of few different ones: the noise then breaks many ties."""
    rng = np.random.default_rng(seed)
    shape = (NUM_STATES, num_actions)
    if seed % 2 == 0:
        draw = lambda *shape: rng.integers(0, 3, shape).astype(np.float32) / 2  # noqa: E731
        logits, discount = np.zeros(shape, np.float32), np.full(shape, rng.choice([1.0, 0.5]), np.float32)
    else:
        draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
        logits, discount = 2 * draw(*shape), rng.choice([0.0, 0.9, 0.99], size=shape).astype(np.float32)
        logits[:, 1:] = np.where(rng.random((NUM_STATES, num_actions - 1)) < 0.2, -np.inf, logits[:, 1:])
    next_state = rng.integers(0, NUM_STATES, shape).astype(np.int32)
    return Model(next_state, draw(*shape), discount, logits, draw(NUM_STATES), np.int32(rng.integers(0, 2)))


def random_inputs(seed: int, case: Case) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    states = rng.integers(0, NUM_STATES, case.num_roots).astype(np.int32)
    invalid = (rng.random((case.num_roots, case.num_actions)) < 0.4).astype(np.float32)
    return random_model(seed, case.num_actions), jax.random.key(seed), states, invalid


def recurrent_fn(model: Model, key: Any, action: Any, state: Any) -> tuple[Any, Any]:
    coin = jax.random.randint(key, action.shape, 0, 2)
    reached = (model.next_state[state, action] + coin * model.is_random) % NUM_STATES
    output = mctx.RecurrentFnOutput(
        reward=model.reward[state, action],
        discount=model.discount[state, action],
        prior_logits=model.logits[reached],
        value=model.value[reached],
    )
    return output, reached


@functools.cache
def search_program(policy: Any, case: Case, **options: Any) -> Any:
    """Returns the compiled search as a function of random inputs. Its result is a dictionary of arrays."""

    def run(model: Model, key: Any, states: Any, invalid: Any) -> dict[str, Any]:
        root = mctx.RootFnOutput(prior_logits=model.logits[states], value=model.value[states], embedding=states)
        masks = invalid if case.masked else None
        output = policy(
            model, key, root, recurrent_fn, case.num_simulations, masks, max_depth=case.max_depth, **options
        )
        tree, summary = output.search_tree, output.search_tree.summary()
        arrays = {name: getattr(tree, name) for name in (*kernels.Changed._fields, "embeddings")}
        of_root = {name: getattr(summary, name) for name in ("visit_counts", "visit_probs", "value", "qvalues")}
        return arrays | of_root | {"action": output.action, "action_weights": output.action_weights}

    return jax.jit(run)


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


def compare_with_mctx(name: str, case: Case, num_models: int, **options: Any) -> None:
    ours = search_program(getattr(mcts, name), case, **options)
    theirs = search_program(getattr(mctx, name), case, **options)
    for seed in range(num_models):
        inputs = random_inputs(seed, case)
        assert_same(ours(*inputs), theirs(*inputs))


@pytest.mark.parametrize("case", CASES)
@both_policies
def test_same_as_mctx(name, case):
    """All arrays of the trees, the actions and their weights, over random models with and without ties."""
    compare_with_mctx(name, CASES[case], num_models=20)


@pytest.mark.slow
@both_policies
def test_same_as_mctx_in_larger_trees(name):
    compare_with_mctx(name, Case(16, 18, 64), num_models=40)


@pytest.mark.parametrize(
    ("name", "transform", "options"),
    [
        (
            "muzero_policy",
            ("qtransform_by_min_max", {"min_value": -4.0, "max_value": 4.0}),
            {"dirichlet_fraction": 0.0, "pb_c_init": 0.7, "pb_c_base": 30.0, "temperature": 0.5},
        ),
        (
            "gumbel_muzero_policy",
            ("qtransform_completed_by_mix_value", {"value_scale": 0.3, "rescale_values": False}),
            {"max_num_considered_actions": 3, "gumbel_scale": 0.0},
        ),
    ],
    ids=POLICIES,
)
def test_options_are_those_of_mctx(name, transform, options):
    case = CASES["masked"]
    for library in (mcts, mctx):
        qtransform = functools.partial(getattr(library, transform[0]), **transform[1])
        program = search_program(getattr(library, name), case, qtransform=qtransform, **options)
        outputs = [program(*random_inputs(seed, case)) for seed in range(6)]
        if library is mcts:
            ours = outputs
    for one, other in zip(ours, outputs, strict=True):
        assert_same(one, other)


@both_policies
def test_the_kernels_grow_the_same_trees(name, monkeypatch):
    """The kernels of a GPU, interpreted, with four lanes for three actions, against the loops in XLA."""
    case = CASES["shallow"]
    in_xla = search_program(getattr(mcts, name), case)
    inputs = [random_inputs(seed, case) for seed in range(8)]
    expected = [in_xla(*one) for one in inputs]
    grow_trees = functools.partial(simulations.grow_trees, implementation="interpret")
    monkeypatch.setattr(policies, "grow_trees", grow_trees)
    by_kernels = search_program.__wrapped__(getattr(mcts, name), case)
    for one, other in zip(inputs, expected, strict=True):
        assert_same(by_kernels(*one), other)


@both_policies
def test_a_simulation_is_two_kernels_and_the_model_on_a_gpu(name):
    """No loop is left beside the one over simulations, for one batch of roots and for a batch of batches."""
    case = Case(4, 18, 8)
    options = {"dirichlet_fraction": 0.0} if name == "muzero_policy" else {}  # gamma variables are drawn in a loop

    def visits(*inputs: Any) -> Any:
        return search_program(getattr(mcts, name), case, **options)(*inputs)["visit_counts"]

    model, _, states, invalid = random_inputs(1, case)
    for function, key in (
        (visits, jax.random.key(0)),
        (jax.vmap(visits, in_axes=(None, 0, None, None)), jax.random.split(jax.random.key(0), 3)),
    ):
        text = jax.jit(function).trace(model, key, states, invalid).lower(lowering_platforms=("cuda",)).as_text()
        assert [text.count(f"tree_{kernel}") > 0 for kernel in ("select", "backup")] == [True, True]
        assert text.count("__gpu$xla.gpu.triton") == 2
        assert text.count("stablehlo.while") == 1 + _loops_of_threefry(text)


def _loops_of_threefry(text: str) -> int:
    """Returns the number of loops in the functions that hash random keys."""
    functions = text.split("func.func")
    return sum(function.count("stablehlo.while") for function in functions if "threefry" in function.split("(")[0])


def test_a_qtransform_of_the_caller():
    """A function that the kernels do not contain: mctx's own, on our tree. It is the default of mctx."""
    case = CASES["masked"]
    ours = search_program(mcts.muzero_policy, case, qtransform=mctx.qtransform_by_parent_and_siblings)
    theirs = search_program(mctx.muzero_policy, case)
    for seed in range(4):
        inputs = random_inputs(seed, case)
        assert_same(ours(*inputs), theirs(*inputs))


def test_own_types_and_raw_keys():
    """Our named tuples in place of mctx's, and a key of `jax.random.PRNGKey`, give the same search of one root."""
    case = Case(1, 2, 6)

    def own_recurrent_fn(model: Model, key: Any, action: Any, state: Any) -> tuple[Any, Any]:
        output, state = recurrent_fn(model, key, action, state)
        return mcts.RecurrentFnOutput(output.reward, output.discount, output.prior_logits, output.value), state

    @jax.jit
    def run(model: Model, key: Any, states: Any) -> Any:
        root = mcts.RootFnOutput(model.logits[states], model.value[states], states)
        return mcts.gumbel_muzero_policy(model, key, root, own_recurrent_fn, case.num_simulations)

    for seed in range(6):
        model, key, states, invalid = random_inputs(seed, case)
        output = run(model, jax.random.PRNGKey(seed), states)
        expected = search_program(mctx.gumbel_muzero_policy, case)(model, key, states, invalid)
        np.testing.assert_array_equal(output.search_tree.children_visits, expected["children_visits"])
        np.testing.assert_array_equal(output.action, expected["action"])


def test_random_words_are_those_of_jax():
    key = jax.random.key(17)
    words = tuple(threefry.key_words(key))
    indices = jnp.arange(37, dtype=jnp.uint32)
    keys = jax.random.key_data(jax.random.split(key, 37))
    np.testing.assert_array_equal(jnp.stack(threefry.split_key(words, indices), axis=1), keys)
    np.testing.assert_array_equal(threefry.uniform(words, indices), jax.random.uniform(key, (37,)))
    assert threefry.key_words(jax.random.key(0, impl="rbg")) is None


@pytest.mark.parametrize("num_simulations", [1, 7, 64, 200])
def test_schedule_of_sequential_halving(num_simulations):
    for num_considered in range(40):
        expected = seq_halving.get_sequence_of_considered_visits(num_considered, num_simulations)
        assert considered_visits(num_considered, num_simulations) == list(expected)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="compares kernels and mctx on a GPU")
@both_policies
def test_same_as_mctx_on_a_gpu(name):
    """Rounding differs on a GPU and may decide a tie: at most one root in a hundred has other visits."""
    case = Case(64, 18, 64)
    ours, theirs = search_program(getattr(mcts, name), case), search_program(getattr(mctx, name), case)
    differing, num_models = 0, 8
    for seed in range(num_models):
        inputs = random_inputs(seed, case)
        one, other = ours(*inputs), theirs(*inputs)
        differing += int(np.sum(np.any(one["visit_counts"] != other["visit_counts"], axis=1)))
    assert differing <= 0.01 * num_models * case.num_roots
