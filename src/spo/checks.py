"""Checks of configuration values: the type of a field names the values that it accepts.

    @dataclass(frozen=True)
    class MyConfig:
        num_envs: PositiveInt = 64
        gamma: UnitInterval = 0.99
        readout: Literal["last", "all_depths"] = "last"

        def __post_init__(self) -> None:
            check_fields(self)

A field that may be None is annotated `PositiveInt | None`. An `int` takes no truth value and no 2.5, and must fit
32 bits. A `float` must be finite, and takes whole numbers too.
"""

import dataclasses
import difflib
import inspect
import sys
import types
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Number, Real
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

MAX_INT = 2**31 - 1
"""Largest size or count. JAX counts with 32 bits."""
MAX_FLOAT = 3.4e38
"""Largest finite number of 32 bits."""
MAX_SEED = 2**32 - 1
"""Largest random seed. JAX would use the lowest 32 bits of a larger one, which are another seed's."""


class Check(NamedTuple):
    """A condition on a value, and the words that follow the field's name in the error."""

    holds: Callable[[Any], bool]
    rule: str

    def __repr__(self) -> str:
        """Returns the rule: `help` shows it with the type of an argument."""
        return repr(self.rule)


_FITS = Check(lambda value: abs(value) <= MAX_INT, f"must be at most {MAX_INT}")
_FINITE = Check(lambda value: abs(value) <= MAX_FLOAT, "must be a finite number")

PositiveInt: TypeAlias = Annotated[int, Check(lambda value: value >= 1, "must be 1 or more"), _FITS]
PositiveFloat: TypeAlias = Annotated[float, Check(lambda value: value > 0.0, "must be above 0"), _FINITE]
#: A bound, which infinity switches off.
PositiveOrInfinite: TypeAlias = Annotated[float, Check(lambda value: value > 0.0, "must be above 0")]
NonNegativeFloat: TypeAlias = Annotated[float, Check(lambda value: 0.0 <= value <= MAX_FLOAT, "must be 0 or more")]
#: A part of something that may be all of it, and not nothing.
Fraction: TypeAlias = Annotated[float, Check(lambda value: 0.0 < value <= 1.0, "must be above 0 and at most 1")]
UnitInterval: TypeAlias = Annotated[float, Check(lambda value: 0.0 <= value <= 1.0, "must lie between 0 and 1")]


def at_most(limit: int) -> Check:
    """Returns the check of an upper bound: `Annotated[PositiveInt, at_most(1000)]`."""
    return Check(lambda value: value <= limit, f"must be at most {limit}")


#: Width of a layer, and number of layers. A network of this size does not fit into any memory.
LayerSize: TypeAlias = Annotated[PositiveInt, at_most(2**20)]
LayerCount: TypeAlias = Annotated[PositiveInt, at_most(1000)]
#: Particles, simulations or seeds, which multiply the memory.
Multiplicity: TypeAlias = Annotated[PositiveInt, at_most(2**20)]
#: Steps that are compiled one after the other.
LoopLength: TypeAlias = Annotated[PositiveInt, at_most(100_000)]
#: A port of TCP; 0 stands for any free one.
Port: TypeAlias = Annotated[int, Check(lambda value: 0 <= value <= 65_535, "must lie between 0 and 65535")]
#: A random seed.
Seed: TypeAlias = Annotated[int, Check(lambda value: 0 <= value <= MAX_SEED, f"must lie between 0 and {MAX_SEED}")]


def check_fields(config: Any, prefix: str = "") -> None:
    """Raises ValueError for the first field of a dataclass whose value its annotation does not accept.

    `prefix` precedes the field's name in the error: a configuration that is nested as `search` passes "search.". Arrays
    in place of a float are not checked: inside `jax.jit` and `jax.vmap` they have no value.
    """
    for name, kind in get_type_hints(type(config), include_extras=True).items():
        check_value(f"{prefix}{name}", getattr(config, name), kind)


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], owner: str) -> None:
    """Raises ValueError for the first argument that the function's annotation does not accept.

    Arguments without an annotation are not checked. `owner` names the function in the error, such as "tiny/chain".
    """
    function = getattr(function, "func", function)  # a partial function has the annotations of the whole one
    try:
        kinds = get_type_hints(inspect.unwrap(function), include_extras=True)
    except (NameError, TypeError):  # annotations of someone else's function, which may name what is not imported
        return
    for name, value in arguments.items():
        if name in kinds:
            check_value(f"{owner}: {name}", value, kinds[name])


def check_value(name: str, value: Any, kind: Any) -> None:
    """Raises ValueError with the name if the annotation `kind` does not accept the value."""
    rule = _broken_rule(kind, value)
    if rule is not None:
        raise ValueError(f"{name} {rule}, got {shorten(value)}.")


def shorten(value: Any, length: int = 80) -> str:
    """Returns a value as text, cut off after `length` characters."""
    text = str(value) if isinstance(value, Number) else repr(value)
    return text if len(text) <= length else f"{text[: length - 4]} ..."


def _broken_rule(kind: Any, value: Any) -> str | None:
    """Returns the first rule of an annotation that a value breaks, or None."""
    origin = get_origin(kind)
    if origin is Literal:
        known = get_args(kind)
        # `True` equals 1, and a list can't be compared by hash.
        accepted = any(type(value) is type(choice) and value == choice for choice in known)
        return None if accepted else f"must be one of {', '.join(map(str, known))}"
    if origin is Annotated:
        if _is_array(value):
            return None
        base, *metadata = get_args(kind)
        checks = [item for item in metadata if isinstance(item, Check)]
        broken = (check.rule for check in checks if not check.holds(value))
        return _broken_type(base, value) or next(broken, None) if checks else _broken_rule(base, value)
    if origin in (Union, types.UnionType):
        rules = [_broken_rule(member, value) for member in get_args(kind)]
        if None in rules:
            return None
        # The rule about the value, if a member has its type.
        return next((rule for rule in rules if rule not in _TYPE_RULES.values()), rules[0])
    return _broken_type(kind, value) or _broken_range(kind, value)


_TYPE_RULES = {
    int: "must be a whole number",
    float: "must be a number",
    bool: "must be True or False",
    str: "must be text",
    type(None): "must be None",
    tuple: "must be a tuple",
    dict: "must be a dictionary",
    Path: "must be a path",
}


def _broken_type(kind: Any, value: Any) -> str | None:
    kind = get_origin(kind) or kind
    if kind is None:
        kind = type(None)
    if not isinstance(kind, type):
        return None
    if kind is float:
        accepted = _is_array(value) or (isinstance(value, Real) and not isinstance(value, bool))
    elif kind is int:
        accepted = isinstance(value, Integral) and not isinstance(value, bool)
    elif kind is Path:
        accepted = isinstance(value, str | Path)
    elif kind in _TYPE_RULES or dataclasses.is_dataclass(kind):
        accepted = isinstance(value, kind)
    else:
        return None
    return None if accepted else _TYPE_RULES.get(kind, f"must be of type {kind.__name__}")


def _broken_range(kind: Any, value: Any) -> str | None:
    """Returns the rule of a plain `int`, `float` or tuple that a value of the right type breaks."""
    if kind is int and not _FITS.holds(value):
        return _FITS.rule
    if kind is float and not _is_array(value) and not _FINITE.holds(value):
        return _FINITE.rule
    if get_origin(kind) is tuple and get_args(kind)[1:] == (Ellipsis,):
        rules = (_broken_rule(get_args(kind)[0], item) for item in value)
        return next((f"contains a value that {rule}" for rule in rules if rule is not None), None)
    return None


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, Number)


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Returns a sentence with the known names closest to an unknown one, or with all of them if none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else f"There are: {', '.join(known)}."


def printable(text: str) -> str:
    """Returns a text for the terminal: control characters, which can move the cursor or recolour it, are escaped.

    Line ends and tabs stay. Marks that reverse the direction of writing and bytes that are no text are escaped too.
    """

    def escape(character: str) -> str:
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
            return character
        return character.encode("unicode_escape").decode("ascii")

    return "".join(map(escape, text))


def print_message(text: str) -> None:
    """Prints a sentence for people to the standard error."""
    print(f"spo: {printable(text)}", file=sys.stderr)
