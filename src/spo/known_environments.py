"""Names and facts of all environments, those of packages that are not installed included.

`python tools/make_environment_facts.py` writes them to known_environments.json. Reading it needs neither JAX nor a
simulator, so that `spo envs` and the suggestion for a wrong name take a fraction of a second.
"""

import difflib
import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

PATH = Path(__file__).with_suffix(".json")


class Library(NamedTuple):
    """A package whose environments are adapted."""

    module: str  # as it is imported
    distribution: str  # as it is installed
    extra: str  # the extra of this package that installs it


#: The part of a name before the slash -> the library.
LIBRARIES = {
    "brax": Library("brax", "brax", "envs"),
    "jumanji": Library("jumanji", "jumanji", "envs"),
    "gymnax": Library("gymnax", "gymnax", "gymnax"),
    "playground": Library("mujoco_playground", "playground", "playground"),
    "pgx": Library("pgx", "pgx", "pgx"),
    "craftax": Library("craftax", "craftax", "craftax"),
    "xminigrid": Library("xminigrid", "xminigrid", "xminigrid"),
}


class Facts(NamedTuple):
    """Facts about an environment, as text."""

    observation: str
    actions: str
    time_limit: str
    score: str = "return"  # the number that people report
    hidden: str = "nothing"  # what the state holds and the observation does not show
    physics: str = "-"  # implementation of the physics


@functools.cache
def stored_facts() -> dict[str, Facts]:
    """Returns the stored facts by name."""
    return {name: Facts(*values) for name, values in _stored()["environments"].items()}


def stored_version(library: str) -> str | None:
    """Returns the version of the library that the stored facts are about."""
    return _stored()["versions"].get(library)


def suggest_environments(name: str, known: Iterable[str] = ()) -> str:
    """Returns a sentence with the names closest to an unknown one, in any family.

    Args:
      name: the unknown name, such as "CartPole" or "jumanji/breakout".
      known: names to consider first, beside the stored ones.
    """
    candidates = list(dict.fromkeys([*known, *stored_facts()]))
    by_text = {candidate.lower(): candidate for candidate in reversed(candidates)}
    text = name.lower()
    member = text.rpartition("/")[2]
    members = {candidate.partition("/")[2]: candidate for candidate in by_text}
    close = difflib.get_close_matches(text, by_text, n=3, cutoff=0.75)
    close += [candidate for candidate in by_text if len(member) >= 3 and member in candidate]
    close += [members[found] for found in difflib.get_close_matches(member, members, n=3, cutoff=0.6)]
    found = [by_text[candidate] for candidate in dict.fromkeys(close)][:3]
    return f"Did you mean {' or '.join(map(repr, found))}?" if found else "`spo envs` lists all environments."


@functools.cache
def _stored() -> dict[str, Any]:
    return json.loads(PATH.read_text("utf-8"))
