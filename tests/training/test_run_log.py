"""Tests of the log of a run: other libraries write to it, and not to the terminal."""

import logging
import warnings
from pathlib import Path
from typing import Any

import jax
import pytest

from spo.training import checkpoints, run_log


def warn_from(filename: str, text: str) -> None:
    warnings.showwarning(text, UserWarning, filename, 1)


def test_logs_and_warnings_are_in_the_file_and_not_on_the_terminal(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
):
    path, shown_warnings = tmp_path / "run.log", []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown_warnings.append(message))
    with run_log.collecting() as log:
        logging.getLogger("absl").error("before the folder")
        log.write_to(path)
        with run_log.collecting() as inner:
            assert inner is log
        try:
            raise RuntimeError("inside Orbax")
        except RuntimeError:
            logging.getLogger("orbax.checkpoint").exception("a thread failed")
        warn_from("/lib/site-packages/brax/__init__.py", "Brax is deprecated")
        warn_from("/project/my_environment.py", "look at this")
    logging.getLogger("absl").debug("afterwards")
    text = path.read_text()
    for words in ("before the folder", "RuntimeError: inside Orbax", "Brax is deprecated", "look at this"):
        assert words in text
    assert "afterwards" not in text
    shown = capfd.readouterr()
    assert "inside Orbax" not in shown.err + shown.out
    assert shown_warnings == ["look at this"], "only the warning of the user's own code"


def test_orbax_logs_nothing_to_the_terminal_without_a_run(capfd: Any):
    with run_log.without_orbax_logs():
        logging.getLogger("absl").error("a stack of threads")
    assert "a stack" not in capfd.readouterr().err


def test_a_damaged_checkpoint_leaves_its_traceback_in_the_log(tmp_path: Path, capfd: Any):
    folder = tmp_path / "1"
    (folder / "learner").mkdir(parents=True)
    (folder / "progress").mkdir()
    with run_log.collecting() as log:
        log.write_to(tmp_path / "run.log")
        with pytest.raises(ValueError, match="No checkpoint in"):
            checkpoints.restore(tmp_path, jax.ShapeDtypeStruct((), float), 1, pytest.fail)
    assert capfd.readouterr().err == ""
