"""Planning by particles in JAX: see `spo.search` for the planner."""

from spo._version import __version__

__all__ = ["__version__"]
