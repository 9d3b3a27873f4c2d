"""Errors of a user's own functions, as one sentence with the place in the user's file."""

import traceback
import types
from pathlib import Path

#: Packages whose frames are skipped in the search for the line that raised an error.
LIBRARIES = ("jax", "jaxlib", "numpy", "flax", "contextlib", "functools", "importlib", "_frozen_importlib", "spo")
LONGEST_QUOTE = 200


def place_of(error: BaseException) -> str:
    """Returns file and line of the last frame outside of libraries, as " (in FILE, line N)", or nothing."""
    frames = [
        (Path(frame.f_code.co_filename).name, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _package_of(frame) not in LIBRARIES
    ]
    return f" (in {frames[-1][0]}, line {frames[-1][1]})" if frames else ""


def is_raised_by_package(error: BaseException) -> bool:
    """Returns True if a line of this package raised the error, so that its text is a sentence for users."""
    packages = [_package_of(frame) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return packages[-1:] == [__name__.partition(".")[0]]


def is_raised_by_caller(error: BaseException) -> bool:
    """Returns True if the package whose function was called first raised the error, or one of `LIBRARIES` below it."""
    packages = [_package_of(frame) for frame, _ in traceback.walk_tb(error.__traceback__)]
    others = [package for package in packages if package not in LIBRARIES]
    return others != [] and others[0] == others[-1]


def quote(error: BaseException) -> str:
    """Returns type, place and first line of an error, such as "KeyError (in my_env.py, line 7): 'level'"."""
    lines = str(error).strip().splitlines() or ["no message"]
    line = lines[0] if len(lines[0]) <= LONGEST_QUOTE else f"{lines[0][:LONGEST_QUOTE]} ..."
    return f"{type(error).__name__}{place_of(error)}: {line.rstrip('.')}"


def _package_of(frame: types.FrameType) -> str:
    """Returns the top package of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


__all__ = ["is_raised_by_caller", "is_raised_by_package", "place_of", "quote"]
