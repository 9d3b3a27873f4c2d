"""PPO: one iteration recomputed in NumPy, its options, and the environments that it learns (see `probes`)."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.on_policy import make_on_table, over_devices, values_behind_a_time_limit
from algorithms.probes import GAMMA, Probe, check, is_continuous
from algorithms.tables import run, table_network
from spo.acting import Experience
from spo.algorithms import ppo
from spo.algorithms.base import DEVICE_AXIS, Setting
from spo.algorithms.minibatches import learn_in_minibatches
from spo.algorithms.ppo import Decision, PPOConfig, make_ppo
from spo.environments.tiny import tiny
from spo.networks import mlp_architecture
from spo.networks.config import NetworkConfig
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import TimeStep

# --- One iteration by hand --------------------------------------------------------------------------------------------
NUM_STEPS, NUM_ENVS, NUM_STATES, NUM_ACTIONS = 5, 4, 4, 3
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(NUM_STATES, NUM_ACTIONS))
VALUES = RNG.normal(size=NUM_STATES)
STATES, NEXT_STATES = RNG.integers(NUM_STATES, size=(2, NUM_STEPS, NUM_ENVS))
ACTIONS = RNG.integers(NUM_ACTIONS, size=(NUM_STEPS, NUM_ENVS))
REWARDS = RNG.normal(size=(NUM_STEPS, NUM_ENVS))
TERMINATED = np.zeros((NUM_STEPS, NUM_ENVS), bool)
TRUNCATED = np.zeros((NUM_STEPS, NUM_ENVS), bool)
TERMINATED[[1, 3], [0, 1]] = TRUNCATED[[2, 0, 4], [0, 2, 3]] = True
# Different from the tables, as if policy and critic had changed since: ratios lie on both sides of the clip.
OLD_LOG_PROBS = (LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True)))[STATES, ACTIONS] + 0.3 * RNG.normal(
    size=ACTIONS.shape
)
OLD_VALUES = VALUES[STATES] + 0.1 * RNG.normal(size=STATES.shape)

EXPERIENCE = jax.tree.map(
    lambda x: x[None],
    Experience(
        observation=np.eye(NUM_STATES, dtype=np.float32)[STATES],
        action_mask=np.ones((NUM_STEPS, NUM_ENVS, NUM_ACTIONS), bool),
        next_observation=np.eye(NUM_STATES, dtype=np.float32)[NEXT_STATES],
        reward=REWARDS.astype(np.float32),
        terminated=TERMINATED,
        truncated=TRUNCATED,
        extras=Decision(ACTIONS, OLD_LOG_PROBS.astype(np.float32), OLD_VALUES.astype(np.float32)),
    ),
)
BY_HAND = PPOConfig(
    num_envs=NUM_ENVS,
    rollout_length=NUM_STEPS,
    num_epochs=3,
    num_minibatches=1,
    actor_learning_rate=0.5,
    critic_learning_rate=0.2,
    gamma=0.9,
    gae_lambda=0.7,
    clip_epsilon=0.2,
    value_coefficient=0.7,
    entropy_coefficient=0.05,
)
CASES = {
    "plain": BY_HAND,
    "options": dataclasses.replace(BY_HAND, standardise_advantages=False, value_clip=0.15, reward_scale=3.0),
}


def by_hand(config: PPOConfig) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Returns logits, values and mean losses, computed step by step."""
    advantages = np.zeros((NUM_STEPS, NUM_ENVS))
    for env in range(NUM_ENVS):
        following = 0.0
        for t in reversed(range(NUM_STEPS)):
            next_value = 0.0 if TERMINATED[t, env] else VALUES[NEXT_STATES[t, env]]
            error = config.reward_scale * REWARDS[t, env] + config.gamma * next_value - OLD_VALUES[t, env]
            ended = TERMINATED[t, env] or TRUNCATED[t, env]
            following = error + (0.0 if ended else config.gamma * config.gae_lambda * following)
            advantages[t, env] = following
    targets = advantages + OLD_VALUES
    if config.standardise_advantages:
        advantages = (advantages - advantages.mean()) / advantages.std()

    logits, values = LOGITS.copy(), VALUES.copy()
    totals: dict[str, list[float]] = {"loss/policy": [], "loss/value": [], "policy/entropy": [], "gradient_norm": []}
    for _ in range(config.num_epochs):
        actor_gradient, critic_gradient = np.zeros_like(logits), np.zeros_like(values)
        policy_loss = value_loss = entropy_sum = 0.0
        for t, env in np.ndindex(NUM_STEPS, NUM_ENVS):
            state, action, advantage = STATES[t, env], ACTIONS[t, env], advantages[t, env]
            p = np.exp(logits[state]) / np.exp(logits[state]).sum()
            ratio = p[action] / np.exp(OLD_LOG_PROBS[t, env])
            low, high = 1 - config.clip_epsilon, 1 + config.clip_epsilon
            policy_loss += -min(ratio * advantage, np.clip(ratio, low, high) * advantage)
            if not (ratio > high and advantage > 0) and not (ratio < low and advantage < 0):
                actor_gradient[state] += -advantage * ratio * (np.eye(NUM_ACTIONS)[action] - p)
            entropy = -np.sum(p * np.log(p))
            entropy_sum += entropy
            actor_gradient[state] += config.entropy_coefficient * p * (np.log(p) + entropy)

            error, old = values[state] - targets[t, env], OLD_VALUES[t, env]
            clip = np.inf if config.value_clip is None else config.value_clip
            near_error = old + np.clip(values[state] - old, -clip, clip) - targets[t, env]
            value_loss += max(error**2, near_error**2)
            if error**2 >= near_error**2:
                critic_gradient[state] += config.value_coefficient * 2 * error
        count = NUM_STEPS * NUM_ENVS
        actor_gradient, critic_gradient = actor_gradient / count, critic_gradient / count
        norm = np.sqrt(np.sum(actor_gradient**2) + np.sum(critic_gradient**2))
        for name, value in zip(totals, (policy_loss, value_loss, entropy_sum), strict=False):
            totals[name].append(value / count)
        totals["gradient_norm"].append(norm)
        logits = logits - config.actor_learning_rate * actor_gradient
        values = values - config.critic_learning_rate * critic_gradient
    return logits, values, {name: float(np.mean(value)) for name, value in totals.items()}


@pytest.mark.parametrize("num_devices", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_an_iteration_by_hand(case: str, num_devices: int, monkeypatch: pytest.MonkeyPatch):
    """Several devices give the result of one device with all of their experience."""
    config = CASES[case]
    algorithm = make_on_table(
        monkeypatch,
        ppo,
        make_ppo,
        config,
        table_network(LOGITS, VALUES),
        over_devices(EXPERIENCE, num_devices),
    )
    _, (state, metrics) = run(algorithm, num_devices)
    logits, values, expected = by_hand(config)
    for device in range(num_devices):
        close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
        close(state.learner.params.actor[device], logits)
        close(state.learner.params.critic[device], values)
        for name, value in expected.items():
            close(metrics[name][device], value, err_msg=name)


@pytest.mark.parametrize("num_minibatches", [1, 4])
def test_each_pass_uses_every_step_once_in_a_new_order(num_minibatches: int):
    num_epochs, shape = 3, (6, 4)
    rollout = {"step": np.arange(24).reshape(shape), "twice": 2 * np.arange(24).reshape(shape)}

    def note(seen: tuple[Any, Any], minibatch: dict[str, Any]) -> Any:
        count, order = seen
        assert minibatch["step"].shape == (24 // num_minibatches,)
        order = jax.lax.dynamic_update_slice(order, minibatch["step"], (count * (24 // num_minibatches),))
        # Leaves of a step stay together.
        together = jnp.all(minibatch["twice"] == 2 * minibatch["step"])
        return (count + 1, order), {"together": together.astype(float)}

    start = (jnp.zeros((), int), jnp.zeros(num_epochs * 24, int))
    learn = functools.partial(
        learn_in_minibatches, num_epochs=num_epochs, num_minibatches=num_minibatches, skip_nonfinite=False
    )
    (count, order), metrics = learn(note, start, jax.tree.map(jnp.asarray, rollout), jax.random.key(0))
    assert count == num_epochs * num_minibatches
    assert metrics["together"] == 1
    passes = np.asarray(order).reshape(num_epochs, 24)
    np.testing.assert_array_equal(np.sort(passes), np.tile(np.arange(24), (num_epochs, 1)))
    assert len({tuple(one) for one in passes}) == (num_epochs if num_minibatches > 1 else 1)


# --- Options ----------------------------------------------------------------------------------------------------------
def test_ratios_start_at_one_although_the_statistics_change():
    """A rollout is learned with the statistics that it was collected with. At a learning rate of 0 nothing changes."""
    config = PPOConfig(num_envs=8, rollout_length=4, num_epochs=1, num_minibatches=1, normalise_observations=True)
    network = NetworkConfig(width=16, depth=1)
    num_iterations = 3
    experiment = Experiment(
        task="tiny/lqr", algorithm="ppo", config=config, network=network, steps=num_iterations * 8 * 4, num_devices=1
    )
    trainer = Trainer(experiment)
    state = trainer.init(jax.random.key(0))
    for iteration in range(1, num_iterations + 2):
        before, (state, metrics) = state.learner, trainer.run_fn(state, 1)
        assert metrics["policy/kl"][0] < 1e-6
        assert metrics["policy/clip_fraction"][0] == 0
        assert state.learner.statistics.num_observations[0] == iteration * 8 * 4
        moved = not np.array_equal(
            before.params.actor["head"]["mean"]["bias"], state.learner.params.actor["head"]["mean"]["bias"]
        )
        assert moved == (iteration <= num_iterations)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_statistics_are_those_of_all_observations(num_devices: int, monkeypatch: pytest.MonkeyPatch):
    """Values are those of the normalised observations, in rewards of the environment."""
    rng = np.random.default_rng(1)
    seen = rng.normal([5.0, -300.0, 0.0, 1.0], [2.0, 10.0, 1.0, 1e-2], size=(2, NUM_STEPS, NUM_ENVS, 4))
    config = dataclasses.replace(BY_HAND, normalise_observations=True, reward_scale=5.0)
    table = table_network(LOGITS, VALUES)
    learner = None
    for rollout in seen.astype(np.float32):
        experience = EXPERIENCE._replace(observation=rollout[None], next_observation=rollout[None])
        experience = over_devices(experience, num_devices)
        algorithm = make_on_table(monkeypatch, ppo, make_ppo, config, table, experience)
        start = run(algorithm, num_devices, 0)[0][0]
        start = start if learner is None else start._replace(learner=learner)
        learner = jax.vmap(algorithm.step, axis_name=DEVICE_AXIS)(start)[0].learner
    flat = seen.reshape(-1, 4)
    for device in range(num_devices):
        statistics = jax.tree.map(lambda x, device=device: x[device], learner.statistics)
        assert statistics.num_observations == len(flat)
        np.testing.assert_allclose(statistics.mean, flat.mean(0), rtol=1e-5)
        deviations = np.sqrt(statistics.sum_of_squared_deviations / len(flat))
        np.testing.assert_allclose(deviations, flat.std(0), rtol=1e-3)
    first = jax.tree.map(lambda x: x[0], learner)
    no = jnp.zeros(2, bool)
    timesteps = TimeStep(jnp.asarray(flat[:2], jnp.float32), jnp.zeros(2), no, no, jnp.ones((2, NUM_ACTIONS), bool))
    expected = (flat[:2] - flat.mean(0)) / flat.std(0) @ np.asarray(first.params.critic) / 5.0
    np.testing.assert_allclose(algorithm.value(first, jax.random.key(0), timesteps), expected, rtol=1e-3)


def test_a_wide_gaussian_is_not_random_once_squashed():
    """The bonus narrows a Gaussian whose samples only reach the ends of the box, and widens a narrow one."""
    config = PPOConfig(
        num_envs=64, rollout_length=8, num_epochs=1, num_minibatches=1, entropy_coefficient=1.0, value_coefficient=0.0
    )
    setting = Setting(tiny("continuous_bandit"), mlp_architecture(depth=1, width=16), 1e4)
    algorithm = make_ppo(setting, config)
    step = jax.jit(jax.vmap(algorithm.step, axis_name=DEVICE_AXIS))

    def change_of_scale(raw_scale: float) -> float:
        def bias(state: Any) -> Any:
            return state.learner.params.actor["head"]["raw_scale"]["bias"]

        def start(key: Any) -> Any:
            state = algorithm.init(jax.random.key(0), key)
            actor = state.learner.params.actor
            head = actor["head"] | {"raw_scale": actor["head"]["raw_scale"] | {"bias": jnp.full(1, raw_scale)}}
            params = state.learner.params._replace(actor=actor | {"head": head})
            return state._replace(learner=state.learner._replace(params=params))

        before = jax.vmap(start, axis_name=DEVICE_AXIS)(jax.random.split(jax.random.key(1), 1))
        after, _ = step(before)
        return float((bias(after) - bias(before))[0, 0])

    assert change_of_scale(5.0) < 0  # standard deviation 5
    assert change_of_scale(-2.0) > 0  # standard deviation 0.13


def test_minibatches_of_unequal_size_are_refused():
    task = tiny("bandit")
    setting = Setting(task, mlp_architecture(), total_env_steps=1.0, num_devices=2)
    with pytest.raises(ValueError, match=r"num_minibatches \(3\) must divide .* 4 environments x 4 steps = 16"):
        make_ppo(setting, PPOConfig(num_envs=8, rollout_length=4, num_minibatches=3))


# --- Environments with known answers ----------------------------------------------------------------------------------
CONFIG = PPOConfig(
    num_envs=32,
    rollout_length=8,
    num_epochs=4,
    num_minibatches=4,
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    gamma=GAMMA,
    clip_epsilon=0.2,
)
# Standardised advantages have no scale. Near the best action of an environment without noise, they narrow the Gaussian
# at full strength however narrow it is. Once it is as narrow as a step of Adam, learning is unstable.
CONTINUOUS_CONFIG = dataclasses.replace(CONFIG, entropy_coefficient=0.1)

PROBES = {
    "credit": Probe(),
    "gamble": Probe(),
    "bandit": Probe(),
    "chain": Probe(),
    "constant_reward": Probe(),
    "observation_reward": Probe(),
    "delayed_reward": Probe(),
    "context": Probe(),
    "masked": Probe(),
    "tree": Probe(150),
    "cliff": Probe(200, value_error=0.3),
    "slippery": Probe(150, value_error=0.1),
    "continuous_bandit": Probe(),
    "continuous_context": Probe(150, value_error=0.1),
    "continuous_credit": Probe(150, value_error=0.1),
    "lqr": Probe(400, value_error=1.0, action_error=0.3),  # actions reach 0.6, values -5.8
}


@pytest.mark.learns
@pytest.mark.parametrize("name", PROBES)
def test_learns(name: str):
    config = CONTINUOUS_CONFIG if is_continuous(name) else CONFIG
    if name == "lqr":  # with 32 environments, one of eight seeds becomes unstable for a while
        config = dataclasses.replace(config, num_envs=128)
    check("ppo", config, name, PROBES[name])


def test_a_time_limit_is_no_termination():
    values, true_values = values_behind_a_time_limit("ppo", CONFIG, 60)
    np.testing.assert_allclose(values, np.tile(true_values, (2, 1)), atol=0.05)
