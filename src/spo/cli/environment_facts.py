"""Facts about environments for `spo envs`: observation, actions and time limit.

Building an environment of another library takes up to a second, so the facts are stored in environment_facts.json.
`python tools/make_environment_facts.py` writes that file. A library of another version than the file's is asked.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from spo.installation import install_hint

PATH = Path(__file__).with_name("environment_facts.json")
LIBRARIES = {"brax": "envs", "jumanji": "envs", "gymnax": "gymnax"}
"""Libraries whose environments are adapted, with the extra that installs each."""


class Facts(NamedTuple):
    """Facts about an environment, as text."""

    observation: str
    actions: str
    time_limit: str


def list_facts() -> dict[str, Facts]:
    """Returns the facts of every environment that can be made here, by name."""
    facts = {name: known for name, known in _stored_facts().items() if name.partition("/")[0] not in LIBRARIES}
    for library in LIBRARIES:
        if library in missing():
            continue
        if _stored()["versions"].get(library) == importlib.metadata.version(library):
            facts |= {name: known for name, known in _stored_facts().items() if name.startswith(f"{library}/")}
        else:
            facts |= {name: _stored_facts().get(name) or compute(name) for name in _names_of(library)}
    return facts


def missing() -> dict[str, str]:
    """Returns the libraries that are not installed, each with a sentence that says how to install it."""
    return {
        library: f"The package {library} is not installed: {install_hint(extra)}."
        for library, extra in LIBRARIES.items()
        if importlib.util.find_spec(library) is None
    }


def compute(name: str) -> Facts:
    """Returns the facts of an environment, which is built for that."""
    import jax

    from spo.environments import registry
    from spo.types import DiscreteActions

    try:
        with quiet():
            environment, time_limit = registry.describe(name)
    except Exception as error:  # one environment of another library that fails must not hide the others
        return Facts(f"can't be built here: {str(error).splitlines()[0]}", "", "")

    def size(path: Any, spec: jax.ShapeDtypeStruct) -> str:
        field = jax.tree_util.keystr(path, simple=True, separator=".")
        return " ".join(part for part in (field, "x".join(map(str, spec.shape))) if part) or "a number"

    leaves = jax.tree_util.tree_leaves_with_path(environment.observation_spec)
    actions = environment.action_spec
    if isinstance(actions, DiscreteActions):
        in_words = f"{actions.num_actions} discrete"
    else:
        in_words = f"{actions.size} in {actions.low:g} .. {actions.high:g}"
    return Facts(", ".join(size(*leaf) for leaf in leaves), in_words, "none" if time_limit is None else str(time_limit))


def compute_all() -> dict[str, Any]:
    """Returns the content of environment_facts.json, from the libraries that are installed."""
    from spo.environments import registry

    versions = {name: importlib.metadata.version(name) for name in LIBRARIES if name not in missing()}
    with quiet():
        names = registry.names()
    return {"versions": versions, "environments": {name: list(compute(name)) for name in names}}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings and what other libraries print while they are imported."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _names_of(library: str) -> list[str]:
    from spo.environments import registry

    with quiet():
        return [name for name in registry.names() if name.startswith(f"{library}/")]


@functools.cache
def _stored() -> dict[str, Any]:
    return json.loads(PATH.read_text("utf-8"))


@functools.cache
def _stored_facts() -> dict[str, Facts]:
    return {name: Facts(*values) for name, values in _stored()["environments"].items()}
