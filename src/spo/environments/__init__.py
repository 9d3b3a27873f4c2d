"""Environments by name: `make("rubiks_cube")`, `make("brax/ant")`. `names()` lists them."""

from spo.environments.registry import make, names

__all__ = ["make", "names"]
