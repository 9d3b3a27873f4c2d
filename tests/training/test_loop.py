"""Tests of the loop: the files that a run writes, the errors that stop it, and its start from a learner."""

import dataclasses
import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from spo import environments
from spo._version import __version__
from spo.acting import Episodes
from spo.checks import MAX_INT, MAX_SEED
from spo.networks.config import NetworkConfig
from spo.reports.run_files import with_checksum
from spo.training import checkpointer, checkpoints, loop
from spo.training.loop import train
from spo.training.records import NonFiniteError, check_finite, episode_metrics
from spo.training.run_folder import RunFolder
from spo.training.saved_learners import export_learner
from spo.training.trainer import Trainer
from spo.types import RESERVED_METRICS
from training.comparing import Interrupter, assert_same_bits, last_state, records
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment

# --- Start ------------------------------------------------------------------------------------------------------------


def test_five_programs_are_compiled_before_the_first_update_has_ended(tmp_path: Path):
    """Initialisation, evaluation and an interval; the random keys, and their copy on the devices.

    On a GPU, each operation outside of them would be a program that takes a tenth of a second.
    """
    compiled: list[str] = []

    def listen(event: str, _seconds: float, **details: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(details.get("fun_name")))

    def stop(_metrics: dict[str, float], handle: loop.Handle) -> None:
        jax.monitoring.unregister_event_duration_listener(listen)
        handle.stop()

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    train(tiny_experiment(seed=5), tmp_path, callbacks=[stop])  # no other test has compiled this experiment
    assert 3 <= len(compiled) <= 5, compiled


@pytest.mark.parametrize("seed", [0, 2**31, MAX_SEED])
@pytest.mark.parametrize("iteration", [0, 3, MAX_INT])
def test_keys_are_those_of_single_operations(seed: int, iteration: int):
    """A program for all of them changes no run."""
    key_init, key_evaluation, key_final = jax.random.split(jax.random.key(seed), 3)
    expected = key_init, jax.random.fold_in(key_evaluation, iteration), key_final
    for found, key in zip(loop._make_keys(seed, iteration), expected, strict=True):
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(key))


# --- Files ------------------------------------------------------------------------------------------------------------


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
        # Means, not sums: an episode of this cube has at most 4 steps and a return of 1 if it is solved.
        assert 1 <= record["metrics"]["episode/length"] <= 4
        assert record["metrics"]["episode/return"] == record["metrics"]["episode/solved"] <= 1
    counts = {kind: [r["metrics"]["episode/count"] for r in found if r["kind"] == kind] for kind in ("evaluation",)}
    assert set(counts["evaluation"]) == {16}
    # The other kind of actions has a quarter of the episodes.
    assert {r["metrics"]["greedy/count"] for r in found if r["kind"] == "evaluation"} == {4}
    assert found[-1]["metrics"]["greedy/count"] == 8
    assert {"policy_only/return", "policy_only/solved"} <= found[-1]["metrics"].keys()
    assert found[-1]["metrics"]["episode/count"] == 32
    times = [record["time"]["wall_seconds"] for record in found]
    assert times == sorted(times)


def test_the_best_of_each_seed_is_kept(whole_run: Path):
    """The last one of the evaluations with the highest return."""
    progress = last_state(whole_run).progress
    for seed in (0, 1):
        scores = {
            r["iteration"]: r["metrics"]["episode/return"]
            for r in records(whole_run)
            if r["kind"] == "evaluation" and r["seed"] == seed
        }
        assert progress.best_scores[seed] == max(scores.values())
        assert progress.best_iterations[seed] == max(i for i, score in scores.items() if score == max(scores.values()))


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
    assert summary["final_solve_rate_greedy_per_seed"] == [record["metrics"]["greedy/solved"] for record in final]
    assert summary["final_solve_rate_greedy_episodes"] == 8
    seconds = {name: summary[name] for name in ("wall_seconds", "compile_seconds", "training_seconds")}
    assert seconds["compile_seconds"] + seconds["training_seconds"] < seconds["wall_seconds"]
    assert 0 < summary["time_to_first_update"] < seconds["wall_seconds"]
    steps = 2 * 12 * ENV_STEPS_PER_ITERATION
    assert summary["env_steps_per_second"] == pytest.approx(steps / seconds["training_seconds"])


def test_a_run_records_versions_and_devices(whole_run: Path):
    environment = json.loads((whole_run / "environment.json").read_text())
    assert environment == with_checksum(environment), "its checksum is right"
    assert "sha256" in environment
    first = environment["starts"][0]
    assert first["packages"]["jax"] == jax.__version__
    assert first["platform"] == "cpu"
    assert "git_commit" in first
    config = json.loads((whole_run / "config.json").read_text())
    assert config["spo_version"] == __version__
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


def test_the_result_of_the_last_parameters_is_that_of_the_best_if_they_are_the_same(whole_run: Path):
    summary = json.loads((whole_run / "summary.json").read_text())
    same = [seed for seed, steps in enumerate(summary["best_env_steps_per_seed"]) if steps == summary["env_steps"]]
    assert same
    for seed in same:
        assert summary["final_return_last_per_seed"][seed] == summary["final_return_per_seed"][seed]
    assert summary["final_solve_rate_last_episodes"] == 32


def test_a_run_whose_best_network_is_untrained_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    evaluate, learners = Trainer.evaluate, []

    def worse_each_time(self: Trainer, learner: Any, *arguments: Any, **options: Any) -> Any:
        learners.append(learner)
        episodes = evaluate(self, learner, *arguments, **options)
        return episodes._replace(returns=np.full_like(episodes.returns, -len(learners)))

    monkeypatch.setattr(Trainer, "evaluate", worse_each_time)
    listener = Interrupter("never", 1)
    summary = train(tiny_experiment(), tmp_path / "run", sinks=[listener])
    assert summary["best_env_steps_per_seed"] == [0, 0]
    assert listener.messages[-1] == (
        "The best parameters of seed 0, 1 are those of the untrained network: no evaluation during training was as "
        "good."
    )
    # The last parameters are evaluated after the best ones, which are evaluated without and with search.
    *_, best, last = learners
    assert_same_bits(best, learners[0])
    assert_same_bits(last, last_state(tmp_path / "run").train_state.learner)
    assert (summary["final_return"], summary["final_return_last"]) == (1 - len(learners), -len(learners))


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_a_metric_that_is_not_finite_stops_training_at_the_last_good_state(
    whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, run, states = tmp_path / "run", Trainer.run, []

    def poisoned(self: Trainer, state: Any) -> Any:
        state, metrics, seconds = run(self, state)
        states.append(state)
        if len(states) == 3:
            state = jax.tree.map(lambda x: x, state)._replace(learner=None)
            metrics["loss/value"] = np.array([1.0, np.nan], np.float32)
        return state, metrics, seconds

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", poisoned)
        with pytest.raises(NonFiniteError, match=r"loss/value became nan in iterations 5 to 6 \(seed 1\)") as caught:
            train(tiny_experiment(), folder, checkpoint_seconds=1e9)
    assert f"spo export {folder}" in str(caught.value)
    good = last_state(folder)
    assert good.progress.iteration == 4
    assert_same_bits(good.train_state.learner, states[1].learner)
    assert records(folder)[-1]["iteration"] == 4
    assert not (folder / "summary.json").exists()


def test_a_metric_that_is_not_finite_before_training_promises_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    evaluate = Trainer.evaluate

    def poisoned(self: Trainer, *arguments: Any, **options: Any) -> Any:
        episodes = evaluate(self, *arguments, **options)
        return episodes._replace(returns=np.full_like(episodes.returns, np.nan))

    monkeypatch.setattr(Trainer, "evaluate", poisoned)
    with pytest.raises(NonFiniteError, match=r"episode/return became nan .* before the first update") as caught:
        train(tiny_experiment(), tmp_path / "run")
    assert "spo export" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "discrete", "from_environment"),
    [
        (["episode/return"], False, True),
        (["episode/return", "loss/value"], True, True),
        (["episode/return", "loss/value"], False, False),  # actions that are NaN can be the cause
        (["loss/value"], True, False),
    ],
)
def test_a_number_of_the_environment_that_is_not_finite_is_named_as_such(names, discrete, from_environment):
    metrics = {name: np.array([np.nan if name in names else 1.0]) for name in ("episode/return", "a", "loss/value")}
    with pytest.raises(NonFiniteError, match=f"^{names[0]} became nan now .seed 0") as caught:
        check_finite(metrics, "now", discrete_actions=discrete)
    assert caught.value.from_environment is from_environment
    assert all(name in str(caught.value) for name in names)
    assert ("spo.check_environment(env, num_steps=500)" in str(caught.value)) is from_environment


def test_only_some_of_many_metrics_that_are_not_finite_are_named():
    metrics = {name: np.array([np.inf]) for name in ["z", "episode/return", *"abcde"]}
    with pytest.raises(
        NonFiniteError, match=r"^episode/return became inf now .seed 0., and so did a, b, c and 3 more\."
    ):
        check_finite(metrics, "now")


def test_the_reward_of_an_environment_that_is_not_finite_gets_no_advice_about_learning_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = Trainer.run

    def poisoned(self: Trainer, state: Any) -> Any:
        state, metrics, seconds = run(self, state)
        return state, metrics | {"episode/return": np.full(2, np.nan), "loss/value": np.full(2, np.nan)}, seconds

    monkeypatch.setattr(Trainer, "run", poisoned)
    with pytest.raises(NonFiniteError, match="The environment returned a reward") as caught:
        train(tiny_experiment(), tmp_path / "run")
    assert "learning rate" not in str(caught.value)
    assert "spo export" in str(caught.value)


@pytest.mark.slow
def test_training_that_diverges_is_caught(tmp_path: Path):
    config = dataclasses.replace(tiny_experiment().config, learning_rate=1e30)
    with pytest.raises(NonFiniteError, match=r"became (nan|inf)"):
        train(tiny_experiment(config=config), tmp_path / "run")
    assert last_state(tmp_path / "run").progress.iteration == 0


def test_a_full_disk_stops_training_and_the_error_names_the_command_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
    assert last_state(folder).progress.iteration == 2


def test_refused_settings_leave_no_folder(whole_run: Path, tmp_path: Path):
    """Otherwise the corrected command would find a run in its folder and refuse it."""
    folder, source = tmp_path / "run", tmp_path / "learner.npz"
    config = dataclasses.replace(tiny_experiment().config, sequence_length=5)
    with pytest.raises(ValueError, match="sequence_length"):
        train(tiny_experiment(config=config), folder)
    export_learner(whole_run, source)
    with pytest.raises(ValueError, match="does not fit this experiment"):
        train(tiny_experiment(network=NetworkConfig(width=8)), folder, start_from=source)
    source.write_bytes(source.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="is no exported learner, or not all of one"):
        train(tiny_experiment(), folder, start_from=source)
    assert not folder.exists()


# --- Checkpoints ------------------------------------------------------------------------------------------------------


def test_a_killed_run_has_the_state_of_its_last_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By default a checkpoint follows each evaluation, if it is cheap. Here it always is."""
    monkeypatch.setattr(checkpointer, "_LARGEST_SHARE", math.inf)
    saved: list[int] = []
    save = checkpoints.save
    monkeypatch.setattr(
        checkpoints, "save", lambda folder, state: saved.append(state.progress.iteration) or save(folder, state)
    )
    train(tiny_experiment(), tmp_path / "run")
    assert saved == [4, 8, 12]


# --- Start from an exported learner -----------------------------------------------------------------------------------


def test_a_run_starts_from_an_exported_learner(whole_run: Path, tmp_path: Path):
    """With its parameters and an empty replay. config.json names the file, which is not needed again."""
    source, folder = tmp_path / "learner.npz", tmp_path / "run"
    export_learner(whole_run, source, "last")
    for number in (0, 1):  # the second time resumed without a checkpoint and without the file
        with pytest.raises(KeyboardInterrupt):
            train(
                tiny_experiment(),
                folder,
                sinks=[Interrupter("evaluation" if number == 0 else "train", 1)],
                resume=number > 0,
                start_from=source if number == 0 else None,
            )
        source.unlink(missing_ok=True)
    begun = last_state(folder)
    assert begun.progress.iteration == 0
    assert_same_bits(begun.train_state.learner, last_state(whole_run).train_state.learner)
    replay = begun.train_state.worker.replay
    assert int(jax.numpy.max(replay.current_index)) == 0
    assert not np.any(replay.is_full)
    origin = json.loads((folder / "config.json").read_text())["start_from"]
    assert origin == {"file": "learner.npz", "env_steps": [384, 384], "which": "last"}


def test_a_learner_of_another_network_is_refused(whole_run: Path, tmp_path: Path):
    export_learner(whole_run, tmp_path / "learner.npz")
    with pytest.raises(ValueError, match="does not fit this experiment"):
        train(tiny_experiment(num_seeds=3), tmp_path / "run", start_from=tmp_path / "learner.npz")
    with pytest.raises(ValueError, match="no exported learner"):
        train(tiny_experiment(), tmp_path / "other", start_from=whole_run / "config.json")
    assert not (tmp_path / "other" / "config.json").exists()


# --- Callbacks --------------------------------------------------------------------------------------------------------


def test_a_callback_receives_the_metrics_of_each_interval_and_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls: list[tuple[dict[str, float], int]] = []

    def callback(metrics: dict[str, float], handle: loop.Handle) -> None:
        calls.append((metrics, len(handle.records)))
        if metrics["env_steps"] == 6 * ENV_STEPS_PER_ITERATION:
            handle.stop()

    def fail(*arguments: Any) -> None:
        raise KeyError("final")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_evaluate_final", fail)
        with pytest.raises(KeyError, match="final"):
            train(tiny_experiment(), tmp_path / "run", callbacks=[callback])
    summary = train(tiny_experiment(), tmp_path / "run", resume=True)  # it evaluates, and does not train on
    found = records(tmp_path / "run")
    assert [metrics["env_steps"] / ENV_STEPS_PER_ITERATION for metrics, _ in calls] == [2, 4, 6]
    # Two seeds, and an evaluation after the second interval. The evaluation before training is of no interval.
    assert [num_records for _, num_records in calls] == [2, 4, 2]
    assert ["evaluation/return" in metrics for metrics, _ in calls] == [False, True, False]
    losses = [r["metrics"]["loss/value"] for r in found if r["kind"] == "train" and r["iteration"] == 4]
    assert calls[1][0]["loss/value"] == np.mean(losses)
    scores = [r["metrics"]["episode/return"] for r in found if r["kind"] == "evaluation" and r["iteration"] == 4]
    assert calls[1][0]["evaluation/return"] == np.mean(scores)
    # The parameters at the stop are evaluated like all others, and the run is finished.
    assert [r["kind"] for r in found[-6:] if r["seed"] == 0] == ["train", "evaluation", "final"]
    assert summary["iterations"] == last_state(tmp_path / "run").progress.iteration == 6


def test_an_error_in_a_callback_loses_no_training(tmp_path: Path):
    def callback(metrics: dict[str, float], handle: loop.Handle) -> None:
        if metrics["env_steps"] == 6 * ENV_STEPS_PER_ITERATION:
            raise OSError("My file is gone.")

    with pytest.raises(OSError, match=r"My file is gone\. When that is fixed, continue with `spo train --resume"):
        train(tiny_experiment(), tmp_path / "run", callbacks=[callback], checkpoint_seconds=1e9)
    assert last_state(tmp_path / "run").progress.iteration == 4


def test_an_error_about_a_file_names_it(tmp_path: Path):
    def callback(metrics: dict[str, float], handle: loop.Handle) -> None:
        Path("no/such/levels.npz").read_bytes()

    with pytest.raises(OSError, match=r"No such file or directory: no/such/levels\.npz\. When that is fixed"):
        train(tiny_experiment(), tmp_path / "run", callbacks=[callback], checkpoint_seconds=1e9)


# --- Names of metrics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RESERVED_METRICS))
def test_a_metric_with_a_reserved_name_is_refused_before_training(name: str):
    """A metric called "return" would replace the return and decide which parameters are the best."""
    task = environments.make("tiny/chain")

    def reset(key: jax.Array) -> Any:
        state, timestep = task.evaluation.reset(key)
        return state, timestep._replace(metrics={name: jax.numpy.zeros(())})

    broken = Trainer(tiny_experiment(), task._replace(evaluation=task.evaluation._replace(reset=reset)))
    with pytest.raises(ValueError, match=f"has a metric called '{name}', .*: give it another name"):
        loop.run(broken)


def test_all_names_that_records_add_are_reserved():
    episodes = Episodes(returns=np.zeros((1, 2)), lengths=np.ones((1, 2), np.int32), metrics={})
    assert {name.removeprefix("episode/") for name in episode_metrics("episode", episodes)} == RESERVED_METRICS
