"""AlphaZero: the tree search against enumeration, losses against NumPy, and environments with known answers."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.probes import GAMMA, Probe, check
from oracles.tiny_answers import tiny_mdp
from spo.algorithms.alphazero import AlphaZeroConfig, GumbelAlphaZeroConfig, make_alphazero
from spo.algorithms.planning import environment_model
from spo.algorithms.tree_search import Candidates, TreeRoot, TreeSearchOutput, gumbel_search, puct_search
from spo.distributions import categorical, masked_logits
from spo.environments.tiny import TabularMDP, TabularState, tabular
from spo.environments.wrappers import EpisodeLimitState
from spo.networks import ActorCritic, make_network
from spo.networks.config import NetworkConfig
from spo.search import ModelFn, ModelOutput
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import Array

SEARCHES = {
    "puct": functools.partial(puct_search, greedy=True),
    "gumbel": functools.partial(gumbel_search, greedy=True, max_num_considered_actions=16),
}
both_searches = pytest.mark.parametrize("name", SEARCHES)


# --- The search -------------------------------------------------------------------------------------------------------
class Tables(NamedTuple):
    """An environment with a time limit, a policy and a value function, all as tables."""

    mdp: TabularMDP
    time_limit: int
    logits: Any  # [S, A]
    values: Any  # [S]

    @property
    def model(self) -> ModelFn:
        def both(_params: Any, observation: Any, mask: Any) -> Any:
            row = jnp.argmax(observation)
            return masked_logits(jnp.asarray(self.logits)[row], mask), jnp.asarray(self.values)[row]

        network = ActorCritic(init=None, actor=None, critic=None, both=both, distribution=categorical)
        return environment_model(tabular(self.mdp, "table", self.time_limit).model, network, None)

    def root(self, rows: Sequence[int]) -> TreeRoot:
        row = jnp.asarray(rows, jnp.int32)
        log_prior = masked_logits(jnp.asarray(self.logits), jnp.asarray(self.mdp.mask))[row]
        state = EpisodeLimitState(TabularState(row), jnp.zeros(len(rows), jnp.int32))
        return TreeRoot(Candidates(None, log_prior), jnp.asarray(self.values)[row], state)


def tables(mdp: TabularMDP, time_limit: int, logits: Any, values: Any) -> Tables:
    return Tables(mdp, time_limit, np.asarray(logits, np.float32), np.asarray(values, np.float32))


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@both_searches
def test_value_of_a_path_without_choice(name: str, end: str):
    """One action. The first simulation reaches one step, all others two: then the episode ends, in either way."""
    num_states = 3 if end == "terminated" else 6
    states = np.arange(num_states)
    mdp = TabularMDP(
        transition_probabilities=np.eye(num_states)[np.minimum(states + 1, num_states - 1)][:, None],
        rewards=np.where(states < num_states - 1, 0.3 + states, 0.0)[:, None],
        terminal=states == num_states - 1,
        mask=np.ones((num_states, 1), bool),
        start_probabilities=np.eye(num_states)[0],
    )
    values = np.array([0.7, -2.0, 4.0, 8.0, 16.0, 32.0])[:num_states]
    table = tables(mdp, 2, np.zeros((num_states, 1)), values)
    search = functools.partial(SEARCHES[name], num_simulations=9, gamma=GAMMA)
    output = jax.jit(lambda key: search(key, table.root([0]), table.model))(jax.random.key(0))

    one_step = 0.3 + GAMMA * values[1]
    two_steps = 0.3 + GAMMA * (1.3 + GAMMA * (0.0 if end == "terminated" else values[2]))
    np.testing.assert_allclose(output.value, (values[0] + one_step + 8 * two_steps) / 10, rtol=1e-6)


def enumerate_values(mdp: TabularMDP, values: np.ndarray, row: int, steps_left: int) -> np.ndarray:
    """Returns Q [A] of the best behaviour within a time limit that bootstraps, by trying everything. -inf: invalid."""
    q_values = np.full(mdp.rewards.shape[1], -np.inf)
    for action in np.flatnonzero(mdp.mask[row]):
        following = np.flatnonzero(mdp.transition_probabilities[row, action])[0]
        if mdp.terminal[following]:
            future = 0.0
        elif steps_left == 1:
            future = values[following]
        else:
            future = enumerate_values(mdp, values, following, steps_left - 1).max()
        q_values[action] = mdp.rewards[row, action] + GAMMA * future
    return q_values


@both_searches
def test_finds_what_enumeration_finds(name: str):
    """Random policies and values on a tree in which every node has an end: some paths terminate, others are cut."""
    mdp = tiny_mdp("tree")
    rng = np.random.default_rng(0)

    @jax.jit
    def search(key: Array, logits: Array, values: Array) -> TreeSearchOutput:
        table = Tables(mdp, 2, logits, values)
        return SEARCHES[name](key, table.root([0]), table.model, num_simulations=400, gamma=GAMMA)

    for seed in range(16):
        logits, values = 0.3 * rng.normal(size=mdp.rewards.shape), rng.normal(size=len(mdp.terminal))
        logits[mdp.terminal], values[mdp.terminal] = np.nan, np.nan  # must never be used
        # Where paths are cut, values are random. Before that they are roughly right: misleading ones need more search.
        for row in np.unique(np.argmax(mdp.transition_probabilities[0], axis=1)):
            if not mdp.terminal[row]:
                values[row] = enumerate_values(mdp, values, row, steps_left=1).max() + rng.normal(scale=0.1)
        output = search(jax.random.key(seed), jnp.asarray(logits, jnp.float32), jnp.asarray(values, jnp.float32))
        q_values = enumerate_values(mdp, values, row=0, steps_left=2)
        assert output.action[0] == np.argmax(output.weights[0]) == np.argmax(q_values)
        np.testing.assert_allclose(np.sum(output.weights), 1.0, rtol=1e-6)
        assert output.visits.sum() == 400
        if name == "puct":  # most visits are of the best action; the others are part of the mean
            np.testing.assert_allclose(output.value[0], q_values.max(), atol=0.25)


@both_searches
def test_invalid_actions_and_steps_after_an_end_are_never_used(name: str):
    """Invalid actions give NaN, at the root and below, and so do steps after an end."""
    mdp = tiny_mdp("masked")
    table = tables(mdp, 2, np.zeros(mdp.rewards.shape), np.zeros(len(mdp.terminal)))
    ended = jnp.asarray(mdp.terminal)

    def strict_model(key: Any, state: EpisodeLimitState, action: Any) -> ModelOutput:
        step = table.model(key, state, action)
        row = state.inner.row
        forbidden = ~jnp.asarray(mdp.mask)[row, action] | ended[row] | (state.steps >= 2)
        spoil = functools.partial(jnp.where, forbidden, jnp.nan)
        return step._replace(reward=spoil(step.reward), value=spoil(step.value), prior=spoil(step.prior))

    search = functools.partial(SEARCHES[name], num_simulations=64, gamma=GAMMA)
    output = jax.jit(lambda key: search(key, table.root([0, 1]), strict_model))(jax.random.key(0))
    for leaf in (output.value, output.weights, output.visits):
        assert np.all(np.isfinite(leaf))
    assert np.all(output.weights[~mdp.mask[:2]] == 0.0)
    assert np.array_equal(output.visits > 0, mdp.mask[:2])


@both_searches
def test_mctx_finds_the_same(name: str):
    """Both libraries of the tree search give the same actions, weights, visits and values, to the bit."""
    mdp = tiny_mdp("masked")
    rng = np.random.default_rng(1)
    table = tables(mdp, 2, rng.normal(size=mdp.rewards.shape), rng.normal(size=len(mdp.terminal)))

    def run(library: str) -> TreeSearchOutput:
        search = functools.partial(SEARCHES[name], num_simulations=12, gamma=GAMMA, library=library)
        output = jax.jit(lambda key: search(key, table.root([0, 1]), table.model))(jax.random.key(4))
        return output._replace(tree=None)  # the libraries number its nodes in another order

    with jax.numpy_rank_promotion("allow"):  # mctx promotes ranks
        for ours, theirs in zip(jax.tree.leaves(run("spo")), jax.tree.leaves(run("mctx")), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_samples_follow_the_visits_and_the_greedy_action_is_the_most_visited():
    """All 4000 roots are equal. False alarm: 1 in 5000 (four standard deviations, three actions)."""
    mdp = tiny_mdp("context")
    table = tables(mdp, 1, np.zeros(mdp.rewards.shape), np.zeros(len(mdp.terminal)))
    search = functools.partial(
        puct_search, root=table.root(4000 * [1]), model_fn=table.model, num_simulations=8, gamma=GAMMA
    )
    drawn, best = jax.jit(lambda key: [search(key, greedy=greedy) for greedy in (False, True)])(jax.random.key(0))
    assert np.all(best.action == np.argmax(best.weights, axis=1))
    shares = np.mean(drawn.weights, axis=0)
    counted = np.bincount(drawn.action, minlength=3) / 4000
    assert np.all(np.abs(counted - shares) < 4 * np.sqrt(shares * (1 - shares) / 4000))
    assert shares[1] < 0.9, "a sample was meant to differ from the best action"


# --- Acting and learning ----------------------------------------------------------------------------------------------
SMALL = AlphaZeroConfig(
    num_envs=1,
    rollout_length=16,
    sequence_length=16,
    replay_size=16,
    num_updates=1,
    batch_size=2,
    num_simulations=8,
    learning_rate=0.0,
    root_exploration_weight=1.0,
)


@functools.cache
def small() -> Trainer:
    return Trainer(
        Experiment(
            task="tiny/slippery",
            task_options={"length": 2, "slip_probability": 0.5, "time_limit": 2},
            algorithm="alphazero",
            config=SMALL,
            network=NetworkConfig(width=8, depth=1),
            num_devices=1,
        )
    )


@functools.cache
def after_one_iteration() -> tuple[Any, Any]:
    """Returns state and metrics of the only seed on the only device."""
    trainer = small()
    state, metrics = trainer.run_fn(trainer.init(jax.random.key(0)), 1)
    learner, metrics = jax.tree.map(lambda x: x[0], (state.learner, metrics))
    return state._replace(learner=learner, worker=jax.tree.map(lambda x: x[0, 0], state.worker)), metrics


def test_losses_by_hand():
    """There is one environment, and its rollout is the only sequence."""
    (learner, worker), metrics = after_one_iteration()
    experience = jax.tree.map(lambda x: np.asarray(x[0], np.float64), worker.replay.experience)
    assert experience.truncated.any()
    assert experience.terminated.any()
    train = small().task.train
    network = make_network(train.observation_spec, train.action_spec, small().setting.architecture)

    def evaluate(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns log-probabilities [T, A] and values [T]."""
        network_fn = jax.vmap(lambda observation: network.both(learner.params, observation, None))
        logits, values = (np.asarray(x, np.float64) for x in network_fn(jnp.asarray(observations, jnp.float32)))
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), values

    log_probs, values = evaluate(experience.observation)
    _, next_values = evaluate(experience.next_observation)
    advantage, targets = 0.0, np.zeros(16)
    for t in reversed(range(16)):
        future = 0.0 if experience.terminated[t] else next_values[t]
        error = experience.reward[t] + SMALL.gamma * future - values[t]
        continues = not (experience.terminated[t] or experience.truncated[t])
        advantage = error + SMALL.gamma * SMALL.gae_lambda * continues * advantage
        targets[t] = advantage + values[t]
    weights = experience.extras.weights
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-6)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4)
    close(metrics["loss/policy"], -np.mean(np.sum(weights * log_probs, axis=1)))
    close(metrics["loss/value"], np.mean((values - targets) ** 2))
    close(metrics["value/target"], np.mean(targets))
    close(metrics["policy/entropy"], -np.mean(np.sum(np.exp(log_probs) * log_probs, axis=1)))


def test_noise_at_the_root_is_for_training_only():
    """With Dirichlet(0.03) noise as the prior, most visits go to one action. In evaluation, there is no noise."""
    (learner, worker), _ = after_one_iteration()
    # The untrained policy is nearly uniform, and steps are random: only noise gives such unequal weights.
    weights = worker.replay.experience.extras.weights[0]
    assert np.mean(np.max(weights, axis=1)) > 0.8
    setting, noisy = small().setting, small().algorithm
    quiet = make_alphazero(setting, dataclasses.replace(SMALL, root_exploration_weight=0.0))
    env_states, timesteps = jax.vmap(setting.task.evaluation.reset)(jax.random.split(jax.random.key(1), 64))

    def act(algorithm: Any) -> np.ndarray:
        decide = functools.partial(algorithm.act, use_search=True, greedy=False)
        return np.asarray(jax.jit(decide)(learner, jax.random.key(2), env_states, timesteps))

    actions = act(quiet)
    assert np.array_equal(act(noisy), actions)
    assert len(np.unique(actions)) == 2, "both actions were meant to occur"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_simulations": 0}, "num_simulations must be 1 or more"),
        ({"root_exploration_weight": 1.5}, "root_exploration_weight must lie between 0 and 1"),
        ({"dirichlet_alpha": 0.0}, "dirichlet_alpha must be above 0"),
        ({"tree_library": "jax"}, "tree_library must be one of spo, mctx"),
    ],
)
def test_bad_arguments(config: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        AlphaZeroConfig(**config)


# --- Environments with known answers ----------------------------------------------------------------------------------
LEARNING = {
    "num_envs": 32,
    "rollout_length": 8,
    "sequence_length": 8,
    "num_updates": 16,
    "batch_size": 32,
    "replay_size": 32 * 32,
    "learning_rate": 3e-3,
    "gamma": GAMMA,
    "num_simulations": 32,
}
CONFIGS = {
    "alphazero": AlphaZeroConfig(**LEARNING),
    "gumbel_alphazero": GumbelAlphaZeroConfig(**LEARNING),
}
# "chain" is left out. A search of this size reaches the near exit and not the far reward, and MuZero's scaling of
# values makes the exit the only difference. The policy settles on it before a rollout reaches the end.
PROBES = {
    "bandit": Probe(),
    "constant_reward": Probe(),
    "observation_reward": Probe(),
    "delayed_reward": Probe(),
    "context": Probe(),
    "credit": Probe(),
    "masked": Probe(),
    "tree": Probe(value_error=0.15),  # values are those of acting with exploration noise
    "slippery": Probe(150, value_error=0.15),
}
# A tree keeps the first outcome of a random step, and a lucky one looks safe. Neither algorithm learns "gamble", and on
# "slippery" the values of Gumbel's policy, which follows the tree more closely, stay too low.
GUMBEL_PROBES = {name: probe for name, probe in PROBES.items() if name != "slippery"}


@pytest.mark.learns
@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (algorithm, name)
        for algorithm, probes in (("alphazero", PROBES), ("gumbel_alphazero", GUMBEL_PROBES))
        for name in probes
    ],
)
def test_learns(algorithm: str, name: str):
    check(algorithm, CONFIGS[algorithm], name, PROBES[name])
