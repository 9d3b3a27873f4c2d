"""Names and facts of all environments, those of packages that are not installed included.

`python tools/make_environment_facts.py` writes them to known_environments.json. Reading it needs neither JAX nor a
simulator, so that `spo envs` and the suggestion for a wrong name take a fraction of a second.
"""

import difflib
import functools
import importlib.util
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from spo.installation import install_hint

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


def missing() -> dict[str, str]:
    """Returns the families whose library is not installed, each with a sentence that says how to install it."""
    return {
        family: f"The package {library.module} is not installed: {install_hint(library.extra)}."
        for family, library in LIBRARIES.items()
        if importlib.util.find_spec(library.module) is None
    }


def suggest_environments(name: str, known: Iterable[str] = ()) -> str:
    """Returns a question with the names closest to an unknown one, in any family, or where to find all names.

    Names with the same last part exclude all others. Names of installed packages come first. A further sentence says
    how to install each package that a name needs and that is missing.

    Args:
      name: the unknown name, such as "CartPole" or "jumanji/breakout".
      known: names to consider first, beside the stored ones.
    """
    candidates = list(dict.fromkeys([*known, *stored_facts()]))
    by_text = {candidate.lower(): candidate for candidate in reversed(candidates)}
    text = name.lower()
    member = text.rpartition("/")[2]
    absent = missing()

    def is_missing(candidate: str) -> bool:
        return candidate.partition("/")[0] in absent

    same = sorted((candidate for candidate in by_text if candidate.rpartition("/")[2] == member), key=is_missing)
    found = [by_text[candidate] for candidate in same or _closest(text, by_text, is_missing)][:3]
    if not found:
        return "`spo envs` lists all environments."
    needed = dict.fromkeys(absent[one.partition("/")[0]] for one in found if is_missing(one))
    return " ".join([f"Did you mean {' or '.join(map(repr, found))}?", *needed])


def _closest(text: str, candidates: Iterable[str], is_missing: Callable[[str], bool]) -> list[str]:
    """Returns the names that are spelled like `text`, then those that contain its last part or are close to it."""
    member = text.rpartition("/")[2]
    members = {candidate.partition("/")[2]: candidate for candidate in candidates}

    def order(candidate: str) -> tuple[bool, float]:
        return is_missing(candidate), -difflib.SequenceMatcher(None, member, candidate.rpartition("/")[2]).ratio()

    close = difflib.get_close_matches(text, candidates, n=3, cutoff=0.75)
    others = [candidate for candidate in candidates if len(member) >= 3 and member in candidate]
    others += [members[found] for found in difflib.get_close_matches(member, members, n=3, cutoff=0.6)]
    return list(dict.fromkeys([*close, *sorted(others, key=order)]))


@functools.cache
def _stored() -> dict[str, Any]:
    return json.loads(PATH.read_text("utf-8"))
