"""SMC-ENT: both kinds of soft Q-learning by hand, the target of the search, and environments with known answers."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from algorithms.probes import GAMMA, Probe, check
from spo.acting import Experience
from spo.algorithms.base import Setting
from spo.algorithms.masked_observations import MaskedObservation
from spo.algorithms.smc_ent import Learner, SMCEntConfig, SoftSearchConfig, make_smc_ent
from spo.algorithms.soft_q_learning import make_munchausen_dqn, make_soft_actor_critic, make_soft_q_learning
from spo.environments.tiny import tiny
from spo.networks import make_network, make_q_network, mlp_architecture

ARCHITECTURE = mlp_architecture(depth=1, width=16)
MASKED = Setting(tiny("masked"), ARCHITECTURE, total_env_steps=1e6)
CREDIT = Setting(tiny("continuous_credit"), ARCHITECTURE, total_env_steps=1e6)


def perturbed(tree: Any, seed: int) -> Any:
    """Returns parameters that all differ from their initial values, biases included."""
    return jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(seed), x.shape), tree)


# --- Discrete actions: Munchausen-DQN ---------------------------------------------------------------------------------
def test_munchausen_target_by_hand():
    """Four steps: one continues, one is truncated, one terminates, and one has a clipped log-policy."""
    config = SMCEntConfig(
        gamma=0.9, reward_scale=3.0, entropy_temperature=0.5, munchausen_coefficient=0.8, munchausen_clip=-0.9
    )
    architecture = ARCHITECTURE._replace(value_gain=1.0)  # values that differ enough to be clipped
    learning = make_munchausen_dqn(MASKED._replace(architecture=architecture), config)
    params, target_q = learning.init(jax.random.key(1)), learning.init(jax.random.key(0)).q
    params, target_q = perturbed(params, 2), perturbed(target_q, 3)

    rows = np.eye(3, dtype=np.float32)
    network = make_q_network(MASKED.task.train.observation_spec, MASKED.task.train.action_spec, architecture)
    online, target = (np.float64(jax.vmap(network.all_values, (None, 0))(q, rows)) for q in (params.q, target_q))
    mask = np.array([[True, True, False], [False, True, True], [True, True, True]])
    masked_target = np.where(mask, target, -np.inf)
    scaled_log_pi = 0.5 * log_softmax(masked_target / 0.5, axis=1)
    soft_v = 0.5 * logsumexp(masked_target / 0.5, axis=1)

    s, after = np.array([0, 0, 1, 1]), np.array([1, 1, 2, 0])
    a = np.array([1, 0, 1, 2])
    reward = np.array([0.0, -1.0, 2.0, 0.5])
    terminated, truncated = np.array([[0, 0, 1, 0], [0, 1, 0, 0]], bool)
    after_mask = mask[after]
    after_mask[2] = False  # an end without valid actions, whose soft value is -inf
    assert scaled_log_pi[1, a[3]] < -0.9
    assert scaled_log_pi[0, a[0]] > -0.9
    targets = 3.0 * reward + 0.8 * np.maximum(scaled_log_pi[s, a], -0.9) + 0.9 * ~terminated * soft_v[after]
    errors = np.abs(online[s, a] - targets)
    assert errors.min() < 1.0 < errors.max(), "errors were meant to lie on both sides of delta"

    batch = Experience(
        observation=MaskedObservation(jnp.asarray(rows[s]), jnp.asarray(mask[s])),
        action_mask=None,
        next_observation=MaskedObservation(jnp.asarray(rows[after]), jnp.asarray(after_mask)),
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        extras=jnp.asarray(a),
    )
    gradient, metrics = jax.jit(jax.grad(learning.loss, has_aux=True))(params, target_q, batch, jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((gradient, metrics)))
    expected = {
        "loss/value": np.mean(np.where(errors <= 1, 0.5 * errors**2, errors - 0.5)),
        "value/mean": np.mean(online[s, a]) / 3.0,
        "value/target": np.mean(targets) / 3.0,
    }
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, err_msg=name)
    # The gradient of the last layer's bias is the slope of the loss, which is at most 1 per step.
    slopes = np.clip(online[s, a] - targets, -1, 1) / 4
    by_action = [slopes[a == action].sum() for action in range(3)]
    np.testing.assert_allclose(gradient.q["head"]["values"]["bias"], by_action, rtol=1e-4)


# --- Continuous actions: SAC ------------------------------------------------------------------------------------------
def test_sac_by_hand():
    config = SMCEntConfig(gamma=0.9, reward_scale=3.0, entropy_temperature=0.5, target_entropy_per_dimension=-0.7)
    learning = make_soft_actor_critic(CREDIT, config)
    params, target_q = perturbed(learning.init(jax.random.key(0)), 1), learning.init(jax.random.key(2)).q
    params = params._replace(raw_entropy_temperature=jnp.float32(0.4))
    temperature = np.log1p(np.exp(0.4))
    spec = (CREDIT.task.train.observation_spec, CREDIT.task.train.action_spec, ARCHITECTURE)
    network, q_network = make_network(*spec), make_q_network(*spec)

    key = jax.random.key(7)
    observations = jax.random.normal(key, (3, 2))
    after = observations + 1.0
    actions = jnp.array([[0.1], [-0.9], [0.5]])
    reward, terminated = np.array([1.0, -0.5, 0.2]), np.array([False, True, False])
    batch = Experience(
        observation=MaskedObservation(observations, None),
        action_mask=None,
        next_observation=MaskedObservation(after, None),
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(terminated),
        truncated=jnp.array([True, False, False]),
        extras=actions,
    )

    def twins(q, state, action):
        """Returns Q by both critics, [2]."""
        return np.array([q_network.value(jax.tree.map(lambda x, i=i: x[i], q), state, action) for i in (0, 1)])

    def draw(state, key):
        """Samples a tanh-squashed Gaussian, written out: returns the action and its log-density."""
        mean, scale = map(np.float64, network.actor(params.actor, state, None))
        noise = np.float64(jax.random.normal(key, (1,)))
        action = np.tanh(mean + scale * noise)
        log_density = np.sum(-0.5 * noise**2 - 0.5 * np.log(2 * np.pi) - np.log(scale) - np.log(1 - action**2))
        return jnp.asarray(action, jnp.float32), log_density

    targets, values, policy_losses, log_probs = [], [], [], []
    for i, step_key in enumerate(jax.random.split(key, 3)):
        key_next, key_now = jax.random.split(step_key)
        action, log_prob = draw(after[i], key_next)
        soft_value = twins(target_q, after[i], action).min() - temperature * log_prob
        targets.append(3.0 * reward[i] + 0.9 * (0.0 if terminated[i] else soft_value))
        values.append(twins(params.q, observations[i], actions[i]))
        action, log_prob = draw(observations[i], key_now)
        policy_losses.append(temperature * log_prob - twins(params.q, observations[i], action).min())
        log_probs.append(log_prob)
    errors = np.array(values) - np.array(targets)[:, None]

    gradient, metrics = jax.jit(jax.grad(learning.loss, has_aux=True))(params, target_q, batch, key)
    expected = {
        "loss/value": np.mean(np.sum(errors**2, axis=1)),
        "loss/policy": np.mean(policy_losses),
        "loss/temperature": temperature * np.mean(-np.array(log_probs) + 0.7),
        "value/mean": np.mean(values) / 3.0,
        "value/target": np.mean(targets) / 3.0,
        "policy/entropy": -np.mean(log_probs),
    }
    for name, number in expected.items():
        np.testing.assert_allclose(metrics[name], number, rtol=1e-4, atol=1e-5, err_msg=name)
    # The critics learn from their errors only, and the temperature from the entropy only.
    np.testing.assert_allclose(gradient.q["head"]["value"]["bias"][:, 0], 2 * errors.mean(axis=0), rtol=1e-4)
    slope = np.mean(-np.array(log_probs) + 0.7) / (1 + np.exp(-0.4))
    np.testing.assert_allclose(gradient.raw_entropy_temperature, slope, rtol=1e-4)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient.actor))


def test_a_continuous_value_is_the_mean_over_its_samples():
    """There is no closed form. More samples give the same mean and less spread."""
    config = SMCEntConfig(num_value_samples=64, entropy_temperature=0.5)
    few, many = (
        make_soft_actor_critic(CREDIT, dataclasses.replace(config, num_value_samples=count)) for count in (16, 1024)
    )
    params = perturbed(few.init(jax.random.key(0)), 1)
    state, keys = MaskedObservation(jnp.array([0.5, 0.2]), None), jax.random.split(jax.random.key(1), 256)
    spread = {}
    for name, learning in (("few", few), ("many", many)):
        _, values = jax.jit(jax.vmap(lambda key, learning=learning: learning.evaluate(params, key, state)))(keys)
        spread[name] = (np.mean(values), np.std(values))
    # Standard deviations fall by √64 = 8. Each is known to 5 % from 256 repeats: four of those in both directions.
    assert 6.0 < spread["few"][1] / spread["many"][1] < 10.7
    assert abs(spread["few"][0] - spread["many"][0]) < 5 * spread["few"][1] / 16


# --- The search -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("task_name", ["bandit", "continuous_bandit"])
def test_the_search_samples_by_reward_and_entropy_only(task_name: str):
    """With T = τ the target is exp(scale · r/τ) for any proposal: −τ log π removes the policy from the weights.

    With 4 096 roots, frequencies are known to 0.008 and means to 0.007 (one standard deviation), plus a bias of order
    1/N.
    """
    setting = Setting(tiny(task_name), ARCHITECTURE, total_env_steps=1e6)
    search = SoftSearchConfig(num_particles=128, horizon=1, temperature=1.5, unroll=1)
    config = SMCEntConfig(reward_scale=2.0, entropy_temperature=1.5, num_value_samples=2, search=search)
    learning = make_soft_q_learning(setting, config)
    params = learning.init(jax.random.key(0))
    learner = Learner(params, params.q, optimiser=None)
    algorithm = make_smc_ent(setting, config)
    states, timesteps = jax.vmap(setting.task.evaluation.reset)(jax.random.split(jax.random.key(1), 4096))

    @jax.jit
    def act(key: Any) -> tuple[Any, Any]:
        return tuple(
            algorithm.act(learner, key, states, timesteps, use_search=use_search, greedy=False)
            for use_search in (True, False)
        )

    searched, by_policy = (np.asarray(actions) for actions in act(jax.random.key(2)))
    if task_name == "bandit":
        expected = softmax(2.0 * np.array([0.0, 0.5, 1.0]) / 1.5)
        found, proposed = (np.bincount(actions, minlength=3) / 4096 for actions in (searched, by_policy))
    else:
        grid = np.linspace(-1, 1, 2001)
        weights = softmax(2.0 * (1 - (grid - 0.3) ** 2) / 1.5)
        expected = np.array([np.sum(weights * grid), np.sum(weights * grid**2)])
        found, proposed = (np.array([np.mean(x), np.mean(x**2)]) for x in (searched, by_policy))
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert np.abs(proposed - expected).max() > 0.06, "the proposal was meant to differ from the target"


# --- Environments with known answers ----------------------------------------------------------------------------------
CONFIG = SMCEntConfig(
    num_envs=32,
    rollout_length=8,
    num_updates=32,
    batch_size=128,
    replay_size=32 * 64,
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    dual_learning_rate=1e-2,
    gamma=GAMMA,
    target_smoothing=0.05,
    reward_scale=2.0,
    entropy_temperature=0.1,
    num_value_samples=8,
    search=SoftSearchConfig(num_particles=8, horizon=2, resample_period=2, temperature=0.5, unroll=1),
)
PROBES = {
    "chain": Probe(),
    "masked": Probe(),
    "continuous_bandit": Probe(),
    "bandit": Probe(),
    "credit": Probe(),
    "constant_reward": Probe(),
    "observation_reward": Probe(),
    "delayed_reward": Probe(),
    "context": Probe(),
    "gamble": Probe(),
    "tree": Probe(150),
    "cliff": Probe(200, value_error=0.3),
    "slippery": Probe(150),
    "continuous_context": Probe(150, value_error=0.1),
    "continuous_credit": Probe(150, value_error=0.1),
    # A soft value: the noise of a random policy costs reward in each of the ten steps that γ looks ahead.
    "lqr": Probe(200, value_error=1.3),  # values reach -5.8
}


@pytest.mark.learns
@pytest.mark.parametrize("name", PROBES)
def test_learns(name: str):
    # With less entropy, two of eight seeds stay away from the cliff for ever.
    config = dataclasses.replace(CONFIG, entropy_temperature=0.3) if name == "cliff" else CONFIG
    check("smc_ent", config, name, PROBES[name])
