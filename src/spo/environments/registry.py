"""Worlds by name: `make("brax/ant")`. Nothing is imported before it is asked for.

rubiks_cube           ours; trains on 3 to 7 scrambles, evaluates on 7
sokoban/generated     ours, on levels made here: no download
boxoban/unfiltered    ours, on the public levels: trains on unfiltered-train, evaluates on hard
tiny/<name>           worlds of a few states whose answers are known
brax/<name>           Brax, continuous control
jumanji/<name>        Jumanji, any of its single-agent worlds
gymnax/<name>         gymnax, with its own names such as CartPole-v1
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spo.checks import suggest_names
from spo.environments._adapters import check_options
from spo.types import Environment, Task


class Family(NamedTuple):
    """Worlds that are made by the same function."""

    #: What may stand after the slash; a lone "" where the family is a single world without a slash.
    members: Callable[[], Sequence[str]]
    #: From what stands after the slash to the function that takes the options.
    maker: Callable[[str], Callable[..., Task]]
    #: A world of the same sizes and limit that is cheap to make, to look at rather than to play.
    stand_in: Callable[[str], Environment]
    time_limit: Callable[[str], int | None]


def make(name: str, **options: Any) -> Task:
    """The task called `name`. Options are the arguments of its maker, such as `time_limit=50`."""
    maker = maker_of(name)
    parameters = inspect.signature(maker).parameters
    # Makers that hand options on to another library check them themselves.
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        check_options(name, options, parameters)
    return maker(**options)


def maker_of(name: str) -> Callable[..., Task]:
    """The function that makes the task called `name` from its options."""
    family, member = _find(name)
    return family.maker(member)


def names() -> list[str]:
    """Every name `make` takes here and now: those of packages which are not installed are left out."""
    absent = missing()
    return [name for family in _FAMILIES if family not in absent for name in _names_of(family)]


def missing() -> dict[str, str]:
    """The families whose package is not installed, and a sentence on what brings it."""
    sentences = {}
    for family, entry in _FAMILIES.items():
        try:
            entry.members()
        except ModuleNotFoundError as error:
            sentences[family] = str(error)
    return sentences


def is_ours(name: str) -> bool:
    """Is the world called `name` written here, rather than behind an adapter to another library?"""
    return name.partition("/")[0] not in _LIBRARIES


class Description(NamedTuple):
    """What a world looks like from outside."""

    environment: Environment
    time_limit: int | None


def describe(name: str) -> Description:
    """Sizes and limit of the world `name` as `make` gives it without options. Loads no data and runs nothing."""
    family, member = _find(name)
    return Description(family.stand_in(member), family.time_limit(member))


def _find(name: str) -> tuple[Family, str]:
    family, slash, member = name.partition("/")
    if family not in _FAMILIES:
        raise ValueError(f"There is no environment {name!r}. {suggest_names(name, names())}")
    if slash and family in _LIBRARIES:
        return _FAMILIES[family], member  # the adapter knows best what to say about a name it doesn't take
    if name not in _names_of(family):
        raise ValueError(f"There is no environment {name!r}. {suggest_names(name, _names_of(family))}")
    return _FAMILIES[family], member


def _names_of(family: str) -> list[str]:
    return [f"{family}/{member}" if member else family for member in _FAMILIES[family].members()]


# --- Ours ------------------------------------------------------------------------------------------------------------


def _rubiks_cube(_: str) -> Callable[..., Task]:
    from spo.environments.rubiks_cube import rubiks_cube

    return rubiks_cube


def _generated_sokoban(
    *,
    seed: int = 0,
    num_levels: int = 1000,
    num_evaluation_levels: int = 200,
    size: int = 10,
    num_boxes: int = 4,
    num_pulls: int = 60,
    time_limit: int = 120,
    time_limit_is_termination: bool = False,
) -> Task:
    """Sokoban on generated levels.

    Args:
        seed: Random seed of the training levels; the evaluation levels use the next seed.
        num_levels: Number of training levels.
        num_evaluation_levels: Number of evaluation levels.
        size: Cells along one side of the square level, walls included.
        num_boxes: Boxes in each level.
        num_pulls: Random pulls that move the boxes away from their targets: more pulls make harder levels.
        time_limit: Longest episode, in moves.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
    """
    from spo.environments.sokoban import sokoban
    from spo.environments.sokoban_generator import generate_levels

    generate = functools.partial(generate_levels, size=size, num_boxes=num_boxes, num_pulls=num_pulls)
    return sokoban(
        generate(seed, num_levels),
        evaluation_levels=generate(seed + 1, num_evaluation_levels),
        time_limit=time_limit,
        time_limit_is_termination=time_limit_is_termination,
    )


def _boxoban(member: str) -> Callable[..., Task]:
    from spo.environments.boxoban import boxoban

    return functools.partial(boxoban, f"{member}-train")


def _one_sokoban_level(_: str) -> Environment:
    return _generated_sokoban(num_levels=1, num_evaluation_levels=1).train


def _tiny_names() -> Sequence[str]:
    from spo.environments.tiny import TINY_NAMES

    return TINY_NAMES


def _tiny(member: str) -> Callable[..., Task]:
    from spo.environments import tiny

    def make_tiny(**options: Any) -> Task:
        check_options(f"tiny/{member}", options, tiny.option_names(member))
        return tiny.tiny(member, **options)

    return make_tiny


def _default_time_limit(maker: Callable[..., Task]) -> int:
    return inspect.signature(maker).parameters["time_limit"].default


# --- Other libraries', each behind its adapter -----------------------------------------------------------------------


def _brax_names() -> Sequence[str]:
    from spo.environments import brax

    return brax.names()


def _brax(member: str) -> Callable[..., Task]:
    from spo.environments.brax import brax

    return functools.partial(brax, member)


def _jumanji_names() -> Sequence[str]:
    from spo.environments import jumanji

    return jumanji.names()


def _jumanji(member: str) -> Callable[..., Task]:
    from spo.environments.jumanji import jumanji

    return functools.partial(jumanji, member)


def _jumanji_options(member: str) -> dict[str, Any]:
    """Options that keep a world from fetching its data, where Jumanji would."""
    if member != "sokoban":
        return {}
    from jumanji.environments.routing.sokoban.generator import SimpleSolveGenerator

    return {"generator": SimpleSolveGenerator()}


def _jumanji_time_limit(member: str) -> int | None:
    from spo.environments import jumanji

    return jumanji.time_limit(member, **_jumanji_options(member))


def _gymnax_names() -> Sequence[str]:
    from spo.environments import gymnax

    return gymnax.names()


def _gymnax(member: str) -> Callable[..., Task]:
    from spo.environments.gymnax import gymnax

    return functools.partial(gymnax, member)


def _gymnax_time_limit(member: str) -> int:
    from spo.environments import gymnax

    return gymnax.time_limit(member)


_LIBRARIES = ("brax", "jumanji", "gymnax")
_FAMILIES = {
    "rubiks_cube": Family(
        members=lambda: ("",),
        maker=_rubiks_cube,
        stand_in=lambda member: _rubiks_cube(member)().train,
        time_limit=lambda member: _default_time_limit(_rubiks_cube(member)),
    ),
    "sokoban": Family(
        members=lambda: ("generated",),
        maker=lambda _: _generated_sokoban,
        stand_in=_one_sokoban_level,
        time_limit=lambda _: _default_time_limit(_generated_sokoban),
    ),
    "boxoban": Family(
        members=lambda: ("unfiltered",),
        maker=_boxoban,
        stand_in=_one_sokoban_level,
        time_limit=lambda member: _default_time_limit(_boxoban(member)),
    ),
    "tiny": Family(
        members=_tiny_names,
        maker=_tiny,
        stand_in=lambda member: _tiny(member)().train,
        time_limit=lambda _: None,
    ),
    "brax": Family(
        members=_brax_names,
        maker=_brax,
        stand_in=lambda member: _brax(member)().train,
        time_limit=lambda member: _default_time_limit(_brax(member)),
    ),
    "jumanji": Family(
        members=_jumanji_names,
        maker=_jumanji,
        stand_in=lambda member: _jumanji(member)(**_jumanji_options(member)).train,
        time_limit=_jumanji_time_limit,
    ),
    "gymnax": Family(
        members=_gymnax_names,
        maker=_gymnax,
        stand_in=lambda member: _gymnax(member)().train,
        time_limit=_gymnax_time_limit,
    ),
}

__all__ = ["Description", "describe", "is_ours", "make", "missing", "names"]
