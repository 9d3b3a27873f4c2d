"""The random bits of JAX's default generator, from plain integer operations that a kernel can compute.

JAX's own primitive for them has no lowering inside a kernel. The bits are those of `jax_threefry_partitionable`, JAX's
default: element i of a draw is the hash of the counter i.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from spo.types import Array

#: The two words of a key.
Words: TypeAlias = tuple[Any, Any]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def hash_counter(key: Words, high: Any, low: Any) -> Words:
    """Returns Threefry-2x32 of 20 rounds (Salmon et al., 2011) of a 64-bit counter in two words."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    first, second = high + keys[0], low + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first = first + second
            rotated = (second << jnp.uint32(rotation)) | (second >> jnp.uint32(32 - rotation))
            second = first ^ rotated
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return first, second


def split_key(key: Words, index: Any) -> Words:
    """Returns `jax.random.split(key, n)[index]`."""
    return hash_counter(key, jnp.uint32(0), index)


def uniform(key: Words, index: Any) -> Array:
    """Returns `jax.random.uniform(key, (n,))[index]` in float32, for an array of indices."""
    high, low = hash_counter(key, jnp.zeros_like(index), index)
    # The upper 23 bits are the digits of a fraction. Through int32, which every backend converts to floats.
    return ((high ^ low) >> jnp.uint32(9)).astype(jnp.int32).astype(jnp.float32) * jnp.float32(2.0**-23)


def key_words(key: Any) -> Array | None:
    """Returns the words [..., 2] of a key, or None if its random bits are not those of this module."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        return None
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(key) if str(jax.random.key_impl(key)) == "threefry2x32" else None
    return key if jax.config.jax_default_prng_impl == "threefry2x32" else None  # type: ignore[attr-defined]
