"""Trials of a sweep as processes, its folder, table and figure. Most tests replace the training by a small program."""

import csv
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("tyro")
pytest.importorskip("flax")

from cli.command import spo_command
from spo.cli.sweep import SweepOptions, best_text, make_sweep
from spo.sweeps import workers
from spo.sweeps.folder import Sweep, SweepFolder
from spo.sweeps.results import draw, ranked, table_rows
from spo.sweeps.workers import gpu_slots, option_words, run_trials, train_words


def run(folder: SweepFolder, sweep: Sweep, num_jobs: int = 1) -> list[int]:
    """Runs a sweep and returns the trials in the order in which they have ended."""
    ended: list[int] = []
    run_trials(
        folder, sweep, num_jobs, os.environ, lambda _running, number: number is not None and ended.append(number)
    )
    return ended


# --- Trials -----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("fake_trials")
@pytest.mark.parametrize("num_jobs", [1, 2, 5])
def test_every_trial_is_trained_once(folder, sweep, num_jobs):
    assert sorted(run(folder, sweep, num_jobs)) == [0, 1, 2]
    trials = folder.read_trials(sweep)
    assert [(trial.point["score"], trial.score, trial.state) for trial in trials] == [
        ("1", 1.0, "finished"),
        ("4", 4.0, "finished"),
        ("2", 2.0, "finished"),
    ]
    assert run(folder, sweep) == []  # nothing is left


@pytest.mark.usefixtures("fake_trials")
def test_a_failed_trial_keeps_its_sentence_and_the_others_are_trained(folder, sweep):
    failing = dataclasses.replace(sweep, vary={"score": ("1",), "fail": ("too little memory", "no")}, num_trials=2)
    run(folder, failing)
    trial = folder.read_trial(0)
    assert (trial.state, trial.note, trial.score) == ("failed", "too little memory", None)
    folder.retry_trial(0)
    assert folder.read_trial(0).state == "unfinished"
    assert run(folder, failing) == [0]


@pytest.mark.usefixtures("fake_trials")
def test_a_killed_trial_is_named_by_its_signal(folder, sweep, monkeypatch):
    slow = dataclasses.replace(sweep, arguments=("--steps", "3", "--seconds", "100"), num_trials=1)
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *words, **options: started.append(popen(*words, **options)) or started[-1]
    )
    thread = threading.Thread(target=run, args=(folder, slow))
    thread.start()
    while not (folder.run_path(0) / "metrics.jsonl").exists():
        time.sleep(0.01)
    started[0].kill()
    thread.join(30)
    assert folder.read_trial(0).note == "It was ended by signal 9 (SIGKILL)."


@pytest.mark.usefixtures("fake_trials")
def test_two_processes_share_a_sweep(folder, sweep):
    slow = dataclasses.replace(sweep, arguments=("--steps", "3", "--seconds", "0.05"))
    ended: list[list[int]] = []
    threads = [threading.Thread(target=lambda: ended.append(run(folder, slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(ended[0] + ended[1]) == [0, 1, 2]
    assert all(len(folder.read_curve(number)) == 3 for number in range(3))  # no line was written twice


@pytest.mark.usefixtures("fake_trials")
def test_an_interrupted_sweep_ends_its_trials_and_continues(folder, sweep):
    slow = dataclasses.replace(sweep, arguments=("--steps", "3", "--seconds", "0.3"))

    def interrupt(running, _ended):
        if running and folder.read_curve(running[0]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials(folder, slow, 1, os.environ, interrupt)
    trial = folder.read_trial(0)
    assert (trial.state, trial.note) == ("unfinished", "")
    assert folder.lock_trial(0) is not None  # released
    assert sorted(run(folder, slow)) == [0, 1, 2]
    assert list(folder.read_curve(0)) == [1, 2, 3]


@pytest.mark.usefixtures("fake_trials")
def test_a_trial_below_the_median_is_stopped(folder, sweep):
    values = ("5", "6", "7", "8", "1", "9")
    fast = dataclasses.replace(sweep, vary={"score": values}, num_trials=6, stop_early=True)
    run(folder, dataclasses.replace(fast, num_trials=4))
    run(folder, dataclasses.replace(fast, arguments=("--steps", "30", "--seconds", "0.1")))
    trials = folder.read_trials(fast)
    assert [trial.state for trial in trials] == ["finished"] * 4 + ["stopped early", "finished"]
    assert "median of the others 6.5" in trials[4].note
    assert ranked(trials)[0].number == 5


@pytest.mark.usefixtures("fake_trials")
def test_the_sampler_of_optuna_is_told_the_results(folder, sweep, monkeypatch):
    from spo.sweeps import folder as folder_module

    told = []
    tpe = dataclasses.replace(sweep, vary={"score": ("1..9",)}, sampler="tpe", num_trials=3)
    monkeypatch.setattr(folder_module, "pick", lambda *_, results, running: told.append(results) or {"score": "3"})
    run(folder, tpe)
    assert [[result.score for result in results] for results in told] == [[], [3.0], [3.0, 3.0]]


# --- The folder -------------------------------------------------------------------------------------------------------
def test_the_settings_are_read_as_they_were_written(folder, sweep):
    assert folder.read() == sweep


def test_the_number_of_trials_may_grow_and_nothing_else_may_change(folder, sweep):
    folder.create(dataclasses.replace(sweep, num_trials=2))
    assert folder.read().num_trials == 2
    with pytest.raises(ValueError, match="holds another sweep"):
        folder.create(dataclasses.replace(sweep, arguments=("--steps", "4")))


def test_a_folder_with_other_files_is_refused(tmp_path, sweep):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and holds no sweep"):
        SweepFolder(tmp_path).create(sweep)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"vary": 3}', '{"arguments": [], "vary": {"a": ["1..2:x"]}}'])
def test_damaged_settings_are_named(folder, text):
    folder.settings_path.write_text(text)
    with pytest.raises(ValueError, match=r"sweep\.json is damaged"):
        folder.read()


@pytest.mark.parametrize(("name", "value"), [("sampler", "sobol"), ("num_trials", 0), ("seed", -1), ("other", 1)])
def test_a_wrong_setting_in_the_file_is_named_as_damage(folder, name, value):
    stored = json.loads(folder.settings_path.read_text())
    folder.settings_path.write_text(json.dumps(stored | {name: value}))
    with pytest.raises(ValueError, match=r"sweep\.json is damaged"):
        folder.read()


def test_a_damaged_trial_is_named(folder, sweep):
    folder.trial_path(0).mkdir()
    (folder.trial_path(0) / "trial.json").write_text("[")
    with pytest.raises(ValueError, match="delete the folder"):
        folder.read_trials(sweep)


# --- Results ----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("fake_trials")
def test_table_and_figure_show_all_trials_best_first(folder, sweep):
    run(folder, dataclasses.replace(sweep, num_trials=2))
    trials = folder.read_trials(sweep)
    header, rows = table_rows(trials)
    assert header == ["trial", "score", "return", "steps", "state"]
    assert [row[:3] for row in rows] == [["1", "4", "4"], ["0", "1", "1"]]
    stored = list(csv.DictReader(folder.write_table(trials).read_text().splitlines()))
    assert [(row["trial"], row["score"], row["state"]) for row in stored] == [
        ("0", "1.0", "finished"),
        ("1", "4.0", "finished"),
    ]
    figure = draw(trials, sweep.space)
    assert [len(axes.lines) for axes in figure.axes] == [2]
    assert draw([], sweep.space) is None


# --- Words ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("learning-rate", "1e-3", ["--learning-rate", "1e-3"]),
        ("trust-region", "true", ["--trust-region"]),
        ("trust-region", "False", ["--no-trust-region"]),
        ("evaluation.use-search", "false", ["--evaluation.no-use-search"]),
        ("network.channels", "32,64", ["--network.channels", "32", "64"]),
    ],
)
def test_a_setting_becomes_an_option(name, value, words):
    assert option_words(name, value) == words


def test_jobs_share_the_gpus_and_their_memory():
    environment = {"CUDA_VISIBLE_DEVICES": "2,5"}
    assert gpu_slots(1, environment) == [{}]
    assert gpu_slots(2, environment) == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    three = gpu_slots(3, environment)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in three] == ["2", "5", "2"]
    assert [slot.get(workers.MEMORY_SHARE) for slot in three] == ["0.450", None, "0.450"]
    assert all(workers.MEMORY_SHARE not in slot for slot in gpu_slots(3, environment | {workers.MEMORY_SHARE: "0.1"}))
    assert gpu_slots(2, {"CUDA_VISIBLE_DEVICES": ""}) == [{}, {}]


# --- The command ------------------------------------------------------------------------------------------------------
def test_the_command_trains_and_reports(fake_trials, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("spo.cli.sweep.check_points", lambda _: None)
    target = tmp_path / "sweep"
    command = ("sweep", "--steps", "2", "--folder", str(target), "--vary", "score", "1", "3", "--jobs", "2")
    result = spo_command(capsys, *command)
    assert result.code == 0, result.err
    assert "trial 1: score 3: 3, finished" in result.out
    assert "spo train --steps 2 --score 3 --seed 1" in result.out
    assert (target / "sweep.png").stat().st_size > 1000
    assert json.loads((target / "sweep.json").read_text())["vary"] == {"score": ["1", "3"]}
    again = spo_command(capsys, "sweep", str(target))
    assert again.code == 0, again.err
    assert "trial 1:" not in again.out
    more = spo_command(capsys, "sweep", str(target), "--trials", "9")
    assert "at most that, got 9" in more.err
    other = spo_command(capsys, "sweep", str(target), "--vary", "score", "5")
    assert "leave --vary out" in other.err
    seed = spo_command(capsys, "sweep", str(target), "--sweep-seed", "5")
    assert "leave --sweep-seed out" in seed.err


def test_if_all_trials_fail_the_command_does(fake_trials, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("spo.cli.sweep.check_points", lambda _: None)
    words = ("sweep", "--steps", "2", "--score", "1", "--folder", str(tmp_path / "s"), "--vary", "fail", "one", "two")
    result = spo_command(capsys, *words)
    assert result.code == 2
    assert "All trials failed. The output of the first one is in" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "A sweep varies a setting: add --vary"),
        (("--vary", "learnin-rate", "1"), "Unrecognized options: --learnin-rate"),
        (("--vary", "learning-rate", "1e-3", "abc"), "--learning-rate must be a number, got 'abc'"),
        (("--vary", "learning-rate", "1e-3", "--learning-rate", "1"), "--learning-rate is varied: leave it out"),
        (("--vary", "seed", "1", "--vary", "seed", "2"), "--vary seed is given twice"),
        (("--vary", "seed", "1..5", "--sampler", "grid"), "A grid has no ranges"),
        (("--vary", "seed", "1", "2", "--trials", "3"), "There are 2 different points"),
        (("--vary", "seed", "1", "2", "--run", "runs/a"), "Leave --run out"),
        (("--vary", "seed", "1", "2", "--jobs", "0"), "jobs must be 1 or more"),
    ],
)
def test_a_wrong_sweep_is_refused_before_its_folder_exists(capsys, tmp_path, words, message):
    target = tmp_path / "sweep"
    result = spo_command(capsys, "sweep", "--task", "tiny/chain", "--folder", str(target), *words)
    assert result.code == 2
    assert message in result.err
    assert not target.exists()


def test_the_sampler_follows_from_the_values():
    def sampler(*vary, **options):
        made = make_sweep(SweepOptions(vary=vary, **options), ())
        return made.sampler, made.num_trials

    assert sampler(("a", "1", "2"), ("b", "3", "4", "5")) == ("grid", 6)
    assert sampler(("a", "1", "2"), ("b", "3", "4", "5"), trials=4) == ("random", 4)
    assert sampler(("a", "1..2"), ("b", "3", "4")) == ("random", 20)
    assert sampler(("a", "1..2"), sampler="tpe", trials=7) == ("tpe", 7)


def test_the_best_settings_are_trained_again_with_other_seeds(folder, sweep):
    chosen = dataclasses.replace(sweep, arguments=("--task", "tiny/chain", "--seed", "4", "--num-seeds", "3"))
    trial = folder.read_trial(0)._replace(point={"learning-rate": "1e-3"})
    assert best_text(chosen, trial).endswith("spo train --task tiny/chain --num-seeds 3 --learning-rate 1e-3 --seed 7")
    assert train_words(chosen, trial.point)[-2:] == ["--learning-rate", "1e-3"]


@pytest.mark.program
def test_a_terminated_sweep_of_real_runs_continues(tmp_path):
    target = tmp_path / "sweep"
    words = [sys.executable, "-m", "spo", "sweep"]
    of_sweep = [
        "--task",
        "tiny/chain",
        "--steps",
        "4000",
        "--folder",
        str(target),
        "--vary",
        "learning-rate",
        "1e-3",
        "1e-2",
    ]
    with subprocess.Popen([*words, *of_sweep], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (target / "000" / "run" / "metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        _, error = process.communicate(timeout=120)
    assert process.returncode == 143
    assert f"Continue with: spo sweep {target}" in error
    done = subprocess.run([*words, str(target)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    trials = SweepFolder(target).read_trials(SweepFolder(target).read())
    assert [trial.state for trial in trials] == ["finished", "finished"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--task", "tiny/chain", "--vary", "--learning-rate", "1e-4", "1e-3"),
            "write --vary learning-rate VALUE VALUE, without dashes before the name.",
        ),
        (("--task", "tiny/chain", "--vary"), "write --vary learning-rate VALUE VALUE."),
        (("nope",), "nope holds no sweep to continue. A new one varies a setting"),
        (("default",), "A sweep varies a setting: add --vary NAME VALUE VALUE"),
    ],
)
def test_a_mistake_in_a_command_gets_a_sentence(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = spo_command(capsys, "sweep", *arguments)
    assert (result.code, words in result.err) == (2, True), result.err
    assert not list(tmp_path.iterdir())
