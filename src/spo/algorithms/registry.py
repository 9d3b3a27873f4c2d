"""Registry of the algorithms: from a name to its configuration and its maker.

Your own algorithm is a function `(setting, config: MyConfig) -> Algorithm`, called `module:function`. The annotation of
its second argument is the type of its configuration.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal

from spo.algorithms.alphazero import AlphaZeroConfig, GumbelAlphaZeroConfig, make_alphazero, make_gumbel_alphazero
from spo.algorithms.base import Algorithm
from spo.algorithms.mpo import MPOConfig, make_mpo
from spo.algorithms.ppo import PPOConfig, make_ppo
from spo.algorithms.sampled_alphazero import SampledAlphaZeroConfig, make_sampled_alphazero
from spo.algorithms.smc_ent import SMCEntConfig, make_smc_ent
from spo.algorithms.spo import SPOConfig, make_spo
from spo.algorithms.vmpo import VMPOConfig, make_vmpo
from spo.importing import OBJECT, import_function, is_import_name, is_object_name, name_of

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


#: Functions that were given as objects and have no name to import, by `object:NAME`.
_given: dict[str, Callable[..., Algorithm]] = {}


def name_algorithm(algorithm: str | Callable[..., Algorithm]) -> str:
    """Returns the name of an algorithm. A function without a name to import is kept for `find_algorithm`."""
    if isinstance(algorithm, str):
        return algorithm
    if not callable(algorithm):
        raise ValueError(
            f"algorithm must be a name or a function (setting, config) -> Algorithm, got {type(algorithm).__name__}."
        )
    name = name_of(algorithm)
    if is_object_name(name):
        _given[name] = algorithm
    return name


def find_algorithm(name: str) -> tuple[type, Callable[..., Algorithm]]:
    """Returns the configuration type and the maker of an algorithm; raises ValueError for an unknown name."""
    if is_object_name(name):
        if name not in _given:
            raise ValueError(
                f"The algorithm {name.removeprefix(OBJECT)!r} was given as an object and has no name to import: use "
                "Python, and pass its function again with the argument algorithm."
            )
        return _config_type(name, _given[name]), _given[name]
    if is_import_name(name):
        make = import_function(name, returns="an algorithm")
        return _config_type(name, make), make
    if name not in ALGORITHMS:
        raise ValueError(f"There is no algorithm {name!r}: choose from {', '.join(sorted(ALGORITHMS))}.")
    return ALGORITHMS[name]


def default_config(name: str) -> Any:
    """Returns the configuration of an algorithm with its defaults."""
    config_type = find_algorithm(name)[0]
    required = [
        field.name
        for field in dataclasses.fields(config_type)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if required:
        raise ValueError(f"{config_type.__name__}.{required[0]} has no default: give one to every field.")
    return config_type()


def search_kind(config: Any) -> Literal["particles", "tree"] | None:
    """Returns the kind of search of an algorithm, by the names of its settings; None: it does not search.

    An algorithm that searches with particles has `search.num_particles`, and one that searches a tree has
    `num_simulations`.
    """
    if hasattr(getattr(config, "search", None), "num_particles"):
        return "particles"
    return "tree" if hasattr(config, "num_simulations") else None


def _config_type(name: str, make: Callable[..., Algorithm]) -> type:
    """Returns the annotation of the second parameter of an own algorithm's function."""
    parameters = list(inspect.signature(make).parameters)
    hint = typing.get_type_hints(make).get(parameters[1]) if len(parameters) == 2 else None
    if not (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
        raise ValueError(
            f"The function of the algorithm {name} must have two parameters, (setting, config: MyConfig), where "
            "MyConfig is a dataclass with the hyperparameters."
        )
    return hint


__all__ = ["ALGORITHMS", "default_config", "find_algorithm", "name_algorithm", "search_kind"]
