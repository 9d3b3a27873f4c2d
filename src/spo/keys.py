"""Random keys for batches."""

import math

import jax
import jax.numpy as jnp

from spo.types import PRNGKey, PRNGKeys


def split_in_one_kernel(key: PRNGKey, shape: int | tuple[int, ...]) -> PRNGKeys:
    """Returns `jax.random.split(key, shape)`. Without the barrier, XLA spends a second kernel of a GPU on it."""
    return jax.lax.optimization_barrier(jax.random.split(key, shape))


def join_keys(key: PRNGKey, keys: PRNGKeys) -> tuple[PRNGKey, PRNGKeys]:
    """Returns its arguments, as parts of one array: draws from them can then share one kernel of a GPU."""
    joined = jax.lax.optimization_barrier(jnp.concatenate([key[None], keys.reshape(-1, *key.shape)]))
    return joined[0], joined[1:].reshape(keys.shape)


def numbered_keys(key: PRNGKey, shape: tuple[int, ...]) -> PRNGKeys:
    """Returns different keys, an array of the given shape: the key plus 0, 1, 2, ...

    On a GPU, a kernel that draws from such keys adds the numbers itself. `jax.random.split` hashes them in a kernel of
    its own. Keys of Threefry may be consecutive numbers (Salmon et al., 2011). Other generators get keys by `split`.

    The key must be a result of `jax.random.split`. Do not number the keys of seeds, `jax.random.key(0)` and
    `jax.random.key(1)`, nor the returned keys again: keys with neighbouring numbers share all but one. Split them.
    """
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    generator = str(jax.random.key_impl(key)) if typed else jax.config.jax_default_prng_impl  # type: ignore[attr-defined]
    if generator != "threefry2x32":
        return jax.random.split(key, shape)
    first, second = jax.random.key_data(key) if typed else key
    numbers = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    words = jnp.stack([jnp.broadcast_to(first, shape), second + numbers], axis=-1)
    return jax.random.wrap_key_data(words, impl=generator) if typed else words
