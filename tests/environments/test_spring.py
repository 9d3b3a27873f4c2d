"""The fused physics of Ant against Brax's own in single precision, its kernel, and the environment around it.

`test_spring_steps` compares all environments with Brax in double precision. Every comparison is over one step, from
states that Brax itself has reached. Over an episode two programs diverge, because the physics is chaotic.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("brax")

from brax import envs

from environments.spring_steps import all_numbers
from spo.environments.brax import brax
from spo.environments.spring import SpringState, fused_environment, spring_physics
from spo.environments.spring.groups import group_links
from spo.environments.spring.substep import advance
from spo.environments.spring.system import read_system

BATCH, NUM_STEPS = 16, 120


def _play(env, key, batch, num_steps):
    """Random play in Brax: states before each step, actions, states after, with axes [steps, batch]."""
    key_reset, key_actions = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.split(key_reset, batch))
    # Beyond the motors' range: motors clip, the cost of control does not.
    actions = jax.random.uniform(
        key_actions, (num_steps, batch, env.action_size), start.obs.dtype, minval=-1.3, maxval=1.3
    )

    def body(before, action):
        after = jax.tree.map(
            lambda old, new: jax.lax.convert_element_type(new, old.dtype), before, jax.vmap(env.step)(before, action)
        )
        return after, (before, after)

    before, after = jax.lax.scan(body, start, actions)[1]
    return before, actions, after


def _fused_steps(env, before, actions):
    """One fused step from each of Brax's states."""
    fused = fused_environment(env)
    states = before.replace(pipeline_state=jax.vmap(jax.vmap(fused.from_brax))(before.pipeline_state))
    return jax.vmap(jax.vmap(fused.step))(states, actions)


def _deviations(after, fused):
    """Largest deviation of each quantity in each step."""
    ours, theirs = fused.pipeline_state.bodies, all_numbers(after.pipeline_state)
    pairs = {
        "bodies": (ours, theirs),
        "observation": (fused.obs, after.obs),
        "reward": (fused.reward, after.reward),
        **{name: (fused.metrics[name], value) for name, value in after.metrics.items()},
    }
    return {name: np.abs(np.asarray(a) - b).reshape(*after.done.shape, -1).max(-1) for name, (a, b) in pairs.items()}


@pytest.fixture(scope="module")
def raw():
    return envs.get_environment("ant", backend="spring")


@pytest.fixture(scope="module")
def played(raw):
    with jax.numpy_rank_promotion("allow"):
        before, actions, after = jax.jit(lambda key: _play(raw, key, BATCH, NUM_STEPS))(jax.random.key(5))
        return before, actions, after, jax.jit(lambda *given: _fused_steps(raw, *given))(before, actions)


@pytest.fixture(scope="module")
def some_states(played):
    """Seven states in the middle of an episode, with actions."""
    before, actions, _, _ = played
    return SpringState(all_numbers(before.pipeline_state)[60, :7]), actions[60, :7]


# --- Equal to Brax ---------------------------------------------------------------------------------------------------


def _foot_heights(x):
    """Heights of the centres of the feet, which are spheres of radius 0.08 at the ends of the lower legs."""
    heights = []
    for leg, (forward, left) in {2: (0.4, 0.4), 4: (-0.4, 0.4), 6: (-0.4, -0.4), 8: (0.4, -0.4)}.items():
        w, qx, qy, qz = np.moveaxis(np.asarray(x.rot[..., leg, :]), -1, 0)
        heights.append(x.pos[..., leg, 2] + 2 * forward * (qx * qz - w * qy) + 2 * left * (qy * qz + w * qx))
    return np.stack(heights)


def test_play_covers_all_parts_of_the_physics(played):
    """The states below include feet in the air and on the ground, joints at their limits, and falls."""
    before, actions, after, _ = played
    touching = (_foot_heights(before.pipeline_state.x) < 0.08).sum(axis=0)
    assert (touching == 0).mean() > 0.02
    assert (touching >= 2).mean() > 0.1
    hips = np.asarray(after.pipeline_state.q[..., 7::2])
    assert (np.abs(hips) > np.deg2rad(30)).mean() > 0.05
    assert (np.abs(actions) > 1.0).any()
    assert after.done.any()
    assert not after.done.all()


def test_steps_like_brax(played):
    # Springs of 4000 N/m turn a rounding of 1e-7 m in a position into 4e-4 N, and ten substeps add up to 1e-4, for
    # velocities of 10. The difference is larger where a foot touches the ground in only one of the two programs.
    _, _, after, fused = played
    for name, deviation in _deviations(after, fused).items():
        assert (deviation > 1e-4).mean() < 0.01, name
        assert deviation.max() < 0.05, name
    np.testing.assert_array_equal(fused.done, after.done)


# --- One kernel ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_xla(raw):
    return spring_physics(raw.sys, 3, implementation="xla").step


@pytest.fixture(scope="module")
def stepped_by_xla(by_xla, some_states):
    return jax.jit(jax.vmap(by_xla))(*some_states)


@pytest.mark.parametrize("batch", [4, 7])
def test_kernel_computes_what_xla_computes(raw, some_states, stepped_by_xla, batch):
    """A batch that fills its block, and one that is padded."""
    states, actions, expected = jax.tree.map(lambda leaf: leaf[:batch], (*some_states, stepped_by_xla))
    by_kernel = spring_physics(raw.sys, 3, implementation="interpret", block_size=4, num_warps=1)
    actual = jax.jit(jax.vmap(by_kernel.step))(states, actions)
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-5)


def _kernels(jaxpr):
    """The bodies of all kernels that a program calls."""
    kernels = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            kernels.append(equation.params["jaxpr"])
            continue
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            kernels += _kernels(inner) if hasattr(inner, "eqns") else []
    return kernels


def test_any_number_of_vmaps_is_one_kernel(raw):
    physics = spring_physics(raw.sys, raw._n_frames, implementation="pallas")
    states = SpringState(jax.ShapeDtypeStruct((2, 3, 9, 13), jnp.float32))
    shared_action = jax.ShapeDtypeStruct((3, 8), jnp.float32)  # shared along the outer axis

    step = jax.vmap(jax.vmap(physics.step), in_axes=(0, None))
    assert len(_kernels(jax.make_jaxpr(step)(states, shared_action).jaxpr)) == 1
    after, q, qd = jax.eval_shape(step, states, shared_action)
    assert (after.bodies.shape, q.shape, qd.shape) == ((2, 3, 9, 13), (2, 3, 15), (2, 3, 14))


def test_calls_of_one_size_share_their_kernel(raw):
    """A kernel takes seconds to compile, and a training program calls it in several places."""
    physics = spring_physics(raw.sys, raw._n_frames, implementation="pallas")

    def twice(states, actions):
        states, _, _ = jax.vmap(physics.step)(states, actions)
        return jax.vmap(physics.step)(states, actions)

    states = SpringState(jax.ShapeDtypeStruct((5, 9, 13), jnp.float32))
    first, second = _kernels(jax.make_jaxpr(twice)(states, jax.ShapeDtypeStruct((5, 8), jnp.float32)).jaxpr)
    assert first is second


def test_a_block_is_loaded_and_stored_in_few_parts(raw):
    """The time in which a kernel compiles grows with them."""
    physics = spring_physics(raw.sys, raw._n_frames, implementation="pallas")
    states = SpringState(jax.ShapeDtypeStruct((5, 9, 13), jnp.float32))
    actions = jax.ShapeDtypeStruct((5, 8), jnp.float32)
    (kernel,) = _kernels(jax.make_jaxpr(jax.vmap(physics.step))(states, actions).jaxpr)
    names = [equation.primitive.name for equation in kernel.eqns]
    assert 1 <= names.count("get") <= 4
    assert 1 <= names.count("swap") <= 4


def test_physics_is_traced_only_when_it_is_lowered(raw, monkeypatch):
    """Shapes need no trace. XLA needs one for each size of the batch, and the kernel one for all sizes."""
    traced = []

    def counted(*arguments):
        traced.append(arguments)
        return advance(*arguments)

    monkeypatch.setattr("spo.environments.spring.physics.advance", counted)
    step = spring_physics(raw.sys, raw._n_frames).step

    def step_three_times(first, second):
        one, _, _ = jax.vmap(step)(*first)
        return jax.vmap(step)(one, first[1]), jax.vmap(jax.vmap(step))(*second)

    def states_and_actions(*batch):
        return SpringState(jax.ShapeDtypeStruct((*batch, 9, 13), jnp.float32)), jax.ShapeDtypeStruct((*batch, 8), float)

    program = jax.jit(step_three_times).trace(states_and_actions(16), states_and_actions(3, 8))
    assert len(traced) == 0
    program.lower(lowering_platforms=("cpu",))
    assert len(traced) == 2
    kernels = program.lower(lowering_platforms=("cuda",)).as_text().count("custom_call")
    assert len(traced) == 3
    assert kernels == 2  # one of each size, although there are three calls


def test_physics_can_be_evaluated_and_differentiated_outside_of_programs(raw, by_xla, some_states):
    """`jax.disable_jit` helps to find errors, and `jax.checkpoint` evaluates a trace."""
    step = spring_physics(raw.sys, 3).step
    state, action = jax.tree.map(lambda leaf: leaf[0], some_states)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
    expected = jax.jit(by_xla)(state, action)
    with jax.disable_jit():
        jax.tree.map(close, step(state, action), expected)
    jax.tree.map(close, jax.checkpoint(step)(state, action), expected)

    def slope(function):
        return jax.jvp(lambda action: function(state, action)[0].bodies, (action,), (jnp.ones_like(action),))[1]

    slopes = jax.jit(slope, static_argnums=0)(by_xla)
    assert np.abs(slopes).max() > 0.1
    jax.tree.map(functools.partial(close, atol=1e-2), slope(step), slopes)


def test_one_program_is_compiled_to_read_a_system(raw):
    """Each operation outside of `jit` would be one, for each shape."""
    compiled = []

    def listen(event, _seconds, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(details.get("fun_name"))

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        read_system(raw.sys)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) <= 1, compiled


def test_vmapped_steps_are_single_steps(by_xla, some_states):
    states, actions = some_states
    nested = jax.tree.map(lambda leaf: leaf[:6].reshape(2, 3, *leaf.shape[1:]), states)
    after, q, _ = jax.jit(jax.vmap(jax.vmap(by_xla), in_axes=(0, None)))(nested, actions[:3])
    alone = jax.jit(by_xla)(jax.tree.map(lambda leaf: leaf[4], states), actions[1])
    np.testing.assert_allclose(after.bodies[1, 1], alone[0].bodies, atol=1e-5)
    np.testing.assert_allclose(q[1, 1], alone[1], atol=1e-5)


# --- As an environment -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fused_env():
    return brax("ant", physics="fused").train


@pytest.fixture(scope="module")
def brax_env():
    return brax("ant", physics="brax").train


@pytest.fixture(scope="module")
def starts(fused_env, brax_env):
    """`(state, timestep)` of the same start, with the fused physics and with Brax's."""
    return tuple(jax.jit(env.reset)(jax.random.key(3)) for env in (fused_env, brax_env))


def test_starts_like_brax(starts):
    (_, ours), (_, theirs) = starts
    np.testing.assert_array_equal(ours.observation, theirs.observation)
    assert ours.metrics.keys() == theirs.metrics.keys()


def test_layout_is_the_same_after_reset_and_step(fused_env):
    start = jax.eval_shape(fused_env.reset, jax.random.key(0))
    after = jax.eval_shape(fused_env.step, jax.random.key(1), start[0], jax.ShapeDtypeStruct((8,), jnp.float32))
    assert jax.tree.structure(start) == jax.tree.structure(after)
    for before, then in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (then.shape, then.dtype, then.weak_type)
    assert [leaf.shape for leaf in jax.tree.leaves(start[0].inner)] == [(9, 13)]


def test_options_reach_brax():
    env = brax("ant", physics="fused", exclude_current_positions_from_observation=False).train
    assert env.observation_spec.shape == (29,)


def test_pictures(fused_env, brax_env, starts):
    (state, _), (theirs, _) = starts
    assert (fused_env.render(state) != brax_env.render(theirs)).mean() < 0.02


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "pusher"}, "has no fused physics: .* touch things other than a fixed plane.*Use physics='brax'"),
        ({"name": "ant", "backend": "positional"}, "Only spring physics is fused"),
        ({"name": "ant", "debug": True}, "leave debug off"),
    ],
)
def test_refuses_unsupported_environments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        brax(**arguments, physics="fused")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda system: system.replace(enable_fluid=True), "it moves in a fluid"),
        (
            lambda system: system.replace(actuator=system.actuator.replace(bias_q=jnp.ones(8))),
            "its motors follow a position or a velocity",
        ),
        (
            lambda system: system.replace(
                actuator=system.actuator.replace(qd_id=np.array([6, 6, 8, 9, 10, 11, 12, 13]))
            ),
            "two motors drive one degree of freedom",
        ),
    ],
    ids=["fluid", "servo", "two motors"],
)
def test_refuses_other_systems(raw, change, sentence):
    with pytest.raises(ValueError, match=f"does not support this system: {sentence}"):
        spring_physics(change(raw.sys), 10)


def _unlike_limbs(system):
    """Removes one motor: the hip of one leg has none."""
    return system.replace(actuator=jax.tree.map(lambda leaf: leaf[1:], system.actuator))


def _five_limbs(system):
    """Attaches one of the feet to the torso."""
    return system.replace(link_parents=(-1, 0, 1, 0, 3, 0, 5, 0, 0))


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        (lambda system: system, [(0,), (1, 3, 5, 7), (2, 4, 6, 8)]),
        (_unlike_limbs, [(link,) for link in range(9)]),
        (_five_limbs, [(link,) for link in range(9)]),
    ],
    ids=["four limbs", "a limb without a motor", "five limbs"],
)
def test_only_equal_limbs_share_their_code(raw, change, groups):
    found = [group.members for group in group_links(read_system(change(raw.sys)))]
    assert sorted(found) == groups


@pytest.mark.parametrize(("name", "fused"), [("inverted_pendulum", True), ("pusher", False)])
def test_auto_uses_the_fused_physics_where_it_is_supported(name, fused):
    state, _ = jax.eval_shape(brax(name).train.reset, jax.random.key(0))
    assert isinstance(state.inner.pipeline_state, SpringState) == fused


def test_bad_arguments(raw):
    with pytest.raises(ValueError, match="physics must be 'brax', 'fused' or 'auto', got 'mujoco'"):
        brax("ant", physics="mujoco")
    with pytest.raises(ValueError, match="power of two, got block_size=96"):
        spring_physics(raw.sys, 10, block_size=96)
