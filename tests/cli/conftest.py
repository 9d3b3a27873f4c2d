from pathlib import Path
from typing import Any

import pytest

from spo.cli import training
from spo.training.experiment import Experiment


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Experiment, Path, dict[str, Any]]]:
    """Collects the runs that `spo train` would start, and starts none."""
    calls: list[tuple[Experiment, Path, dict[str, Any]]] = []
    monkeypatch.setattr(
        training, "run", lambda experiment, folder, **options: calls.append((experiment, folder, options))
    )
    return calls
