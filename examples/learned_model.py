"""Search with a learned model: a pendulum is swung up by planning with a network that was trained on what was seen.

    python examples/learned_model.py

The search takes a model as a function. This one is a small network that predicts the next state from a state and a
torque. It starts from episodes with random torques. In each round the network is trained on all episodes so far, and
the search then acts with the network as its model. After two rounds the return is close to that of the same search with
the true pendulum as its model. There is no policy network and no value network: particles draw random torques.

Needs optax, which `pip install '.[train]'` installs.
"""

import functools
import math

import jax
import jax.numpy as jnp
import optax

from spo import distributions
from spo.search import ModelOutput, Resampling, Root, search

TIME_STEP, GRAVITY, MAX_TORQUE, MAX_SPEED = 0.1, 10.0, 2.0, 8.0
NUM_STEPS, NUM_EPISODES, NUM_ROUNDS = 60, 16, 2
NUM_PARTICLES, HORIZON, TEMPERATURE = 128, 16, 2.0
HIDDEN, NUM_UPDATES, BATCH_SIZE = 64, 3000, 128


# --- The pendulum -----------------------------------------------------------------------------------------------------
def step(state, action):
    """Returns the next state (angle, speed) and the reward. The angle is 0 at the top."""
    angle, speed = state
    torque = MAX_TORQUE * jnp.tanh(action[0])
    cost = wrap(angle) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = speed + TIME_STEP * (1.5 * GRAVITY * jnp.sin(angle) + 3.0 * torque)
    speed = jnp.clip(speed, -MAX_SPEED, MAX_SPEED)
    return jnp.stack([angle + TIME_STEP * speed, speed]), -cost


def wrap(angle):
    """Returns the same angle in (-π, π]."""
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))


# --- The learned model ------------------------------------------------------------------------------------------------
def init_params(key):
    sizes = (4, HIDDEN, HIDDEN, 2)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(key, (before, after)) * math.sqrt(2 / before), jnp.zeros(after))
        for key, before, after in zip(keys, sizes, sizes[1:], strict=False)
    ]


def predict(params, state, action):
    """Returns the next state that the network predicts, as the present one and a learned change."""
    angle, speed = state
    x = jnp.stack([jnp.cos(angle), jnp.sin(angle), speed / MAX_SPEED, jnp.tanh(action[0])])
    for weights, bias in params[:-1]:
        x = jax.nn.silu(x @ weights + bias)
    weights, bias = params[-1]
    return state + x @ weights + bias


def learned_step(params, state, action):
    """Returns the predicted next state, and the reward, which is known."""
    return predict(params, state, action), step(state, action)[1]


@jax.jit
def fit(key, params, transitions):
    """Returns the network after NUM_UPDATES steps of Adam on the squared error of the next state."""
    states, actions, next_states = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), transitions)
    optimiser = optax.adam(optax.cosine_decay_schedule(3e-3, NUM_UPDATES))

    def loss(params, rows):
        predicted = jax.vmap(predict, in_axes=(None, 0, 0))(params, states[rows], actions[rows])
        return jnp.mean((predicted - next_states[rows]) ** 2)

    def update(carry, key):
        params, optimiser_state = carry
        value, gradient = jax.value_and_grad(loss)(params, jax.random.randint(key, (BATCH_SIZE,), 0, len(states)))
        changes, optimiser_state = optimiser.update(gradient, optimiser_state)
        return (optax.apply_updates(params, changes), optimiser_state), value

    (params, _), losses = jax.lax.scan(update, (params, optimiser.init(params)), jax.random.split(key, NUM_UPDATES))
    return params, jnp.mean(losses[-100:])


# --- Acting -----------------------------------------------------------------------------------------------------------
def random_policy(_state=None) -> distributions.Gaussian:
    return distributions.Gaussian(mean=jnp.zeros(1), scale=jnp.ones(1))


def act_at_random(key, states):
    policies = jax.vmap(random_policy)(states)
    return jax.vmap(distributions.gaussian.sample)(jax.random.split(key, len(states)), policies)


def act_by_search(step_fn, key, states):
    """Returns the first action with the largest weight, of a search whose model is `step_fn`."""

    def model_fn(_key, state, action) -> ModelOutput:
        state, reward = step_fn(state, action)
        no_value = jnp.zeros(())  # the search sees HORIZON steps and nothing beyond
        return ModelOutput(state, random_policy(), no_value, reward, jnp.ones(()), jnp.zeros((), bool))

    root = Root(prior=jax.vmap(random_policy)(states), value=jnp.zeros(len(states)), state=states)
    output = search(
        key,
        root,
        model_fn,
        num_particles=NUM_PARTICLES,
        horizon=HORIZON,
        temperature=TEMPERATURE,
        resampling=Resampling(2, ess_below=0.5),
        distribution=distributions.gaussian,
        unroll=1,
    )
    return output.best_action


@functools.partial(jax.jit, static_argnames="act")
def play(key, act, *arguments):
    """Plays NUM_EPISODES episodes in the pendulum. Returns the transitions and the mean return."""
    key_start, key_steps = jax.random.split(key)

    def advance(states, key):
        actions = act(*arguments, key, states)
        next_states, rewards = jax.vmap(step)(states, actions)
        return next_states, ((states, actions, next_states), rewards)

    # Every episode starts near the bottom, at rest.
    angles = math.pi + jax.random.uniform(key_start, (NUM_EPISODES,), minval=-0.5, maxval=0.5)
    starts = jnp.stack([angles, jnp.zeros(NUM_EPISODES)], axis=1)
    _, (transitions, rewards) = jax.lax.scan(advance, starts, jax.random.split(key_steps, NUM_STEPS))
    return transitions, jnp.mean(jnp.sum(rewards, axis=0))


def act_with_network(params, key, states):
    return act_by_search(functools.partial(learned_step, params), key, states)


def act_with_truth(key, states):
    return act_by_search(step, key, states)


def main() -> dict[str, float]:
    key_init, key_random, key_truth, *round_keys = jax.random.split(jax.random.key(0), 3 + NUM_ROUNDS)
    params = init_params(key_init)
    seen, random_return = play(key_random, act_at_random)
    returns = {"random torques": float(random_return)}
    for number, key in enumerate(round_keys, start=1):
        key_fit, key_play = jax.random.split(key)
        params, error = fit(key_fit, params, seen)
        transitions, mean_return = play(key_play, act_with_network, params)
        seen = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), seen, transitions)
        returns[f"learned model, round {number}"] = float(mean_return)
        print(f"round {number}: squared error {error:.2g}, return {mean_return:.0f}")
    returns["true model"] = float(play(key_truth, act_with_truth)[1])
    print(f"Mean return of {NUM_EPISODES} episodes of {NUM_STEPS} steps (higher is better):")
    for name, mean_return in returns.items():
        print(f"  {name:24s} {mean_return:8.1f}")
    return returns


if __name__ == "__main__":
    main()
