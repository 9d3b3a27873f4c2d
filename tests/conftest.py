"""The strictness every test runs under: shapes are checked, ranks are never promoted, the CPU is enough."""

import os

# Before JAX is imported: tests never take a GPU, and the same seeds must give the same figures everywhere.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "0")
# Compiling is most of what the tests cost. One level down compiles a third faster, and the programs run as fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")

# Every annotated function and NamedTuple of these modules checks shapes and dtypes while tests run. The hook must be in
# place before anything imports them, which is why it stands here and is never taken out again.
install_import_hook(["spo.search", "spo.distributions"], "beartype.beartype")
