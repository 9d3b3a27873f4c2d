"""Tests of the sinks: the display, and Weights & Biases with a stand-in for its library."""

import dataclasses
import io
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from spo import files
from spo.training import loop
from spo.training.run_state import Progress
from spo.training.sinks.base import RunInfo, Sink, SinkGroup
from spo.training.sinks.display import LineDisplay, LiveDisplay, evaluation_progress
from spo.training.sinks.json_lines import JsonLines
from spo.training.sinks.weights_and_biases import WeightsAndBiases
from training.tiny_run import tiny_experiment


def make_info(num_seeds: int = 2, **changes: Any) -> RunInfo:
    return RunInfo(tiny_experiment(num_seeds=num_seeds), Path("runs/x"), 1000, None)._replace(**changes)


def make_record(kind: str, seed: int, env_steps: int, **metrics: float) -> dict[str, Any]:
    return {
        "kind": kind,
        "seed": seed,
        "env_steps": env_steps,
        "metrics": {name.replace("__", "/"): value for name, value in metrics.items()},
        "time": {"wall_seconds": 1.0, "env_steps_per_second": 100.0},
    }


# --- Display ----------------------------------------------------------------------------------------------------------


def test_lines_average_seeds_and_are_few():
    lines: list[str] = []
    now = [0.0]
    display = LineDisplay(lines.append, seconds_between_lines=10.0, clock=lambda: now[0])
    display.start(make_info())
    assert lines == ["spo on rubiks_cube, 2 seeds: 1,000 steps, in runs/x"]
    for step in range(100, 600, 100):  # five logs, two seconds apart
        now[0] += 2.0
        returns = {0: 1.0, 1: 3.0}
        display.log(
            [
                make_record("train", seed, step, episode__return=returns[seed], temperature=0.5, search__kl=0.25)
                for seed in returns
            ]
        )
    assert lines[1:] == [" 10%  100 steps  return 2  temperature 0.5  KL 0.25"]
    display.log(
        [make_record("evaluation", seed, 500, episode__solved=solved) for seed, solved in enumerate((0.2, 0.4))]
    )
    # 400 steps took 8 seconds, so the remaining 500 take 10.
    assert lines[2:] == [" 50%  500 steps  evaluation: solved 30.0 %  100 steps/s  10 s left"]
    display.message("hello")
    display.close()
    assert lines[3:] == ["hello"]


def test_a_file_gets_every_line_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """So `tail -f` follows a run, and a kill loses no line."""
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stdout", log)
        LineDisplay().message("hello")
        assert (tmp_path / "log").read_text() == "hello\n"


def test_a_metric_that_a_seed_lacks_is_not_shown():
    lines: list[str] = []
    display = LineDisplay(lines.append)
    resumed_from = Progress(iteration=5, env_steps_per_iteration=100, best_scores=(0.0, 0.0), best_iterations=(0, 0))
    display.start(make_info(resumed_from=resumed_from))
    assert lines == ["spo on rubiks_cube, 2 seeds: 1,000 steps, resumed at 500, in runs/x"]
    display.log(
        [
            make_record("train", 0, 600, temperature=0.5, episode__return=1.0),
            make_record("train", 1, 600, temperature=0.5),
        ]
    )
    assert lines[1:] == [" 60%  600 steps  temperature 0.5"]


def test_the_title_says_why_a_run_is_longer_than_its_setting():
    lines = []
    info = make_info(num_seeds=1, folder=None, total_env_steps=10_240, env_steps_per_interval=1024)
    for steps in (1e4, 10_240.0):
        experiment = dataclasses.replace(info.experiment, steps=steps)
        LineDisplay(lines.append).start(info._replace(experiment=experiment))
    assert lines == [
        "spo on rubiks_cube: 10,240 steps (whole intervals of 1,024)",
        "spo on rubiks_cube: 10,240 steps",
    ]


def test_a_run_in_memory_has_no_folder_to_show():
    lines: list[str] = []
    LineDisplay(lines.append).start(make_info(num_seeds=1, folder=None))
    assert lines == ["spo on rubiks_cube: 1,000 steps"]


def test_the_live_display_shows_training_and_the_last_evaluation():
    screen = io.StringIO()
    display = LiveDisplay(Console(file=screen, force_terminal=True, width=100))
    display.start(make_info(num_seeds=1, folder=Path("[x]")))
    display.log([make_record("evaluation", 0, 100, episode__solved=0.125)])
    display.log([make_record("train", 0, 200, temperature=0.5, search__ess=7.5)])
    display.message("a [word] between")
    display.close()
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.getvalue())  # without colours
    for words in ("in [x]", "200 / 1,000 steps", "temperature 0.5", "ESS 7.5", "solved 12.5 %", "a [word] between"):
        assert words in shown


def test_escapes_in_names_are_not_sent_to_the_terminal():
    lines: list[str] = []
    screen = io.StringIO()
    for display in (LineDisplay(lines.append), LiveDisplay(Console(file=screen, force_terminal=True, width=200))):
        display.start(make_info(num_seeds=1, folder=Path("runs/\x1b]0;owned\x07")))
        display.message("\x1b]0;owned\x07")
        display.close()
    assert lines[-1] == r"\x1b]0;owned\x07"
    assert "\x1b]0;" not in "".join(lines) + screen.getvalue()


# --- Files ------------------------------------------------------------------------------------------------------------


def test_a_metrics_file_that_has_lost_lines_is_refused(tmp_path: Path):
    """Records up to the checkpoint can't be written again."""
    sink = JsonLines(tmp_path / "metrics.jsonl")
    sink.start(make_info())
    sink.log([make_record("train", 0, 100)])
    num_bytes = (tmp_path / "metrics.jsonl").stat().st_size
    sink.log([make_record("train", 0, 200)])
    progress = Progress(1, 100, (0.0,), (0,), metrics_bytes=num_bytes)
    sink.start(make_info(resumed_from=progress))
    assert (tmp_path / "metrics.jsonl").stat().st_size == num_bytes
    with pytest.raises(ValueError, match="shorter than it was at the checkpoint"):
        sink.start(make_info(resumed_from=progress._replace(metrics_bytes=num_bytes + 1)))


@pytest.mark.parametrize(
    ("old", "new"), [(b'"kind"', b'"kind'), (b"{", b"\0"), (b'"metrics"', b'"metrocs"'), (b"train", b"tra\xff\xff")]
)
def test_a_damaged_line_is_found_when_the_run_is_resumed(tmp_path: Path, old: bytes, new: bytes):
    """Not at the end of the training, when the summary is made."""
    path = tmp_path / "metrics.jsonl"
    sink = JsonLines(path)
    sink.start(make_info())
    for step in (100, 200, 300):
        sink.log([make_record("train", 0, step)])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(old, new)
    path.write_bytes(b"".join(lines))
    progress = Progress(1, 100, (0.0,), (0,), metrics_bytes=path.stat().st_size)
    with pytest.raises(ValueError, match=rf"Line 2 of {path} is not .* Restore the file"):
        sink.start(make_info(resumed_from=progress))
    # The lines before it are those of an earlier checkpoint, which goes on.
    sink.start(make_info(resumed_from=progress._replace(metrics_bytes=len(lines[0]))))


def test_a_changed_digit_is_found_when_the_run_is_resumed(tmp_path: Path):
    """The line is still a record: only its checksum tells. A run of an earlier version has none and is resumed."""
    path = tmp_path / "metrics.jsonl"
    sink = JsonLines(path)
    sink.start(make_info())
    sink.log([make_record("train", 0, 100)])
    progress = Progress(1, 100, (0.0,), (0,), metrics_bytes=path.stat().st_size, metrics_crc32=files.crc32(path))
    sink.log([make_record("train", 0, 200)])
    sink.start(make_info(resumed_from=progress))  # the second line is removed
    content = path.read_bytes()
    path.write_bytes(content.replace(b"100", b"101", 1) + content)
    with pytest.raises(ValueError, match=rf"{path} was changed after the run wrote it, or is damaged: restore the"):
        sink.start(make_info(resumed_from=progress))
    assert len(path.read_bytes()) == 2 * len(content), "nothing is removed from a damaged file"
    sink.start(make_info(resumed_from=progress._replace(metrics_crc32=None)))


# --- Groups and callbacks ---------------------------------------------------------------------------------------------


class Recorder(Sink):
    """Remembers the names of the calls."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.fails = fails

    def start(self, _: RunInfo) -> None:
        self.calls.append("start")

    def log(self, records: Any) -> None:
        self.calls.append(records[0]["kind"])

    def message(self, _: str) -> None:
        self.calls.append("message")

    def close(self) -> None:
        self.calls.append("close")
        if self.fails:
            raise OSError("no")


def test_all_sinks_of_a_group_are_closed_even_if_one_fails():
    sinks = [Recorder(), Recorder(fails=True), Recorder()]
    group = SinkGroup(sinks)
    group.message("before the start")
    group.start(make_info())
    group.log([make_record("train", 0, 100)])
    with pytest.raises(OSError, match="no"):
        group.close()
    assert [sink.calls for sink in sinks] == [["message", "start", "train", "close"]] * 3


def test_an_error_in_a_callback_stops_training_and_closes_the_sinks(tmp_path: Path):
    class Failing(Sink):
        def log(self, _: Any) -> None:
            raise ZeroDivisionError

    sink = Recorder()
    with pytest.raises(ZeroDivisionError):
        loop.train(tiny_experiment(), tmp_path / "run", sinks=[Failing(), sink])
    assert sink.calls == ["start", "message", "close"]  # the message describes the network


# --- Weights & Biases -------------------------------------------------------------------------------------------------


def test_weights_and_biases_receives_every_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Beside another sink. Nothing leaves this machine."""
    started, logged, finished = [], [], []
    run = types.SimpleNamespace(log=logged.append, finish=lambda: finished.append(True))

    def init(**settings: Any) -> Any:
        started.append(settings)
        return run

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    other = Recorder()
    loop.train(tiny_experiment(), tmp_path / "run", sinks=[other, WeightsAndBiases("cubes")])
    [settings] = started
    assert (settings["project"], settings["name"], settings["resume"]) == ("cubes", "run", "allow")
    assert settings["config"]["task"] == tiny_experiment().task
    num_records = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert len(logged) == num_records
    assert all("env_steps" in line for line in logged)
    assert any(name.startswith("final/seed_0/episode/return") for line in logged for name in line)
    assert finished == [True]
    calls = [call for call in other.calls if call != "message"]
    assert (calls[0], calls[-1]) == ("start", "close")
    assert 2 * len(calls[1:-1]) == num_records  # each call has the records of both seeds


def test_without_its_library_weights_and_biases_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r'pip install -e ".+\[wandb\]"'):
        WeightsAndBiases("cubes")


# --- Progress of an evaluation ----------------------------------------------------------------------------------------
def test_an_evaluation_writes_a_line_every_ten_seconds():
    out, clock = io.StringIO(), iter([0.0, 9.0, 11.0, 11.0, 12.0])
    console = Console(file=out, width=80)
    with evaluation_progress(console=console, clock=lambda: next(clock)) as show:
        for ended, steps in ((1, 5), (2, 6), (3, 7)):
            show(ended, 1280, steps)
    assert out.getvalue() == "2 of 1,280 episodes ended, step 6\n"


@pytest.mark.parametrize(("time_limit", "share"), [(None, " 25%"), (20, " 50%")])
def test_an_evaluation_redraws_a_bar_in_a_terminal(time_limit: int | None, share: str):
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    with evaluation_progress(time_limit, console=console) as show:
        show(1, 4, 10)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert share in text
    assert "1 of 4 episodes ended, step 10" in text
