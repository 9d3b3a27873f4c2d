"""Worlds, by name: `make("rubiks_cube")`, `make("brax/ant")`; `names()` lists them. See `spo.types.Environment`."""

from spo.environments.registry import make, names

__all__ = ["make", "names"]
