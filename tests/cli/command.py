"""Runs the command `spo` inside the test process."""

from typing import NamedTuple

import pytest

from spo.cli import main


class Result(NamedTuple):
    """Exit code and output of a command. The error is one line, without the frames of tyro."""

    code: int
    out: str
    err: str


def spo_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Result:
    code = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code or 0
    printed = capsys.readouterr()
    return Result(code, printed.out, one_line(printed.err))


def one_line(text: str) -> str:
    return " ".join(text.replace("│", " ").split())
