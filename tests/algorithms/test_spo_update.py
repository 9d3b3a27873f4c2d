"""SPO by hand: two gradient updates of the M-step recomputed in NumPy from the paper's equations, and the E-step.

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
from spo import search
from spo.acting import Experience
from spo.algorithms import spo
from spo.algorithms.planning import Planner
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
    "min_temperature": dataclasses.replace(
        CONFIG, min_temperature=0.8, initial_temperature=0.9, temperature_kl_bound=3.0
    ),
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
    z = np.linspace(-6.0, 6.0, 1201)[:, None]  # the mean of log d/du tanh(u), u = mean + scale z, as a fine sum
    log_slope = np.average(np.log(1 - np.tanh(mean + scale * z) ** 2), axis=0, weights=np.exp(-(z[:, 0] ** 2) / 2))
    entropy = np.sum(0.5 * np.log(2 * np.pi * np.e) + np.log(scale) + log_slope)
    return loss, gradient, kls, kl_gradients, entropy


def temperature_terms(temperature: float, advantages: np.ndarray, log_prior: np.ndarray, bound: float) -> Any:
    """g(η) = η (ε + log Σ p exp(A/η)) in one state, and its slope ε − KL(q ‖ p)."""
    exponents = log_prior + advantages / temperature
    log_sum = np.log(np.sum(np.exp(exponents)))
    log_q = exponents - log_sum
    kl = np.sum(np.exp(log_q) * (log_q - log_prior))
    return temperature * (bound + log_sum), bound - kl


class Sums(NamedTuple):
    """Means of losses and gradients over a batch."""

    actor_gradient: dict[str, np.ndarray]
    critic_gradient: np.ndarray
    kls: dict[str, np.ndarray]
    temperature_slope: float
    metrics: dict[str, float]


def batch_terms(
    config: SPOConfig,
    discrete: bool,
    with_log_prior: bool,
    u: int,
    online: Tables,
    target: Tables,
    old: Any,
    duals: Any,
) -> Sums:
    """Adds up batch `u`, one step of one sequence after the other. `old` is the old policy's table."""
    temperature, multipliers = duals
    count = NUM_SEQUENCES * LENGTH
    actor_gradient = {name: np.zeros_like(table) for name, table in online.actor.items()}
    critic_gradient = np.zeros_like(online.critic)
    kls = {name: np.zeros_like(multiplier) for name, multiplier in multipliers.items()}
    names = ("loss/policy", "loss/value", "loss/temperature", "policy/entropy", "value/mean", "value/target")
    metrics, slope = dict.fromkeys(names, 0.0), 0.0
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
            state, actions = STATES[u, b, t], ROOT_ACTIONS[discrete][u, b, t]
            value = online.critic[state]
            critic_gradient[state] += 2 * (value - targets[t]) / count
            loss, gradient, state_kls, kl_gradients, entropy = policy_terms(
                discrete, online.actor, old, state, actions, WEIGHTS[u, b, t]
            )
            for name, change in gradient.items():
                actor_gradient[name][state] += change / count
            for kl_name, kl in state_kls.items():
                kls[kl_name] = kls[kl_name] + kl / count
                for name, change in kl_gradients[kl_name].items():
                    actor_gradient[name][state] += config.trust_region * multipliers[kl_name] * change / count
            log_prior = LOG_PRIORS[u, b, t] if with_log_prior else np.full(NUM_PARTICLES, -np.log(NUM_PARTICLES))
            g, g_slope = temperature_terms(temperature, ADVANTAGES[u, b, t], log_prior, config.temperature_kl_bound)
            slope += g_slope / count
            if not discrete:  # the metric reads the first states of sequences
                entropy = LENGTH * entropy if t == 0 else 0.0
            terms = (loss, (value - targets[t]) ** 2, g, entropy, value, targets[t])
            metrics = {name: metrics[name] + term / count for name, term in zip(names, terms, strict=True)}
    return Sums(actor_gradient, critic_gradient, kls, slope, metrics)


class Result(NamedTuple):
    """Variables after the updates, and the means of their metrics."""

    online: Tables
    target: Tables
    raw_temperature: np.ndarray
    raw_multipliers: dict[str, np.ndarray]
    metrics: dict[str, float]
    clipped: dict[str, list[bool]]


def by_hand(config: SPOConfig, discrete: bool, with_log_prior: bool) -> Result:
    """Runs the updates."""
    online, target = ONLINE[discrete], TARGET[discrete]
    rollout_actor = online.actor  # the search acted with the parameters of before the updates
    raw_temperature, raw_multipliers = np.array(RAW_TEMPERATURE), dict(RAW_MULTIPLIERS[discrete])
    actor_adam, critic_adam = (Adam(config.learning_rate, config.max_grad_norm) for _ in range(2))
    dual_adam = Adam(config.dual_learning_rate, config.max_grad_norm)
    bounds = {"policy": config.kl_bound, "mean": config.mean_kl_bound, "scale": config.scale_kl_bound}
    history: list[dict[str, float]] = []
    for u in range(NUM_UPDATES):
        old = target.actor if config.old_policy == "target" else rollout_actor
        temperature = softplus(raw_temperature)
        multipliers = {name: softplus(raw) for name, raw in raw_multipliers.items()}
        sums = batch_terms(config, discrete, with_log_prior, u, online, target, old, (temperature, multipliers))
        gradients = [*sums.actor_gradient.values(), sums.critic_gradient]
        history.append(
            {
                **sums.metrics,
                "temperature": float(temperature),
                "loss/kl_penalty": float(sum(np.sum(multipliers[name] * kl) for name, kl in sums.kls.items())),
                "gradient_norm": float(np.sqrt(sum(np.sum(g**2) for g in gradients))),
                **{f"trust_region/kl_{name}": float(np.mean(kl)) for name, kl in sums.kls.items()},
                **{f"trust_region/multiplier_{name}": float(np.mean(m)) for name, m in multipliers.items()},
            }
        )
        # L_α = α (ε_α − KL) and g(η), through the softplus.
        dual_gradients = {
            name: config.trust_region * (bounds[name] - sums.kls[name]) * sigmoid(raw)
            for name, raw in raw_multipliers.items()
        }
        slope = 0.0 if config.fixed_temperature else sums.temperature_slope
        dual_gradients["temperature"] = slope * sigmoid(raw_temperature)

        actor_changes, dual_changes = actor_adam.step(sums.actor_gradient), dual_adam.step(dual_gradients)
        critic_change = critic_adam.step({"critic": sums.critic_gradient})["critic"]
        actor = {name: table + actor_changes[name] for name, table in online.actor.items()}
        online = Tables(actor, online.critic + critic_change)
        raw_temperature = raw_temperature + dual_changes["temperature"]
        if config.min_temperature > 0:
            raw_temperature = np.maximum(raw_temperature, np.log(np.exp(config.min_temperature) - 1))
        raw_multipliers = {name: raw + dual_changes[name] for name, raw in raw_multipliers.items()}
        tau = config.target_smoothing
        target = jax.tree.map(lambda slow, new, tau=tau: (1 - tau) * slow + tau * new, target, online)
    metrics = {name: float(np.mean([one[name] for one in history])) for name in history[0]}
    clipped = {"actor": actor_adam.clipped, "critic": critic_adam.clipped, "duals": dual_adam.clipped}
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
        ("min_temperature", True, 1),
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


# --- E-step -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighted_roots", [False, True])
def test_the_e_step_searches_with_the_online_networks_and_the_current_temperature(weighted_roots: bool):
    """Root actions, weights and advantages are stored; the action to take is squashed."""
    shape, calls = (NUM_STATES, NUM_PARTICLES), []
    unused = dict.fromkeys(search.SearchOutput._fields)
    output = search.SearchOutput(**unused)._replace(
        action=jnp.asarray(RNG.normal(size=(NUM_STATES, 2))),
        root_actions=RNG.normal(size=(*shape, 2)),
        weights=jnp.asarray(RNG.dirichlet(np.ones(NUM_PARTICLES), NUM_STATES)),
        value=jnp.arange(4.0),
        temperature_advantages=jnp.asarray(RNG.normal(size=shape)),
        root_log_weights=jnp.asarray(RNG.normal(size=shape)),
        diagnostics=search.Diagnostics(*([jnp.ones((NUM_STATES, 1))] * len(search.Diagnostics._fields))),
    )

    def fake_plan(*arguments: Any) -> Any:
        calls.append(arguments)
        return search.Root(prior=None, value=jnp.zeros(4), state=None), output

    actor = ONLINE[False].actor
    network = gaussian_table_network(actor["mean"], actor["log_scale"], ONLINE[False].critic)
    planner = Planner(network, fake_plan, draw_noise=None, weighted_roots=weighted_roots)
    empty = spo.Learner(None, None, None, None, None)
    learner, key, noise = learner_of(empty, False), jax.random.key(0), jnp.ones(3)
    actions, plans, metrics = spo.decide(planner, learner, key, "states", "time steps", noise)

    (params, temperature, *rest), *others = calls
    assert not others
    assert params is learner.params
    np.testing.assert_allclose(temperature, softplus(RAW_TEMPERATURE), rtol=1e-6)
    assert rest == [key, "states", "time steps", noise]
    np.testing.assert_allclose(actions, np.tanh(output.action), rtol=1e-6)
    assert plans.root_actions is output.root_actions
    assert plans.weights is output.weights
    assert plans.temperature_advantages is output.temperature_advantages
    log_prior = np.full(shape, -np.log(NUM_PARTICLES))
    if weighted_roots:
        log_prior = np.asarray(output.root_log_weights)
        log_prior = log_prior - np.log(np.sum(np.exp(log_prior), axis=1, keepdims=True))
        np.testing.assert_allclose(plans.log_prior, log_prior, rtol=1e-5)
    else:
        assert plans.log_prior is None
    # The KL divergence that the temperature loss compares with its bound.
    bound, slopes = 0.3, []
    for advantages, prior in zip(output.temperature_advantages, log_prior, strict=True):
        slopes.append(temperature_terms(softplus(RAW_TEMPERATURE), np.asarray(advantages), prior, bound)[1])
    np.testing.assert_allclose(metrics["search/kl"], bound - np.array(slopes), rtol=1e-4)
    np.testing.assert_allclose(metrics["search/value_gain"], np.arange(4.0))
