"""SPO's M-step by hand: two gradient updates recomputed in NumPy from the paper's equations.

Online, target and rollout parameters are all different. Networks are tables, so that every gradient can be written
down: see `tables`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.tables import Adam, gae_targets, gaussian_table_network, init, make_on_batches, step_fn, table_network
from spo.acting import Experience
from spo.algorithms import spo
from spo.algorithms.spo import Plan, SPOConfig, make_spo
from spo.algorithms.trust_region import Duals
from spo.networks import ActorCriticParams
from spo.types import TimeStep

NUM_UPDATES, NUM_SEQUENCES, LENGTH = 2, 2, 6
NUM_STATES, NUM_ACTIONS, NUM_DIMENSIONS, NUM_PARTICLES = 4, 3, 2, 5
SHAPE = (NUM_UPDATES, NUM_SEQUENCES, LENGTH)
RNG = np.random.default_rng(0)

CONFIG = SPOConfig(
    num_updates=NUM_UPDATES,
    learning_rate=0.1,
    dual_learning_rate=0.2,
    max_grad_norm=0.3,
    gamma=0.8,
    gae_lambda=0.6,
    target_smoothing=0.3,
    temperature_kl_bound=0.3,
    kl_bound=0.05,
    mean_kl_bound=0.04,
    scale_kl_bound=0.02,
)
CASES = {
    "target": CONFIG,
    "rollout": dataclasses.replace(CONFIG, old_policy="rollout"),
    "no_trust_region": dataclasses.replace(CONFIG, trust_region=False),
    "fixed_temperature": dataclasses.replace(CONFIG, fixed_temperature=True),
}

# Both kinds of ends lie inside a sequence, where they cut GAE, and one of each kind lies at its end.
STATES, NEXT_STATES = RNG.integers(NUM_STATES, size=(2, *SHAPE))
REWARDS = RNG.normal(size=SHAPE)
TERMINATED, TRUNCATED = np.zeros((2, *SHAPE), bool)
TERMINATED[:, 0, 1] = TERMINATED[:, 1, 4] = TERMINATED[0, 0, 5] = True
TRUNCATED[:, 0, 3] = TRUNCATED[:, 1, 2] = TRUNCATED[1, 1, 5] = True
MASKS = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)  # valid actions of each state
WEIGHTS = RNG.dirichlet(np.ones(NUM_PARTICLES), SHAPE)
ADVANTAGES = RNG.normal(size=(*SHAPE, NUM_PARTICLES))
LOG_PRIORS = np.log(RNG.dirichlet(np.full(NUM_PARTICLES, 3.0), SHAPE))


class Tables(NamedTuple):
    """Parameters of a policy, by name, and of a critic."""

    actor: dict[str, np.ndarray]
    critic: np.ndarray


def draw_tables(discrete: bool) -> Tables:
    if discrete:
        actor = {"logits": RNG.normal(size=(NUM_STATES, NUM_ACTIONS))}
    else:
        actor = {name: 0.4 * RNG.normal(size=(NUM_STATES, NUM_DIMENSIONS)) for name in ("mean", "log_scale")}
    return Tables(actor, RNG.normal(size=NUM_STATES))


ONLINE, TARGET = ({discrete: draw_tables(discrete) for discrete in (True, False)} for _ in range(2))
RAW_TEMPERATURE = 0.3
RAW_MULTIPLIERS = {
    True: {"policy": np.array(0.4)},
    False: {"mean": np.array([0.4, -0.3]), "scale": np.array([0.1, 0.7])},
}
ROOT_ACTIONS = {
    # Only valid ones: a search never returns others.
    True: np.array([RNG.choice(np.flatnonzero(MASKS[s]), NUM_PARTICLES) for s in STATES.ravel()]).reshape(*SHAPE, -1),
    False: RNG.normal(size=(*SHAPE, NUM_PARTICLES, NUM_DIMENSIONS)),
}


def batches(discrete: bool, with_log_prior: bool) -> Experience:
    def single(x: np.ndarray) -> Any:
        return x.astype(np.float32)

    one_hot = np.eye(NUM_STATES, dtype=np.float32)
    log_prior = single(LOG_PRIORS) if with_log_prior else None
    root_actions = ROOT_ACTIONS[True] if discrete else single(ROOT_ACTIONS[False])
    return Experience(
        observation=one_hot[STATES],
        action_mask=MASKS[STATES] if discrete else None,
        next_observation=one_hot[NEXT_STATES],
        reward=single(REWARDS),
        terminated=TERMINATED,
        truncated=TRUNCATED,
        extras=Plan(root_actions, single(WEIGHTS), single(ADVANTAGES), log_prior),
    )


# --- Equations --------------------------------------------------------------------------------------------------------
def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def policy_terms(
    discrete: bool, actor: dict[str, np.ndarray], old: dict[str, np.ndarray], state: int, actions: Any, weights: Any
) -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any], float]:
    """Loss, its gradient, KL divergences, their gradients and the entropy in one state."""
    if discrete:
        mask = MASKS[state]
        p, p_old = (np.where(mask, np.exp(table["logits"][state]), 0.0) for table in (actor, old))
        p, p_old = p / p.sum(), p_old / p_old.sum()
        loss = -np.sum(weights * np.log(p[actions]))
        gradient = p - np.bincount(actions, weights, NUM_ACTIONS)
        kl = np.sum(p_old[mask] * np.log(p_old[mask] / p[mask]))
        entropy = -np.sum(p[mask] * np.log(p[mask]))
        return loss, {"logits": gradient}, {"policy": kl}, {"policy": {"logits": p - p_old}}, entropy
    mean, mean_old = actor["mean"][state], old["mean"][state]
    scale, scale_old = np.exp(actor["log_scale"][state]), np.exp(old["log_scale"][state])
    z_mean, z_scale = (actions - mean) / scale_old, (actions - mean_old) / scale  # the decoupled halves
    log_slope = np.log(1 - np.tanh(actions) ** 2)
    log_density = -0.5 * (z_mean**2 + z_scale**2) - np.log(2 * np.pi) - np.log(scale_old * scale) - 2 * log_slope
    loss = -np.sum(weights * log_density.sum(axis=1))
    gradient = {"mean": -weights @ (z_mean / scale_old), "log_scale": -weights @ (z_scale**2 - 1)}
    ratio = (scale_old / scale) ** 2
    kls = {"mean": 0.5 * ((mean_old - mean) / scale_old) ** 2, "scale": 0.5 * (ratio - 1 - np.log(ratio))}
    kl_gradients = {"mean": {"mean": (mean - mean_old) / scale_old**2}, "scale": {"log_scale": 1 - ratio}}
    # Of the squashed Gaussian, estimated at its mean.
    entropy = np.sum(0.5 * np.log(2 * np.pi * np.e) + np.log(scale) + np.log(1 - np.tanh(mean) ** 2))
    return loss, gradient, kls, kl_gradients, entropy


def temperature_terms(temperature: float, advantages: np.ndarray, log_prior: np.ndarray, bound: float) -> Any:
    """g(η) = η (ε + log Σ p exp(A/η)) in one state, and its slope ε − KL(q ‖ p)."""
    exponents = log_prior + advantages / temperature
    log_sum = np.log(np.sum(np.exp(exponents)))
    log_q = exponents - log_sum
    kl = np.sum(np.exp(log_q) * (log_q - log_prior))
    return temperature * (bound + log_sum), bound - kl


class Result(NamedTuple):
    online: Tables
    target: Tables
    raw_temperature: float
    raw_multipliers: dict[str, np.ndarray]
    metrics: dict[str, float]  # means over the updates
    clipped: dict[str, list[bool]]


def by_hand(config: SPOConfig, discrete: bool, with_log_prior: bool) -> Result:
    """Runs the updates, one step of one sequence after the other."""
    online, target = ONLINE[discrete], TARGET[discrete]
    rollout_actor = online.actor  # the search acted with the parameters of before the updates
    raw_temperature, raw_multipliers = np.array(RAW_TEMPERATURE), dict(RAW_MULTIPLIERS[discrete])
    adams = {"actor": Adam(config.learning_rate, config.max_grad_norm)}
    adams["critic"] = Adam(config.learning_rate, config.max_grad_norm)
    adams["duals"] = Adam(config.dual_learning_rate, config.max_grad_norm)
    bounds = {"policy": config.kl_bound, "mean": config.mean_kl_bound, "scale": config.scale_kl_bound}
    history: list[dict[str, float]] = []
    count = NUM_SEQUENCES * LENGTH
    for u in range(NUM_UPDATES):
        old = target.actor if config.old_policy == "target" else rollout_actor
        temperature = softplus(raw_temperature)
        multipliers = {name: softplus(raw) for name, raw in raw_multipliers.items()}
        actor_gradient = {name: np.zeros_like(table) for name, table in online.actor.items()}
        critic_gradient = np.zeros_like(online.critic)
        policy_loss = value_loss = temperature_loss = slope = entropy_sum = value_sum = target_sum = 0.0
        kl_sums = {name: 0.0 * raw for name, raw in raw_multipliers.items()}
        for b in range(NUM_SEQUENCES):
            targets = gae_targets(
                REWARDS[u, b],
                target.critic[STATES[u, b]],
                target.critic[NEXT_STATES[u, b]],
                TERMINATED[u, b],
                TRUNCATED[u, b],
                gamma=config.gamma,
                gae_lambda=config.gae_lambda,
            )
            for t in range(LENGTH):
                state, weights = STATES[u, b, t], WEIGHTS[u, b, t]
                error = online.critic[state] - targets[t]
                value_loss += error**2
                critic_gradient[state] += 2 * error / count
                value_sum, target_sum = value_sum + online.critic[state], target_sum + targets[t]
                actions = ROOT_ACTIONS[discrete][u, b, t]
                loss, gradient, kls, kl_gradients, entropy = policy_terms(
                    discrete, online.actor, old, state, actions, weights
                )
                policy_loss, entropy_sum = policy_loss + loss, entropy_sum + entropy
                for name, change in gradient.items():
                    actor_gradient[name][state] += change / count
                for kl_name, kl in kls.items():
                    kl_sums[kl_name] = kl_sums[kl_name] + kl
                    for name, change in kl_gradients[kl_name].items():
                        if config.trust_region:
                            actor_gradient[name][state] += multipliers[kl_name] * change / count
                uniform = np.full(NUM_PARTICLES, -np.log(NUM_PARTICLES))
                log_prior = LOG_PRIORS[u, b, t] if with_log_prior else uniform
                g, g_slope = temperature_terms(temperature, ADVANTAGES[u, b, t], log_prior, config.temperature_kl_bound)
                temperature_loss, slope = temperature_loss + g, slope + g_slope
        kls = {name: total / count for name, total in kl_sums.items()}
        dual_gradients = {"temperature": np.array(0.0 if config.fixed_temperature else slope / count)}
        dual_gradients["temperature"] *= sigmoid(raw_temperature)
        for name, raw in raw_multipliers.items():
            dual_gradients[name] = (bounds[name] - kls[name]) * sigmoid(raw) * config.trust_region
        gradients = [*actor_gradient.values(), critic_gradient]
        history.append(
            {
                "loss/policy": policy_loss / count,
                "loss/value": value_loss / count,
                "loss/temperature": temperature_loss / count,
                "loss/kl_penalty": float(sum(np.sum(multipliers[name] * kl) for name, kl in kls.items())),
                "temperature": float(temperature),
                "policy/entropy": entropy_sum / count,
                "value/mean": value_sum / count,
                "value/target": target_sum / count,
                "gradient_norm": float(np.sqrt(sum(np.sum(g**2) for g in gradients))),
                **{f"trust_region/kl_{name}": float(np.mean(kl)) for name, kl in kls.items()},
                **{f"trust_region/multiplier_{name}": float(np.mean(m)) for name, m in multipliers.items()},
            }
        )
        actor_changes = adams["actor"].step(actor_gradient)
        online = Tables(
            {name: table + actor_changes[name] for name, table in online.actor.items()},
            online.critic + adams["critic"].step({"critic": critic_gradient})["critic"],
        )
        dual_changes = adams["duals"].step(dual_gradients)
        raw_temperature = raw_temperature + dual_changes.pop("temperature")
        raw_multipliers = {name: raw + dual_changes[name] for name, raw in raw_multipliers.items()}
        tau = config.target_smoothing
        target = jax.tree.map(lambda slow, new, tau=tau: (1 - tau) * slow + tau * new, target, online)
    metrics = {name: float(np.mean([one[name] for one in history])) for name in history[0]}
    clipped = {name: adam.clipped for name, adam in adams.items()}
    return Result(online, target, raw_temperature, raw_multipliers, metrics, clipped)


# --- The algorithm on the same numbers --------------------------------------------------------------------------------
def to_params(tables: Tables, discrete: bool) -> ActorCriticParams:
    actor, critic = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tuple(tables))
    return ActorCriticParams({}, actor["logits"] if discrete else actor, critic)


def learner_of(spo_learner: Any, discrete: bool) -> Any:
    """The initial learner of `init` with online and target parameters and duals that all differ."""
    single = functools.partial(jnp.asarray, dtype=jnp.float32)
    return spo_learner._replace(
        params=to_params(ONLINE[discrete], discrete),
        target_params=to_params(TARGET[discrete], discrete),
        duals=Duals(single(RAW_TEMPERATURE), {name: single(raw) for name, raw in RAW_MULTIPLIERS[discrete].items()}),
    )


def make_on_tables(
    monkeypatch: pytest.MonkeyPatch, config: SPOConfig, discrete: bool, num_devices: int, **options: Any
):
    if discrete:
        network = table_network(ONLINE[True].actor["logits"], ONLINE[True].critic)
    else:
        actor = ONLINE[False].actor
        network = gaussian_table_network(actor["mean"], actor["log_scale"], ONLINE[False].critic)
    monkeypatch.setattr(spo, "make_network", lambda *_, **__: network)
    return make_on_batches(monkeypatch, spo, make_spo, config, network, batches(discrete, **options), num_devices)


@pytest.mark.parametrize(
    ("case", "discrete", "num_devices"),
    [
        ("target", True, 1),
        ("target", True, 2),
        ("target", False, 1),
        ("rollout", True, 1),
        ("rollout", False, 1),
        ("no_trust_region", True, 1),
        ("fixed_temperature", False, 1),
    ],
)
def test_two_updates_by_hand(case: str, discrete: bool, num_devices: int, monkeypatch: pytest.MonkeyPatch):
    config, with_log_prior = CASES[case], case == "rollout"
    algorithm = make_on_tables(monkeypatch, config, discrete, num_devices, with_log_prior=with_log_prior)
    start = init(algorithm, num_devices)
    learner = jax.tree.map(lambda x: jnp.stack([x] * num_devices), learner_of(first(start.learner), discrete))
    end, metrics = step_fn(algorithm)(start._replace(learner=learner))

    expected = by_hand(config, discrete, with_log_prior)
    clipped = np.array(list(expected.clipped.values()))
    assert clipped.any(), "a gradient was meant to be clipped"
    assert not clipped.all(), "a gradient was meant not to be clipped"
    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5)
    for device in range(num_devices):
        learner = jax.tree.map(lambda x, device=device: x[device], end.learner)
        jax.tree.map(close, learner.params, to_params(expected.online, discrete))
        jax.tree.map(close, learner.target_params, to_params(expected.target, discrete))
        close(learner.duals.raw_temperature, expected.raw_temperature)
        jax.tree.map(close, learner.duals.raw_multipliers, expected.raw_multipliers)
        assert set(metrics) == set(expected.metrics)
        for name, value in expected.metrics.items():
            close(metrics[name][device], value, err_msg=name)


def first(tree: Any) -> Any:
    """The first entry of every leaf: that of the first device."""
    return jax.tree.map(lambda x: x[0], tree)


def test_the_cases_differ_in_what_they_are_about():
    """Each option changes the result by far more than the tolerance of the test above: the test has power."""
    results = {case: by_hand(config, True, False) for case, config in CASES.items()}
    plain = results.pop("target")

    def distance(other: Result) -> float:
        pairs = zip(jax.tree.leaves(plain[:-1]), jax.tree.leaves(other[:-1]), strict=True)
        return max(float(np.max(np.abs(a - b))) for a, b in pairs)

    variants = {
        "gae_lambda": by_hand(dataclasses.replace(CONFIG, gae_lambda=1.0), True, False),
        "target_smoothing": by_hand(dataclasses.replace(CONFIG, target_smoothing=1.0), True, False),
        "log_prior": by_hand(CONFIG, True, True),
    }
    for name, other in (results | variants).items():
        assert distance(other) > 0.01, name


def test_policy_and_value_are_those_of_the_online_network(monkeypatch: pytest.MonkeyPatch):
    algorithm = make_on_tables(monkeypatch, CONFIG, True, 1, with_log_prior=False)
    learner = learner_of(first(init(algorithm, 1).learner), True)
    no = jnp.zeros(NUM_STATES, bool)
    timesteps = TimeStep(jnp.eye(NUM_STATES), jnp.zeros(NUM_STATES), no, no, jnp.asarray(MASKS))
    key = jax.random.key(0)
    np.testing.assert_allclose(algorithm.value(learner, key, timesteps), ONLINE[True].critic, rtol=1e-6)
    logits = {
        name: np.where(MASKS, tables[True].actor["logits"], -np.inf)
        for name, tables in {"online": ONLINE, "target": TARGET}.items()
    }
    best = {name: np.argmax(table, axis=1) for name, table in logits.items()}
    assert np.any(best["online"] != best["target"])
    actions = algorithm.act(learner, key, None, timesteps, use_search=False, greedy=True)
    np.testing.assert_array_equal(actions, best["online"])
