"""Writes learning_numbers.json: the quantities of `spo.returns` and `spo.losses` as rlax and distrax compute them.

    pip install "spo-jax[oracles]" && python tests/oracles/make_learning_numbers.py

Inputs are stored with the results: the tests need neither library. rlax has no truncation. If an episode ends inside a
trajectory, each episode is passed to it separately, with the value of its own last observation at the end.
"""

import itertools
import json
from pathlib import Path

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import rlax

jax.config.update("jax_enable_x64", True)
RNG = np.random.default_rng(20240711)


def normal(*shape, scale=1.0):
    return np.round(scale * RNG.normal(size=shape), 4)


def positive(*shape):
    return np.round(0.3 + RNG.uniform(size=shape), 4)


def episodes(ended):
    """Returns slices of one trajectory, one per episode (the last may be unfinished)."""
    edges = [0, *(np.flatnonzero(ended) + 1).tolist()]
    if edges[-1] != len(ended):
        edges.append(len(ended))
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def trajectory(num_steps=14):
    terminated, truncated = np.zeros(num_steps, bool), np.zeros(num_steps, bool)
    terminated[[3, 9]] = True
    truncated[[6, 10]] = True
    ended = terminated | truncated
    values = normal(num_steps)
    # Inside an episode, the next value is that of the next step. At its end, it is that of the last observation.
    next_values = np.where(ended, normal(num_steps), np.append(values[1:], normal()))
    return {
        "rewards": normal(num_steps),
        "values": values,
        "next_values": next_values,
        "terminated": terminated,
        "truncated": truncated,
    }


def make_gae():
    inputs = trajectory()
    gamma, gae_lambda = 0.97, 0.8
    advantages = []
    for episode in episodes(inputs["terminated"] | inputs["truncated"]):
        bootstrapped = np.append(inputs["values"][episode], inputs["next_values"][episode][-1])
        discounts = gamma * (1.0 - inputs["terminated"][episode])
        rewards = inputs["rewards"][episode]
        advantages.append(
            rlax.truncated_generalized_advantage_estimation(rewards, discounts, gae_lambda, jnp.asarray(bootstrapped))
        )
    return inputs | {"gamma": gamma, "gae_lambda": gae_lambda, "advantages": np.concatenate(advantages)}


def make_retrace():
    inputs = trajectory()
    # V(s') is the mean of Q under the target policy: a number at every step, independent of q_values.
    inputs["q_values"], inputs["next_values"] = inputs.pop("values"), normal(14)
    inputs["log_ratios"] = normal(14)
    gamma, retrace_lambda = 0.97, 0.9
    targets = []
    for episode in episodes(inputs["terminated"] | inputs["truncated"]):
        q_values, log_ratios = inputs["q_values"][episode], inputs["log_ratios"][episode]
        error = rlax.retrace_continuous(
            jnp.asarray(q_values),
            jnp.asarray(q_values[1:]),
            jnp.asarray(inputs["next_values"][episode]),
            jnp.asarray(inputs["rewards"][episode]),
            jnp.asarray(gamma * (1.0 - inputs["terminated"][episode])),
            jnp.asarray(log_ratios[1:]),
            retrace_lambda,
        )
        targets.append(error + q_values)
    return inputs | {"gamma": gamma, "retrace_lambda": retrace_lambda, "targets": np.concatenate(targets)}


def make_mpo_continuous(num_states=4, num_samples=6, size=3):
    """Returns the terms and gradients of MPO's loss, with decoupled Gaussians and a KL bound for every dimension."""
    inputs = {
        "old_mean": normal(num_states, size),
        "old_scale": positive(num_states, size),
        "mean": normal(num_states, size),
        "scale": positive(num_states, size),
        "actions": normal(num_states, num_samples, size),
        "q_values": normal(num_states, num_samples, scale=3.0),
        "temperature": 0.7,
        "multiplier_mean": positive(size),
        "multiplier_scale": positive(size),
        "bound_temperature": 0.1,
        "bound_mean": 0.05,
        "bound_scale": 0.0005,
    }
    old = distrax.Normal(inputs["old_mean"], inputs["old_scale"])

    def losses(trained):
        new_mean = distrax.Normal(trained["mean"], inputs["old_scale"])
        new_scale = distrax.Normal(inputs["old_mean"], trained["scale"])
        actions = inputs["actions"].transpose(1, 0, 2)
        log_probs = (new_mean.log_prob(actions) + new_scale.log_prob(actions)).sum(axis=-1)

        def constraint(new, name):
            penalty = rlax.LagrangePenalty(trained[f"multiplier_{name}"], inputs[f"bound_{name}"], per_dimension=True)
            return old.kl_divergence(new), penalty

        loss, parts = rlax.mpo_loss(
            log_probs,
            inputs["q_values"].T,
            rlax.LagrangePenalty(trained["temperature"], inputs["bound_temperature"]),
            [constraint(new_mean, "mean"), constraint(new_scale, "scale")],
        )
        return loss.mean(), parts

    names = ["mean", "scale", "temperature", "multiplier_mean", "multiplier_scale"]
    trained = {name: jnp.asarray(inputs[name]) for name in names}
    gradients, parts = jax.grad(losses, has_aux=True)(trained)
    return {
        "inputs": inputs,
        "weights": parts.normalized_weights.T,
        "policy_loss": parts.policy_loss,
        "temperature_loss": parts.temperature_loss,
        "penalty": parts.kl_loss,
        "dual": parts.alpha_loss,
        "gradients": gradients,
    }


def make_vmpo_discrete(num_states=9, num_actions=4):
    """Returns the terms and gradients of V-MPO's loss, with a categorical policy."""
    inputs = {
        "old_logits": normal(num_states, num_actions),
        "logits": normal(num_states, num_actions),
        "actions": RNG.integers(num_actions, size=num_states),
        "advantages": normal(num_states, scale=2.0),
        "temperature": 0.9,
        "multiplier": 1.7,
        "bound_temperature": 0.5,
        "bound": 0.001,
    }
    old = distrax.Categorical(logits=jnp.asarray(inputs["old_logits"]))

    def losses(trained):
        new = distrax.Categorical(logits=trained["logits"])
        loss, parts = rlax.vmpo_loss(
            new.log_prob(jnp.asarray(inputs["actions"])),
            jnp.asarray(inputs["advantages"]),
            rlax.LagrangePenalty(trained["temperature"], inputs["bound_temperature"]),
            [(old.kl_divergence(new), rlax.LagrangePenalty(trained["multiplier"], inputs["bound"]))],
        )
        return loss.mean(), parts

    trained = {name: jnp.asarray(inputs[name]) for name in ["logits", "temperature", "multiplier"]}
    gradients, parts = jax.grad(losses, has_aux=True)(trained)
    return {
        "inputs": inputs,
        "weights": parts.normalized_weights,
        "policy_loss": parts.policy_loss.mean(),
        "temperature_loss": parts.temperature_loss,
        "penalty": parts.kl_loss.mean(),
        "dual": parts.alpha_loss.mean(),
        "gradients": gradients,
    }


def make_clipped_surrogate(num_states=16):
    log_probs, old_log_probs = normal(num_states, scale=0.3) - 1.0, normal(num_states, scale=0.3) - 1.0
    advantages, clip_epsilon = normal(num_states), 0.1

    def loss(log_probs):
        ratios = jnp.exp(log_probs - old_log_probs)
        return rlax.clipped_surrogate_pg_loss(ratios, jnp.asarray(advantages), clip_epsilon)

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(log_probs))
    return {
        "log_probs": log_probs,
        "old_log_probs": old_log_probs,
        "advantages": advantages,
        "clip_epsilon": clip_epsilon,
        "loss": value,
        "gradient": gradient,
    }


def make_huber():
    errors, delta = normal(12, scale=2.0), 0.8
    return {"errors": errors, "delta": delta, "losses": rlax.huber_loss(jnp.asarray(errors), delta)}


def main():
    numbers = {
        "versions": {"rlax": rlax.__version__, "distrax": distrax.__version__, "jax": jax.__version__},
        "gae": make_gae(),
        "retrace": make_retrace(),
        "mpo_continuous": make_mpo_continuous(),
        "vmpo_discrete": make_vmpo_discrete(),
        "clipped_surrogate": make_clipped_surrogate(),
        "huber": make_huber(),
    }
    plain = jax.tree.map(lambda leaf: leaf if isinstance(leaf, str) else np.asarray(leaf).tolist(), numbers)
    Path(__file__).with_name("learning_numbers.json").write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
