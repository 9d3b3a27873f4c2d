"""Tables in a terminal and in a pipe."""

import sys

import pytest

from spo.cli.tables import print_table

HEADER = ("run", "task", "result")
ROWS = [("a-long-name-of-a-run", "rubiks_cube", "93.4 %"), ("b", "brax/ant", "6,000")]


def printed(capsys, monkeypatch, rows, columns: int | None, **options) -> list[str]:
    if columns is not None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))
    print_table(HEADER, rows, **{"cut": ()} | options)
    return capsys.readouterr().out.splitlines()


def test_a_pipe_gets_tabs_and_whole_cells(capsys, monkeypatch):
    assert printed(capsys, monkeypatch, ROWS, None, cut=("task",)) == [
        "run\ttask\tresult",
        "a-long-name-of-a-run\trubiks_cube\t93.4 %",
        "b\tbrax/ant\t6,000",
    ]


def test_a_terminal_gets_columns(capsys, monkeypatch):
    assert printed(capsys, monkeypatch, ROWS, 80) == [
        "run                   task         result",
        "a-long-name-of-a-run  rubiks_cube  93.4 %",
        "b                     brax/ant     6,000",
    ]


def test_in_a_narrow_terminal_the_first_cell_has_its_own_line(capsys, monkeypatch):
    lines = printed(capsys, monkeypatch, ROWS, 30, own_line=True)
    assert lines[2:4] == ["a-long-name-of-a-run", "    rubiks_cube  93.4 %"]
    assert max(map(len, lines)) <= 30


def test_in_a_narrow_terminal_the_named_column_is_cut(capsys, monkeypatch):
    lines = printed(capsys, monkeypatch, ROWS, 22, own_line=True, cut=("task",))
    assert lines[2:4] == ["a-long-name-of-a-run", "    rubiks_...  93.4 %"]
    assert max(map(len, lines)) <= 22
    lines = printed(capsys, monkeypatch, ROWS, 36, cut=("run",))
    assert lines[1] == "a-long-name-...  rubiks_cube  93.4 %"
    assert max(map(len, lines)) <= 36


@pytest.mark.parametrize("columns", [None, 80])
def test_escapes_line_ends_and_tabs_of_a_cell_are_not_printed(capsys, monkeypatch, columns):
    lines = printed(capsys, monkeypatch, [("a\tb\nc", "\x1b[31mred", "")], columns)
    assert len(lines) == 2
    assert "a b c" in lines[1]
    assert "\x1b" not in lines[1]
