"""Time of one gradient update of MPO and SMC-ENT, and of one environment step in all environments, beside their floors.

    python benchmarks/replayed_updates.py --out results/benchmarks/h200/replayed_updates.json
    python benchmarks/replayed_updates.py --tiny                                              smoke test

An update's time is the difference of two iterations, one of them with half the updates. What the longer one takes
beside its updates is the rollout, replay included.

The floor of an update evaluates the same networks for as many states and actions, takes the same gradients, and runs
the same optimiser and moving average. It samples nothing, and has no targets, losses, weights, divergences or metrics.
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

from spo import presets
from spo.algorithms.packing import move_average
from spo.algorithms.updates import adam, gradient_step, run_updates
from spo.environments.registry import make
from spo.networks import ActorCritic, QNetwork, make_network, make_q_network
from spo.networks.config import make_architecture
from spo.training.experiment import Experiment
from spo.training.trainer import Trainer
from spo.types import DEVICE_AXIS, Environment

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
    target_params: dict[str, Any]
    optimiser: Any


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
    optimiser = adam(config.critic_learning_rate, config.max_grad_norm)
    loss_and_targets = (mpo_update if chosen.algorithm == "mpo" else sac_update)(networks, config, environment)

    def update(learner: Learner, _: Any) -> tuple[Learner, dict[str, Any]]:
        loss, targets = loss_and_targets
        learner, metrics = gradient_step(learner, loss, optimiser)
        target_params = move_average(learner.target_params, learner.params, config.target_smoothing)
        # Added up, so that none is left out.
        metrics = {"targets": total(targets(learner)), "loss": metrics["loss"]}
        return learner._replace(target_params=target_params), metrics

    def program(learner: Learner) -> Any:
        return run_updates(update, learner, jnp.arange(config.num_updates), skip_nonfinite=False)

    learner = Learner(params, params, optimiser.init(params))
    on_one_device = jax.vmap(program, axis_name=DEVICE_AXIS)
    start = jax.tree.map(lambda x: x[None], learner)
    return functools.partial(jax.jit(on_one_device).lower(start).compile(), start)


def mpo_update(networks: Networks, config: Any, environment: Environment) -> tuple[Callable, Callable]:
    """Returns the evaluations of an update that have gradients, and those of the target networks."""
    states = (config.batch_size, config.sequence_length)
    observations, actions = inputs(environment, (config.batch_size, config.sequence_length + 1), config.num_samples)

    def loss(params: Any) -> tuple[Any, dict[str, Any]]:
        policies = over(networks.policy, len(states))(params, observations[:, :-1])
        values = over(networks.values, len(states))(params, observations[:, :-1], actions[:, :-1, :1])
        summed = total((policies, values))
        return summed, {"loss": summed}

    def targets(learner: Learner) -> Any:
        policies = over(networks.policy, len(states))(learner.target_params, observations)
        return policies, over(networks.values, len(states))(learner.target_params, observations, actions)

    return loss, targets


def sac_update(networks: Networks, config: Any, environment: Environment) -> tuple[Callable, Callable]:
    """Returns the evaluations of an update that have gradients, and those of the target networks."""
    observations, actions = inputs(environment, (config.batch_size,), 1)

    def loss(params: Any) -> tuple[Any, dict[str, Any]]:
        policies = over(networks.policy, 1)(params, observations)
        frozen = params | {"q": jax.lax.stop_gradient(params["q"])}
        of_policy = over(networks.values, 1)(frozen, observations, policies.mean[:, None] + policies.scale[:, None])
        summed = total((of_policy, over(networks.values, 1)(params, observations, actions)))
        return summed, {"loss": summed}

    def targets(learner: Learner) -> Any:
        policies = over(networks.policy, 1)(learner.params, observations)
        return over(networks.values, 1)(learner.target_params, observations, policies.mean[:, None])

    return loss, targets


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
        action, values = over(evaluate, num_axes)(params, observation)
        state, timestep = over(lambda _, *inputs: environment.step(key, *inputs), num_axes)(params, state, action)
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


def inputs(environment: Environment, shape: tuple[int, ...], num_actions: int) -> tuple[Any, Any]:
    """Returns random observations and actions for a batch of states."""
    key_observation, key_action = jax.random.split(jax.random.key(2))
    observations = jax.random.normal(key_observation, (*shape, *environment.observation_spec.shape))
    sizes = (*shape, num_actions, environment.action_spec.size)
    return observations, jax.random.uniform(key_action, sizes, minval=-1.0, maxval=1.0)


def over(function: Callable, num_axes: int) -> Callable:
    """Returns the function of (params, ...) over leading axes of all arguments but the parameters."""

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
