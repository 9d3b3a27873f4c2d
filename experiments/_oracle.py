"""The Monte-Carlo oracle of a state, from many rollouts, and the distance of a search from it.

The oracle of a state is π(a|s) · exp(Q(s, a) / η), normalised, with the temperature η of the search. Q(s, a) is the
mean return of rollouts that start with a and then follow π to the end of the episode. V(s) cancels. Rewards are
discounted as in the search. A rollout that a time limit cuts ends with V of its last state, as in the search.

The same rollouts give two other oracles:

    discounted   with the discount factor of training, which the critic has learned
    soft         Q(s, a) = η log E[exp(return / η)], the limit of particles that look ahead to the end of the episode.
                 Weights multiply along a path, so a search prefers a chance of a good end to a good mean. In a
                 deterministic environment the two differ only because π is random.

Smoothing: a search gives no weight to actions that it never tried, so KL(oracle ‖ search) is infinite. The estimate of
every search is therefore mixed with 5 % of the uniform distribution over valid actions. The total variation distance
needs no smoothing and is reported too.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from _trained import Trained, compile_all

from spo import search
from spo.algorithms.planning import SearchConfig, environment_model, evaluate_root, make_search
from spo.distributions import Distribution
from spo.reports import stats
from spo.reports.stats import Estimate
from spo.types import Array, Float, PRNGKey

SMOOTHING = 0.05
READINGS = ("mean", "discounted", "soft")
"""Names of the oracles."""
JUDGED = "mean"
"""The oracle that decides verdicts."""
NUM_PARTS = 8
"""Rollouts are divided into this many parts, which show the noise of the oracle."""
MAX_PARTICLES = {"gpu": 2**18, "cpu": 2**13}
"""Particles per call of the model, about: enough for a GPU, few enough for the caches of a CPU."""


# --- States -----------------------------------------------------------------------------------------------------------
def fixed_roots(trained: Trained, key: PRNGKey, num_states: int, longest_walk: int) -> search.Root:
    """Returns evaluated states of the training environment.

    State i is reached after i mod (longest_walk + 1) steps of an episode of π. No state is terminal: an episode that
    would end earlier stops one step before its end.
    """
    network, params = trained.network, trained.learner.params
    environment = trained.setting.task.train

    def one(key: PRNGKey, num_steps: Array) -> search.Root:
        key_reset, key_walk = jax.random.split(key)
        state, timestep = environment.reset(key_reset)

        def walk(depth: Array, carry: Any) -> Any:
            state, timestep = carry
            key_action, key_step = jax.random.split(jax.random.fold_in(key_walk, depth))
            policy = network.actor(params, timestep.observation, timestep.action_mask)
            action = network.distribution.sample(key_action, policy)
            stepped = environment.step(key_step, state, network.distribution.to_environment(action))
            continues = (depth < num_steps) & ~stepped[1].ended
            return jax.tree.map(lambda new, old: jnp.where(continues, new, old), stepped, (state, timestep))

        state, timestep = jax.lax.fori_loop(0, longest_walk, walk, (state, timestep))
        return evaluate_root(network, params, state, timestep)

    keys = jax.random.split(key, num_states)
    return jax.jit(jax.vmap(one))(keys, jnp.arange(num_states) % (longest_walk + 1))


# --- Rollouts ---------------------------------------------------------------------------------------------------------
class _Walk(NamedTuple):
    """State of one rollout."""

    key: PRNGKey
    state: Any
    prior: Any
    value: Float[Array, ""]
    rewards: Float[Array, " G"]  # sums, discounted by each gamma
    discounts: Float[Array, " G"]
    ended: Array
    length: Array


def rollout_return(
    key: PRNGKey,
    root: search.Root,
    action: Array,
    model_fn: search.ModelFn,
    distribution: Distribution,
    gammas: Float[Array, " G"],
    max_steps: int,
) -> Float[Array, " G"]:
    """Returns one return per gamma of a rollout that starts with `action` and then follows the policy to the end."""

    def advance(walk: _Walk, action: Array) -> _Walk:
        key, key_step = jax.random.split(walk.key)
        step = model_fn(key_step, walk.state, action)
        return _Walk(
            key,
            step.state,
            step.prior,
            step.value,
            rewards=walk.rewards + walk.discounts * step.reward,
            discounts=walk.discounts * gammas * step.discount,
            ended=step.ended,
            length=walk.length + 1,
        )

    def act(walk: _Walk) -> _Walk:
        key, key_action = jax.random.split(walk.key)
        return advance(walk._replace(key=key), distribution.sample(key_action, walk.prior))

    start = _Walk(
        key,
        root.state,
        root.prior,
        root.value,
        rewards=jnp.zeros_like(gammas),
        discounts=jnp.ones_like(gammas),
        ended=jnp.zeros((), bool),
        length=jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(lambda walk: ~walk.ended & (walk.length < max_steps), act, advance(start, action))
    # After termination the discount is 0, and the value must not count, even if it is not finite.
    return end.rewards + jnp.where(end.discounts > 0, end.discounts * end.value, 0.0)


def rollout_parts(
    key: PRNGKey,
    root: search.Root,
    model_fn: search.ModelFn,
    distribution: Distribution,
    *,
    num_actions: int,
    num_rollouts: int,
    temperature: float,
    gammas: Sequence[float],
    max_steps: int,
) -> Float[Array, "S A parts readings"]:
    """Returns Q of every state and action for each oracle, from each part of the rollouts.

    `gammas` contains the discount factors of the search and of training.
    """
    if num_rollouts % NUM_PARTS:
        raise ValueError(f"num_rollouts ({num_rollouts}) must be a multiple of {NUM_PARTS}.")

    def of_state(inputs: tuple[PRNGKey, search.Root]) -> Float[Array, "A parts readings"]:
        key, root = inputs
        keys = jax.random.split(key, (num_actions, NUM_PARTS, num_rollouts // NUM_PARTS))

        def one(key: PRNGKey, action: Array) -> Float[Array, " G"]:
            return rollout_return(key, root, action, model_fn, distribution, jnp.asarray(gammas), max_steps)

        over_rollouts = jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(0, None))
        returns = jax.vmap(over_rollouts)(keys, jnp.arange(num_actions))
        means = jnp.mean(returns, axis=2)
        soft = jax.nn.logsumexp(returns[..., :1] / temperature, axis=2) - jnp.log(returns.shape[2])
        return jnp.concatenate([means, temperature * soft], axis=-1)

    # One state at a time: all rollouts of a state are a large batch already.
    return jax.lax.map(of_state, (jax.random.split(key, root.value.shape[0]), root))


# --- The oracle -------------------------------------------------------------------------------------------------------
class Oracle(NamedTuple):
    """Targets of all states, with their noise."""

    targets: dict[str, np.ndarray]
    """Name of the oracle -> probabilities [S, A]."""
    noise: dict[str, np.ndarray]
    """Name of the oracle -> KL between the targets of the two halves of the rollouts, [S]."""


def oracle_from_parts(logits: np.ndarray, parts: np.ndarray, temperature: float) -> Oracle:
    """Computes the oracle from `parts` [S, A, parts, readings] of `rollout_parts` and `logits` [S, A] of the policy."""

    def target(some: np.ndarray, reading: str) -> np.ndarray:
        if reading == "soft":  # a mean of exponentials, from their logarithms
            q_over_temperature = scipy.special.logsumexp(some / temperature, axis=2) - np.log(some.shape[2])
        else:
            q_over_temperature = some.mean(axis=2) / temperature
        # The rollouts of an invalid action have no meaning.
        return scipy.special.softmax(np.where(np.isfinite(logits), logits + q_over_temperature, -np.inf), axis=1)

    targets, noise = {}, {}
    for index, reading in enumerate(READINGS):
        of_reading = np.asarray(parts[..., index], np.float64)
        targets[reading] = target(of_reading, reading)
        halves = (of_reading[:, :, ::2], of_reading[:, :, 1::2])
        noise[reading] = kl_to_oracle(target(halves[0], reading), target(halves[1], reading), np.isfinite(logits))
    return Oracle(targets, noise)


def kl_to_oracle(oracle: np.ndarray, estimate: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Returns KL(oracle ‖ estimate) over the last axis, with smoothing (see the top of this file)."""
    uniform = valid / valid.sum(axis=-1, keepdims=True)
    smooth = (1 - SMOOTHING) * estimate + SMOOTHING * uniform
    return np.where(oracle > 0, scipy.special.rel_entr(oracle, smooth), 0.0).sum(axis=-1)


def make_oracle(
    trained: Trained, root: search.Root, key: PRNGKey, num_rollouts: int, max_steps: int, cache: pathlib.Path
) -> Oracle:
    """Rolls out, or reads stored rollouts of the same states and the same network."""
    logits = np.asarray(jax.nn.log_softmax(root.prior), np.float64)
    gammas = (trained.config.search.gamma, trained.config.gamma)
    fingerprint = _fingerprint((root, trained.learner.params, trained.temperature, gammas, num_rollouts, max_steps))
    if cache.exists():
        with np.load(cache) as file:
            if str(file["fingerprint"]) == fingerprint:
                return oracle_from_parts(logits, file["parts"], trained.temperature)

    @jax.jit
    def roll_out(params: Any, root: search.Root, key: PRNGKey) -> Array:
        return rollout_parts(
            key,
            root,
            environment_model(trained.setting.task.model, trained.network, params),
            trained.network.distribution,
            num_actions=logits.shape[1],
            num_rollouts=num_rollouts,
            temperature=trained.temperature,
            gammas=gammas,
            max_steps=max_steps,
        )

    parts = np.asarray(roll_out(trained.learner.params, root, key))
    cache.parent.mkdir(parents=True, exist_ok=True)
    np.savez(cache, fingerprint=np.array(fingerprint), parts=parts)
    return oracle_from_parts(logits, parts, trained.temperature)


def _fingerprint(tree: Any) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


# --- Searches ---------------------------------------------------------------------------------------------------------
class Distances(NamedTuple):
    """Distances of a search from each oracle, per state: means over repeated searches."""

    kl: dict[str, np.ndarray]
    total_variation: dict[str, np.ndarray]


def measure(
    trained: Trained,
    root: search.Root,
    oracle: Oracle,
    configs: Mapping[Any, SearchConfig],
    key: PRNGKey,
    num_searches: int,
) -> dict[Any, Distances]:
    """Searches `num_searches` times from every state with each configuration."""
    params = trained.learner.params
    programs = {
        name: (_searches(trained, config, num_searches), (params, root, jax.random.fold_in(key, index)))
        for index, (name, config) in enumerate(configs.items())
    }
    compiled = compile_all(programs)
    valid = np.isfinite(np.asarray(jax.nn.log_softmax(root.prior)))
    distances = {}
    for name, (_, arguments) in programs.items():
        estimates = np.asarray(compiled[name](*arguments), np.float64)  # [M, S, A]
        if not np.isfinite(estimates).all():
            raise ValueError(f"A search of {name} returned NaN.")
        kl, variation = {}, {}
        for reading, target in oracle.targets.items():
            kl[reading] = kl_to_oracle(target[None], estimates, valid[None]).mean(axis=0)
            variation[reading] = 0.5 * np.abs(target[None] - estimates).sum(axis=-1).mean(axis=0)
        distances[name] = Distances(kl, variation)
        print(f"  {name}: KL {kl[JUDGED].mean():.3f}", flush=True)
    return distances


def _searches(trained: Trained, config: SearchConfig, num_searches: int) -> Any:
    """Returns a function (params, roots [S], key) -> estimates [M, S, A] of M searches each."""
    # Unrolling would cost compilation time: there are many programs, and each runs once.
    run_search = make_search(dataclasses.replace(config, unroll=1), trained.network.distribution)

    def searches(params: Any, root: search.Root, key: PRNGKey) -> Float[Array, "M S A"]:
        def once(key: PRNGKey) -> Float[Array, "S A"]:
            model_fn = environment_model(trained.setting.task.model, trained.network, params, config.gamma)
            return run_search(key, root, model_fn, temperature=trained.temperature).action_weights

        limit = MAX_PARTICLES.get(jax.default_backend(), MAX_PARTICLES["gpu"])
        at_once = max(1, min(num_searches, limit // (root.value.shape[0] * config.num_particles)))
        return jax.lax.map(once, jax.random.split(key, num_searches), batch_size=at_once)

    return searches


# --- Numbers ----------------------------------------------------------------------------------------------------------
def mean_over_states(per_state: np.ndarray) -> Estimate:
    """Returns the mean over states with its 95 % bootstrap interval."""
    return Estimate(*(round(x, 5) for x in stats.bootstrap(stats.mean, [per_state])))


def format_estimate(estimate: Estimate) -> str:
    """Formats an estimate with its interval in brackets."""
    return "{:.3g} ({:.3g} to {:.3g})".format(*estimate)
