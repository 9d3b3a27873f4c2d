"""Settings of every test: the CPU, one compilation cache, checked shapes and no promotion of ranks."""

import contextlib
import os
import time
from importlib.metadata import version
from pathlib import Path

# JAX reads these when it is imported. Child processes inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "0")
# Compilation dominates the cost of the tests. The older emitters of jaxlib 0.10 compile twice as fast, and the programs
# run as fast. Later versions have no such option.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
)
# One folder keeps the compiled programs of all tests, workers and child processes for the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")

# No example has a deadline: the machine may be busy.
hypothesis.settings.register_profile("spo", deadline=None)
hypothesis.settings.load_profile("spo")

# With this hook every annotated function and NamedTuple of these modules checks shapes and dtypes. It must be installed
# before the modules are imported.
install_import_hook(["spo.search", "spo.distributions"], "beartype.beartype")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Removes compiled programs that no test has read for a week: most belong to code that has changed since."""
    if hasattr(session.config, "workerinput"):
        return
    oldest = time.time() - 7 * 24 * 60 * 60
    for path in (session.config.rootpath / ".pytest_cache" / "jax").glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):  # another session removes them too
            if max(path.stat().st_atime, path.stat().st_mtime) < oldest:
                path.unlink()
