"""Time of one gradient update of MPO and SMC-ENT, and of one environment step in all environments, beside their floors.

    python benchmarks/replayed_updates.py --out results/benchmarks/h200/replayed_updates.json
    python benchmarks/replayed_updates.py --tiny                                              smoke test

An update's time is the difference of two iterations, one of them with half the updates. What the longer one takes
beside its updates is the rollout, replay included.

The floor of an update evaluates the same networks for as many states and actions, and takes the same gradients. Its
optimiser and moving averages are those of the networks. It samples nothing, and has no targets, losses, weights,
divergences, temperatures, multipliers or metrics.
The floor of a step has the same physics and network evaluations: those of the search, where the algorithm has one. Its
actions follow from the evaluation before, as in a search.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import _timing
import jax
import jax.numpy as jnp
import optax

from spo import presets
from spo.algorithms.base import vmap_over
from spo.algorithms.packing import move_average
from spo.algorithms.updates import adam, gradient_step, run_updates
from spo.environments.registry import make
from spo.networks import ActorCritic, QNetwork, make_network, make_q_network
from spo.networks.config import make_architecture
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import DEVICE_AXIS, ContinuousActions, Environment

TINY = {"num_envs": 8, "rollout_length": 2, "num_updates": 4, "replay_size": 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["mpo", "smc_ent"], choices=["mpo", "smc_ent"])
    parser.add_argument("--task", default="paper/ant", help="preset with continuous actions")
    parser.add_argument("--dtype", default="float32", help="data type in which the network computes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()
    rows = []
    for algorithm in options.algorithms:
        rows.append(measure(experiment(algorithm, options), options) | _timing.provenance())
        _timing.write_rows(rows, options.out)
        print(sentence(rows[-1]), flush=True)


def experiment(algorithm: str, options: argparse.Namespace) -> Experiment:
    chosen = presets.get(options.task, algorithm)
    if not isinstance(make(chosen.task, **chosen.task_options).train.action_spec, ContinuousActions):
        raise SystemExit(f"{options.task} has discrete actions: choose a --task with continuous ones, as paper/ant.")
    sizes = {"batch_size": 8 if algorithm == "mpo" else 64, **TINY} if options.tiny else {}
    network = dataclasses.replace(chosen.network, dtype=options.dtype)
    if options.tiny:
        network = dataclasses.replace(network, width=16, depth=2)
    return dataclasses.replace(chosen, config=dataclasses.replace(chosen.config, **sizes), network=network)


def measure(chosen: Experiment, options: argparse.Namespace) -> dict[str, Any]:
    """Returns a row: milliseconds of an update and of a rollout step, and of their floors."""
    num_updates, num_steps = chosen.config.num_updates, chosen.config.rollout_length
    fewer = dataclasses.replace(chosen, config=dataclasses.replace(chosen.config, num_updates=num_updates // 2))
    makers = [(iteration, chosen), (iteration, fewer), (floor_of_updates, chosen), (floor_of_rollout, chosen)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        programs = [future.result() for future in [pool.submit(*maker) for maker in makers]]
    whole, half, updates, steps = (_timing.typical_seconds(program, options.repeats)[0] for program in programs)
    update, update_floor = (whole - half) / (num_updates - num_updates // 2), updates / num_updates
    step, step_floor = (whole - num_updates * update) / num_steps, steps / num_steps
    floor_of_iteration = num_updates * update_floor + num_steps * step_floor
    return {
        "algorithm": chosen.algorithm,
        "task": chosen.task,
        "num_envs": chosen.config.num_envs,
        "dtype": options.dtype,
        "num_updates": num_updates,
        "rollout_length": num_steps,
        "update_ms": 1e3 * update,
        "update_floor_ms": 1e3 * update_floor,
        "update_over_floor": update / update_floor,
        "step_ms": 1e3 * step,
        "step_floor_ms": 1e3 * step_floor,
        "step_over_floor": step / step_floor,
        "iteration_ms": 1e3 * whole,
        "iteration_over_floor": whole / floor_of_iteration,
        "env_steps_per_second": chosen.config.num_envs * num_steps / whole,
    }


def iteration(chosen: Experiment) -> Callable[[], Any]:
    """Returns the compiled program of one iteration, from the state after two of them: the replay then has data."""
    trainer = Trainer(chosen)
    run = trainer.run_fn.lower(trainer.abstract_state, 1).compile()
    state = trainer.init_fn(jax.random.key(0))
    for _ in range(2):
        state, _ = run(state)
    return functools.partial(run, jax.block_until_ready(state))


# --- Floors -----------------------------------------------------------------------------------------------------------


class Networks(NamedTuple):
    """The policy's network and that of Q, without the names of the algorithms' modules."""

    actor: ActorCritic
    q: QNetwork
    twins: bool

    def policy(self, params: Any, observation: Any) -> Any:
        return self.actor.actor(params["actor"], observation, None)

    def values(self, params: Any, observation: Any, actions: Any) -> Any:
        """Returns Q of several actions, by both networks if there are two."""
        values_of = jax.vmap(self.q.values_of, in_axes=(0, None, None)) if self.twins else self.q.values_of
        return values_of(params["q"], observation, actions)


class Learner(NamedTuple):
    params: dict[str, Any]
    target_params: dict[str, Any]  # moving averages of some of them
    optimiser: Any


class Batch(NamedTuple):
    """Random numbers in place of states and actions from the replay buffer."""

    observations: Any
    actions: Any


def make_networks(chosen: Experiment, environment: Environment) -> tuple[Networks, dict[str, Any]]:
    """Returns the networks of an algorithm and their initial parameters."""
    specs = (environment.observation_spec, environment.action_spec, make_architecture(environment, chosen.network))
    networks = Networks(make_network(*specs), make_q_network(*specs), twins=chosen.algorithm == "smc_ent")
    key = jax.random.key(0)
    init_q = functools.partial(networks.q.init, spec=environment.observation_spec)
    return networks, {
        "actor": networks.actor.init(key, environment.observation_spec)._replace(critic={}),
        "q": jax.lax.map(init_q, jax.random.split(key)) if networks.twins else init_q(key),
    }


def floor_of_updates(chosen: Experiment) -> Callable[[], Any]:
    """Returns the compiled program of the evaluations and gradients of an iteration's updates."""
    config, environment = chosen.config, make(chosen.task, **chosen.task_options).train
    networks, params = make_networks(chosen, environment)
    optimiser = make_optimiser(config)
    loss, targets, replay = (mpo_update if chosen.algorithm == "mpo" else sac_update)(networks, config, environment)

    def update(replay: Batch, learner: Learner, index: Any) -> tuple[Learner, dict[str, Any]]:
        # Each update has its own batch. Otherwise XLA would compute the input of the networks once for all updates.
        batch = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, index, config.batch_size), replay)
        learner, metrics = gradient_step(learner, functools.partial(loss, batch=batch), optimiser)
        params = {name: learner.params[name] for name in learner.target_params}
        target_params = move_average(learner.target_params, params, config.target_smoothing)
        # Added up, so that none is left out.
        metrics = {"targets": total(targets(learner, batch)), "loss": metrics["loss"]}
        return learner._replace(target_params=target_params), metrics

    def program(learner: Learner, replay: Batch) -> Any:
        indices = jnp.arange(config.num_updates)
        return run_updates(functools.partial(update, replay), learner, indices, skip_nonfinite=False)

    averaged = params if chosen.algorithm == "mpo" else {"q": params["q"]}
    on_one_device = jax.vmap(program, axis_name=DEVICE_AXIS)
    start = jax.tree.map(lambda x: x[None], (Learner(params, averaged, optimiser.init(params)), replay))
    return functools.partial(jax.jit(on_one_device).lower(*start).compile(), *start)


def make_optimiser(config: Any) -> optax.GradientTransformation:
    """Returns the algorithm's optimiser of policy and Q. The length of a decay does not change its time."""
    decay_updates = config.num_updates if getattr(config, "decay_learning_rates", False) else None
    rates = {"actor": config.actor_learning_rate, "q": config.critic_learning_rate}
    optimisers = {name: adam(rate, config.max_grad_norm, decay_updates=decay_updates) for name, rate in rates.items()}
    return optax.multi_transform(optimisers, {name: name for name in rates})


def mpo_update(networks: Networks, config: Any, environment: Environment) -> tuple[Callable, Callable, Batch]:
    """Returns the evaluations of an update that have gradients, those of the target networks, and their inputs."""
    states = (config.batch_size, config.sequence_length)
    over_states = functools.partial(over, num_axes=len(states))

    def loss(params: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        observations, actions = batch.observations[:, :-1], batch.actions[:, :-1, :1]
        policies = over_states(networks.policy)(params, observations)
        summed = total((policies, over_states(networks.values)(params, observations, actions)))
        return summed, {"loss": summed}

    def targets(learner: Learner, batch: Batch) -> Any:
        policies = over_states(networks.policy)(learner.target_params, batch.observations)
        return policies, over_states(networks.values)(learner.target_params, *batch)

    return loss, targets, make_replay(environment, config, (config.sequence_length + 1,), config.num_samples)


def sac_update(networks: Networks, config: Any, environment: Environment) -> tuple[Callable, Callable, Batch]:
    """Returns the evaluations of an update that have gradients, those of the target networks, and their inputs."""

    def loss(params: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        policies = over(networks.policy, 1)(params, batch.observations)
        frozen, drawn = params | {"q": jax.lax.stop_gradient(params["q"])}, policies.mean + policies.scale
        of_policy = over(networks.values, 1)(frozen, batch.observations, drawn[:, None])
        summed = total((of_policy, over(networks.values, 1)(params, *batch)))
        return summed, {"loss": summed}

    def targets(learner: Learner, batch: Batch) -> Any:
        policies = over(networks.policy, 1)(learner.params, batch.observations)
        return over(networks.values, 1)(learner.target_params, batch.observations, policies.mean[:, None])

    return loss, targets, make_replay(environment, config, (), 1)


def floor_of_rollout(chosen: Experiment) -> Callable[[], Any]:
    """Returns the compiled program of the physics and evaluations of a rollout."""
    config, task = chosen.config, make(chosen.task, **chosen.task_options)
    environment = task.model
    networks, params = make_networks(chosen, environment)
    key = jax.random.key(1)
    state, timestep = jax.vmap(environment.reset)(jax.random.split(key, config.num_envs))
    noise = jax.random.normal(key, (getattr(config, "num_value_samples", 1), environment.action_spec.size))

    def evaluate(params: Any, observation: Any) -> tuple[Any, Any]:
        policy = networks.policy(params, observation)
        if not networks.twins:
            return policy.mean, total(policy)
        candidates = jnp.tanh(policy.mean + policy.scale * noise)
        return candidates[0], total(networks.values(params, observation, candidates))

    def advance(num_axes: int, params: Any, carry: Any) -> Any:
        """Evaluates the states and steps each by an action of the policy there."""
        state, observation, summed = carry
        action, values = nested(evaluate, num_axes)(params, observation)
        state, timestep = nested(lambda _, *inputs: environment.step(key, *inputs), num_axes)(params, state, action)
        return state, timestep.observation, summed + values

    def search(params: Any, carry: Any) -> Any:
        particles = jax.tree.map(
            lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], config.search.num_particles, *x.shape[1:])), carry
        )
        # One evaluation more than steps: that of the root. Its particles share it.
        (state, observation, summed), _ = jax.lax.scan(
            lambda carry, _: (advance(2, params, carry), None), particles, None, config.search.horizon
        )
        return jnp.sum(summed, axis=1) + jnp.sum(observation, axis=(1, 2)) + total(state) * 0.0

    def step(params: Any, carry: Any) -> Any:
        state, observation, summed = carry
        found = search(params, carry) if networks.twins else 0.0
        return advance(1, params, (state, observation, summed + found))

    def program(params: Any, carry: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (step(params, carry), None), carry, None, config.rollout_length)[0]

    start = (state, timestep.observation, jnp.zeros(config.num_envs))
    return functools.partial(jax.jit(program).lower(params, start).compile(), params, start)


def make_replay(environment: Environment, config: Any, sequence: tuple[int, ...], num_actions: int) -> Batch:
    """Returns random observations and actions. The batch of an update begins one state, or sequence, after the last."""
    key_observation, key_action = jax.random.split(jax.random.key(2))
    shape = (config.batch_size + config.num_updates - 1, *sequence)
    observations = jax.random.normal(key_observation, (*shape, *environment.observation_spec.shape))
    sizes = (*shape, num_actions, environment.action_spec.size)
    return Batch(observations, jax.random.uniform(key_action, sizes, minval=-1.0, maxval=1.0))


def over(function: Callable, num_axes: int) -> Callable:
    """Returns the function of (params, ...) over leading axes of the other arguments, as updates map it."""

    def batched(params: Any, *arguments: Any) -> Any:
        return vmap_over(functools.partial(function, params), num_axes)(*arguments)

    return batched


def nested(function: Callable, num_axes: int) -> Callable:
    """Computes `over` by one `jax.vmap` for each axis, as the search maps it."""

    def batched(params: Any, *arguments: Any) -> Any:
        mapped = functools.partial(function, params)
        for _ in range(num_axes):
            mapped = jax.vmap(mapped)
        return mapped(*arguments)

    return batched


def total(tree: Any) -> Any:
    return sum(jnp.sum(leaf, dtype=jnp.float32) for leaf in jax.tree.leaves(tree))


def sentence(row: dict[str, Any]) -> str:
    return (
        f"{row['algorithm']} on {row['task']}: update {row['update_ms']:.3g} ms, {row['update_over_floor']:.2f} x its "
        f"floor; step of all environments {row['step_ms']:.3g} ms, {row['step_over_floor']:.2f} x; iteration "
        f"{row['iteration_over_floor']:.2f} x; {row['env_steps_per_second']:,.0f} env-steps/s"
    )


if __name__ == "__main__":
    main()
