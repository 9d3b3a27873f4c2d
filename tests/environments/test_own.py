"""Functions of users that make environments: errors inside them, and options that they need."""

import re
import sys
from pathlib import Path

import pytest

from cli.command import spo_command
from spo.environments import make

MODULE = """
import numpy as np

from spo.environments import make
from spo.environments.wrappers import episode_limit


def reshapes():
    return np.zeros(3).reshape(2, 2)


def refuses(length: int = 1):
    raise ValueError("length must be 2 or more")


def opens():
    return open("no_such_file")


def imports():
    import no_such_library


def limits():
    return episode_limit(make("tiny/chain").train, 0)


def needs(n):
    return make("tiny/chain")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "makers_of_a_user"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("function", "error", "line"),
    [
        ("reshapes", "ValueError{}: cannot reshape array of size 3 into shape (2,2)", "return np.zeros(3)"),
        ("refuses", "ValueError{}: length must be 2 or more", "raise ValueError"),
        ("opens", "FileNotFoundError{}: [Errno 2] No such file", "return open("),
        ("imports", "ModuleNotFoundError{}: No module named 'no_such_library'", "import no_such_library"),
    ],
)
def test_an_error_inside_the_maker_is_named_with_function_file_and_line(module, function, error, line):
    number = next(number for number, text in enumerate(MODULE.split("\n"), 1) if line in text)
    sentence = f"The function {module}:{function} raised {error.format(f' (in {module}.py, line {number})')}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(f"{module}:{function}")


def test_the_sentences_of_this_package_stay_as_they_are(module):
    with pytest.raises(
        ValueError, match=r"^An episode needs at least one step, got time_limit=0: give a limit of 1 or more\.$"
    ):
        make(f"{module}:limits")


def test_a_required_option_without_a_type_asks_for_the_type(module, capsys):
    result = spo_command(capsys, "train", "--task", f"{module}:needs", "--task.n", "3", "--steps", "1")
    assert result.code == 2
    assert "The command line needs its type too: annotate it, such as n: int." in result.err
    assert make(f"{module}:needs", n=3).train.name
