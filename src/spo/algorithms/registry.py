"""Registry of the algorithms: from a name to its configuration and its maker."""

from collections.abc import Callable
from typing import Any

from spo.algorithms.alphazero import AlphaZeroConfig, GumbelAlphaZeroConfig, make_alphazero, make_gumbel_alphazero
from spo.algorithms.base import Algorithm
from spo.algorithms.mpo import MPOConfig, make_mpo
from spo.algorithms.ppo import PPOConfig, make_ppo
from spo.algorithms.sampled_alphazero import SampledAlphaZeroConfig, make_sampled_alphazero
from spo.algorithms.smc_ent import SMCEntConfig, make_smc_ent
from spo.algorithms.spo import SPOConfig, make_spo
from spo.algorithms.vmpo import VMPOConfig, make_vmpo

#: name -> (type of its configuration, (setting, configuration) -> Algorithm)
ALGORITHMS: dict[str, tuple[type, Callable[..., Algorithm]]] = {
    "alphazero": (AlphaZeroConfig, make_alphazero),
    "gumbel_alphazero": (GumbelAlphaZeroConfig, make_gumbel_alphazero),
    "mpo": (MPOConfig, make_mpo),
    "ppo": (PPOConfig, make_ppo),
    "sampled_alphazero": (SampledAlphaZeroConfig, make_sampled_alphazero),
    "smc_ent": (SMCEntConfig, make_smc_ent),
    "spo": (SPOConfig, make_spo),
    "vmpo": (VMPOConfig, make_vmpo),
}


def find_algorithm(name: str) -> tuple[type, Callable[..., Algorithm]]:
    """Returns the configuration type and the maker of an algorithm; raises ValueError for an unknown name."""
    if name not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {name!r}: choose from {', '.join(sorted(ALGORITHMS))}.")
    return ALGORITHMS[name]


def default_config(name: str) -> Any:
    """Returns the configuration of an algorithm with its defaults."""
    return find_algorithm(name)[0]()
