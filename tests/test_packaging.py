"""The package: consistent versions, complete data files, few dependencies of the search, no paths of one machine."""

import fnmatch
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import urllib.parse
from pathlib import Path

import pytest

import spo

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "spo"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def tracked_files() -> list[Path]:
    """Returns the files that are or could be committed."""
    try:
        names = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("needs git and a repository")
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_versions_agree():
    assert importlib.metadata.version("spo-jax") == spo.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE).group(1) == spo.__version__


def test_data_files_are_shipped():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["spo"]
    data = [path.relative_to(PACKAGE).as_posix() for path in tracked_files() if path.is_relative_to(PACKAGE)]
    data = [name for name in data if not name.endswith(".py")]
    assert "py.typed" in data
    for name in data:
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), (
            f"package-data in pyproject.toml misses {name}"
        )


def test_license_is_complete():
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_search_needs_only_jax_and_jaxtyping():
    """In a fresh process the search imports nothing that an extra installs."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    requirements = [line for name, lines in extras.items() if name != "cuda" for line in lines]
    names = {re.match(r"[\w-]+", line).group().lower() for line in requirements} - {"spo-jax"}
    by_distribution: dict[str, set[str]] = {}
    for module, distributions in importlib.metadata.packages_distributions().items():
        for distribution in distributions:
            by_distribution.setdefault(distribution.lower(), set()).add(module)
    # JAX itself imports SciPy.
    forbidden = set().union(*(by_distribution.get(name, set()) for name in names)) - {"scipy"}
    assert {"flax", "optax", "mctx", "brax", "jumanji"} <= forbidden | {
        name for name in ("flax", "optax", "mctx", "brax", "jumanji") if importlib.util.find_spec(name) is None
    }

    script = "import sys, spo.search; print(*{name.partition('.')[0] for name in sys.modules})"
    process = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not forbidden & set(process.stdout.split())


def test_constraints_are_plain_pins():
    """Names and versions only. The user of the package chooses the package index."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    for line in pins:
        assert re.fullmatch(r'[a-z0-9-]+==[\w.]+(; python_version [<>=]+ "3\.\d+")?', line), line


def machine_patterns() -> dict[str, re.Pattern[str]]:
    """Returns patterns of paths, package indexes and names that are valid on one machine only."""
    indices = [os.environ.get(name, "") for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")]
    hosts = {urllib.parse.urlsplit(url).hostname for urls in indices for url in urls.split()} - {None}
    folders = {str(ROOT), str(Path.home()), sys.base_prefix} - {"/", "/usr", "/usr/local"}
    here = "|".join(map(re.escape, sorted(hosts | folders)))
    return {
        "a path of this machine, or a package index it uses": re.compile(rf"(?<![\w.])(?:{here})(?![\w-])"),
        "a home folder": re.compile(r"(?<![\w.])/(?:home|Users)/\w+/"),
        "a package index": re.compile(r"pypi" + r"\.org|pythonhosted" + r"\.org|(?:index|find)-(?:url|links)[ =]"),
        "another project of the same name": re.compile(r"pip install\s+['\"]?spo(?!-jax)\b"),
    }


def test_files_name_no_machine():
    patterns = machine_patterns()
    for path in tracked_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for what, pattern in patterns.items():
            found = pattern.search(text)
            assert not found, f"{path.relative_to(ROOT)} names {what}: {found.group()!r}"


@pytest.mark.parametrize(
    "text",
    [
        f"see {ROOT}/notes",
        "/home/" + "ada/data",
        "https://pypi" + ".org/simple",
        "pip install " + "spo",
        "--index" + "-url x",
    ],
)
def test_machine_patterns_find_what_they_should(text: str):
    assert any(pattern.search(text) for pattern in machine_patterns().values())
