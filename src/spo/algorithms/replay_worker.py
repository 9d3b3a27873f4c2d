"""Workers that act and store their experience in a replay buffer: SPO, MPO, AlphaZero and SMC-ENT."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from spo.acting import DecideFn, Experience, Worker, blank_experience, init_worker, rollout
from spo.algorithms.base import per_device
from spo.checks import PositiveInt, check_fields
from spo.replay import make_replay
from spo.types import Array, Environment, Metrics, PRNGKey


@dataclass(frozen=True)
class ReplayConfig:
    """Sizes of rollouts, replay and batches. Defaults are the paper's for SPO and AlphaZero with discrete actions."""

    num_envs: PositiveInt = 768
    """Number of parallel environments, over all devices."""
    rollout_length: PositiveInt = 21
    """Steps in each environment per iteration."""
    num_updates: PositiveInt = 16
    """Gradient updates after each rollout. The paper's tables call them epochs."""
    batch_size: PositiveInt = 64
    """Sequences per gradient update, over all devices."""
    sequence_length: PositiveInt = 17
    """Consecutive environment steps per sequence."""
    replay_size: PositiveInt = 65_536
    """Environment steps that the replay buffer holds, over all environments."""

    def __post_init__(self) -> None:
        check_fields(self)


class ReplayWorker(NamedTuple):
    """One device's environments and its part of the replay buffer."""

    acting: Worker
    replay: Any


class ReplayWorkerFns(NamedTuple):
    """Functions of a `ReplayWorker`."""

    #: (key, decide) -> worker with an empty buffer
    init: Callable[[PRNGKey, DecideFn], ReplayWorker]
    #: (worker, key, decide, key of the noise) -> (worker with a rollout added to the buffer, metrics)
    collect: Callable[..., tuple[ReplayWorker, Metrics]]
    #: (worker, key) -> the batches of all updates, [num_updates, batch_size, sequence_length, ...]
    sample: Callable[[ReplayWorker, PRNGKey], Experience]


def make_replay_worker(
    environment: Environment,
    num_devices: int,
    config: ReplayConfig,
    *,
    draw_noise: Callable[[PRNGKey, int, int], tuple[Array, ...]] | None = None,
    warm_up: bool = False,
) -> ReplayWorkerFns:
    """Returns the functions of one device's worker, which gets an equal part of the environments, buffer and batches.

    `draw_noise(key, steps, environments)` draws the noise of a whole rollout (see `spo.acting.rollout`).
    With `warm_up`, `init` acts until one more rollout completes a sequence: sequences may be longer than a rollout.
    """
    num_envs = per_device("num_envs", config.num_envs, num_devices)
    warmup_length = max(config.sequence_length - config.rollout_length, 0) if warm_up else 0
    replay = make_replay(
        num_envs=num_envs,
        capacity=config.replay_size // num_devices,
        rollout_length=config.rollout_length,
        num_batches=config.num_updates,
        batch_size=per_device("batch_size", config.batch_size, num_devices),
        sequence_length=config.sequence_length,
        warmup_length=warmup_length,
    )

    def act_and_store(
        worker: ReplayWorker, decide: DecideFn, length: int, noise: tuple[Array, ...] = ()
    ) -> tuple[ReplayWorker, Metrics]:
        acting, experience, metrics = rollout(environment, decide, worker.acting, length, noise)
        return ReplayWorker(acting, replay.add(worker.replay, experience)), metrics

    def init(key: PRNGKey, decide: DecideFn) -> ReplayWorker:
        acting = init_worker(environment, num_envs, key)
        noise = () if draw_noise is None else draw_noise(key, 1, num_envs)  # its shape matters here, not its values
        worker = ReplayWorker(acting, replay.init(blank_experience(environment, decide, acting, noise)))
        if warmup_length > 0:
            worker, _ = act_and_store(worker, decide, warmup_length)
        return worker

    def collect(
        worker: ReplayWorker, key: PRNGKey, decide: DecideFn, key_noise: PRNGKey | None = None
    ) -> tuple[ReplayWorker, Metrics]:
        worker = worker._replace(acting=worker.acting._replace(key=key))
        noise: tuple[Array, ...] = ()
        if draw_noise is not None:
            assert key_noise is not None
            noise = draw_noise(key_noise, config.rollout_length, num_envs)
        return act_and_store(worker, decide, config.rollout_length, noise)

    return ReplayWorkerFns(init, collect, sample=lambda worker, key: replay.sample(worker.replay, key))
