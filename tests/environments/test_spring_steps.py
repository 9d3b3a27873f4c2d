"""The fused physics against Brax's own, in double precision, in every environment that has it.

Every comparison is over one step, from states that Brax itself has reached. Over an episode two programs diverge,
because the physics is chaotic.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax")

from brax import envs

from environments import spring_steps
from spo.environments import brax as adapter
from spo.environments.spring import fused_environment
from spo.environments.spring.bodies import PLANAR, SPATIAL

TOLERANCE = 1e-9
PLANAR_NAMES = {"halfcheetah", "hopper", "inverted_double_pendulum", "inverted_pendulum", "walker2d"}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def _to_spring(fused, numbers):
    """The fused state of the 13 numbers of each body."""
    x_i = SimpleNamespace(pos=numbers[..., 0:3], rot=numbers[..., 3:7])
    return fused.from_brax(
        SimpleNamespace(x_i=x_i, xd_i=SimpleNamespace(vel=numbers[..., 7:10], ang=numbers[..., 10:]))
    )


def _check_equal(env, steps, **compiler_options):
    """Compares one fused step from each of Brax's states with Brax's step."""
    fused = fused_environment(env)

    def step(numbers, action):
        state = envs.State(_to_spring(fused, numbers), obs=None, reward=jnp.zeros(()), done=jnp.zeros(()))
        after = fused.step(state, action)
        view = fused.view(after.pipeline_state)
        return after.pipeline_state.bodies, view.q, view.qd, after.obs, after.reward, after.done

    with jax.numpy_rank_promotion("allow"):
        program = jax.jit(jax.vmap(step)).lower(steps.before, steps.action)
    bodies, q, qd, observation, reward, done = program.compile(compiler_options)(steps.before, steps.action)
    assert observation.dtype == np.float64
    np.testing.assert_array_equal(done, steps.done)
    pairs = {
        "bodies": (bodies, _to_spring(fused, steps.after).bodies),
        "q": (q, steps.q),
        "qd": (qd, steps.qd),
        "observation": (observation, steps.observation),
        "reward": (reward, steps.reward),
    }
    for quantity, (ours, theirs) in pairs.items():
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE, err_msg=quantity)
    return bodies.shape[-1]


# --- Some steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", spring_steps.STORED)
def test_stored_steps(name):
    """Some of the steps of random play, chosen so that every contact and every limit that it reached is among them."""
    steps = spring_steps.stored(name)
    assert np.ptp(steps.observation, axis=0).max() > 0.1, "a body at rest would prove nothing"
    num_numbers = _check_equal(envs.get_environment(name, backend="spring"), steps, xla_backend_optimization_level=0)
    assert num_numbers == len(PLANAR if name in PLANAR_NAMES else SPATIAL)


@pytest.mark.parametrize("name", sorted(PLANAR_NAMES))
def test_brax_stays_in_the_plane(name):
    """The numbers that a planar state leaves out are zero in Brax."""
    others = [index for index in SPATIAL if index not in PLANAR]
    steps = spring_steps.stored(name)
    assert np.abs(steps.before[..., others]).max() < TOLERANCE
    assert np.abs(steps.after[..., others]).max() < TOLERANCE


# --- A thousand steps ------------------------------------------------------------------------------------------------


#: Contact points that random play does not reach: the head of a walker, and one end of a thigh of a lying humanoid.
CONTACTS_OUT_OF_REACH = {"walker2d": 2, "humanoidstandup": 1}
#: Least number of joints that go beyond their limits.
LIMITS_REACHED = {
    "ant": 8,
    "halfcheetah": 6,
    "hopper": 3,
    "humanoid": 11,
    "humanoidstandup": 11,
    "inverted_double_pendulum": 1,
    "inverted_pendulum": 1,
    "reacher": 1,
    "walker2d": 6,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", spring_steps.NAMES)
def test_a_thousand_steps(name):
    env, *played = spring_steps.play(name)
    steps = spring_steps.to_steps(*played)
    assert len(steps.done) == 1000
    _check_equal(env, steps)
    seen = spring_steps.coverage(env, played[0])
    assert (~seen.touching.any(axis=0)).sum() <= CONTACTS_OUT_OF_REACH.get(name, 0)
    assert seen.beyond_limits.any(axis=0).sum() >= LIMITS_REACHED[name]


# --- Which environments ----------------------------------------------------------------------------------------------


def test_environments_with_fused_physics():
    assert [name for name in adapter.names() if adapter.why_not_fused(name) is None] == list(spring_steps.NAMES)
