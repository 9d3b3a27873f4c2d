"""Planning with particles in JAX: `spo.search` is the planner, and `spo.train(environment)` trains SPO with it."""

from typing import TYPE_CHECKING, Any

from spo._version import __version__

if TYPE_CHECKING:
    from spo.training.library import load, train

__all__ = ["__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    """Imports training at its first use: the search does not need it."""
    if name in ("load", "train"):
        from spo.training import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
