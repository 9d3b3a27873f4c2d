"""Evaluations of trained agents: numbers of episodes, episodes in parts between which progress is shown, results.

Every evaluation plays with both kinds of actions: drawn ones, and the best ones (greedy). `evaluation.greedy` chooses
the kind that decides which parameters are the best. The other kind gets a quarter of the episodes.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spo.acting import Episodes, RunningEpisodes, continue_episodes, is_unfinished, start_episodes
from spo.training.processes import to_host
from spo.training.signals import interruptible
from spo.training.trainer import Counts, Trainer, act_with_both_kinds, seed_keys, split_episodes
from spo.types import PRNGKey

#: (episodes that have ended, all episodes, steps so far) -> None
OnProgress = Callable[[int, int, int], None]
MAX_STEPS_PER_PART = 2**20


def num_other_episodes(num_episodes: int) -> int:
    """Returns the number of episodes with the kind of actions that `evaluation.greedy` does not choose."""
    return max(1, num_episodes // 4)


def other_prefix(greedy: bool) -> str:
    """Returns the prefix of the metrics of these episodes."""
    return "drawn" if greedy else "greedy"


def evaluate_both_kinds(
    trainer: Trainer,
    learner: Any,
    seed: int,
    num_episodes: int,
    *,
    use_search: bool,
    greedy: bool,
    on_progress: OnProgress = lambda *_: None,
) -> dict[str, Any]:
    """Returns the results of episodes with one kind of actions, and of a quarter as many with the other kind.

    "return", "length" and, where there is one, "solved" have the mean over the episodes of all seeds and its 95 %
    interval. "per_seed" has the means of each seed, and "other_actions" the results of the other kind.

    Args:
      trainer: the task and the algorithm, on one device.
      learner: the learner of each seed; leaves are [seed, ...].
      seed: random seed of the episodes.
      num_episodes: number of episodes for each seed.
      use_search: choose actions by the search, if the algorithm has one.
      greedy: take the most likely action instead of a random one.
      on_progress: receives the progress.
    """
    num_other = num_other_episodes(num_episodes)
    episodes = evaluate_in_parts(
        trainer,
        learner,
        jax.random.key(seed),
        num_episodes,
        use_search=use_search,
        greedy=greedy,
        on_progress=on_progress,
        num_other=num_other,
    )
    configured, other = (_per_seed(kind) for kind in split_episodes(episodes, num_episodes))
    return {
        "episodes": num_episodes,
        "seed": seed,
        "use_search": use_search,
        "greedy": greedy,
        **_intervals(configured),
        "per_seed": {name: value.mean(axis=1).tolist() for name, value in configured.items()},
        "other_actions": {"kind": other_prefix(greedy), "episodes": num_other, **_intervals(other)},
    }


def _per_seed(episodes: Episodes) -> dict[str, np.ndarray]:
    """Returns the returns, lengths and solved episodes as arrays [seed, episode]."""
    values = {"return": episodes.returns, "length": episodes.lengths}
    values |= {name: value for name, value in episodes.metrics.items() if name == "solved"}
    return {name: np.asarray(value, float) for name, value in values.items()}


def _intervals(per_seed: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Returns the mean and its 95 % interval of each metric."""
    from spo.reports import run_report

    return {name: run_report.episodes_interval(name, value.tolist())._asdict() for name, value in per_seed.items()}


def evaluate_in_parts(
    trainer: Trainer,
    learner: Any,
    key: PRNGKey,
    num_episodes: int,
    *,
    use_search: bool,
    greedy: bool,
    on_progress: OnProgress,
    num_other: int = 0,
    seconds_per_part: float = 0.5,
) -> Episodes:
    """Returns the same episodes as `Trainer.evaluate` on one device, and reports progress while they run.

    The random keys of a step do not depend on where a part ends, so the parts may have any length: as many steps as
    take about `seconds_per_part`.
    """
    environment, counts = trainer.task.evaluation, Counts(num_episodes, num_other)

    @jax.jit
    def start(key: PRNGKey) -> RunningEpisodes:
        def start_seed(key: PRNGKey) -> RunningEpisodes:
            return start_episodes(environment, jax.random.fold_in(key, 0), sum(counts))  # 0: the first device

        return jax.vmap(start_seed)(seed_keys(key, trainer.experiment.num_seeds))

    @functools.partial(jax.jit, donate_argnums=1)
    def advance(learner: Any, running: RunningEpisodes, num_steps: jax.Array) -> tuple[RunningEpisodes, Any]:
        def advance_seed(learner: Any, running: RunningEpisodes) -> RunningEpisodes:
            act = act_with_both_kinds(trainer.algorithm, learner, counts, use_search=use_search, greedy=greedy)
            return continue_episodes(environment, act, running, num_steps)

        running = jax.vmap(advance_seed)(learner, running)
        unfinished = jnp.any(jax.vmap(is_unfinished)(running))
        return running, (unfinished, jnp.sum(running.ended), jnp.max(running.episodes.lengths))

    learner = jax.device_put(learner, jax.devices()[0])
    running, num_steps, unfinished = start(key), 1, True
    program = interruptible(advance.lower(learner, running, jnp.int32(num_steps)).compile)

    def run_part() -> tuple[RunningEpisodes, Any]:
        part, facts = program(learner, running, jnp.int32(num_steps))
        return part, jax.device_get(facts)

    while unfinished:
        started_at = time.perf_counter()
        running, (unfinished, ended, steps) = interruptible(run_part)  # one step of many episodes can take long
        on_progress(int(ended), sum(counts) * trainer.experiment.num_seeds, int(steps))
        if time.perf_counter() - started_at < seconds_per_part / 2 and num_steps < MAX_STEPS_PER_PART:
            num_steps *= 2
    return to_host(running.episodes)


__all__ = ["OnProgress", "evaluate_both_kinds", "evaluate_in_parts", "num_other_episodes", "other_prefix"]
