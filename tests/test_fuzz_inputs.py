"""Tests of the tool that tries random command lines and API calls."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_inputs", ROOT / "tools" / "fuzz_inputs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("seed must be a whole number, got 2.5."), "refused"),
        (ValueError("steps"), "violation"),
        (TypeError("'<' not supported between instances of 'str' and 'int'"), "violation"),
        (AttributeError("'int' object has no attribute 'value'"), "violation"),
        (KeyError("config"), "violation"),
        (SystemExit(2), "violation"),
    ],
)
def test_the_end_of_a_call_is_judged(fuzz, error, kind):
    def call():
        raise error

    assert fuzz.run_case(fuzz.Case("call", call, is_command=False)).kind == kind


@pytest.mark.parametrize(
    ("code", "printed", "kind"),
    [
        (0, "", "success"),
        (2, "spo: seed must lie between 0 and 4294967295, got -1.\n", "refused"),
        (2, "Traceback (most recent call last):\n", "violation"),
        (2, "", "violation"),
        (1, "spo: A sentence that has another code.\n", "violation"),
    ],
)
def test_the_end_of_a_command_is_judged(fuzz, code, printed, kind):
    def call():
        sys.stderr.write(printed)
        raise SystemExit(code)

    assert fuzz.run_case(fuzz.Case("spo", call, is_command=True)).kind == kind


@pytest.mark.program
def test_random_inputs_are_refused_with_a_sentence():
    process = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "fuzz_inputs.py"), "--cases", "60", "--seed", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
