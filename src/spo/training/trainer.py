"""The trainer: an experiment as compiled functions (initialise, run an interval, evaluate).

The functions run on a mesh of devices. The learner is replicated. Environments and replay are split: each device has
its own worker, and the algorithm averages gradients over `DEVICE_AXIS`. One device is a mesh of length 1. Seeds are a
vmapped axis inside each device. Leaves of a learner are [seed, ...] and leaves of a worker are [device, seed, ...].
"""

import functools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spo.acting import ActFn, Episodes, run_episodes
from spo.algorithms.base import DEVICE_AXIS, Algorithm, Metrics, Setting, TrainState
from spo.algorithms.registry import find_algorithm
from spo.environments.own import fill_mask
from spo.host import abstract_key, collection_paused
from spo.networks.config import make_architecture
from spo.networks.description import count_parameters, describe_network
from spo.training.experiment import Experiment
from spo.training.processes import place_keys, to_host
from spo.training.scaling import scale_algorithm
from spo.training.schedule import make_schedule
from spo.training.signals import in_background, interruptible
from spo.training.tasks import make_task
from spo.types import Action, Environment, PRNGKey, State, Task, TimeStep

REPLICATED = PartitionSpec()
SPLIT = PartitionSpec(DEVICE_AXIS)
STATE_SPECS = TrainState(learner=REPLICATED, worker=SPLIT)


class Trainer:
    """An experiment that is ready to run.

    Each function is compiled at its first call. Compilation is timed apart: `compile_seconds` is its total. The jitted
    functions `init_fn`, `run_fn` and `evaluate_fn` are there for those who lower and compile them in their own way.
    """

    def __init__(self, experiment: Experiment, task: Task | None = None, *, deterministic: bool = False):
        """Makes the environments, the network and the algorithm.

        Args:
          experiment: the settings.
          task: the environments, if they can't be made by name. `experiment.task` is then only a label.
          deterministic: use only those GPU operations that give the same bits every time. They are slower. A CPU
            always gives the same bits.
        """
        _, make_algorithm = find_algorithm(experiment.algorithm)
        self.experiment = experiment
        self.task = make_task(experiment, task)
        self.mesh = make_mesh(experiment.num_devices)
        self.setting = Setting(
            self.task,
            make_architecture(self.task.train, experiment.network),
            experiment.steps,
            self.mesh.devices.size,
            skip_nonfinite_updates=experiment.skip_nonfinite_updates,
        )
        make_algorithm = scale_algorithm(make_algorithm, experiment.scaling)
        self.algorithm = _filling_masks(make_algorithm(self.setting, experiment.config), self.task.model)
        self.schedule = make_schedule(experiment, self.algorithm.env_steps_per_iteration)
        self.deterministic = deterministic
        self.compile_seconds = 0.0
        #: key -> TrainState
        self.init_fn = jit_init(self.algorithm, self.mesh, experiment.num_seeds)
        #: (state, number of iterations) -> (state, metrics per seed)
        self.run_fn = jit_run(self.algorithm, self.mesh)
        #: (learner, key, number of episodes, use_search, greedy, number of other episodes) -> Episodes [seed, episode]
        self.evaluate_fn = jit_evaluate(self.algorithm, self.task.evaluation, self.mesh, experiment.num_seeds)
        self._executables: dict[Any, Callable[..., Any]] = {}
        self._compiling: dict[Any, Future[Callable[..., Any]]] = {}

    @property
    def num_devices(self) -> int:
        return self.mesh.devices.size

    @functools.cached_property
    def abstract_state(self) -> TrainState:
        """Shapes, types and shardings of a training state."""
        with collection_paused():
            return abstract_state(self.init_fn, self.mesh)

    def describe_network(self) -> str:
        """Returns the kind and the number of parameters of the network, as a line for people."""
        count = count_parameters(self.abstract_state.learner.params) // self.experiment.num_seeds
        return describe_network(self.setting.architecture, self.experiment.network.kind, count)

    def compile_ahead(self) -> None:
        """Starts to compile the program of an interval in another thread. Other programs can be compiled meanwhile."""

        def compile_run() -> Callable[..., Any]:
            lowered = _lower(self.run_fn, self.abstract_state, self.schedule.iterations_per_interval)
            return lowered.compile(compiler_options=self._compiler_options())

        if "run" not in self._executables:
            self._compiling["run"] = in_background(compile_run)

    def init(self, key: PRNGKey) -> TrainState:
        """Returns the state before the first iteration."""
        key = self._replicate(key)
        return interruptible(_finish, self._compile("init", self.init_fn, key), key)

    def run(self, state: TrainState) -> tuple[TrainState, dict[str, np.ndarray], float]:
        """Runs one interval.

        Returns:
          The new state; metrics per seed, which are means, but sums for names that begin with "episode/" and for
          "skipped_updates"; the seconds that the interval took without compilation.
        """
        run = self._compile("run", self.run_fn, state, self.schedule.iterations_per_interval)
        start = time.perf_counter()
        state, metrics = interruptible(_finish, run, state)
        return state, interruptible(to_host, metrics), time.perf_counter() - start

    def evaluate(
        self, learner: Any, key: PRNGKey, num_episodes: int, *, use_search: bool, greedy: bool, num_other: int = 0
    ) -> Episodes:
        """Runs whole episodes with each seed's learner and returns them as NumPy arrays [seed, episode].

        `num_other` episodes with the other kind of actions follow: greedy ones if not `greedy`.
        """
        key = self._replicate(key)
        static = (num_episodes, use_search, greedy, num_other)
        evaluate = self._compile(("evaluate", *static), self.evaluate_fn, learner, key, *static)
        return interruptible(to_host, interruptible(_finish, evaluate, learner, key))

    def _replicate(self, key: PRNGKey) -> PRNGKey:
        return place_keys(np.asarray(jax.random.key_data(key)), NamedSharding(self.mesh, REPLICATED))

    def _compile(self, name: Any, function: Any, *arguments: Any) -> Callable[..., Any]:
        if name not in self._executables:
            start = time.perf_counter()
            if name in self._compiling:
                self._executables[name] = interruptible(self._compiling.pop(name).result)
            else:
                lowered = _lower(function, *arguments)
                self._executables[name] = interruptible(lowered.compile, compiler_options=self._compiler_options())
            self.compile_seconds += time.perf_counter() - start
        return self._executables[name]

    def _compiler_options(self) -> dict[str, Any] | None:
        if not self.deterministic or jax.default_backend() != "gpu":
            return None
        # Also keeps XLA from choosing kernels by measured speed, which differs between compilations.
        return {"xla_gpu_deterministic_ops": True}


def _filling_masks(algorithm: Algorithm, environment: Environment) -> Algorithm:
    """Returns the algorithm with an `act` for the time steps of the user's own environment, which may have no mask."""

    def act(learner: Any, key: PRNGKey, state: State, timestep: TimeStep, **options: bool) -> Action:
        return algorithm.act(learner, key, state, fill_mask(timestep, environment.action_spec), **options)

    return algorithm._replace(act=act)


def _lower(function: Any, *arguments: Any) -> Any:
    """Traces and lowers a jitted function."""
    with collection_paused():
        return function.lower(*arguments)


def _finish(program: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a program and waits for its results."""
    return jax.block_until_ready(program(*arguments))


# --- Devices ----------------------------------------------------------------------------------------------------------


def make_mesh(num_devices: int | None = None) -> Mesh:
    """Returns a mesh of the first `num_devices` devices of all hosts; of all devices by default."""
    devices = jax.devices()
    if num_devices is not None:
        if not 1 <= num_devices <= len(devices):
            raise ValueError(
                f"num_devices must lie between 1 and the {len(devices)} devices there are, got {num_devices}."
            )
        devices = devices[:num_devices]
    if len({device.process_index for device in devices}) < jax.process_count():
        raise ValueError(
            f"The {jax.process_count()} processes train together, and {num_devices} devices would leave some of them "
            "without one: leave num_devices out to use all."
        )
    return Mesh(np.array(devices), (DEVICE_AXIS,))


def state_shardings(mesh: Mesh) -> TrainState:
    """Returns the shardings of the learner and of the worker."""
    return TrainState(learner=NamedSharding(mesh, REPLICATED), worker=NamedSharding(mesh, SPLIT))


def abstract_state(init_fn: Callable[[PRNGKey], TrainState], mesh: Mesh) -> TrainState:
    """Returns shapes, types and shardings of the state that `init_fn` makes, without computing it."""
    shardings, key = state_shardings(mesh), abstract_key()
    # With the sharding of the key that `Trainer.init` passes: `init_fn` is traced once.
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=NamedSharding(mesh, REPLICATED))
    abstract = jax.eval_shape(init_fn, key)

    def place(sharding: NamedSharding, tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)

    return TrainState(place(shardings.learner, abstract.learner), place(shardings.worker, abstract.worker))


# --- Functions over seeds and devices ---------------------------------------------------------------------------------


def jit_init(algorithm: Algorithm, mesh: Mesh, num_seeds: int) -> Any:
    """Returns the jitted function key -> TrainState."""

    def init_seed(key: PRNGKey) -> TrainState:
        key_learner, key_worker = jax.random.split(key)
        return algorithm.init(key_learner, jax.random.fold_in(key_worker, jax.lax.axis_index(DEVICE_AXIS)))

    def init_device(key: PRNGKey) -> TrainState:
        # A loop over seeds: a vmapped orthogonal initialisation is a batched QR decomposition. Several of those at once
        # block each other's threads forever on a CPU with few cores (seen with jaxlib 0.10.2 on two cores).
        return _add_device_axis(jax.lax.map(init_seed, seed_keys(key, num_seeds)))

    def init(key: PRNGKey) -> TrainState:
        state = jax.shard_map(init_device, mesh=mesh, in_specs=REPLICATED, out_specs=STATE_SPECS, check_vma=False)(key)
        # Removes weak types. A restored array has none, and a resumed run must not compile another program.
        return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), state)

    return jax.jit(init, out_shardings=state_shardings(mesh))


def jit_run(algorithm: Algorithm, mesh: Mesh) -> Any:
    """Returns the jitted function (state, number of iterations) -> (state, metrics per seed)."""

    def run_device(num_iterations: int, state: TrainState) -> tuple[TrainState, Metrics]:
        def iterate(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
            return jax.vmap(algorithm.step)(state)

        state, metrics = jax.lax.scan(iterate, _drop_device_axis(state), None, length=num_iterations)
        return _add_device_axis(state), {name: _reduce(name, value) for name, value in metrics.items()}

    @functools.partial(jax.jit, static_argnums=1)
    def run(state: TrainState, num_iterations: int) -> tuple[TrainState, Metrics]:
        function = functools.partial(run_device, num_iterations)
        out_specs = (STATE_SPECS, REPLICATED)
        return jax.shard_map(function, mesh=mesh, in_specs=(STATE_SPECS,), out_specs=out_specs, check_vma=False)(state)

    return run


class Counts(NamedTuple):
    """Numbers of episodes of an evaluation, by kind of actions. The other kind comes last."""

    configured: int  # as `evaluation.greedy` says
    other: int  # the other kind: greedy if those are drawn, and drawn if those are greedy


def jit_evaluate(algorithm: Algorithm, environment: Environment, mesh: Mesh, num_seeds: int) -> Any:
    """Returns the jitted function (learner, key, number of episodes, use_search, greedy, number of other episodes).

    It returns `Episodes` [seed, episode]. The other episodes are the last ones, with the other kind of actions.
    """

    def evaluate_device(
        counts: Counts, use_search: bool, greedy: bool, learner: Any, key: PRNGKey
    ) -> tuple[Episodes, Episodes]:
        def evaluate_seed(learner: Any, key: PRNGKey) -> Episodes:
            act = act_with_both_kinds(algorithm, learner, counts, use_search=use_search, greedy=greedy)
            key = jax.random.fold_in(key, jax.lax.axis_index(DEVICE_AXIS))
            return run_episodes(environment, act, key, sum(counts))

        episodes = jax.vmap(evaluate_seed)(learner, seed_keys(key, num_seeds))
        return split_episodes(episodes, counts.configured)

    @functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
    def evaluate(
        learner: Any, key: PRNGKey, num_episodes: int, use_search: bool, greedy: bool, num_other: int = 0
    ) -> Episodes:
        counts = Counts(num_episodes, num_other)
        per_device = Counts(*(-(-count // mesh.devices.size) for count in counts))
        function = functools.partial(evaluate_device, per_device, use_search, greedy)
        in_specs, out_specs = (REPLICATED, REPLICATED), PartitionSpec(None, DEVICE_AXIS)
        on_mesh = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        kinds = on_mesh(learner, key)
        cut = [jax.tree.map(lambda x, n=n: x[:, :n], kind) for kind, n in zip(kinds, counts, strict=True)]
        return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *cut)

    return evaluate


def act_with_both_kinds(algorithm: Algorithm, learner: Any, counts: Counts, *, use_search: bool, greedy: bool) -> ActFn:
    """Returns `act` for a batch of episodes: the first ones act as `greedy` says, the last `counts.other` otherwise."""
    act = functools.partial(algorithm.act, learner, use_search=use_search)
    if counts.other == 0:
        return functools.partial(act, greedy=greedy)
    if algorithm.greedy_per_state:  # one search for both
        return functools.partial(act, greedy=(jnp.arange(sum(counts)) < counts.configured) == greedy)

    def act_twice(key: PRNGKey, state: State, timestep: TimeStep) -> Action:
        key_configured, key_other = jax.random.split(key)
        configured, other = (
            jax.tree.map(lambda x, part=part: x[part], (state, timestep))
            for part in (slice(counts.configured), slice(counts.configured, None))
        )
        actions = act(key_configured, *configured, greedy=greedy), act(key_other, *other, greedy=not greedy)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *actions)

    return act_twice


def split_episodes(episodes: Episodes, num_episodes: int) -> tuple[Episodes, Episodes]:
    """Splits episodes [seed, episode] after the first `num_episodes`."""
    first = jax.tree.map(lambda x: x[:, :num_episodes], episodes)
    return first, jax.tree.map(lambda x: x[:, num_episodes:], episodes)


def seed_keys(key: PRNGKey, num_seeds: int) -> PRNGKey:
    """Returns one key per seed. The key of a seed does not depend on the number of seeds."""
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num_seeds))


def _reduce(name: str, values: jax.Array) -> jax.Array:
    """Reduces a metric over iterations and devices. Metrics of episodes are already sums over the devices."""
    is_sum = name.startswith("episode/") or name == "skipped_updates"
    reduced = (jnp.sum if is_sum else jnp.mean)(values, axis=0)
    return reduced if name.startswith("episode/") else jax.lax.pmean(reduced, DEVICE_AXIS)


def _add_device_axis(state: TrainState) -> TrainState:
    return state._replace(worker=jax.tree.map(lambda x: x[None], state.worker))


def _drop_device_axis(state: TrainState) -> TrainState:
    return state._replace(worker=jax.tree.map(lambda x: x[0], state.worker))
