"""What a search should have found at its root, by many plain rollouts; and how far from it a search is.

The oracle of a state is π(a|s) · exp(Q(s, a) / η), normalised, at the search's own temperature η, where Q(s, a) is the
mean return of rollouts that take a first and then follow π to the end of the episode. V(s) cancels. Rewards are
discounted as inside the search, and a rollout that a time limit cuts is worth V there, as it is to the search.

Two other readings stand beside it, from the same rollouts:

    discounted   with the discount of training, which the critic was taught
    soft         Q(s, a) = η log E[exp(return / η)]: what particles converge to if they look ahead to the end. Weights
                 multiply along a path, so a search prefers actions with a chance of a good end to actions that are
                 good on average; in a world without chance they differ by the randomness of π alone

Smoothing. A search gives no weight to actions it never tried, to which KL(oracle ‖ search) is infinite. So the
estimate of every search, however many particles it had, is mixed with 5 % of the uniform distribution over valid
actions. The total variation distance needs no such thing and is reported too.
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
from spo.algorithms.planning import environment_model, evaluate_root
from spo.algorithms.spo import SearchConfig, make_search
from spo.distributions import Distribution
from spo.reports import statistics
from spo.reports.statistics import Estimate
from spo.types import Array, Float, PRNGKey

SMOOTHING = 0.05
#: The oracles, and the one that is judged by.
READINGS = ("mean", "discounted", "soft")
JUDGED = "mean"
#: Sums over rollouts are kept apart in this many parts, from which the oracle's own noise is read.
NUM_PARTS = 8
#: About how many particles are stepped at once: enough to keep a GPU busy, few enough for the caches of a CPU.
MAX_PARTICLES = {"gpu": 2**18, "cpu": 2**13}


# --- States -----------------------------------------------------------------------------------------------------------
def fixed_roots(trained: Trained, key: PRNGKey, num_states: int, longest_walk: int) -> search.Root:
    """States of the training world, evaluated: state i is met i mod (longest_walk + 1) steps into an episode of π.

    None of them is an end: a walk that would reach one stops in front of it.
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
            going_on = (depth < num_steps) & ~stepped[1].ended
            return jax.tree.map(lambda new, old: jnp.where(going_on, new, old), stepped, (state, timestep))

        state, timestep = jax.lax.fori_loop(0, longest_walk, walk, (state, timestep))
        return evaluate_root(network, params, state, timestep)

    keys = jax.random.split(key, num_states)
    return jax.jit(jax.vmap(one))(keys, jnp.arange(num_states) % (longest_walk + 1))


# --- Rollouts ---------------------------------------------------------------------------------------------------------
class _Walk(NamedTuple):
    key: PRNGKey
    state: Any
    prior: Any
    value: Float[Array, ""]
    rewards: Float[Array, " G"]  # discounted by each of the gammas
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
    """One return per gamma of taking `action` in one state and then following the policy to the end."""

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
    # After termination the discount is 0, and whatever the critic says there must not count.
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
    """Q of every state and action by each reading, from each part of the rollouts. `gammas`: search, training."""
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

    # One state after the other: all rollouts of a state are a large batch already.
    return jax.lax.map(of_state, (jax.random.split(key, root.value.shape[0]), root))


# --- The oracle -------------------------------------------------------------------------------------------------------
class Oracle(NamedTuple):
    """Targets by reading [S, A], and the KL between those of one half of the rollouts and of the other [S]."""

    targets: dict[str, np.ndarray]
    noise: dict[str, np.ndarray]


def oracle_from_parts(logits: np.ndarray, parts: np.ndarray, temperature: float) -> Oracle:
    """`parts` [S, A, parts, readings] as `rollout_parts` gives them, `logits` [S, A] of the policy."""

    def target(some: np.ndarray, reading: str) -> np.ndarray:
        if reading == "soft":  # a mean of exponentials, whose logarithms we have
            q_over_temperature = scipy.special.logsumexp(some / temperature, axis=2) - np.log(some.shape[2])
        else:
            q_over_temperature = some.mean(axis=2) / temperature
        # An invalid action has no rollouts that mean anything.
        return scipy.special.softmax(np.where(np.isfinite(logits), logits + q_over_temperature, -np.inf), axis=1)

    targets, noise = {}, {}
    for index, reading in enumerate(READINGS):
        of_reading = np.asarray(parts[..., index], np.float64)
        targets[reading] = target(of_reading, reading)
        halves = (of_reading[:, :, ::2], of_reading[:, :, 1::2])
        noise[reading] = kl_to_oracle(target(halves[0], reading), target(halves[1], reading), np.isfinite(logits))
    return Oracle(targets, noise)


def kl_to_oracle(oracle: np.ndarray, estimate: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """KL(oracle ‖ estimate) over the last axis, the estimate smoothed as the head of this file says."""
    uniform = valid / valid.sum(axis=-1, keepdims=True)
    smooth = (1 - SMOOTHING) * estimate + SMOOTHING * uniform
    return np.where(oracle > 0, scipy.special.rel_entr(oracle, smooth), 0.0).sum(axis=-1)


def make_oracle(
    trained: Trained, root: search.Root, key: PRNGKey, num_rollouts: int, max_steps: int, cache: pathlib.Path
) -> Oracle:
    """Rolls out, or reads what was rolled out from the same states with the same network before."""
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
    """To each oracle, per state, means over searches."""

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
    """Searches `num_searches` times from every state in each of the ways."""
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
            raise ValueError(f"A search of {name} met a NaN.")
        kl, variation = {}, {}
        for reading, target in oracle.targets.items():
            kl[reading] = kl_to_oracle(target[None], estimates, valid[None]).mean(axis=0)
            variation[reading] = 0.5 * np.abs(target[None] - estimates).sum(axis=-1).mean(axis=0)
        distances[name] = Distances(kl, variation)
        print(f"  {name}: KL {kl[JUDGED].mean():.3f}", flush=True)
    return distances


def _searches(trained: Trained, config: SearchConfig, num_searches: int) -> Any:
    """(params, roots [S], key) -> estimates [M, S, A] of M searches each."""
    # There are many programs, and each runs once.
    run_search = make_search(dataclasses.replace(config, unroll=1), trained.network.distribution)

    def searches(params: Any, root: search.Root, key: PRNGKey) -> Float[Array, "M S A"]:
        def once(key: PRNGKey) -> Float[Array, "S A"]:
            model_fn = environment_model(trained.setting.task.model, trained.network, params)
            return run_search(key, root, model_fn, temperature=trained.temperature).action_weights

        limit = MAX_PARTICLES.get(jax.default_backend(), MAX_PARTICLES["gpu"])
        at_once = max(1, min(num_searches, limit // (root.value.shape[0] * config.num_particles)))
        return jax.lax.map(once, jax.random.split(key, num_searches), batch_size=at_once)

    return searches


# --- Numbers ----------------------------------------------------------------------------------------------------------
def mean_over_states(per_state: np.ndarray) -> Estimate:
    """With the 95 % bootstrap interval over states."""
    return Estimate(*(round(x, 5) for x in statistics.bootstrap(statistics.mean, [per_state])))


def in_words(estimate: Estimate) -> str:
    return "{:.3g} ({:.3g} to {:.3g})".format(*estimate)
