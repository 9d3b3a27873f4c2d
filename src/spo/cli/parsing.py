"""Errors of the command line's parser as one sentence.

tyro prints an error as a box of several lines and exits. Here the box is read, and its content becomes a ValueError
like that of any other wrong value.
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable
from typing import TypeVar

Parsed = TypeVar("Parsed")


def parse(command: str, parser: Callable[[], Parsed]) -> Parsed:
    """Returns what the parser of a command, such as `spo train`, returns.

    If it refuses the command line, raises ValueError with one sentence.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed = parser()
    except SystemExit as end:
        if end.code != 2:
            raise
        raise ValueError(sentence(printed.getvalue(), command)) from None
    sys.stderr.write(printed.getvalue())
    return parsed


def sentence(box: str, command: str) -> str:
    """Returns the content of an error box of tyro as one sentence."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)  # colours
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        line = line.strip("│ ")
        if re.fullmatch(r"[─╭╮╰╯].*|-{4,}", line):
            sections.append([])  # a frame or a rule inside it
        elif line:
            sections[-1].append(line)
    texts = [" ".join(section) for section in sections if section]
    if "╭" not in box:  # a terminal without these characters: the title stands above a rule
        texts = texts[1:]
    helps = [text for text in texts if text.startswith("For full helptext")]
    lists = f" `{command} --help` lists the options." if helps else ""
    others = [text for text in texts if text not in helps]
    if others and (found := re.fullmatch(r"Error parsing (?!--)\S+: (.*\.)", others[0])):
        return found[1]  # a sentence of the configuration classes
    return f"{_first(others[0], others[1:], command)}{lists}" if others else f"The command line can't be read.{lists}"


def _first(text: str, others: list[str], command: str) -> str:
    """Returns the sentence of the first section of a box. The others contain suggestions."""
    patterns: list[tuple[str, Callable[[re.Match[str]], str]]] = [
        (
            r"Error parsing (\S+): invalid literal for int\(\) with base \d+: (.*)",
            lambda found: f"{found[1]} must be a whole number, got {found[2]}.",
        ),
        (
            r"Error parsing (\S+): could not convert string to float: (.*)",
            lambda found: f"{found[1]} must be a number, got {found[2]}.",
        ),
        (
            r"Error parsing (\S+): no type matching (.*?) could be instantiated from \[(.*?)\]\. Got errors.*",
            lambda found: f"{found[1]} must be {_in_words(found[2])}, got {found[3] or 'no value'}.",
        ),
        (
            r"invalid choice (.*) for argument '(.*?)'\. Expected one of \((.*)\)\.?",
            lambda found: f"{found[2]} must be one of {_without_quotes(found[3])}, got {found[1]}.",
        ),
        (r"Missing value for argument '(.*?)'.*", lambda found: f"{found[1]} needs a value."),
        (
            r"Missing from (spo.*?): (--\S+) (\S+) (.*)",
            lambda found: f"{found[1]} needs {found[2]} {found[3]}. {_text(found[4])}",
        ),
        (r"Missing from (spo.*?): (\S+) (.*)", lambda found: f"{found[1]} needs {found[2]}. {_text(found[3])}"),
        (
            r"Unrecognized options: (.*)",
            lambda found: (
                f"Unrecognized options: {', '.join(_names(found[1]))}.{_suggestion(others, found[1], command)}"
            ),
        ),
    ]
    for pattern, words in patterns:
        if found := re.fullmatch(pattern, text):
            return words(found)
    return f"{text.rstrip('.')}."


def _names(given: str) -> list[str]:
    """Returns the unknown options among the words that tyro lists, without their values."""
    words = given.split(", ")
    names = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return names or words  # an unknown command


#: Options of `spo train` by their names in other libraries.
_OTHER_NAMES = {
    "--device": "--num-devices",
    "--devices": "--num-devices",
    "--env": "--task",
    "--env-id": "--task",
    "--environment": "--task",
    "--lr": "--learning-rate",
    "--n-envs": "--num-envs",
    "--out": "--run",
    "--seeds": "--num-seeds",
    "--timesteps": "--steps",
    "--total-steps": "--steps",
    "--total-timesteps": "--steps",
}


def _suggestion(others: list[str], given: str, command: str) -> str:
    """Returns a sentence with the options or commands that are meant, without those that were given, or nothing."""
    known = _OTHER_NAMES if command == "spo train" else {}
    if meant := dict.fromkeys(known[name] for name in _names(given.replace("_", "-")) if name in known):
        return f" Did you mean {' or '.join(meant)}?"
    for text in others:
        if text.startswith("Available subcommands: "):
            return f" There are: {text.partition(': ')[2]}."
        found = dict.fromkeys(re.findall(r"(?<![\w`])--[a-z][\w.-]*", text))
        if options := [option for option in found if option not in ("--help", *re.split(r"[,\s=]+", given))]:
            return f" Did you mean {' or '.join(options[:3])}?"
    return ""


def _in_words(types: str) -> str:
    """Returns the types of an option, such as `{None}|INT`, in words."""
    known = {
        "INT": "a whole number",
        "{[INT [INT ...]]}": "whole numbers",
        "FLOAT": "a number",
        "PATH": "a path",
        "{None}": "None",
    }
    names = types.split("|")
    return " or ".join(known.get(name, name) for name in sorted(names, key=lambda name: name == "{None}"))


def _text(help_text: str) -> str:
    return re.sub(r"\s*\(required\)$", "", help_text)


def _without_quotes(choices: str) -> str:
    return ", ".join(choice for choice in re.split(r"[\s,']+", choices) if choice)
