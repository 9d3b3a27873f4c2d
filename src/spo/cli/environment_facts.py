"""Facts about environments for `spo envs`: observation, actions, time limit, score, hidden state and physics.

Building an environment of another library takes up to a second, so the facts are stored (`spo.known_environments`). A
library of another version than the stored one is asked for its names, and for the facts of new ones.
"""

import contextlib
import importlib.metadata
import io
import warnings
from collections.abc import Iterator
from typing import Any

from spo.known_environments import LIBRARIES, Facts, missing, stored_facts, stored_version


def list_facts() -> dict[str, Facts]:
    """Returns the facts of every environment that can be made here, by name."""
    facts = {name: known for name, known in stored_facts().items() if name.partition("/")[0] not in LIBRARIES}
    absent = missing()
    for family, library in LIBRARIES.items():
        if family in absent:
            continue
        if stored_version(family) == importlib.metadata.version(library.distribution):
            facts |= {name: known for name, known in stored_facts().items() if name.startswith(f"{family}/")}
        else:
            facts |= {name: stored_facts().get(name) or compute(name) for name in _names_of(family)}
    return facts


def compute(name: str) -> Facts:
    """Returns the facts of an environment, which is built for that."""
    import jax

    from spo.environments import registry
    from spo.types import DiscreteActions

    try:
        with quiet():
            environment, time_limit, score, physics = registry.describe(name)
    except Exception as error:  # one environment of another library that fails must not hide the others
        return Facts(f"can't be built here: {(str(error) or type(error).__name__).splitlines()[0]}", "", "")

    def size(path: Any, spec: jax.ShapeDtypeStruct) -> str:
        field = jax.tree_util.keystr(path, simple=True, separator=".")
        return " ".join(part for part in (field, "x".join(map(str, spec.shape))) if part) or "a number"

    leaves = jax.tree_util.tree_leaves_with_path(environment.observation_spec)
    actions = environment.action_spec
    if isinstance(actions, DiscreteActions):
        in_words = f"{actions.num_actions} discrete"
    else:
        lows, highs = zip(*actions.bounds, strict=True)
        in_words = f"{actions.size} in {min(lows):g} .. {max(highs):g}"
    return Facts(
        observation=", ".join(size(*leaf) for leaf in leaves),
        actions=in_words,
        time_limit="none" if time_limit is None else str(time_limit),
        score=score,
        hidden=environment.hidden or "nothing",
        physics=physics,
    )


def compute_all() -> dict[str, Any]:
    """Returns the content of known_environments.json, from the libraries that are installed.

    Environments that can't be built here, because they download data for example, are left out.
    """
    from spo.environments import registry

    absent = missing()
    versions = {
        family: importlib.metadata.version(library.distribution)
        for family, library in LIBRARIES.items()
        if family not in absent
    }
    with quiet():
        names = registry.names()
    facts = {name: compute(name) for name in names}
    return {"versions": versions, "environments": {name: list(row) for name, row in facts.items() if row.actions}}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings and what other libraries print while they are imported."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _names_of(family: str) -> list[str]:
    from spo.environments import registry

    with quiet():
        return [name for name in registry.names() if name.startswith(f"{family}/")]
