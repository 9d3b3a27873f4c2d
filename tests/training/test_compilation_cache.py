"""Tests of the folder of compiled programs: it is private, and damaged programs are compiled again."""

import json
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache as jax_cache

from spo.training import compilation_cache
from spo.training.compilation_cache import enable_compilation_cache, removing_damaged


@pytest.fixture
def no_cache_configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The tests set it: a threshold in the environment is the user's, and stays.
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", raising=False)
    configured = jax.config.jax_compilation_cache_dir
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)  # the default of JAX
    jax_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", configured)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    jax_cache.reset_cache()


def test_compiled_programs_are_stored_unless_jax_stores_them(
    no_cache_configured: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPO_CACHE", raising=False)
    enable_compilation_cache()
    expected = tmp_path / "home" / ".cache" / "spo" / "jax"
    assert jax.config.jax_compilation_cache_dir == str(expected)
    assert expected.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("SPO_CACHE", str(tmp_path / "other"))
    enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(expected), "kept once it is set"
    jax.config.update("jax_compilation_cache_dir", None)
    enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("configured", "environment", "expected"), [(1.0, None, 0.0), (5.0, None, 5.0), (1.0, "1.0", 1.0)]
)
def test_short_compilations_are_stored_unless_the_user_has_set_a_threshold(
    no_cache_configured: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: float,
    environment: str | None,
    expected: float,
):
    monkeypatch.setenv("SPO_CACHE", str(tmp_path))
    if environment is not None:
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", environment)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", configured)
    enable_compilation_cache()
    assert jax.config.jax_persistent_cache_min_compile_time_secs == expected


def test_a_folder_that_is_not_private_is_made_so_or_not_used(
    no_cache_configured: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A program in it is code that the process executes: nobody else may put one there."""
    monkeypatch.setenv("SPO_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.warns(UserWarning, match=rf"not stored: other users may write to the folder {tmp_path}: `chmod 700"):
        enable_compilation_cache()
    tmp_path.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.warns(UserWarning, match="belongs to another user: set SPO_CACHE"):
            enable_compilation_cache()
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPO_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"file can't be used \(.*\): set SPO_CACHE"):
        enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None
    monkeypatch.setenv("SPO_CACHE", str(tmp_path))
    enable_compilation_cache()
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


def compile_a_program() -> np.ndarray:
    """Compiles a new function with an old program: JAX looks for it in the folder, and not in its memory."""

    def program(x: jax.Array) -> jax.Array:
        return jnp.sin(x) @ jnp.cos(x).T

    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    return np.asarray(jax.jit(program).lower(given).compile()(given))


def zero(content: bytes) -> bytes:
    return bytes(len(content))


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [zero, truncate, flip], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("noticed", ["at the start", "by JAX"])
def test_a_damaged_program_is_deleted_and_compiled_again(
    no_cache_configured: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes], bytes],
    noticed: str,
):
    monkeypatch.setenv("SPO_CACHE", str(tmp_path))
    enable_compilation_cache()
    expected = compile_a_program()
    (entry,) = tmp_path.glob("jit_program-*-cache")
    good = entry.read_bytes()
    assert compilation_cache.remove_damaged(tmp_path) == []
    entry.write_bytes(damage(good))
    if noticed == "at the start":
        assert compilation_cache.remove_damaged(tmp_path) == [entry.name]
        assert not entry.exists()
    with warnings.catch_warnings(record=noticed == "by JAX"), removing_damaged():
        warnings.simplefilter("always" if noticed == "by JAX" else "error")
        np.testing.assert_array_equal(compile_a_program(), expected)
    assert zlib.decompress(entry.read_bytes()), "the program is stored anew"
    assert compilation_cache.remove_damaged(tmp_path) == []


def test_an_entry_whose_format_does_not_notice_damage_has_a_checksum(tmp_path: Path):
    """Zstandard, which JAX uses where it is installed, stores none of its own."""
    entry = tmp_path / "jit_f-0123-cache"
    entry.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    assert compilation_cache.remove_damaged(tmp_path) == []
    assert list(json.loads((tmp_path / "checksums.json").read_text())) == [entry.name]
    entry.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(99) + b"\1")
    assert compilation_cache.remove_damaged(tmp_path) == [entry.name]
    (tmp_path / "checksums.json").write_text("{")
    assert compilation_cache.remove_damaged(tmp_path) == []


def test_an_unchanged_entry_is_read_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder can have gigabytes. Damage that leaves size and time is noticed a day later, or when JAX reports it."""
    entry = tmp_path / "jit_f-0123-cache"
    entry.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    read: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), read_bytes(path))[1])
    for _ in range(3):
        assert compilation_cache.remove_damaged(tmp_path) == []
    assert read == [entry.name]
    assert compilation_cache.remove_damaged(tmp_path, read_all=True) == []
    assert read == [entry.name] * 2
    status = entry.stat()
    entry.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(99) + b"\1")
    os.utime(entry, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compilation_cache.remove_damaged(tmp_path) == []
    later = time.time() + 25 * 60 * 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert compilation_cache.remove_damaged(tmp_path) == [entry.name]
