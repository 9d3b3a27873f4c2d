"""Planning with particles in JAX: `spo.search` is the planner, and `spo.train(environment)` trains SPO with it."""

from typing import TYPE_CHECKING, Any

from spo._version import __version__

if TYPE_CHECKING:
    from spo.environments.checking import check_environment
    from spo.training.library import load, train

__all__ = ["__version__", "check_environment", "load", "train"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Imports training at its first use: the search does not need it."""
    if name in ("load", "train"):
        from spo.training import library

        return getattr(library, name)
    if name == "check_environment":
        from spo.environments import checking

        return checking.check_environment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
