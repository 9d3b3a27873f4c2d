"""One agent of a run that decides with any settings.

A decision is a pure function of the agent, the state, the random seed and the settings. The static page and the live
page call the same function, so they show the same search.
"""

import collections
import functools
import gc
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.algorithms.base import Algorithm, Inspect
from spo.distributions import Distribution
from spo.inspection.settings import Settings, apply_settings, own_settings
from spo.search import SearchOutput
from spo.training.experiment import Experiment
from spo.training.scaling import replace_in_tree
from spo.training.trainer import Trainer
from spo.types import Action, Array, DiscreteActions, Float, PRNGKey, State, Task, TimeStep

#: Programs that are kept. A further one replaces the one that was used least recently.
MAX_PROGRAMS = 64
#: Samples of a continuous policy, for its marginal densities.
NUM_POLICY_SAMPLES = 8192


class Decided(NamedTuple):
    """One decision, without an axis of roots. Actions are as the environment takes them."""

    action: Action
    value: Float[Array, ""]  # V(s)
    policy: Any  # [A] probabilities, or [NUM_POLICY_SAMPLES, D] samples; None: the algorithm does not show it
    search: Any = None  # `SearchOutput` or `TreeSearchOutput` without the axis B; None: decided without a search
    temperature: Float[Array, ""] | None = None


class Timing(NamedTuple):
    """Seconds of one decision."""

    seconds: float  # without compilation
    compile_seconds: float  # 0 if the program was there


class Subject:
    """One agent, its environment and the programs by which it decides, one for each combination of settings."""

    def __init__(self, experiment: Experiment, learner: Any):
        """Makes the environment and the algorithm.

        Args:
          experiment: the settings of the run.
          learner: the learner of one seed.
        """
        self.experiment = experiment
        self.learner = learner
        self.task: Task = Trainer(experiment).task
        self.environment = self.task.evaluation
        self.own_settings = own_settings(experiment)
        self.compiling = False  # True while `decide` compiles a program, for readers in other threads
        self._programs: collections.OrderedDict[Any, Callable[..., Decided]] = collections.OrderedDict()
        self._reset = jax.jit(self.environment.reset)
        self._step = jax.jit(self.environment.step)

    def reset(self, seed: int) -> tuple[State, TimeStep]:
        """Returns the start of the episode of a seed."""
        return self._reset(jax.random.split(jax.random.key(seed))[0])

    def reset_to(self, seed: int, start: int) -> tuple[State, TimeStep]:
        """Returns the start that a number chooses (`Environment.starts`)."""
        starts = self.environment.starts
        if starts is None:
            raise ValueError(f"{self.environment.name} has no starts to choose from: use another seed.")
        return jax.jit(starts.reset)(jax.random.split(jax.random.key(seed))[0], jnp.asarray(start))

    def step(self, seed: int, index: int, state: State, action: Action) -> tuple[State, TimeStep]:
        """Takes step `index` of the episode of a seed."""
        return self._step(_step_keys(seed, index)[1], state, self.to_action(action))

    def decide(
        self, seed: int, index: int, state: State, timestep: TimeStep, settings: Settings
    ) -> tuple[Decided, Timing]:
        """Decides at step `index` with the random numbers of a seed. Returns arrays on the host."""
        arguments = (self.learner, _step_keys(seed, index)[0], state, timestep, _temperature(settings))
        start = time.perf_counter()
        program = self._programs.get(_static(settings))
        if program is None:
            program = self._compile(settings, arguments)
        self._programs.move_to_end(_static(settings))
        compiled = time.perf_counter()
        decided = jax.device_get(program(*arguments))
        return decided, Timing(time.perf_counter() - compiled, compiled - start)

    def to_action(self, action: Any) -> Action:
        """Returns a plain action as the environment takes it."""
        discrete = isinstance(self.environment.action_spec, DiscreteActions)
        return jnp.asarray(action, jnp.int32 if discrete else jnp.float32)

    def _compile(self, settings: Settings, arguments: tuple[Any, ...]) -> Callable[..., Decided]:
        self.compiling = True
        try:
            algorithm = Trainer(apply_settings(self.experiment, settings)).algorithm
            program = functools.partial(
                decide, algorithm, use_search=settings.get("use_search", False), greedy=settings["greedy"]
            )
            compiled = jax.jit(program).lower(*arguments).compile()
        finally:
            self.compiling = False
        self._programs[_static(settings)] = compiled
        if len(self._programs) > MAX_PROGRAMS:
            self._programs.popitem(last=False)
        _shorten_collections()
        return compiled


def _shorten_collections() -> None:
    """Keeps Python's garbage collector from visiting the objects of a compilation again.

    There are millions of them. A full collection in the middle of a search takes longer than the search.
    """
    gc.unfreeze()
    gc.collect()  # programs that were replaced are freed
    gc.freeze()


def decide(
    algorithm: Algorithm,
    learner: Any,
    key: PRNGKey,
    state: State,
    timestep: TimeStep,
    temperature: Float[Array, ""],
    *,
    use_search: bool,
    greedy: bool,
) -> Decided:
    """Decides in one state. A temperature of NaN is replaced by the agent's own."""
    state, timestep = jax.tree.map(lambda x: jnp.asarray(x)[None], (state, timestep))
    inspect = algorithm.inspect
    value = algorithm.value(learner, key, timestep)[0]
    policy = None if inspect is None else _describe_policy(inspect, learner, timestep)
    if inspect is None or inspect.search is None or not use_search:
        action = algorithm.act(learner, key, state, timestep, use_search=use_search, greedy=greedy)
        return Decided(action[0], value, policy)
    if inspect.temperature is not None:
        temperature = jnp.where(jnp.isnan(temperature), inspect.temperature(learner), temperature)
    searched = inspect.search(learner, key, state, timestep, temperature, greedy=greedy)
    output = _to_environment(inspect.distribution, jax.tree.map(lambda x: x[0], searched.output))
    has_temperature = inspect.temperature is not None
    return Decided(searched.action[0], value, policy, output, temperature if has_temperature else None)


def _describe_policy(inspect: Inspect, learner: Any, timestep: TimeStep) -> Array:
    """Returns probabilities of discrete actions, or samples of continuous ones."""
    policy = jax.tree.map(lambda x: x[0], inspect.policy(learner, timestep))
    if inspect.distribution.num_actions(policy) is not None:
        return jax.nn.softmax(policy)
    keys = jax.random.split(jax.random.key(0), NUM_POLICY_SAMPLES)
    samples = jax.vmap(inspect.distribution.sample, in_axes=(0, None))(keys, policy)
    return jax.vmap(inspect.distribution.to_environment)(samples)


def _to_environment(distribution: Distribution, output: Any) -> Any:
    """Returns the output of a search with all actions as the environment takes them."""
    convert = jax.vmap(distribution.to_environment)
    if isinstance(output, SearchOutput):
        assert output.ancestry is not None  # `Inspect.search` records it
        ancestry = output.ancestry._replace(action=jax.vmap(convert)(output.ancestry.action))
        return output._replace(root_actions=convert(output.root_actions), ancestry=ancestry)
    actions = output.candidates.actions
    if actions is None:
        return output
    nodes = output.tree.embeddings._replace(actions=jax.vmap(convert)(output.tree.embeddings.actions))
    candidates = output.candidates._replace(actions=convert(actions))
    return output._replace(candidates=candidates, tree=replace_in_tree(output.tree, embeddings=nodes))


def _step_keys(seed: int, index: int) -> tuple[PRNGKey, PRNGKey]:
    """Returns the keys of the decision and of the environment at one step."""
    key_decide, key_step = jax.random.split(jax.random.fold_in(jax.random.split(jax.random.key(seed))[1], index))
    return key_decide, key_step


def _static(settings: Settings) -> tuple[tuple[str, Any], ...]:
    """Returns the settings that a program is compiled for: all but the temperature."""
    return tuple(sorted((name, value) for name, value in settings.items() if name != "temperature"))


def _temperature(settings: Settings) -> Float[Array, ""]:
    given = settings.get("temperature")
    return jnp.asarray(jnp.nan if given is None else given, jnp.float32)


__all__ = ["Decided", "Subject", "Timing", "decide"]
