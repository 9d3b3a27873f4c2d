"""Conformance suite: properties of every algorithm, for discrete and for continuous actions."""

import dataclasses
import functools
import itertools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.algorithms.planning import SearchConfig
from spo.algorithms.registry import ALGORITHMS
from spo.algorithms.smc_ent import SoftSearchConfig
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer, jit_init, jit_run
from spo.types import DiscreteActions
from training.comparing import assert_same_bits

TASKS = ["tiny/masked", "tiny/continuous_credit"]
#: Algorithms for one kind of action only, and an environment that they refuse.
REFUSED: dict[str, str] = {"alphazero": "tiny/continuous_credit", "gumbel_alphazero": "tiny/continuous_credit"}
REPLAYED = {
    "num_envs": 8,
    "rollout_length": 4,
    "num_updates": 2,
    "batch_size": 8,
    "sequence_length": 4,
    "replay_size": 8 * 8,
}
SIZES: dict[str, dict[str, Any]] = {
    "alphazero": {**REPLAYED, "num_simulations": 8},
    "gumbel_alphazero": {**REPLAYED, "num_simulations": 8, "max_num_considered_actions": 2},
    "sampled_alphazero": {**REPLAYED, "num_simulations": 8, "num_samples": 4},
    "mpo": {**REPLAYED, "sequence_length": 6, "num_samples": 4},
    "ppo": {"num_envs": 8, "rollout_length": 4, "num_epochs": 2, "num_minibatches": 2},
    "vmpo": {"num_envs": 8, "rollout_length": 4, "num_epochs": 2, "num_minibatches": 2, "target_period": 3},
    "smc_ent": {
        "num_envs": 8,
        "rollout_length": 4,
        "num_updates": 2,
        "batch_size": 8,
        "replay_size": 8 * 8,
        "num_value_samples": 4,
        "entropy_temperature": 1.0,  # with less, softmax(Q/τ) of an untrained network is nearly deterministic
        "search": SoftSearchConfig(num_particles=4, horizon=2, resample_period=1, unroll=1),
    },
    "spo": {
        "num_envs": 8,
        "rollout_length": 4,
        "num_updates": 2,
        "batch_size": 8,
        "sequence_length": 4,
        "replay_size": 8 * 8,
        "search": SearchConfig(num_particles=4, horizon=2, resample_period=1, unroll=1),
    },
}


#: (algorithm, task, number of seeds) -> number of traces of its step
num_traces: Counter[tuple[str, str, int]] = Counter()


@functools.cache
def built(algorithm: str, task_name: str, num_seeds: int) -> Trainer:
    config_type, _ = ALGORITHMS[algorithm]
    made = Trainer(
        Experiment(
            task=task_name,
            algorithm=algorithm,
            config=config_type(**SIZES[algorithm]),
            network=NetworkConfig(width=16, depth=1),
            num_seeds=num_seeds,
            num_devices=1,
        )
    )

    def counted_step(state: Any) -> Any:
        num_traces[algorithm, task_name, num_seeds] += 1
        return made.algorithm.step(state)

    made.run_fn = jit_run(made.algorithm._replace(step=counted_step), made.mesh)
    return made


@functools.cache
def trained(algorithm: str, task_name: str, num_seeds: int) -> Any:
    """Returns state and metrics [seed] after three iterations."""
    trainer = built(algorithm, task_name, num_seeds)
    return trainer.run_fn(trainer.init(jax.random.key(0)), 3)


def test_every_algorithm_is_tested():
    assert set(SIZES) == set(ALGORITHMS)


PAIRS = [pair for pair in itertools.product(SIZES, TASKS) if pair not in REFUSED.items()]
# Each pair compiles its own programs. By default every algorithm runs on one task, SPO and PPO on both.
every_pair = pytest.mark.parametrize(
    ("algorithm", "task_name"),
    [
        pytest.param(*pair, marks=pytest.mark.slow if pair[1] == TASKS[1] and pair[0] not in ("spo", "ppo") else [])
        for pair in PAIRS
    ],
)


@pytest.mark.parametrize(("algorithm", "task_name"), REFUSED.items())
def test_an_unsupported_kind_of_action_is_refused_with_a_sentence(algorithm: str, task_name: str):
    with pytest.raises(ValueError, match=rf"{algorithm} .* (discrete|continuous) actions"):
        built(algorithm, task_name, 1)


@every_pair
def test_updates_can_be_skipped(algorithm: str, task_name: str):
    """Every algorithm runs its updates by `run_updates`, which can skip those that are not finite."""
    config_type, _ = ALGORITHMS[algorithm]
    experiment = Experiment(
        task=task_name,
        algorithm=algorithm,
        config=config_type(**SIZES[algorithm]),
        network=NetworkConfig(width=16, depth=1),
        num_devices=1,
        skip_nonfinite_updates=True,
    )
    trainer = Trainer(experiment)
    _, metrics = jax.eval_shape(lambda state: trainer.run_fn(state, 1), trainer.abstract_state)
    assert "skipped_updates" in metrics


def test_skipped_updates_are_counted_over_iterations():
    """Skipped updates are summed; other metrics are means."""
    made = built(*PAIRS[0], 1)

    def step(state: Any) -> Any:
        return state, {"skipped_updates": jnp.float32(2.0), "loss": jnp.float32(2.0), "episode/count": jnp.float32(2.0)}

    run = jit_run(made.algorithm._replace(step=step), made.mesh)
    _, metrics = run(made.init(jax.random.key(0)), 3)
    assert {name: float(value.sum()) for name, value in metrics.items()} == {
        "skipped_updates": 6.0,
        "loss": 2.0,
        "episode/count": 6.0,
    }


@every_pair
def test_same_seed_same_bits(algorithm: str, task_name: str):
    trainer = built(algorithm, task_name, 2)
    assert_same_bits(trained(algorithm, task_name, 2), trainer.run_fn(trainer.init(jax.random.key(0)), 3))
    _, metrics = trained(algorithm, task_name, 2)
    assert np.all(metrics["value/mean"][0] != metrics["value/mean"][1]), "seeds in one program are different runs"


@pytest.mark.parametrize(
    ("algorithm", "task_name"),
    # Each pair compiles its own program.
    [
        pytest.param(*pair, marks=[] if pair in [("spo", TASKS[1]), ("ppo", TASKS[0])] else pytest.mark.slow)
        for pair in PAIRS
    ],
)
def test_a_seed_is_the_same_run_alone_and_beside_another(algorithm: str, task_name: str):
    """Up to rounding: a wider program sums in another order."""
    (together, metrics_together), (alone, metrics_alone) = (trained(algorithm, task_name, n) for n in (2, 1))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: close(a[0], b[0]), together.learner.params, alone.learner.params)
    jax.tree.map(lambda a, b: close(a[0], b[0]), metrics_together, metrics_alone)


@every_pair
def test_all_is_finite(algorithm: str, task_name: str):
    state, metrics = trained(algorithm, task_name, 2)
    for path, leaf in jax.tree_util.tree_leaves_with_path((state.learner, metrics)):
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)


@every_pair
def test_a_step_is_traced_once(algorithm: str, task_name: str):
    """The state after `run` has the types of the state after `init`: no second program is compiled."""
    state, _ = trained(algorithm, task_name, 2)
    before = num_traces[algorithm, task_name, 2]
    built(algorithm, task_name, 2).run_fn(state, 3)
    assert before > 0
    assert num_traces[algorithm, task_name, 2] == before


@every_pair
def test_every_way_of_acting_gives_valid_actions(algorithm: str, task_name: str):
    trainer = built(algorithm, task_name, 2)
    task, made = trainer.task, trainer.algorithm
    state, _ = trained(algorithm, task_name, 2)
    learner = jax.tree.map(lambda x: x[0], state.learner)
    env_states, timesteps = jax.vmap(task.evaluation.reset)(jax.random.split(jax.random.key(1), 32))
    mixed = jnp.arange(32) % 3 == 0
    ways: list[tuple[bool, Any]] = list(itertools.product([True, False], [True, False, mixed]))
    assert made.greedy_per_state

    @jax.jit
    def act(key: Any) -> list[Any]:
        return [
            made.act(learner, key, env_states, timesteps, use_search=use_search, greedy=greedy)
            for use_search, greedy in ways
        ]

    spec = task.evaluation.action_spec
    drawn, again = act(jax.random.key(2)), act(jax.random.key(3))
    for (use_search, greedy), actions, others in zip(ways, drawn, again, strict=True):
        if isinstance(spec, DiscreteActions):
            assert np.issubdtype(actions.dtype, np.integer)
            assert timesteps.action_mask[np.arange(32), actions].all()
        else:
            assert actions.shape == (32, spec.size)
            assert np.all((spec.low <= actions) & (actions <= spec.high))
        if not use_search and isinstance(greedy, bool):
            assert np.array_equal(actions, others) == greedy, "only a sample depends on the key"
    for best, sampled, both in (drawn[:3], drawn[3:]):
        # One search for both kinds: each state gets the action that it gets if all states have its kind.
        expected = np.where(mixed.reshape(-1, *(1,) * (best.ndim - 1)), best, sampled)
        np.testing.assert_allclose(both, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "task_name"),
    [
        pytest.param(*pair, marks=[] if pair in (("spo", TASKS[0]), ("alphazero", TASKS[0])) else pytest.mark.slow)
        for pair in PAIRS
    ],
)
def test_inspected_decisions_are_those_of_acting(algorithm: str, task_name: str):
    trainer = built(algorithm, task_name, 2)
    made, (state, _) = trainer.algorithm, trained(algorithm, task_name, 2)
    learner = jax.tree.map(lambda x: x[0], state.learner)
    states = jax.vmap(trainer.task.evaluation.reset)(jax.random.split(jax.random.key(1), 8))
    inspect = made.inspect
    assert (inspect.search is not None) == (made.model_steps_per_env_step > 0)

    @jax.jit
    def decide(key: Any) -> Any:
        acted = made.act(learner, key, *states, use_search=inspect.search is not None, greedy=False)
        policies = inspect.policy(learner, states[1])
        if inspect.search is None:
            return acted, acted, policies
        temperature = None if inspect.temperature is None else inspect.temperature(learner)
        return acted, inspect.search(learner, key, *states, temperature, greedy=False).action, policies

    acted, inspected, policies = decide(jax.random.key(2))
    np.testing.assert_array_equal(acted, inspected)
    assert jax.vmap(inspect.distribution.is_valid)(policies).all()


@every_pair
def test_values_of_states(algorithm: str, task_name: str):
    trainer = built(algorithm, task_name, 2)
    task, made = trainer.task, trainer.algorithm
    state, _ = trained(algorithm, task_name, 2)
    learner = jax.tree.map(lambda x: x[0], state.learner)
    _, timesteps = jax.vmap(task.evaluation.reset)(jax.random.split(jax.random.key(1), 32))
    values = jax.jit(made.value)(learner, jax.random.key(2), timesteps)
    assert values.shape == (32,)
    assert np.all(np.isfinite(values))


# --- SPO's options ----------------------------------------------------------------------------------------------------
OPTIONS = {
    "fixed_temperature": ({"fixed_temperature": True}, {"resampling": "stratified"}),
    "rollout_q_value": ({"old_policy": "rollout"}, {"weighting": "q_value", "resampling": "residual"}),
    "distinct_roots": (
        {},
        {"readout": "all_depths", "num_root_candidates": 2, "resample_last": False},
    ),
    "shared_advantage": ({}, {"weighting": "shared_advantage", "num_outcomes": 2}),
    "no_trust_region": (
        {"trust_region": False, "root_exploration_weight": 0.0},
        {"resampling": "systematic", "ess_threshold": 0.5, "resample_last": False},
    ),
}
# Each pair compiles its own program.
QUICK = [(TASKS[0], "distinct_roots"), (TASKS[1], "fixed_temperature")]


@pytest.mark.parametrize(
    ("task_name", "option"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
        for pair in itertools.product(TASKS, OPTIONS)
    ],
)
def test_options_of_spo(task_name: str, option: str):
    config_type, make_spo = ALGORITHMS["spo"]
    of_spo, of_search = OPTIONS[option]
    sizes = SIZES["spo"] | {"search": dataclasses.replace(SIZES["spo"]["search"], **of_search)}
    config = config_type(**sizes | of_spo)
    plain = built("spo", task_name, 1)
    algorithm = make_spo(plain.setting, config)
    # No other option changes the initial state.
    init = jit_init(algorithm, plain.mesh, num_seeds=1) if option == "distinct_roots" else plain.init
    start = init(jax.random.key(0))
    end, metrics = jit_run(algorithm, plain.mesh)(start, 3)
    for name, value in metrics.items():
        assert np.all(np.isfinite(value)), name
    before, after = start.learner.duals, end.learner.duals
    assert np.array_equal(before.raw_temperature, after.raw_temperature) == config.fixed_temperature
    for name, multiplier in before.raw_multipliers.items():
        assert np.array_equal(multiplier, after.raw_multipliers[name]) != config.trust_region
