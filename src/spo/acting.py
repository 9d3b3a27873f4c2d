"""Acting in environments: rollouts that continue over episodes, and whole episodes for evaluation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.environments.wrappers import auto_reset
from spo.keys import numbered_keys
from spo.trees import select
from spo.types import (
    DEVICE_AXIS,
    Action,
    Array,
    Bool,
    Environment,
    Float,
    Integer,
    Metrics,
    Observation,
    PRNGKey,
    PRNGKeys,
    PyTree,
    State,
    TimeStep,
)

# --- Rollouts: experience to learn from -------------------------------------------------------------------------------


class Worker(NamedTuple):
    """The environments of one device, each at some step of an episode."""

    env_state: State  # [E, ...]
    timestep: TimeStep  # [E, ...] the input of the next decision
    episode_return: Float[Array, " E"]  # sum of the rewards of the current episode
    episode_length: Integer[Array, " E"]  # steps of the current episode
    key: PRNGKey  # random key of the next rollout
    recorder: Any = None  # a pytree with `include(experience)`, called with each rollout; None: nothing is recorded


class Experience(NamedTuple):
    """One environment step. At the end of an episode, `next_observation` is the last one of that episode."""

    observation: Observation  # before the step
    action_mask: Bool[Array, " A"] | None  # of that observation; None for continuous actions
    next_observation: Observation
    reward: Float[Array, ""]  # of the step
    terminated: Bool[Array, ""]  # the episode ended with value 0
    truncated: Bool[Array, ""]  # the episode was cut off
    extras: Any  # the algorithm's record of its decision


#: (key, environment states [E], time steps [E], *noise) -> (actions for the environment [E], extras [E], metrics []
#: or [E])
DecideFn = Callable[..., tuple[Action, PyTree, Metrics]]


def init_worker(environment: Environment, num_envs: int, key: PRNGKey) -> Worker:
    """Returns `num_envs` environments at the start of their first episode."""
    key, key_reset = jax.random.split(key)
    env_state, timestep = jax.vmap(environment.reset)(jax.random.split(key_reset, num_envs))
    zeros = jnp.zeros(num_envs)
    return Worker(env_state, timestep, episode_return=zeros, episode_length=zeros.astype(jnp.int32), key=key)


def rollout(
    environment: Environment, decide: DecideFn, worker: Worker, length: int, noise: tuple[Array, ...] = ()
) -> tuple[Worker, Experience, Metrics]:
    """Acts for `length` steps in every environment; experience has leading axes [length, E].

    `noise` [length, ...] holds random numbers that are cheaper to draw at once; `decide` receives one slice per step.

    Metrics are means over the rollout; `decide` returns one number, or one per environment, for each of them. Those of
    finished episodes (names that start with "episode/") are sums over all devices. With the number of episodes beside
    them, they can be averaged over any number of rollouts.
    """
    step_and_reset = jax.vmap(auto_reset(environment))
    num_envs = worker.episode_length.shape[0]

    def step(worker: Worker, inputs: tuple[PRNGKeys, tuple[Array, ...]]) -> tuple[Worker, tuple[Experience, Metrics]]:
        (key_decide, key_step), noise = inputs
        with jax.named_scope("decide"):
            action, extras, metrics = decide(key_decide, worker.env_state, worker.timestep, *noise)
        with jax.named_scope("environment"):
            env_state, outcome = step_and_reset(numbered_keys(key_step, (num_envs,)), worker.env_state, action)
        reached = outcome.timestep
        experience = Experience(
            observation=worker.timestep.observation,
            action_mask=worker.timestep.action_mask,
            next_observation=reached.observation,
            reward=reached.reward,
            terminated=reached.terminated,
            truncated=reached.truncated,
            extras=extras,
        )
        episode_return = worker.episode_return + reached.reward
        episode_length = worker.episode_length + 1
        worker = worker._replace(
            env_state=env_state,
            timestep=outcome.next,
            episode_return=jnp.where(reached.ended, 0.0, episode_return),
            episode_length=jnp.where(reached.ended, 0, episode_length),
        )
        metrics = metrics | _finished_episodes(reached, episode_return, episode_length)
        return worker, (experience, {name: _row(metric, num_envs) for name, metric in metrics.items()})

    key, key_steps = jax.random.split(worker.key)
    inputs = (jax.random.split(key_steps, (length, 2)), noise)
    worker, (experience, rows) = scan_stacked(step, worker._replace(key=key), inputs)
    if worker.recorder is not None:
        worker = worker._replace(recorder=worker.recorder.include(experience))
    sums = dict(zip(rows, jnp.sum(jnp.stack(list(rows.values())), axis=(1, 2)), strict=True))
    return (
        worker,
        experience,
        {
            name: jax.lax.psum(total, DEVICE_AXIS) if name.startswith("episode/") else total / (length * num_envs)
            for name, total in sums.items()
        },
    )


def _finished_episodes(
    reached: TimeStep, episode_return: Float[Array, " E"], episode_length: Integer[Array, " E"]
) -> Metrics:
    """Returns the metrics of the episodes that end with this step, and a 1 for each; zeros for the others."""
    totals = {"return": episode_return, "length": episode_length, **reached.metrics}
    ended = {f"episode/{name}": jnp.where(reached.ended, total, 0) for name, total in totals.items()}
    return ended | {"episode/count": reached.ended}


def _row(metric: Array, num_envs: int) -> Float[Array, " E"]:
    metric = jnp.asarray(metric, jnp.float32)
    return metric if metric.shape == (num_envs,) else jnp.broadcast_to(jnp.mean(metric), (num_envs,))


def scan_stacked(
    step: Callable[[Any, Any], tuple[Any, PyTree]], carry: Any, inputs: PyTree[Array]
) -> tuple[Any, PyTree[Array]]:
    """Computes `jax.lax.scan`. Outputs of one shape and data type are stored by one kernel of a GPU."""
    shapes: list[Any] = []  # of the outputs of a step, known once it is traced

    def stacked(carry: Any, one: Any) -> tuple[Any, dict[str, Array]]:
        carry, outputs = step(carry, one)
        outputs = jax.tree.map(jnp.asarray, outputs)  # they may contain plain numbers
        shapes[:] = [jax.eval_shape(lambda: outputs)]
        return carry, stack_alike(outputs)

    carry, stacks = jax.lax.scan(stacked, carry, inputs)
    return carry, unstack_alike(stacks, shapes[0])


def stack_alike(tree: PyTree[Array]) -> dict[str, Array]:
    """Returns the leaves, those of one shape and data type as one array: a loop stores each array by one kernel."""
    groups: dict[str, list[Array]] = {}
    for leaf in jax.tree.leaves(tree):
        groups.setdefault(_kind(leaf), []).append(leaf)
    return {kind: jnp.stack(group) for kind, group in groups.items()}


def unstack_alike(stacks: dict[str, Array], like: PyTree) -> PyTree[Array]:
    """Returns the trees of all steps of a loop that returned `stack_alike(tree)`. `like` has the shapes of one tree."""
    parts = {kind: iter(jnp.moveaxis(stack, 1, 0)) for kind, stack in stacks.items()}
    return jax.tree.map(lambda leaf: next(parts[_kind(leaf)]), like)


def _kind(leaf: Any) -> str:
    return f"{leaf.dtype}{leaf.shape}"


def blank_experience(
    environment: Environment, decide: DecideFn, worker: Worker, noise: tuple[Array, ...] = ()
) -> Experience:
    """Returns the experience of one step filled with zeros: the shapes that a replay buffer stores."""
    _, experience, _ = jax.eval_shape(
        lambda worker, noise: rollout(environment, decide, worker, 1, noise), worker, noise
    )
    return jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), experience)


# --- Whole episodes: evaluation ---------------------------------------------------------------------------------------

#: (key, environment states [E], time steps [E]) -> actions [E]
ActFn = Callable[[PRNGKey, State, TimeStep], Action]


class Episodes(NamedTuple):
    """Results of finished episodes, one entry each."""

    returns: Float[Array, " E"]  # undiscounted
    lengths: Integer[Array, " E"]  # in steps
    metrics: dict[str, Float[Array, " E"]]  # the environment's metrics at the last step, e.g. "solved"


class RunningEpisodes(NamedTuple):
    """Episodes that run side by side, some of which have ended. Made by `start_episodes`."""

    key: PRNGKey  # random key of the next step
    env_state: State  # [E, ...]
    timestep: TimeStep  # [E, ...] the input of the next decision
    ended: Bool[Array, " E"]  # True for episodes that have ended and stay as they are
    episodes: Episodes  # results so far


def run_episodes(
    environment: Environment, act: ActFn, key: PRNGKey, num_episodes: int, max_steps: int = 100_000
) -> Episodes:
    """Runs `num_episodes` side by side, each from a reset to its end. An episode that has ended is frozen.

    Environments with a time limit end by themselves; `max_steps` stops the others.
    """
    running = start_episodes(environment, key, num_episodes)
    return continue_episodes(environment, act, running, max_steps, max_steps).episodes


def start_episodes(environment: Environment, key: PRNGKey, num_episodes: int) -> RunningEpisodes:
    """Returns `num_episodes` at their first state."""
    key, key_reset = jax.random.split(key)
    env_state, timestep = jax.vmap(environment.reset)(jax.random.split(key_reset, num_episodes))
    start = Episodes(
        returns=jnp.zeros(num_episodes),
        lengths=jnp.zeros(num_episodes, jnp.int32),
        metrics=jax.tree.map(jnp.zeros_like, timestep.metrics),
    )
    return RunningEpisodes(key, env_state, timestep, jnp.zeros(num_episodes, bool), start)


def is_unfinished(running: RunningEpisodes, max_steps: int = 100_000) -> Bool[Array, ""]:
    """Returns True while an episode has not ended and none has `max_steps`."""
    return ~jnp.all(running.ended) & (jnp.max(running.episodes.lengths) < max_steps)


def continue_episodes(
    environment: Environment,
    act: ActFn,
    running: RunningEpisodes,
    num_steps: int | Integer[Array, ""],
    max_steps: int = 100_000,
) -> RunningEpisodes:
    """Runs the episodes for `num_steps` more steps, or to their end. The division into parts changes no result."""
    num_episodes = running.ended.shape[0]

    def unfinished(loop: tuple[RunningEpisodes, Integer[Array, ""]]) -> Bool[Array, ""]:
        return is_unfinished(loop[0], max_steps) & (loop[1] < num_steps)

    def step(
        loop: tuple[RunningEpisodes, Integer[Array, ""]],
    ) -> tuple[RunningEpisodes, Integer[Array, ""]]:
        running, count = loop
        key, key_act, key_step = jax.random.split(running.key, 3)
        action = act(key_act, running.env_state, running.timestep)
        env_state, timestep = jax.vmap(environment.step)(
            jax.random.split(key_step, num_episodes), running.env_state, action
        )

        episodes = Episodes(
            returns=running.episodes.returns + jnp.where(running.ended, 0.0, timestep.reward),
            lengths=running.episodes.lengths + ~running.ended,
            metrics=select(running.ended, running.episodes.metrics, timestep.metrics),
        )
        env_state, timestep = select(running.ended, (running.env_state, running.timestep), (env_state, timestep))
        after = RunningEpisodes(key, env_state, timestep, running.ended | timestep.ended, episodes)
        return after, count + 1

    return jax.lax.while_loop(unfinished, step, (running, jnp.zeros((), jnp.int32)))[0]
