"""Helpers of the adapters."""

import concurrent.futures
import os
import sys
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.environments import _adapters, gymnax
from spo.environments._adapters import jit_foreign
from spo.training import run_log
from spo.types import ContinuousActions


def test_other_libraries_are_traced_once():
    traced = []

    def step(state, action):
        traced.append(1)
        return state + action

    foreign = jit_foreign(step)
    for batch in (3, 5):  # roots, particles
        jax.jit(jax.vmap(foreign)).lower(jnp.zeros((batch, 2)), jnp.zeros((batch, 2)))
    jax.eval_shape(foreign, jnp.zeros(2), jnp.zeros(2))
    assert len(traced) == 1
    program = jax.make_jaxpr(jax.vmap(foreign))(jnp.zeros((3, 2)), jnp.zeros((3, 2)))
    assert [equation.primitive.name for equation in program.eqns] == ["add"]  # the call is inlined


def test_other_libraries_may_promote_ranks():
    def step(state, action):
        return state + action

    arguments = jnp.zeros((2, 3)), jnp.zeros(3)
    with jax.numpy_rank_promotion("raise"):
        with pytest.raises(ValueError, match="rank_promotion"):
            step(*arguments)
        assert jit_foreign(step)(*arguments).shape == (2, 3)


def test_what_a_library_prints_is_logged_and_not_shown(monkeypatch, capfd, tmp_path):
    """Python's output and that of compiled code, which writes to the file descriptor."""
    (tmp_path / "noisy_library.py").write_text(
        "import os, sys\nprint('from python')\nos.write(1, b'from C')\nos.write(2, b'an error')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with run_log.collecting() as log:
        _adapters.require("noisy_library", extra="envs")
        log.write_to(tmp_path / "run.log")
    print("afterwards")
    assert capfd.readouterr() == ("afterwards\n", "")
    logged = (tmp_path / "run.log").read_text()
    for words in ("noisy_library printed", "from python", "from C", "an error"):
        assert words in logged


def test_threads_redirect_the_output_in_turn(capfd):
    """Environments are built in threads where programs are compiled side by side."""
    original = sys.stdout

    def build(delay: float) -> None:
        with _adapters.output_to_log("noisy_library"):
            time.sleep(delay)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(build, (0.02, 0.01, 0.03, 0.02)))
    assert sys.stdout is original
    os.write(1, b"afterwards")
    assert capfd.readouterr().out == "afterwards"


def test_threads_redirect_the_warnings_of_mujoco_in_turn():
    mujoco = pytest.importorskip("mujoco")
    original = mujoco.get_mju_user_warning()

    def build(delay: float) -> bool:
        with _adapters.mujoco_warnings_to_log(), _adapters.output_to_log("mujoco"):
            time.sleep(delay)
            return mujoco.get_mju_user_warning() is not original

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(build, (0.02, 0.01, 0.03, 0.02)))
    assert mujoco.get_mju_user_warning() is original


def test_a_thread_waits_for_a_library_that_another_one_imports(monkeypatch, tmp_path):
    (tmp_path / "slow_library.py").write_text("import time\ntime.sleep(0.5)\nvalue = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def read_value(delay: float) -> int:
        time.sleep(delay)
        return _adapters.require("slow_library", extra="envs").value

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read_value, (0.0, 0.1))) == [1, 1]


def test_an_error_of_a_library_is_not_hidden(monkeypatch, tmp_path, capfd):
    (tmp_path / "broken_library.py").write_text("print('before')\n1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        _adapters.require("broken_library", extra="envs")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-2.0, [2.0, 2.0], ContinuousActions(2, -2.0, 2.0)),
        ([-1.0, 0.0], 1.0, ContinuousActions(2, (-1.0, 0.0), 1.0)),
    ],
)
def test_gymnax_keeps_the_bounds_of_each_dimension(low, high, expected):
    box = type("Box", (), {"low": np.float32(low), "high": np.float32(high), "shape": (2,)})()
    environment = SimpleNamespace(action_space=lambda params: box)
    assert gymnax._action_spec("Robot", environment, None) == expected
