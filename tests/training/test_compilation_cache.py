"""Tests of the folder of compiled programs."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from spo.training.compilation_cache import enable_compilation_cache


@pytest.fixture
def no_cache_configured() -> Iterator[None]:
    configured = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", configured)


def test_compiled_programs_are_stored_unless_jax_stores_them(
    no_cache_configured: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SPO_CACHE", raising=False)
    enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(Path.home() / ".cache" / "spo" / "jax")
    monkeypatch.setenv("SPO_CACHE", str(tmp_path))
    enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(Path.home() / ".cache" / "spo" / "jax"), "kept once it is set"
    jax.config.update("jax_compilation_cache_dir", None)
    enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)
