"""Environments by name: `make("brax/ant")`. Another library is imported only when one of its environments is made.

rubiks_cube           trains on 3 to 7 scrambles, evaluates on 7
sokoban/generated     generated levels: no download
boxoban/unfiltered    public levels: trains on unfiltered-train, evaluates on hard
tiny/<name>           a few states, with known answers
brax/<name>           Brax: continuous control
jumanji/<name>        Jumanji: its single-agent environments
gymnax/<name>         gymnax: its own names, such as CartPole-v1
playground/<name>     MuJoCo Playground: tasks of the DeepMind Control Suite, such as CartpoleBalance
pgx/<name>            Pgx: 2048 and the MinAtar games
craftax/<name>        Craftax: classic and full
xminigrid/<name>      XLand-MiniGrid: its own names, such as MiniGrid-DoorKey-5x5
<module>:<function>   your own: the function returns an Environment or a Task, see `spo.environments.own`
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spo.checks import check_arguments, check_value, suggest_names
from spo.environments import brax, craftax, gymnax, jumanji, pgx, playground, xminigrid
from spo.environments._adapters import check_options
from spo.environments.boxoban import boxoban
from spo.environments.own import is_own, own_maker
from spo.environments.rubiks_cube import rubiks_cube
from spo.environments.scores import score_of
from spo.environments.sokoban_generator import generated_sokoban
from spo.environments.tiny import TINY_NAMES, tiny_maker
from spo.importing import suggest_import_name
from spo.known_environments import LIBRARIES, suggest_environments
from spo.types import Environment, Task


def make(name: str, /, **options: Any) -> Task:
    """Makes a task: one environment for training, one for evaluation, and one as the model of a search.

    Args:
        name: a name from `names()`, such as "rubiks_cube" or "brax/ant".
        **options: arguments of the function that makes this task, such as `time_limit=50`.
    """
    check_value("The name of an environment", name, str)
    maker = maker_of(name)
    if is_own(name):
        _require_options(name, options, maker)
    parameters = inspect.signature(maker).parameters
    # Makers that pass options on to another library check them themselves.
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        check_options(name, options, parameters)
    if not is_own(name):  # which checks its options when they have their own types
        check_arguments(maker, options, owner=name)
    return maker(**options)


def maker_of(name: str) -> Callable[..., Task]:
    """Returns the function that makes the task `name` from its options.

    Raises ValueError for `object:NAME`, the name of an environment that was given to `spo.train` as an object.
    """
    if is_own(name):
        return own_maker(name)
    family, member = _find(name)
    return family.maker(member)


def names() -> list[str]:
    """Names of all environments that can be made, without those of packages that are not installed."""
    found: list[str] = []
    for family in _FAMILIES:
        with contextlib.suppress(ModuleNotFoundError):
            found += _names_of(family)
    return found


class Description(NamedTuple):
    """Specs, time limit, score and physics of an environment. Its `environment` is not meant to be played."""

    environment: Environment
    time_limit: int | None  # in steps; None: no limit
    score: str  # the number that people report
    physics: str  # implementation of the physics; "-": none


def describe(name: str) -> Description:
    """Describes the environment that `make(name)` returns for training. It loads no data and runs no step."""
    family, member = _find(name)
    return Description(family.preview(member), family.time_limit(member), score_of(name), family.physics(member))


def _require_options(name: str, options: dict[str, Any], maker: Callable[..., Task]) -> None:
    """Raises ValueError if an option without a default is missing."""
    for parameter in inspect.signature(maker).parameters.values():
        is_variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not is_variadic and parameter.name not in options:
            flag = f"--task.{parameter.name.replace('_', '-')}"
            sentence = f"{name} needs the option {parameter.name}: add {flag} VALUE."
            if parameter.annotation is parameter.empty:
                sentence += f" The command line needs its type too: annotate it, such as {parameter.name}: int."
            raise ValueError(sentence)


def _find(name: str) -> tuple["_Family", str]:
    family, slash, member = name.partition("/")
    if family not in _FAMILIES:
        hint = suggest_import_name(name) or suggest_environments(name)
        raise ValueError(f"There is no environment {name!r}. {hint}")
    if slash and family in LIBRARIES:
        return _FAMILIES[family], member  # the adapter checks the name, and has the better error message
    if name not in (known := _names_of(family)):
        raise ValueError(f"There is no environment {name!r}. {suggest_names(name, known)}")
    return _FAMILIES[family], member


def _names_of(family: str) -> list[str]:
    return [f"{family}/{member}" if member else family for member in _FAMILIES[family].members()]


# --- Families --------------------------------------------------------------------------------------------------------


class _Family(NamedTuple):
    """Environments that are made by one function."""

    #: Names after the slash. A single "" if the family is one environment without a slash.
    members: Callable[[], Sequence[str]]
    #: From the name after the slash to the function that takes the options.
    maker: Callable[[str], Callable[..., Task]]
    #: An environment with the same specs, cheap to construct; used by `spo envs`.
    preview: Callable[[str], Environment]
    #: The default time limit in steps, or None.
    time_limit: Callable[[str], int | None]
    #: Implementation of the physics, in one word.
    physics: Callable[[str], str]


def _make_family(
    members: Callable[[], Sequence[str]],
    maker: Callable[[str], Callable[..., Task]],
    *,
    preview: Callable[[str], Environment] | None = None,
    time_limit: Callable[[str], int | None] | None = None,
    physics: Callable[[str], str] = lambda _: "-",
) -> _Family:
    """A family without physics, previewed by its training environment, with a time limit as argument, unless given."""

    def default_preview(member: str) -> Environment:
        return maker(member)().train

    def default_time_limit(member: str) -> int | None:
        parameter = inspect.signature(maker(member)).parameters.get("time_limit")
        return None if parameter is None else parameter.default

    return _Family(members, maker, preview or default_preview, time_limit or default_time_limit, physics)


def _preview_sokoban(_: str) -> Environment:
    return generated_sokoban(num_levels=1, num_evaluation_levels=1).train


_FAMILIES = {
    "rubiks_cube": _make_family(lambda: ("",), lambda _: rubiks_cube),
    "sokoban": _make_family(lambda: ("generated",), lambda _: generated_sokoban, preview=_preview_sokoban),
    "boxoban": _make_family(
        lambda: ("unfiltered",),
        lambda member: functools.partial(boxoban, f"{member}-train"),
        preview=_preview_sokoban,
    ),
    "tiny": _make_family(lambda: TINY_NAMES, tiny_maker),
    "brax": _make_family(brax.names, lambda member: functools.partial(brax.brax, member), physics=brax.physics_of),
    "jumanji": _make_family(
        jumanji.names,
        lambda member: functools.partial(jumanji.jumanji, member),
        preview=lambda member: jumanji.jumanji(member, **jumanji.offline_options(member)).train,
        time_limit=lambda member: jumanji.time_limit(member, **jumanji.offline_options(member)),
    ),
    "gymnax": _make_family(
        gymnax.names, lambda member: functools.partial(gymnax.gymnax, member), time_limit=gymnax.time_limit
    ),
    "playground": _make_family(
        playground.names,
        lambda member: functools.partial(playground.playground, member),
        time_limit=playground.time_limit,
        physics=lambda _: "MJX",
    ),
    "pgx": _make_family(pgx.names, lambda member: functools.partial(pgx.pgx, member)),
    "craftax": _make_family(
        craftax.names, lambda member: functools.partial(craftax.craftax, member), time_limit=craftax.time_limit
    ),
    "xminigrid": _make_family(
        xminigrid.names,
        lambda member: functools.partial(xminigrid.xminigrid, member),
        preview=xminigrid.preview,
        time_limit=xminigrid.time_limit,
    ),
}

__all__ = ["Description", "describe", "make", "maker_of", "names"]
