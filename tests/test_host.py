"""Tests of what the host computes at the start of a run."""

import gc
import os
import subprocess
import sys
import threading

import jax
import pytest

from spo.host import abstract_key, collection_paused, on_host

#: An array of the host, used where another device is the default one.
ON_ANOTHER_DEVICE = """
import jax, jax.numpy as jnp
from spo.host import on_host
host, other = jax.devices()
with jax.default_device(other):
    with on_host():
        constant = jnp.arange(3.0)
    assert constant.devices() == {host}, constant.devices()
    argument = jnp.ones(3)
    total = jax.jit(lambda x: x + constant)(argument)
    committed = jax.device_put(argument, other) + constant
assert total.devices() == committed.devices() == {other}, total.devices()
"""


def test_arrays_of_the_host_can_be_used_on_every_device():
    flags = "--xla_force_host_platform_device_count=2"
    subprocess.run([sys.executable, "-c", ON_ANOTHER_DEVICE], check=True, env={**os.environ, "XLA_FLAGS": flags})


def test_the_host_may_be_excluded(monkeypatch: pytest.MonkeyPatch):
    def no_cpu(backend: str) -> list[jax.Device]:
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", no_cpu)
    with on_host():
        assert jax.config.jax_default_device is None


def test_an_abstract_key_is_like_a_key():
    key = jax.random.key(0)
    assert (abstract_key().shape, abstract_key().dtype) == (key.shape, key.dtype)


def test_the_collector_works_again_after_the_last_pause():
    inside, leave = threading.Event(), threading.Event()

    def pause() -> None:
        with collection_paused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=pause)
    with collection_paused():
        assert not gc.isenabled()
        thread.start()
        inside.wait(10)
    assert not gc.isenabled(), "the other thread is still inside"
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
