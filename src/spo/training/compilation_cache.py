"""The folder of compiled programs: later starts of a run need not compile."""

import os
from pathlib import Path

import jax


def enable_compilation_cache() -> None:
    """Stores compiled programs in $SPO_CACHE, or in ~/.cache/spo/jax: later starts of a run need not compile.

    A cache that is configured in JAX's own way is kept.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        path = Path(os.environ.get("SPO_CACHE") or "~/.cache/spo/jax").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(path))
