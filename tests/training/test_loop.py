"""What a run does and leaves behind."""

import dataclasses
import errno
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.reports.summary import summarise
from spo.training import checkpoints, intervals, loop, run_folder
from spo.training.experiment import EvaluationConfig, from_json, to_json
from spo.training.intervals import NonFiniteError, make_schedule
from spo.training.loop import train
from spo.training.run_folder import RunFolder, list_runs, load_learner
from training.comparing import Interrupter, assert_same_bits, last_checkpoint, records
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment


# --- When things happen -----------------------------------------------------------------------------------------------
@given(
    steps=st.integers(1, 10**9),
    per_iteration=st.integers(1, 10**5),
    evaluations=st.integers(1, 40),
    logs=st.integers(1, 10),
)
def test_schedule(steps: int, per_iteration: int, evaluations: int, logs: int):
    judged = EvaluationConfig(num_evaluations=evaluations)
    experiment = tiny_experiment(steps=float(steps), evaluation=judged, logs_per_evaluation=logs)
    schedule = make_schedule(experiment, per_iteration)
    env_steps = schedule.num_iterations * per_iteration
    assert steps <= env_steps < steps + schedule.iterations_per_interval * per_iteration
    assert schedule.num_intervals <= evaluations * logs
    evaluated = [i for i in range(1, schedule.num_intervals + 1) if schedule.evaluates_after(i)]
    assert len(evaluated) == min(evaluations, schedule.num_intervals)
    assert evaluated[-1] == schedule.num_intervals
    gaps = np.diff([0, *evaluated])
    assert gaps.max() - gaps.min() <= 1


def test_the_papers_schedule():
    """1e8 steps of the cube in iterations of 768 x 21: twenty evaluations, and less than 1 % more steps than asked."""
    experiment = tiny_experiment(steps=1e8, logs_per_evaluation=5, evaluation=EvaluationConfig())
    schedule = make_schedule(experiment, 768 * 21)
    assert (schedule.num_evaluations, schedule.num_intervals, schedule.iterations_per_interval) == (20, 99, 63)
    assert schedule.num_iterations * 768 * 21 < 1.01e8


@pytest.mark.parametrize("name", ["steps", "num_seeds", "logs_per_evaluation"])
def test_nothing_to_do_is_refused(name: str):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        make_schedule(tiny_experiment(**{name: 0}), 1)


# --- What is written --------------------------------------------------------------------------------------------------
def test_records_follow_one_schema(whole_run: Path):
    found = records(whole_run)
    order = [(record["kind"], record["iteration"], record["seed"]) for record in found]
    intervals = [("evaluation", 0), ("train", 2), ("train", 4), ("evaluation", 4), ("train", 6), ("train", 8)]
    intervals += [("evaluation", 8), ("train", 10), ("train", 12), ("evaluation", 12), ("final", 12)]
    assert order == [(kind, iteration, seed) for kind, iteration in intervals for seed in (0, 1)]
    for record in found:
        steps = ["env_steps", "model_steps", "network_evaluations"]
        assert list(record) == ["kind", "seed", "iteration", *steps, "metrics", "time"]
        assert record["env_steps"] == record["iteration"] * ENV_STEPS_PER_ITERATION
        assert record["model_steps"] == record["env_steps"] * 4 * 2
        assert record["network_evaluations"] == record["env_steps"] * (1 + 4 * 2)
        assert record["time"].keys() == {"wall_seconds", "env_steps_per_second"}
        assert all(type(value) is float and math.isfinite(value) for value in record["metrics"].values())
        assert {"episode/return", "episode/length", "episode/solved", "episode/count"} <= record["metrics"].keys()
        # Means, not sums: an episode of this cube is at most 4 steps and worth 1 if it is solved.
        assert 1 <= record["metrics"]["episode/length"] <= 4
        assert record["metrics"]["episode/return"] == record["metrics"]["episode/solved"] <= 1
    counts = {kind: [r["metrics"]["episode/count"] for r in found if r["kind"] == kind] for kind in ("evaluation",)}
    assert set(counts["evaluation"]) == {16}
    assert {"policy_only/return", "policy_only/solved"} <= found[-1]["metrics"].keys()
    assert found[-1]["metrics"]["episode/count"] == 32
    times = [record["time"]["wall_seconds"] for record in found]
    assert times == sorted(times)


def test_the_best_of_each_seed_is_kept(whole_run: Path):
    """The last among the evaluations with the highest return."""
    progress = last_checkpoint(whole_run).progress
    for seed in (0, 1):
        scores = {
            r["iteration"]: r["metrics"]["episode/return"]
            for r in records(whole_run)
            if r["kind"] == "evaluation" and r["seed"] == seed
        }
        assert progress.best_scores[seed] == max(scores.values())
        assert progress.best_iterations[seed] == max(i for i, score in scores.items() if score == max(scores.values()))


def test_best_is_chosen_per_seed():
    progress = checkpoints.Progress(5, 1, (0.5, 0.5, 0.5), (1, 2, 3), 0, 1, 0.0, 0.0, 0.0, None)
    state = intervals.TrainState({"w": jax.numpy.ones((3, 2))}, None)
    best, kept = intervals.keep_best(state, {"w": jax.numpy.zeros((3, 2))}, progress, np.array([0.4, 0.5, 0.6]))
    np.testing.assert_array_equal(best["w"][:, 0], [0, 1, 1])
    assert kept.best_scores == (0.5, 0.5, 0.6)
    assert kept.best_iterations == (1, 5, 5)


def test_summary(whole_run: Path):
    summary = json.loads((whole_run / "summary.json").read_text())
    final = [record for record in records(whole_run) if record["kind"] == "final"]
    assert summary["task"] == "rubiks_cube"
    assert summary["algorithm"] == "spo"
    assert summary["env_steps"] == 12 * ENV_STEPS_PER_ITERATION
    assert summary["final_solve_rate_per_seed"] == [record["metrics"]["episode/solved"] for record in final]
    assert summary["final_solve_rate"] == np.mean(summary["final_solve_rate_per_seed"])
    for name in ("initial_solve_rate", "final_solve_rate", "final_solve_rate_policy_only", "final_return"):
        low, high = summary[f"{name}_interval"]
        assert low < summary[name] < high or (low, high) == (0, 0) or high == 1
        assert summary[f"{name}_episodes"] == (16 if name.startswith("initial") else 32)
    seconds = {name: summary[name] for name in ("wall_seconds", "compile_seconds", "training_seconds")}
    assert seconds["compile_seconds"] + seconds["training_seconds"] < seconds["wall_seconds"]
    assert 0 < summary["time_to_first_update"] < seconds["wall_seconds"]
    steps = 2 * 12 * ENV_STEPS_PER_ITERATION
    assert summary["env_steps_per_second"] == pytest.approx(steps / seconds["training_seconds"])


def _record(kind: str, seed: int, iteration: int, solved: float, count: int) -> dict[str, Any]:
    one = {"return": solved, "solved": solved, "return_deviation": math.sqrt(solved * (1 - solved)), "count": count}
    metrics = {f"{prefix}/{name}": value for prefix in ("episode", "policy_only") for name, value in one.items()}
    return {"kind": kind, "seed": seed, "iteration": iteration, "metrics": metrics}


def test_intervals_of_one_seed_are_those_between_episodes():
    result = summarise([_record("evaluation", 0, 0, 0.0, 128), _record("final", 0, 9, 0.9, 1280)])
    for name, solved, episodes in (("initial", 0, 128), ("final", 1152, 1280)):
        wilson = scipy.stats.binomtest(solved, episodes).proportion_ci(method="wilson")
        assert result[f"{name}_solve_rate_interval"] == pytest.approx(list(wilson), abs=1e-6)
        mean = solved / episodes
        half = 1.959964 * math.sqrt(mean * (1 - mean) / episodes)
        assert result[f"{name}_return_interval"] == pytest.approx([mean - half, mean + half])


def test_intervals_of_several_seeds_are_those_between_seeds():
    def summary(*rates: float) -> dict[str, Any]:
        first = [_record("evaluation", seed, 0, 0.0, 128) for seed in range(len(rates))]
        return summarise([*first, *(_record("final", seed, 9, rate, 1280) for seed, rate in enumerate(rates))])

    # Student with two degrees of freedom: 4.302653 standard errors.
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert summary(0.5, 0.6, 0.7)["final_solve_rate_interval"] == pytest.approx([0.6 - half, 0.6 + half])
    low, high = summary(0.5, 0.5, 0.5)["final_solve_rate_interval"]
    assert low < 0.49 < 0.51 < high  # seeds that agree are no proof of precision


def test_the_commit_is_that_of_the_source_and_not_of_a_project_it_was_installed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "theirs.py").touch()
    (tmp_path / "installed.py").touch()
    author = ["-c", "user.name=A", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "theirs.py"], [*author, "commit", "-q", "-m", "theirs"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "installed.py"))
    assert run_folder._git_commit() is None
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "theirs.py"))
    assert len(run_folder._git_commit() or "") == 40


def test_the_run_says_what_ran_it(whole_run: Path):
    environment = json.loads((whole_run / "environment.json").read_text())
    first = environment["starts"][0]
    assert first["packages"]["jax"] == jax.__version__
    assert first["platform"] == "cpu"
    assert "git_commit" in first
    config = json.loads((whole_run / "config.json").read_text())
    assert config["spo_version"] == loop.__version__
    assert RunFolder.open(whole_run).experiment == tiny_experiment()


def test_tensorboard_reads_the_same_numbers(whole_run: Path):
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (whole_run / "tensorboard" / "seed_1").iterdir()
    data, events = path.read_bytes(), []
    while data:  # length, checksum, event, checksum
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    written = {
        (event.step, value.tag): value.simple_value
        for event in events
        for value in event.summary.value
        if "/time/" not in value.tag
    }
    expected = {
        (record["env_steps"], f"{record['kind']}/{name}"): pytest.approx(value)
        for record in records(whole_run)
        if record["seed"] == 1
        for name, value in record["metrics"].items()
    }
    assert written == expected


def test_runs_are_listed(whole_run: Path, tmp_path: Path):
    RunFolder.unused(tmp_path / "begun").create(tiny_experiment(seed=7))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text("[]")
    (begun,) = list_runs(tmp_path)
    assert (begun["seed"], begun["env_steps"], begun["finished"]) == (7, 0, False)
    (finished,) = [run for run in list_runs(whole_run.parent) if run["path"] == whole_run]
    assert finished["finished"]
    assert finished["env_steps"] == 12 * ENV_STEPS_PER_ITERATION
    assert finished["summary"]["iterations"] == 12


def test_a_learner_is_loaded_to_act_with(whole_run: Path):
    experiment, learner = load_learner(whole_run, "last")
    assert experiment == tiny_experiment()
    assert_same_bits(learner, last_checkpoint(whole_run).state.learner)
    with pytest.raises(ValueError, match="'best' or 'last'"):
        load_learner(whole_run, "first")  # type: ignore[arg-type]


# --- What goes wrong --------------------------------------------------------------------------------------------------
def test_a_number_that_is_none_stops_training_at_the_last_good_state(
    whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, run, calls = tmp_path / "run", intervals.Programs.run, []

    def poisoned(self: Any, state: Any) -> Any:
        state, metrics, seconds = run(self, state)
        calls.append(state)
        if len(calls) == 3:
            state = jax.tree.map(lambda x: x, state)._replace(learner=None)
            metrics["loss/value"] = np.array([1.0, np.nan], np.float32)
        return state, metrics, seconds

    with monkeypatch.context() as patch:
        patch.setattr(intervals.Programs, "run", poisoned)
        with pytest.raises(NonFiniteError, match=r"loss/value became nan in iterations 5 to 6 \(seed 1\)") as said:
            train(tiny_experiment(), folder, checkpoint_seconds=1e9)
    assert f"spo export {folder}" in str(said.value)
    good = last_checkpoint(folder)
    assert good.progress.iteration == 4
    assert_same_bits(good.state.learner, calls[1].learner)
    assert records(folder)[-1]["iteration"] == 4
    assert not (folder / "summary.json").exists()


def test_a_number_that_is_none_before_training_promises_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def poisoned(*_: Any) -> None:
        raise NonFiniteError("episode/return became nan in the evaluation after iteration 0.")

    monkeypatch.setattr(loop, "begin", poisoned)
    with pytest.raises(NonFiniteError, match="before the first update") as said:
        train(tiny_experiment(), tmp_path / "run")
    assert "spo export" not in str(said.value)


@pytest.mark.slow
def test_training_that_diverges_is_caught(tmp_path: Path):
    config = dataclasses.replace(tiny_experiment().config, learning_rate=1e30)
    with pytest.raises(NonFiniteError, match=r"became (nan|inf)"):
        train(tiny_experiment(config=config), tmp_path / "run")
    assert last_checkpoint(tmp_path / "run").progress.iteration == 0


def test_a_full_disk_stops_training_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "run"
    flush, calls = os.fsync, []

    def no_space(descriptor: int) -> None:
        metrics = folder / "metrics.jsonl"
        if metrics.exists() and os.path.samestat(os.fstat(descriptor), metrics.stat()):
            calls.append(descriptor)
            if len(calls) == 4:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"Records can't be written to .*: No space left .* `spo train --resume"):
        train(tiny_experiment(), folder, checkpoint_seconds=0.0)
    assert last_checkpoint(folder).progress.iteration == 2


def test_a_run_of_another_version_is_refused(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment())
    record = json.loads(folder.config_path.read_text())
    folder.config_path.write_text(json.dumps({**record, "spo_version": "0.0.1"}))
    for refused in (
        lambda: train(tiny_experiment(), folder.path, resume=True),
        lambda: load_learner(folder.path, "best"),
        lambda: checkpoints.export(folder.path, tmp_path / "learner.npz"),
    ):
        with pytest.raises(ValueError, match=r"written by spo 0\.0\.1 .* install spo-jax==0\.0\.1"):
            refused()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task": "brax/ant"}, r"task \('rubiks_cube', now 'brax/ant'\)"),
        ({"config": SPOConfig()}, r"config\.batch_size \(4, now 64\)"),
        ({"network": NetworkConfig(width=32)}, r"network\.width \(16, now 32\)"),
        ({"network": NetworkConfig(channels=(8, 4))}, r"network\.channels \(None, now \[8, 4\]\)"),
        ({"seed": 1}, r"seed \(0, now 1\)"),
    ],
)
def test_another_experiment_is_refused(tmp_path: Path, changes: dict[str, Any], named: str):
    RunFolder.unused(tmp_path / "run").create(tiny_experiment())
    with pytest.raises(ValueError, match=f"another experiment: .*{named}"):
        train(tiny_experiment(**changes), tmp_path / "run", resume=True)


def test_folders_that_are_none_are_refused(whole_run: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="holds a run already"):
        train(tiny_experiment(), whole_run)
    with pytest.raises(ValueError, match="holds no run"):
        train(tiny_experiment(), tmp_path, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        train(tiny_experiment(), tmp_path / "file")
    with pytest.raises(ValueError, match="leave start_from"):
        train(tiny_experiment(), whole_run, resume=True, start_from=tmp_path / "learner.npz")


def test_what_is_refused_leaves_no_folder(whole_run: Path, tmp_path: Path):
    """Else the command, put right, would be told that there is a run already."""
    folder, source = tmp_path / "run", tmp_path / "learner.npz"
    config = dataclasses.replace(tiny_experiment().config, sequence_length=5)
    with pytest.raises(ValueError, match="sequence_length"):
        train(tiny_experiment(config=config), folder)
    checkpoints.export(whole_run, source)
    with pytest.raises(ValueError, match="does not fit this experiment"):
        train(tiny_experiment(network=NetworkConfig(width=8)), folder, start_from=source)
    source.write_bytes(source.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="is no exported learner, or not all of one"):
        train(tiny_experiment(), folder, start_from=source)
    assert not folder.exists()


# --- Where it begins --------------------------------------------------------------------------------------------------
def test_a_run_begins_from_an_exported_learner(whole_run: Path, tmp_path: Path):
    """With its parameters and an empty replay; the record says so, and the file is not needed again."""
    source, folder = tmp_path / "learner.npz", tmp_path / "run"
    checkpoints.export(whole_run, source, "last")
    for number in (0, 1):  # the second time resumed, before there is a checkpoint, and without the file
        with pytest.raises(KeyboardInterrupt):
            train(
                tiny_experiment(),
                folder,
                reporter=Interrupter("evaluation" if number == 0 else "train", 1),
                resume=number > 0,
                start_from=source if number == 0 else None,
            )
        source.unlink(missing_ok=True)
    begun = last_checkpoint(folder)
    assert begun.progress.iteration == 0
    assert_same_bits(begun.state.learner, last_checkpoint(whole_run).state.learner)
    replay = begun.state.worker.replay
    assert int(jax.numpy.max(replay.current_index)) == 0
    assert not np.any(replay.is_full)
    origin = json.loads((folder / "config.json").read_text())["start_from"]
    assert origin == {"file": "learner.npz", "env_steps": [384, 384], "which": "last"}


def test_a_learner_of_another_network_is_refused(whole_run: Path, tmp_path: Path):
    checkpoints.export(whole_run, tmp_path / "learner.npz")
    with pytest.raises(ValueError, match="does not fit this experiment"):
        train(tiny_experiment(num_seeds=3), tmp_path / "run", start_from=tmp_path / "learner.npz")
    with pytest.raises(ValueError, match="no exported learner"):
        train(tiny_experiment(), tmp_path / "other", start_from=whole_run / "config.json")
    assert not (tmp_path / "other" / "config.json").exists()


def test_an_experiment_survives_its_file():
    assert from_json(json.loads(json.dumps(to_json(tiny_experiment())))) == tiny_experiment()
