"""Tests of the tool that kills runs and damages their folders: a few cases of each."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_runs.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_runs", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_base(fuzz, newest):
    states = {10: b"state 10", newest: b"newest state"}
    learners = {("best", newest): b"best learner", ("last", newest): b"last learner"}
    return fuzz.Base(Path("run"), None, newest, states, learners, first_learner=b"first learner")


@pytest.mark.parametrize(
    ("newest", "found", "outcome"),
    [
        (12, b"newest state", "same"),
        (12, b"best learner", "same"),  # the final evaluation, of a run that has lost its summary
        (12, b"state 10", "fall-back"),
        (12, b"first learner", "fall-back"),
        (11, b"newest state", "same"),
    ],
)
def test_the_state_of_a_resumed_run_is_judged(fuzz, newest, found, outcome):
    assert fuzz.judge_reached(make_base(fuzz, newest), found) == outcome


@pytest.mark.parametrize(("newest", "found"), [(12, b"last learner"), (12, b"other"), (11, b"best learner")])
def test_another_learner_is_a_violation(fuzz, newest, found):
    with pytest.raises(fuzz.Violation, match="another learner"):
        fuzz.judge_reached(make_base(fuzz, newest), found)


@pytest.mark.program
def test_nothing_is_lost_and_nothing_is_silently_wrong():
    arguments = ["--kills", "3", "--corruptions", "30", "--seed", "1"]
    result = subprocess.run(
        [sys.executable, str(TOOL), *arguments], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 kills in " in result.stdout
    assert "30 damaged folders in " in result.stdout
    assert "No violation." in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
