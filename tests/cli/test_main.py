"""The command `spo`: help, and the commands that need no run."""

import subprocess
import sys

import pytest

pytest.importorskip("tyro")

from spo._version import __version__
from spo.cli import main
from spo.cli.commands import COMMANDS
from spo.environments import boxoban


def _run(capsys, *arguments):
    """Returns the exit code, the standard output and the standard error of a command."""
    code = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_version(capsys):
    assert _run(capsys, "--version") == (0, f"{__version__}\n", "")


def test_help_names_the_commands(capsys):
    for arguments in ((), ("--help",)):
        code, printed, _ = _run(capsys, *arguments)
        assert code == 0
        for command in COMMANDS:
            assert f"• {command} " in printed


def test_python_m_spo_is_the_command_and_its_help_imports_no_jax():
    script = "import runpy, sys; sys.argv = ['spo']\n"
    script += "try: runpy.run_module('spo', run_name='__main__')\n"
    script += "except SystemExit: print('jax' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "usage: spo [-h]" in process.stdout
    assert process.stdout.endswith("False\n")
    process = subprocess.run([sys.executable, "-m", "spo", "--version"], check=True, capture_output=True, text=True)
    assert process.stdout == f"{__version__}\n"


def test_envs_shows_sizes(capsys):
    code, printed, _ = _run(capsys, "envs", "--filter", "cube")
    assert code == 0
    row = next(line for line in printed.splitlines() if line.strip().startswith("rubiks_cube"))
    assert row.split() == ["rubiks_cube", "6x3x3", "18", "discrete", "20"]
    assert "sokoban" not in printed


def test_envs_builds_environments_of_other_libraries_only_on_request(capsys):
    pytest.importorskip("jumanji")
    _, printed, _ = _run(capsys, "envs", "--filter", "jumanji/game_2048")
    assert "4 discrete" not in printed
    _, printed, _ = _run(capsys, "envs", "--filter", "jumanji/game_2048", "--sizes")
    assert "board 4x4" in printed
    assert "4 discrete" in printed


def test_envs_without_a_match_prints_a_sentence(capsys):
    code, _, error = _run(capsys, "envs", "--filter", "chess")
    assert code == 2
    assert error == "spo: No environment has 'chess' in its name: `spo envs` lists all of them.\n"


def test_an_unknown_command_exits_with_2(capsys):
    assert _run(capsys, "fly")[0] == 2


@pytest.mark.parametrize(("complete", "expected_code"), [(True, 0), (False, 1)])
def test_download_passes_its_arguments_on(capsys, monkeypatch, tmp_path, complete, expected_code):
    calls = []

    def download(splits, folder, base_url):
        calls.append((tuple(splits), folder, base_url))
        failed = {} if complete else {"hard/000.txt": "gone"}
        return boxoban.DownloadReport(tmp_path, (), (), (), {}, failed, (), ())

    monkeypatch.setattr(boxoban, "download", download)
    code, _, _ = _run(capsys, "download", "boxoban", "hard", "medium-train", "--folder", str(tmp_path))
    assert code == expected_code
    assert _run(capsys, "download", "boxoban", "hard", "--base-url", "https://example.org")[0] == expected_code
    assert calls == [
        (("hard", "medium-train"), tmp_path, boxoban.BASE_URL),
        (("hard",), None, "https://example.org"),
    ]


@pytest.mark.parametrize("splits", [("easy",), ()])
def test_download_of_an_unknown_split_prints_a_sentence(capsys, tmp_path, splits):
    code, _, error = _run(capsys, "download", "boxoban", *splits, "--folder", str(tmp_path))
    assert code == 2
    assert error.startswith("spo: ")
    assert "unfiltered-train" in error
