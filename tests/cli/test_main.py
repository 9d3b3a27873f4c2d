"""The command `spo`: help, and the commands that need no run."""

import subprocess
import sys

import pytest

pytest.importorskip("tyro")

from spo._version import __version__
from spo.cli import environment_facts, main
from spo.cli.commands import COMMANDS
from spo.environments import boxoban
from spo.known_environments import LIBRARIES, stored_facts


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


def test_escapes_in_a_name_are_not_sent_to_the_terminal(capsys):
    code, _, error = _run(capsys, "export", "runs/\x1b]0;owned\x07", "agent.npz")
    assert code == 2
    assert r"runs/\x1b]0;owned\x07 holds no run" in error


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


HIDDEN = "hidden from the observation"


def test_envs_has_facts_in_every_row(capsys):
    code, printed, _ = _run(capsys, "envs")
    header, *rows = [line.split("\t") for line in printed.splitlines()]
    assert (code, header) == (0, ["environment", "observation", "actions", "time limit", "score", HIDDEN, "physics"])
    assert ["rubiks_cube", "6x3x3", "18 discrete", "20", "share of solved cubes", "nothing", "-"] in rows
    assert len(rows) > 15
    assert all(len(row) == 7 and all(row) for row in rows)
    _, printed, _ = _run(capsys, "envs", "cube")
    assert "sokoban" not in printed


def test_every_suite_has_stored_facts():
    """They name what is hidden, and need none of the packages."""
    facts = stored_facts()
    assert {name.partition("/")[0] for name in facts} >= LIBRARIES.keys()
    assert facts["pgx/minatar-breakout"][:3] == ("10x10x4", "3 discrete", "10000")
    assert facts["jumanji/minesweeper"].hidden == "the mines"
    assert facts["craftax/full"].hidden == "the map beyond the view"
    assert all(row.hidden != "nothing" for name, row in facts.items() if name.startswith(("craftax/", "xminigrid/")))


def test_envs_says_which_physics_an_environment_has(capsys):
    _, printed, _ = _run(capsys, "envs", "brax/")
    physics = {row.split("\t")[0]: row.split("\t")[6] for row in printed.splitlines()[1:]}
    assert {name for name, kind in physics.items() if kind != "fused"} == {"brax/pusher"}
    assert physics["brax/pusher"] == "Brax"


def test_envs_imports_no_library_of_environments():
    """The facts are stored, so the list takes a fraction of a second."""
    script = "import sys; from spo.cli import main; main(['envs'])\n"
    script += "print(sorted({'jax', 'brax', 'jumanji'} & sys.modules.keys()))"
    process = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert process.stdout.endswith("[]\n")


def test_envs_names_what_is_not_installed(capsys, monkeypatch):
    monkeypatch.setattr(environment_facts.importlib.util, "find_spec", lambda _: None)
    _, printed, error = _run(capsys, "envs")
    assert "brax" not in printed
    assert "brax/...: The package brax is not installed: pip install -e" in error


def test_a_library_of_another_version_is_asked(monkeypatch):
    monkeypatch.setattr(environment_facts, "missing", lambda: dict.fromkeys(set(LIBRARIES) - {"brax"}, ""))
    monkeypatch.setattr(environment_facts.importlib.metadata, "version", lambda _: "99")
    monkeypatch.setattr(environment_facts, "_names_of", lambda _: ["brax/ant", "brax/new"])
    monkeypatch.setattr(environment_facts, "compute", lambda name: environment_facts.Facts(name, "asked", ""))
    found = environment_facts.list_facts()
    assert (found["brax/ant"].observation, found["brax/new"].actions) == ("27", "asked")
    assert "brax/humanoid" not in found


@pytest.mark.parametrize(
    "library",
    ["built-in", *(pytest.param(name, marks=pytest.mark.slow) for name in LIBRARIES)],
)
def test_the_stored_facts_are_those_of_the_environments(library):
    """`python tools/make_environment_facts.py` writes them."""
    if library != "built-in":
        pytest.importorskip(LIBRARIES[library].module)
    stored = {
        name: facts
        for name, facts in environment_facts.list_facts().items()
        if (name.partition("/")[0] if name.partition("/")[0] in LIBRARIES else "built-in") == library
    }
    assert stored == {name: environment_facts.compute(name) for name in stored}


def test_envs_without_a_match_prints_a_sentence(capsys):
    code, _, error = _run(capsys, "envs", "chess")
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


def test_a_reader_that_closes_the_pipe_early_gets_no_error():
    script = "import sys, time; from spo.cli import main; time.sleep(0.5); main(['envs'])"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert b"Errno" not in process.stderr.read()
    assert process.wait() == 141
    process.stderr.close()
