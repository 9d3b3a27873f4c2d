"""Sentences about packages that are not installed."""

from pathlib import Path


def install_hint(extra: str) -> str:
    """Returns the command that installs an extra of this package, such as "envs".

    The package is on no package index, so it is installed from a clone of its repository.
    """
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return f'pip install -e "{root}[{extra}]"'
    return f'pip install ".[{extra}]" in a clone of this package'
