"""The adapter against Brax itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax")
pytestmark = [
    pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System, piplines and environments are not actively:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing `(contact|ncon)` directly from `Data`:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There are no graphics devices:UserWarning"),
]

from spo.environments._adapters import mujoco_warnings_to_log  # noqa: E402
from spo.environments.brax import brax, names  # noqa: E402
from spo.types import ContinuousActions  # noqa: E402

NUM_STEPS, TIME_LIMIT = 20, 8


@pytest.fixture(scope="module")
def ant():
    return brax("ant", physics="brax", time_limit=TIME_LIMIT).train


@pytest.fixture(scope="module")
def played_ant(ant):
    """Random play past the time limit: the start, then states and time steps stacked over time."""
    return jax.jit(lambda key: _play(ant, key))(jax.random.key(7))


class Pendulum:
    """A small environment, quick to compile. Reset and steps are compiled once."""

    def __init__(self):
        env = brax("inverted_pendulum").train
        self.starts, self.first_timesteps = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4))

        def body(state, action):
            return env.step(jax.random.key(0), state, action)

        # 100 steps with one action: (state, action) -> time steps.
        self.play = jax.jit(
            lambda state, action: jax.lax.scan(body, state, jnp.broadcast_to(action, (100, *action.shape)))[1]
        )


@pytest.fixture(scope="module")
def pendulum():
    return Pendulum()


def test_warnings_of_mujoco_are_logged_and_leave_no_file(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    brax("halfcheetah")
    assert list(tmp_path.iterdir()) == []
    mujoco = pytest.importorskip("mujoco")
    model = "<mujoco><compiler settotalmass='1'/><worldbody><body><geom size='1'/></body></worldbody></mujoco>"
    with mujoco_warnings_to_log():
        mujoco.MjModel.from_xml_string(model)
    assert list(tmp_path.iterdir()) == []
    assert "settotalmass" in caplog.text


def _play(env, key):
    key_reset, key_actions = jax.random.split(key)
    state, start = env.reset(key_reset)
    actions = jax.random.uniform(key_actions, (NUM_STEPS, env.action_spec.size), minval=-1.0, maxval=1.0)

    def body(state, action):
        next_state, timestep = env.step(jax.random.key(0), state, action)
        return next_state, (next_state, timestep)

    _, (states, timesteps) = jax.lax.scan(body, state, actions)
    return start, states, timesteps


def _check_equal_to_brax(name, played):
    """Compares random play by the adapter with Brax's own environment. Both are compiled as a scan of the step."""
    from brax import envs

    raw = envs.get_environment(name, backend="spring")

    def play_raw(key):
        key_reset, key_actions = jax.random.split(key)
        state = raw.reset(key_reset)
        actions = jax.random.uniform(key_actions, (NUM_STEPS, raw.action_size), minval=-1.0, maxval=1.0)
        # Brax returns some leaves with a weak type, which a scan refuses.
        specs = jax.tree.map(lambda leaf: leaf.dtype, state)

        def body(state, action):
            state = jax.tree.map(jax.lax.convert_element_type, raw.step(state, action), specs)
            return state, (state.obs, state.reward, state.done, state.metrics)

        return state.obs, jax.lax.scan(body, state, actions)[1]

    start, _, timesteps = played
    with jax.numpy_rank_promotion("allow"):
        raw_start, (observations, rewards, dones, metrics) = jax.jit(play_raw)(jax.random.key(7))
    assert float(jnp.ptp(observations, axis=0).max()) > 0.1, "a body at rest would prove nothing"
    np.testing.assert_allclose(start.observation, raw_start, atol=1e-6)
    # Two programs have two orders of summation, and contacts amplify the rounding.
    np.testing.assert_allclose(timesteps.observation, observations, atol=2e-3, rtol=2e-3)
    np.testing.assert_allclose(timesteps.reward, rewards, atol=2e-3, rtol=2e-3)
    np.testing.assert_array_equal(timesteps.terminated, dones.astype(bool))
    assert timesteps.metrics.keys() == metrics.keys()


def test_ant_plays_like_brax(played_ant):
    _check_equal_to_brax("ant", played_ant)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["halfcheetah", "humanoid", "inverted_pendulum"])
def test_plays_like_brax(name):
    env = brax(name, physics="brax").train
    _check_equal_to_brax(name, jax.jit(lambda key: _play(env, key))(jax.random.key(7)))


def test_terminates_like_brax_and_does_not_reset(pendulum):
    # With full force the pendulum falls within a hundred steps, and Brax ends the episode. It does not rise again.
    timesteps = pendulum.play(jax.tree.map(lambda leaf: leaf[0], pendulum.starts), jnp.ones(1))
    assert not timesteps.terminated[0]
    first = int(jnp.argmax(timesteps.terminated))
    assert first > 0
    assert timesteps.terminated[first : first + 5].all()
    np.testing.assert_array_equal(timesteps.discount, 1.0 - timesteps.terminated)
    assert not timesteps.truncated.any()


@pytest.mark.parametrize(
    ("name", "observations", "actions"), [("ant", 27, 8), ("halfcheetah", 17, 6), ("humanoid", 244, 17)]
)
def test_sizes(name, observations, actions):
    env = brax(name).train
    assert env.observation_spec.shape == (observations,)
    assert env.action_spec == ContinuousActions(actions, -1.0, 1.0)


def test_layout_is_the_same_after_reset_and_step(ant):
    start = jax.eval_shape(ant.reset, jax.random.key(0))
    after = jax.eval_shape(ant.step, jax.random.key(1), start[0], jax.ShapeDtypeStruct((8,), jnp.float32))
    assert jax.tree.structure(start) == jax.tree.structure(after)
    for before, then in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype) == (then.shape, then.dtype)
        assert not before.weak_type
        assert not then.weak_type


def test_state_keeps_only_what_a_step_reads(ant):
    state, timestep = jax.eval_shape(ant.reset, jax.random.key(0))
    assert set(state.inner._fields) == {"pipeline_state", "info"}
    assert state.inner.info == {}
    assert timestep.action_mask is None


def test_time_limit_truncates(played_ant):
    start, _, timesteps = played_ant
    assert not start.truncated
    np.testing.assert_array_equal(timesteps.truncated, np.arange(1, NUM_STEPS + 1) >= TIME_LIMIT)
    assert not timesteps.terminated.any()


def test_every_reset_draws_a_fresh_start(pendulum):
    for leaf in (pendulum.starts.inner.pipeline_state.bodies[..., 0, 0], pendulum.first_timesteps.observation):
        assert len(np.unique(np.asarray(leaf), axis=0)) == 4


def test_a_nan_is_passed_on(pendulum):
    state = jax.tree.map(lambda leaf: leaf[0], pendulum.starts)
    with_nan = state._replace(
        inner=state.inner._replace(
            pipeline_state=jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), state.inner.pipeline_state)
        )
    )
    timesteps = pendulum.play(with_nan, jnp.zeros(1))
    assert jnp.isnan(timesteps.observation[0]).all()


def test_pictures(ant, played_ant):
    _, states, _ = played_ant
    first, last = (ant.render(jax.tree.map(lambda leaf: leaf[index], states)) for index in (0, -1))  # noqa: B023
    assert first.shape == (240, 320, 3)
    assert first.dtype == np.uint8
    assert (first != last).any()
    brown = (first[..., 0] > first[..., 2]).mean()  # the ant; sky and floor are bluish
    assert 0.01 < brown < 0.5


def test_names():
    assert {"ant", "halfcheetah", "humanoid", "walker2d"} <= set(names())
    assert "fast" not in names()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "aunt"}, "no environment 'aunt'.*Did you mean 'brax/ant'"),
        ({"name": "ant", "backend": "springs"}, "no backend 'springs': choose one of generalized"),
        ({"name": "ant", "gravity": 3}, "no option 'gravity': it takes .*ctrl_cost_weight"),
        ({"name": "swimmer"}, "needs the generalized backend"),
        ({"name": "ant", "time_limit": 0}, "at least one step"),
    ],
)
def test_bad_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        brax(**arguments)


def test_options_reach_brax():
    assert brax(
        "ant", physics="brax", exclude_current_positions_from_observation=False
    ).train.observation_spec.shape == (29,)
    assert brax("halfcheetah", exclude_current_positions_from_observation=False).train.observation_spec.shape == (18,)
