"""Values on a command line that is not parsed yet. Some of them decide which options the parser knows."""

from collections.abc import Sequence


def find_value(arguments: Sequence[str], option: str) -> str | None:
    """Returns the value of an option on a command line; None if it is absent or has no value."""
    found = None  # the last one counts, as for the parser
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == option:
            found = value if equals else next(iter(arguments[index + 1 :]), None)
    return found


def is_set(arguments: Sequence[str], option: str) -> bool:
    """Returns True if a command line sets an option without a value, and does not take it back after that."""
    negated = option.replace("--", "--no-", 1)
    given = [argument for argument in arguments if argument in (option, negated)]
    return given[-1:] == [option]


def without_value(arguments: Sequence[str], option: str) -> tuple[str, ...]:
    """Returns a command line without an option and its value."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == option:
            next(words, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return tuple(kept)


__all__ = ["find_value", "is_set", "without_value"]
