"""Extension of Griffe for the API pages: the comment of a field becomes its description.

A comment counts if it stands behind the field, or above it with `#:`. A docstring below the field takes precedence.

    class Point(NamedTuple):
        x: float  # Distance to the right.
        #: Distance upwards.
        y: float
"""

import io
import re
import tokenize
from typing import Any

import griffe

#: Comments for tools, not for readers.
_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|fmt:|pragma:|ruff:|mypy:).*")


class FieldComments(griffe.Extension):
    """Gives attributes without a docstring the text of their comment."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lineno is not None:
            text = comment_of(attr.module.lines, attr.lineno, attr.endlineno or attr.lineno)
            if text:
                attr.docstring = griffe.Docstring(text, parent=attr)


def comment_of(lines: list[str], first: int, last: int) -> str:
    """Returns the comment above and behind the lines `first` to `last`, counted from 1."""
    above: list[str] = []
    line = first - 1
    while line > 0 and lines[line - 1].strip().startswith("#"):
        above.insert(0, lines[line - 1].strip())
        line -= 1
    starts = [i for i, comment in enumerate(above) if comment.startswith("#:")]
    parts = above[starts[0] :] if starts else []
    parts += _comments("\n".join(lines[first - 1 : last]))
    return " ".join(text for text in (_FOR_TOOLS.sub("", part).lstrip("#: ").strip() for part in parts) if text)


def _comments(source: str) -> list[str]:
    """Returns the comments in a piece of source code, which may be an incomplete program."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                found.append(token.string)
    except (tokenize.TokenError, IndentationError):
        pass
    return found
