"""V-MPO: one iteration against rlax's loss, the old policy's period, and the environments that it learns."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from algorithms.on_policy import make_on_table, over_devices, values_behind_a_time_limit
from algorithms.probes import GAMMA, NETWORK, Probe, check
from algorithms.tables import DISCRETE as TASK
from algorithms.tables import run, table_network
from spo.acting import Experience, rollout
from spo.algorithms import vmpo
from spo.algorithms.base import Setting
from spo.algorithms.vmpo import Decision, VMPOConfig, make_vmpo
from spo.networks import mlp_architecture

# --- One iteration against rlax ---------------------------------------------------------------------------------------
RLAX = json.loads((Path(__file__).parents[1] / "oracles" / "learning_numbers.json").read_text())["vmpo_discrete"]


def experience_of(states: np.ndarray, old_logits: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> Experience:
    """Returns episodes of one step, [device 1, T, E]: the advantage is reward minus value."""
    num_states, num_actions = old_logits.shape
    observation = np.eye(num_states, dtype=np.float32)[states]
    return jax.tree.map(
        lambda x: np.asarray(x)[None],
        Experience(
            observation=observation,
            action_mask=np.ones((*states.shape, num_actions), bool),
            next_observation=observation,
            reward=rewards.astype(np.float32),
            terminated=np.ones(states.shape, bool),
            truncated=np.zeros(states.shape, bool),
            extras=Decision(actions, old_logits[states].astype(np.float32)),
        ),
    )


def test_an_iteration_is_a_step_down_the_loss_of_rlax(monkeypatch: pytest.MonkeyPatch):
    given = {name: np.asarray(value) for name, value in RLAX["inputs"].items()}
    num_states = len(given["logits"])
    experience = experience_of(
        np.arange(num_states)[None], given["old_logits"], given["actions"][None], given["advantages"][None]
    )
    config = VMPOConfig(
        num_envs=num_states,
        rollout_length=1,
        num_epochs=1,
        actor_learning_rate=1.0,
        critic_learning_rate=1.0,
        dual_learning_rate=1.0,
        initial_temperature=float(given["temperature"]),
        temperature_kl_bound=float(given["bound_temperature"]),
        initial_multiplier=float(given["multiplier"]),
        kl_bound=float(given["bound"]),
    )
    network = table_network(given["logits"], np.zeros(num_states))
    algorithm = make_on_table(monkeypatch, vmpo, make_vmpo, config, network, experience)
    (start, _), (end, metrics) = run(algorithm, 1)

    assert metrics["loss/policy"][0] == pytest.approx(RLAX["policy_loss"], rel=1e-5)
    assert metrics["loss/temperature"][0] == pytest.approx(RLAX["temperature_loss"], rel=1e-5)
    assert metrics["loss/kl_penalty"][0] == pytest.approx(RLAX["penalty"], rel=1e-5)
    steps = jax.tree.map(lambda old, new: (new - old)[0], start.learner, end.learner)
    np.testing.assert_allclose(-steps.params.actor, RLAX["gradients"]["logits"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(-steps.params.critic, -2 * given["advantages"] / num_states, rtol=1e-5, atol=1e-6)
    for raw, step, name in (
        (start.learner.duals.raw_temperature, steps.duals.raw_temperature, "temperature"),
        (start.learner.duals.raw_multipliers["policy"], steps.duals.raw_multipliers["policy"], "multiplier"),
    ):
        slope = jax.nn.sigmoid(raw[0])
        np.testing.assert_allclose(-step, RLAX["gradients"][name] * slope, rtol=1e-4, atol=1e-6, err_msg=name)


# --- Devices and the old policy ---------------------------------------------------------------------------------------
NUM_STEPS, NUM_ENVS = 3, 8
RNG = np.random.default_rng(0)
LOGITS, OLD_LOGITS = RNG.normal(size=(2, 4, 3))
VALUES = RNG.normal(size=4)
EXPERIENCE = experience_of(
    RNG.integers(4, size=(NUM_STEPS, NUM_ENVS)),
    OLD_LOGITS,
    RNG.integers(3, size=(NUM_STEPS, NUM_ENVS)),
    # One device's samples are better than the other's: the better half of each is not the better half of all.
    RNG.normal(size=(NUM_STEPS, NUM_ENVS)) + np.repeat([0.0, 2.0], NUM_ENVS // 2),
)
CONFIG_ON_TABLE = VMPOConfig(
    num_envs=NUM_ENVS, rollout_length=NUM_STEPS, num_epochs=4, actor_learning_rate=0.3, target_period=6
)


def test_the_better_half_is_that_of_all_devices(monkeypatch: pytest.MonkeyPatch):
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    learners, all_metrics = [], []
    for num_devices in (1, 2):
        algorithm = make_on_table(
            monkeypatch,
            vmpo,
            make_vmpo,
            CONFIG_ON_TABLE,
            table_network(LOGITS, VALUES),
            over_devices(EXPERIENCE, num_devices),
        )
        _, (state, metrics) = run(algorithm, num_devices)
        for device in range(num_devices):
            learners.append(jax.tree.map(lambda x, device=device: x[device], state.learner))
            all_metrics.append({name: value[device] for name, value in metrics.items()})
    for learner, metrics in zip(learners[1:], all_metrics[1:], strict=True):
        jax.tree.map(close, learner, learners[0])
        jax.tree.map(close, metrics, all_metrics[0])


def test_the_old_policy_acts_until_its_period_is_over(monkeypatch: pytest.MonkeyPatch):
    """With 4 updates per iteration and a period of 6, it is replaced after 8, 12 and 20 updates: for 6, 12 and 18."""
    network = table_network(LOGITS, VALUES)
    algorithm = make_on_table(monkeypatch, vmpo, make_vmpo, CONFIG_ON_TABLE, network, EXPERIENCE)

    def watched_rollout(environment: Any, decide: Any, worker: Any, length: int) -> Any:
        worker, experience, _ = rollout(environment, decide, worker, length)
        return worker, experience, {"acted": experience.extras.policy, "saw": experience.observation}

    monkeypatch.setattr(vmpo, "rollout", watched_rollout)
    seen = run(algorithm, 1, num_steps=5)
    renewed = []
    for (before, _), (after, metrics) in itertools.pairwise(seen):
        np.testing.assert_allclose(metrics["acted"], metrics["saw"] @ before.learner.old_params.actor[0], rtol=1e-5)
        old, new = after.learner.old_params.actor, after.learner.params.actor
        assert not np.array_equal(before.learner.params.actor, new)
        renewed.append(np.array_equal(old, new))
        assert renewed[-1] or np.array_equal(old, before.learner.old_params.actor)
    assert renewed == [False, True, True, False, True]


def test_impossible_sizes_are_refused():
    setting = Setting(TASK, mlp_architecture(), total_env_steps=1.0)
    with pytest.raises(ValueError, match=r"num_minibatches \(3\) must divide .* 8 environments x 4 steps = 32"):
        make_vmpo(setting, VMPOConfig(num_envs=8, rollout_length=4, num_minibatches=3))
    with pytest.raises(ValueError, match="target_period must be 1 or more"):
        make_vmpo(setting, VMPOConfig(num_envs=8, rollout_length=4, target_period=0))


# --- Environments with known answers ----------------------------------------------------------------------------------
CONFIG = VMPOConfig(
    num_envs=32,
    rollout_length=8,
    num_epochs=16,
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    gamma=GAMMA,
    target_period=16,
    initial_temperature=1.0,
    kl_bound=0.05,
    initial_multiplier=0.1,
    initial_mean_multiplier=1.0,
    initial_scale_multiplier=10.0,
    scale_kl_bound=0.01,
)

# "gamble" is left out: the better half of the samples is the half with luck, and V-MPO learns to gamble.
PROBES = {
    "credit": Probe(),
    "chain": Probe(),
    "bandit": Probe(),
    "constant_reward": Probe(),
    "observation_reward": Probe(),
    "delayed_reward": Probe(),
    "context": Probe(),
    "masked": Probe(),
    "tree": Probe(150),
    "cliff": Probe(200, value_error=0.3),
    "slippery": Probe(150, value_error=0.1),
    "continuous_bandit": Probe(),
    "continuous_context": Probe(300, value_error=0.1, action_error=0.2),
    "continuous_credit": Probe(150, value_error=0.1, action_error=0.2),
    "lqr": Probe(300, value_error=1.0, action_error=0.3),  # actions reach 0.6, values -5.8
}


@pytest.mark.learns
@pytest.mark.parametrize("name", PROBES)
def test_learns(name: str):
    # In the chain, V-MPO uses its better half of the samples. With a critic that starts at 0, that half holds the small
    # reward from the start, and five of eight seeds never find the large one.
    network = dataclasses.replace(NETWORK, value_gain=1.0) if name == "chain" else NETWORK
    check("vmpo", CONFIG, name, PROBES[name], network)


def test_a_time_limit_is_no_termination():
    values, true_values = values_behind_a_time_limit("vmpo", CONFIG, 60)
    np.testing.assert_allclose(values, np.tile(true_values, (2, 1)), atol=0.05)
