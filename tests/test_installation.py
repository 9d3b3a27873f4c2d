"""Tests of the sentences that say how to install a missing package."""

import re
import tomllib
from pathlib import Path

import pytest

import spo.installation
from spo.installation import install_hint

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "spo").rglob("*.py"))


def test_a_hint_names_the_clone_and_an_extra():
    assert install_hint("envs") == f'pip install -e "{ROOT}[envs]"'


def test_outside_a_clone_the_hint_says_where_to_run_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(spo.installation, "__file__", str(tmp_path / "lib" / "spo" / "installation.py"))
    assert install_hint("envs") == 'pip install ".[envs]" in a clone of this package'


def test_every_extra_in_a_hint_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    calls = [name for path in SOURCES for name in re.findall(r"install_hint\([\"'](\w+)", path.read_text("utf-8"))]
    calls += [name for path in SOURCES for name in re.findall(r"extra=\"(\w+)", path.read_text("utf-8"))]
    assert len(calls) > 5
    assert set(calls) <= extras.keys()


def test_no_other_sentence_installs_this_package():
    for path in SOURCES:
        if path.name != "installation.py":
            assert not re.search(r"install [\"']?spo-jax", path.read_text("utf-8")), path
