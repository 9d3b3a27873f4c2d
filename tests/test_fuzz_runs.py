"""Tests of the tool that kills runs and damages their folders: a few cases of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_runs.py"


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
