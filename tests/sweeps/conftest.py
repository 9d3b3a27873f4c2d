import sys
from pathlib import Path

import pytest

from spo.sweeps import workers
from spo.sweeps.folder import Sweep, SweepFolder

FAKE = Path(__file__).with_name("fake_trial.py")


@pytest.fixture
def fake_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials write a run without training, and their processes are looked at often."""
    real = workers.train_command

    def command(*arguments):
        return [sys.executable, str(FAKE), *real(*arguments)[3:]]

    monkeypatch.setattr(workers, "train_command", command)
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.02)


@pytest.fixture
def sweep() -> Sweep:
    return Sweep(
        arguments=("--steps", "3"),
        vary={"score": ("1", "4", "2")},
        sampler="grid",
        num_trials=3,
        seed=0,
        stop_early=False,
    )


@pytest.fixture
def folder(tmp_path: Path, sweep: Sweep) -> SweepFolder:
    folder = SweepFolder(tmp_path / "sweep")
    folder.create(sweep)
    return folder
