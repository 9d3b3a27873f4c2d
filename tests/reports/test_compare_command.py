"""Tests of the command `spo compare`."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

pytest.importorskip("tyro")
pytest.importorskip("matplotlib")
pytest.importorskip("flax")

from reports.fake_runs import write_run, write_suite
from spo import presets
from spo._version import __version__
from spo.cli import main, training
from spo.cli.compare import _commands, _plain, repeating_command
from spo.networks.config import NetworkConfig
from spo.reports import comparison_figures
from spo.reports.run_files import with_checksum
from spo.reports.runs import load_run
from spo.training.experiment import EvaluationConfig, Experiment, to_json


def test_compare_prints_verdicts_and_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    main(["compare", str(write_suite(tmp_path / "runs")), "--out", str(out), "--resamples", "300"])
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "spo is better than ppo: significant and meaningful. P(spo > ppo) = 1.00 (1.00 to 1.00), p < 0.001." in printed
    )
    assert "optimality gap" in printed
    figures = {f"{name}.png" for name in comparison_figures.FIGURES}
    assert {path.name for path in out.iterdir()} == {"report.html", "comparison.json"} | figures
    numbers = json.loads((out / "comparison.json").read_text())
    assert numbers["groups"] == ["spo", "ppo"]
    assert numbers["verdicts"][0]["p_value"] == pytest.approx(2 / 252**2)  # all of five above all of five, on two tasks


def test_compare_by_a_setting_with_a_title_and_a_damaged_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for particles in (4, 16):
        config = {"search": {"num_particles": particles}}
        write_run(tmp_path / "runs" / f"{particles}", [[0.0, 0.5]] * 2, final=[0.5, 0.6], config=config)
    damaged = write_run(tmp_path / "runs" / "\x1b[31mred", [0.0, 0.5])
    (damaged / "metrics.jsonl").write_text("no record\n{}\n")
    arguments = ["--by", "search.num_particles", "--metric", "return", "--title", "Budgets", "--resamples", "300"]
    main(["compare", f"{tmp_path}/runs/*", "--out", str(tmp_path / "out"), *arguments])
    captured = capsys.readouterr()
    printed = " ".join(captured.out.split())
    assert r"\x1b[31mred is damaged and left out: Line 1 of" in captured.err
    assert "undecided at this scale" in printed
    assert "num_particles 16" in printed
    assert "Note: num_particles 4 on rubiks_cube has 2 seeds" in printed
    assert "<h1>Budgets</h1>" in (tmp_path / "out" / "report.html").read_text()


def test_compare_takes_the_runs_of_some_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = write_suite(tmp_path / "runs", num_seeds=1)
    main(["compare", str(runs), "--task", "brax", "--out", str(tmp_path / "out"), "--resamples", "100"])
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["tasks"][0]["task"] == "brax/ant"
    assert "rubiks_cube" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["compare", str(runs), "--task", "chess"])
    assert "None of the 4 runs has 'chess' in the name of its task: they are of brax/ant, rubiks_cube." in (
        capsys.readouterr().err
    )


def test_a_report_leaves_out_figures_without_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_run(tmp_path / "runs" / "early", [0.0, 0.5], final=0.5, points=[0, 100])
    write_run(tmp_path / "runs" / "late", [0.6, 0.7], final=0.7, points=[200, 300], seed=1)
    main(["compare", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--resamples", "100"])
    missing = "spo on rubiks_cube has no curve over training time"
    assert missing in " ".join(capsys.readouterr().out.split())
    assert missing in (tmp_path / "out" / "report.html").read_text()
    drawn = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert drawn == {"final_scores", "aggregate_metrics", "performance_profiles"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere is no folder"),
        ([], "Name the runs to compare"),
        (["."], "There is no run in ."),
        ([".", "--resamples", "3"], "--resamples must be at least 100"),
    ],
)
def test_mistakes_exit_with_a_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["compare", *arguments])
    assert end.value.code == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_names_of_runs_neither_style_the_terminal_nor_move_its_cursor():
    assert _plain("a[red]\x1b[5mb") == r"a\[red]\x1b[5mb"


def _run_of(experiment: Experiment, folder: Path, **extra):
    config = {"spo_version": __version__, **to_json(experiment), **extra}
    write_run(folder, [0.0, 0.5], **with_checksum({"start_from": None} | config))
    return load_run(folder)


def test_a_run_whose_task_does_not_exist_here_has_no_command(tmp_path: Path):
    known = _run_of(Experiment(), tmp_path / "known")
    gone = _run_of(Experiment(), tmp_path / "gone", task="gone/task")
    assert _commands([gone, known]).keys() == {known.folder}


_DEFAULT = presets.get("default")
EXPERIMENTS = {
    "spo train": _DEFAULT,
    "spo train --seed 3": dataclasses.replace(_DEFAULT, seed=3),
    "spo train paper/ant --algorithm ppo": presets.get("paper/ant", "ppo"),
    "spo train paper/ant --num-seeds 5": dataclasses.replace(presets.get("paper/ant"), num_seeds=5),
    "spo train --task.eval-scrambles 5 --trust-region --search.num-particles 8 --network.width 64": dataclasses.replace(
        _DEFAULT,
        task_options={**_DEFAULT.task_options, "eval_scrambles": 5},
        network=NetworkConfig(width=64),
        config=dataclasses.replace(
            _DEFAULT.config,
            trust_region=True,
            search=dataclasses.replace(_DEFAULT.config.search, num_particles=8),
        ),
    ),
    "spo train paper/rubiks_cube --no-trust-region --search.no-resample-last --evaluation.greedy": dataclasses.replace(
        presets.get("paper/rubiks_cube"),
        config=dataclasses.replace(
            presets.get("paper/rubiks_cube").config,
            trust_region=False,
            search=dataclasses.replace(presets.get("paper/rubiks_cube").config.search, resample_last=False),
        ),
        evaluation=EvaluationConfig(greedy=True),
    ),
    "spo train paper/boxoban --network.channels 32 64 --network.dtype bfloat16": dataclasses.replace(
        presets.get("paper/boxoban"), network=NetworkConfig(channels=(32, 64), dtype="bfloat16")
    ),
    "spo train default --task tiny/chain --steps 20000": dataclasses.replace(
        _DEFAULT, task="tiny/chain", task_options={}, steps=2e4, network=NetworkConfig()
    ),
    "spo train paper/rubiks_cube --task.time-limit-is-termination --seed 3": dataclasses.replace(
        presets.get("paper/rubiks_cube"), task_options={"time_limit_is_termination": True}, seed=3
    ),
    # An option that is passed on to another library.
    "spo train paper/ant --task.exclude-positions True --seed 3": dataclasses.replace(
        presets.get("paper/ant"), task_options={"exclude_positions": True}, seed=3
    ),
}


def _parsed(command: str, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """Returns the experiment that `spo train` would run."""
    experiments = []
    monkeypatch.setattr(training, "run", lambda experiment, *_, **__: experiments.append(experiment))
    main(shlex.split(command)[1:])
    (experiment,) = experiments
    return experiment


@pytest.mark.parametrize("command", EXPERIMENTS)
def test_the_command_of_a_run_repeats_it(command, tmp_path, monkeypatch):
    """The command is the shortest one, and parsing it gives the run's experiment."""
    experiment = EXPERIMENTS[command]
    written = repeating_command(_run_of(experiment, tmp_path / "run"))
    assert sorted(shlex.split(written)) == sorted(shlex.split(command))
    assert _parsed(written, monkeypatch) == experiment


def test_options_that_only_the_preset_sets_are_left_out(tmp_path, monkeypatch):
    experiment = dataclasses.replace(_DEFAULT, task_options={})
    written = repeating_command(_run_of(experiment, tmp_path / "run"))
    assert _parsed(written, monkeypatch) == experiment


def test_a_run_that_started_from_a_file_starts_from_its_copy(tmp_path):
    run = _run_of(_DEFAULT, tmp_path / "run", start_from={"file": "learner.npz"})
    assert repeating_command(run) == f"spo train default --from {tmp_path / 'run' / 'start.npz'}"


def test_runs_of_other_versions_and_of_unknown_algorithms_have_no_command(tmp_path):
    assert repeating_command(_run_of(_DEFAULT, tmp_path / "old", spo_version="0.0.1")) is None
    assert repeating_command(_run_of(_DEFAULT, tmp_path / "mine", algorithm="mine")) is None
