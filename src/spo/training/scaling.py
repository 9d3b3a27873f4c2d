"""Scaling of observations and rewards, for all algorithms: rewards of 0.001 and of 1000 are learned alike.

An algorithm is a function of its setting. `scale_algorithm` calls it with a setting whose networks normalise their
observations and whose environments scale their rewards. The statistics (`Scales`) are traced arrays of the learner, so
each iteration uses the latest ones, and checkpoints and exports contain them. One iteration (`step`):

1.  The algorithm acts and learns with the present scales. The `Recorder` in its worker measures the rollout.
2.  The scales are updated with these measurements.
3.  Stored rewards get the new scale. The replay buffer has observations as the environment shows them.

    observations   (x - mean) / standard deviation, per entry, in policy, critic and search alike; numbers that have
                   hardly changed so far are not enlarged (`normalise` with `cautious`)
    rewards        r / σ, where σ is the standard deviation of G_t = r_t + γ G_{t-1}, from 0 at each start of an episode

The first iteration only measures: what it would have learned, without a scale, is discarded.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spo.acting import Experience, Worker
from spo.algorithms.base import Algorithm, Inspect, Searched, Setting, TrainState
from spo.algorithms.observation_statistics import (
    RunningStatistics,
    include_rollout,
    init_statistics,
    merge_statistics,
    normalise,
)
from spo.networks import Architecture, Networks
from spo.networks.grids import GridTorso, is_board, is_picture
from spo.networks.torsos import CNN, MLP
from spo.search import SearchOutput, mcts
from spo.search.results import scale_values
from spo.training.experiment import ScalingConfig
from spo.types import Action, Array, Bool, Environment, Float, Metrics, Observation, PRNGKey, PyTree, State, TimeStep

#: Steps that the statistics of returns remember. They follow a policy whose returns grow.
MEMORY_OF_RETURNS = 100_000.0
#: Steps that the statistics of observations remember.
MEMORY_OF_OBSERVATIONS = 1_000_000.0
#: Metrics that are proportional to rewards.
REWARD_METRICS = ("episode/return", "value/mean", "value/target", "search/value_gain")


class Scales(NamedTuple):
    """Statistics by which observations and rewards are scaled. None: they are not.

    Which of them is None never changes during a run. Both are if an observation that is to be scaled has no numbers.
    """

    observations: RunningStatistics | None  # of the leaves of an observation; None in place of each other leaf
    returns: RunningStatistics | None  # of discounted returns

    @property
    def reward_scale(self) -> Float[Array, ""]:
        """Factor on rewards: 1 / σ, and 1 before any return differs from 0.

        σ is at least a third of the mean return: returns that are nearly all the same would get a large factor.
        """
        if self.returns is None:
            return jnp.ones(())
        variance = self.returns.sum_of_squared_deviations / jnp.maximum(self.returns.num_observations, 1.0)
        square = jnp.maximum(variance, jnp.square(self.returns.mean / 3.0))
        return jnp.where(square > 0, jax.lax.rsqrt(jnp.maximum(square, 1e-30)), 1.0)


class ScaledLearner(NamedTuple):
    """The learner of an algorithm, and the scales that it learns with."""

    inner: Any  # the algorithm's own learner
    scales: Scales

    @property
    def params(self) -> Any:
        """Parameters of the algorithm's networks."""
        return self.inner.params


class Recorder(NamedTuple):
    """Statistics of the latest rollout, which `spo.acting.rollout` fills in."""

    gamma: Float[Array, ""]
    discounted_return: Float[Array, " E"]  # G of each environment after its last step, in scaled rewards
    rollout: Scales  # of the latest rollout, over all devices; returns in scaled rewards

    def include(self, experience: Experience) -> "Recorder":
        """Returns the recorder with the statistics of a rollout [T, E]."""
        observations, returns = self.rollout
        if observations is not None:
            leaves = select_leaves(observations, experience.observation)
            observations = include_rollout(_empty_like(observations), leaves)
        last = self.discounted_return
        if returns is not None:
            ended = experience.terminated | experience.truncated
            last, all_returns = discounted_returns(self.gamma, last, experience.reward, ended)
            returns = include_rollout(_empty_like(returns), all_returns)
        return Recorder(self.gamma, last, Scales(observations, returns))


#: scales -> the algorithm, with networks and environments that scale by them
AlgorithmWith = Callable[[Scales], Algorithm]


def scale_algorithm(
    make_algorithm: Callable[[Setting, Any], Algorithm], scaling: ScalingConfig
) -> Callable[[Setting, Any], Algorithm]:
    """Returns the maker of an algorithm that learns with scaled observations and rewards."""
    if not scaling.observations and not scaling.rewards:
        return make_algorithm

    def make_scaled(setting: Setting, config: Any) -> Algorithm:
        plain = make_algorithm(setting, config)

        def algorithm_with(scales: Scales) -> Algorithm:
            return make_algorithm(scale_setting(setting, scales), config)

        def act(learner: ScaledLearner, *arguments: Any, **options: bool) -> Action:
            return algorithm_with(learner.scales).act(learner.inner, *arguments, **options)

        def value(learner: ScaledLearner, key: PRNGKey, timestep: TimeStep) -> Float[Array, " B"]:
            in_scaled_rewards = algorithm_with(learner.scales).value(learner.inner, key, timestep)
            return in_scaled_rewards / learner.scales.reward_scale

        return plain._replace(
            init=functools.partial(init, algorithm_with, setting, scaling, getattr(config, "gamma", 0.99)),
            step=functools.partial(step, algorithm_with),
            act=act,
            value=value,
            inspect=None if plain.inspect is None else _scale_inspect(plain.inspect, algorithm_with),
        )

    return make_scaled


def _scale_inspect(plain: Inspect, algorithm_with: AlgorithmWith) -> Inspect:
    """Returns the functions of `spo inspect` for a scaled learner. Only the temperature is in scaled rewards."""

    def inspect_with(scales: Scales) -> Any:
        return algorithm_with(scales).inspect

    def policy(learner: ScaledLearner, timestep: TimeStep) -> Any:
        return inspect_with(learner.scales).policy(learner.inner, timestep)

    def search(learner: ScaledLearner, *arguments: Any, **options: Any) -> Searched:
        searched = inspect_with(learner.scales).search(learner.inner, *arguments, **options)
        return searched._replace(output=_in_rewards(searched.output, learner.scales.reward_scale))

    def temperature(learner: ScaledLearner) -> Float[Array, ""]:
        return inspect_with(learner.scales).temperature(learner.inner)

    return Inspect(
        plain.distribution,
        policy,
        search=None if plain.search is None else search,
        temperature=None if plain.temperature is None else temperature,
    )


def _in_rewards(output: Any, scale: Float[Array, ""]) -> Any:
    """Returns the result of a search with its values in rewards of the environment."""
    if isinstance(output, SearchOutput):
        return scale_values(output, 1.0 / scale)
    names = ("raw_values", "node_values", "children_values", "children_rewards")
    tree = output.tree
    scaled = {name: getattr(tree, name) / scale for name in names}
    return output._replace(value=output.value / scale, tree=replace_in_tree(tree, **scaled))


def replace_in_tree(tree: Any, **fields: Any) -> Any:
    """Returns a search tree of either library with other values of some fields."""
    return tree._replace(**fields) if isinstance(tree, mcts.Tree) else tree.replace(**fields)  # mctx's: a dataclass


def init(
    algorithm_with: AlgorithmWith,
    setting: Setting,
    scaling: ScalingConfig,
    gamma: float,
    key_learner: PRNGKey,
    key_worker: PRNGKey,
) -> TrainState:
    """Returns the first state of the algorithm, with empty statistics."""
    scales = init_scales(setting, scaling)
    learner, worker = algorithm_with(scales).init(key_learner, key_worker)
    if _find_recorders(worker) == []:
        raise ValueError("scaling needs an algorithm that acts by spo.acting.rollout: switch it off for this one.")

    def attach(acting: Worker) -> Worker:
        return acting._replace(recorder=Recorder(jnp.float32(gamma), jnp.zeros_like(acting.episode_return), scales))

    return TrainState(ScaledLearner(learner, scales), _map_nodes(Worker, attach, worker))


def step(algorithm_with: AlgorithmWith, state: TrainState) -> tuple[TrainState, Metrics]:
    """Runs one iteration of the algorithm with the present scales; then updates them with its rollout."""
    learner, worker = state
    scales = learner.scales
    (inner, worker), metrics = algorithm_with(scales).step(TrainState(learner.inner, worker))
    is_measured = _num_measured(scales) > 0  # not before the first iteration, which only measures
    inner = jax.tree.map(lambda new, old: jnp.where(is_measured, new, old), inner, learner.inner)
    updated = update_scales(scales, _find_recorders(worker)[0].rollout)
    worker = rescale_worker(worker, updated.reward_scale / scales.reward_scale)
    in_rewards = {name: metrics[name] / scales.reward_scale for name in REWARD_METRICS if name in metrics}
    metrics = metrics | in_rewards | {"scaling/reward_scale": scales.reward_scale}
    return TrainState(ScaledLearner(inner, updated), worker), metrics


# --- Statistics -------------------------------------------------------------------------------------------------------


def init_scales(setting: Setting, scaling: ScalingConfig) -> Scales:
    """Returns the statistics of nothing: observations and rewards stay as they are."""
    leaves = jax.tree.leaves(setting.task.train.observation_spec)
    numeric = tuple(
        jax.ShapeDtypeStruct(leaf.shape, jnp.float32) if is_numeric(leaf, setting.architecture) else None
        for leaf in leaves
    )
    scaled = scaling.observations and any(leaf is not None for leaf in numeric)
    return Scales(
        observations=init_statistics(numeric) if scaled else None,
        returns=init_statistics(jax.ShapeDtypeStruct((), jnp.float32)) if scaling.rewards else None,
    )


def is_numeric(leaf: jax.ShapeDtypeStruct, architecture: Architecture | Networks) -> bool:
    """Returns True for numbers that are normalised: no images or boards, no truth values.

    Integers are numbers in an MLP and beside an image. Other networks may embed them.
    """
    torso = architecture.torso if isinstance(architecture, Architecture) else None
    if isinstance(torso, CNN | GridTorso) and (is_picture(leaf) or is_board(leaf)):
        return False
    if isinstance(torso, CNN | GridTorso | MLP):
        return leaf.dtype != jnp.bool_
    return jnp.issubdtype(leaf.dtype, jnp.floating) and not is_picture(leaf)


def update_scales(scales: Scales, rollout: Scales) -> Scales:
    """Returns the statistics with those of a rollout, whose returns are in scaled rewards."""
    observations, returns = scales
    if observations is not None and rollout.observations is not None:
        observations = merge_statistics(_forget(observations, MEMORY_OF_OBSERVATIONS), rollout.observations)
    if returns is not None and rollout.returns is not None:
        in_rewards = rollout.returns._replace(
            mean=rollout.returns.mean / scales.reward_scale,
            sum_of_squared_deviations=rollout.returns.sum_of_squared_deviations / scales.reward_scale**2,
        )
        returns = merge_statistics(_forget(returns, MEMORY_OF_RETURNS), in_rewards)
    return Scales(observations, returns)


def discounted_returns(
    gamma: Float[Array, ""], last: Float[Array, " E"], rewards: Float[Array, "T E"], ended: Bool[Array, "T E"]
) -> tuple[Float[Array, " E"], Float[Array, "T E"]]:
    """G_t = r_t + γ G_{t-1}, with G = 0 after the end of an episode.

    Returns the last G, from which the next rollout continues, and all of them.
    """

    def include_step(
        previous: Float[Array, " E"], now: tuple[Float[Array, " E"], Bool[Array, " E"]]
    ) -> tuple[Float[Array, " E"], Float[Array, " E"]]:
        reward, has_ended = now
        current = reward + gamma * previous
        return jnp.where(has_ended, 0.0, current), current

    return jax.lax.scan(include_step, last, (rewards, ended))


def select_leaves(statistics: RunningStatistics, observation: Observation) -> PyTree[Array]:
    """Returns the leaves of observations that have statistics, as floats; None in place of each other leaf.

    Leaves that follow those of the environment, such as an action mask, are left out.
    """
    return tuple(
        None if mean is None else leaf.astype(jnp.float32)
        for leaf, mean in zip(jax.tree.leaves(observation), statistics.mean, strict=False)
    )


def normalise_observation(statistics: RunningStatistics, observation: Observation) -> Observation:
    """Returns an observation with its numbers normalised."""
    normalised = normalise(statistics, select_leaves(statistics, observation), cautious=True)
    leaves, structure = jax.tree.flatten(observation)
    merged = [leaf if new is None else new for leaf, new in zip(leaves, normalised, strict=True)]
    return jax.tree.unflatten(structure, merged)


def _forget(statistics: RunningStatistics, memory: float) -> RunningStatistics:
    """Returns the statistics with the weight of at most `memory` steps."""
    share = jnp.minimum(1.0, memory / jnp.maximum(statistics.num_observations, 1.0))
    return statistics._replace(
        num_observations=statistics.num_observations * share,
        sum_of_squared_deviations=jax.tree.map(lambda x: x * share, statistics.sum_of_squared_deviations),
    )


def _empty_like(statistics: RunningStatistics) -> RunningStatistics:
    return jax.tree.map(jnp.zeros_like, statistics)


def _num_measured(scales: Scales) -> Float[Array, ""]:
    measured = [statistics.num_observations for statistics in scales if statistics is not None]
    return measured[0] if measured else jnp.ones(())


# --- Setting and worker -----------------------------------------------------------------------------------------------


def scale_setting(setting: Setting, scales: Scales) -> Setting:
    """Returns the setting with networks that normalise observations and environments that scale rewards."""
    scale = functools.partial(scale_rewards, scales.reward_scale)
    task = (
        setting.task
        if scales.returns is None
        else setting.task._replace(train=scale(setting.task.train), model=scale(setting.task.model))
    )
    architecture = setting.architecture
    if scales.observations is not None:
        preprocess = functools.partial(normalise_observation, scales.observations)
        if isinstance(architecture, Networks):
            q_network = architecture.q_network
            architecture = Networks(
                architecture.actor_critic.with_preprocessing(preprocess),
                None if q_network is None else q_network.with_preprocessing(preprocess),
            )
        else:
            assert isinstance(architecture, Architecture)
            architecture = architecture._replace(preprocess=preprocess)
    return setting._replace(task=task, architecture=architecture)


def scale_rewards(factor: Float[Array, ""], environment: Environment) -> Environment:
    """Returns the environment with its rewards times a factor."""

    def step(key: PRNGKey, state: State, action: Action) -> tuple[State, TimeStep]:
        state, timestep = environment.step(key, state, action)
        return state, timestep._replace(reward=factor * timestep.reward)

    return environment._replace(step=step)


def rescale_worker(worker: Any, ratio: Float[Array, ""]) -> Any:
    """Multiplies all stored rewards by a ratio: in the replay buffer, in unfinished episodes and in the recorder."""

    def rescale_acting(acting: Worker) -> Worker:
        recorder = acting.recorder._replace(discounted_return=ratio * acting.recorder.discounted_return)
        return acting._replace(episode_return=ratio * acting.episode_return, recorder=recorder)

    def rescale_experience(experience: Experience) -> Experience:
        extras = experience.extras
        if hasattr(extras, "temperature_advantages"):  # of SPO's plans: sums of rewards and values
            extras = extras._replace(temperature_advantages=ratio * extras.temperature_advantages)
        return experience._replace(reward=ratio * experience.reward, extras=extras)

    return _map_nodes(Experience, rescale_experience, _map_nodes(Worker, rescale_acting, worker))


def _map_nodes(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
    """Applies a function to each node of a type, at any depth of a pytree."""

    def is_node(node: Any) -> bool:
        return isinstance(node, kind)

    return jax.tree.map(lambda node: function(node) if is_node(node) else node, tree, is_leaf=is_node)


def _find_recorders(worker: Any) -> list[Any]:
    nodes = jax.tree.leaves(worker, is_leaf=lambda node: isinstance(node, Worker))
    return [node.recorder for node in nodes if isinstance(node, Worker)]


__all__ = ["Recorder", "ScaledLearner", "Scales", "replace_in_tree", "scale_algorithm"]
