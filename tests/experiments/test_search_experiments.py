"""Tests of the search experiments: their rules by hand, and their use of runs and networks."""

import dataclasses
import json
import math
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("matplotlib")

import _claims
import _oracle
import _runs
import _trained
import better_inference
import elbo
import kl_to_oracle
import test_time_scaling

from reports.fake_runs import write_run
from spo import environments, presets
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig
from spo.networks import make_network
from spo.networks.config import NetworkConfig
from spo.reports import stats
from spo.training.experiment import Experiment, from_json, to_json
from spo.training.trainer import Trainer


def points(seconds: list[float], solved: list[float]) -> list[test_time_scaling.Point]:
    triples = enumerate(zip(seconds, solved, strict=True))
    return [test_time_scaling.Point("search", 16 * 4**i, t, s, 0.0, 1.0, 1000) for i, (t, s) in triples]


def test_curves_are_interpolated_in_log_time():
    curve = points([0.01, 0.1, 1.0], [0.2, 0.4, 0.8])
    for seconds, share in ((0.1, 0.4), (10**-0.5, 0.6), (5.0, 0.8), (0.001, 0.2)):
        assert test_time_scaling.solved_at(np.log(seconds), curve, [0.2, 0.4, 0.8]) == pytest.approx(share)
    budgets = {seconds: test_time_scaling.budget_at(seconds, curve) for seconds in (0.001, 0.1, 10**-0.5, 2.0)}
    assert budgets == {0.001: "under 16", 0.1: "64", 10**-0.5: "128", 2.0: "over 256"}


def test_a_difference_has_the_interval_of_two_shares():
    value, low, high = test_time_scaling.difference_at(0.1, points([0.1, 1.0], [0.6, 1.0]), points([0.1], [0.5]))
    assert value == pytest.approx(0.1)
    half = 1.96 * math.sqrt(0.6 * 0.4 / 1000 + 0.5 * 0.5 / 1000)
    assert (low, high) == (pytest.approx(0.1 - half, abs=0.003), pytest.approx(0.1 + half, abs=0.003))


def test_a_wrong_step_is_not_held(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path):
    """An E-step with the wrong sign of the temperature lowers the ELBO."""
    right = elbo.e_step
    monkeypatch.setattr(elbo, "e_step", lambda mdps, q, policy: right(mdps._replace(alpha=-mdps.alpha), q, policy))
    finding = elbo.find(_claims.Setup(elbo.CLAIM, "smoke", tmp_path, tmp_path))
    assert finding.verdict == "not held"
    assert finding.number == 1.0


def test_training_with_the_winner_changes_only_its_search(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path):
    given = {}

    def train_all(setup: _claims.Setup, runs: dict[str, Any]) -> dict[str, pathlib.Path]:
        given.update(runs)
        folders = {}
        for index, name in enumerate(runs):
            rates = [0.1 * index + 0.01 * seed for seed in range(4)]
            curves = [[rate - 0.05, rate + 0.05] for rate in rates]
            folders[name] = write_run(tmp_path / name, curves, final=[rate + 1 for rate in rates])
        return folders

    monkeypatch.setattr(better_inference, "train_all", train_all)
    setup = _claims.Setup(better_inference.CLAIM, "cpu", tmp_path, tmp_path)
    name = "weighted, by ESS, systematic"
    effect = better_inference.train_with(setup, 1e4, [name])
    paper, other = given.values()
    assert paper.config.search.resample_last
    assert not other.config.search.resample_last
    assert (other.config.search.ess_threshold, other.config.search.resampling) == (0.5, "systematic")
    assert (
        _runs.with_settings(other, search={f: getattr(paper.config.search, f) for f in effect["settings"][name]})
        == paper
    )
    assert "weighted, by ESS, systematic is better than paper" in effect["verdicts"]["at the end"][name]
    assert effect["solve rates per seed"]["during training"][name] == pytest.approx([0.1, 0.11, 0.12, 0.13])
    assert effect["solve rates per seed"]["at the end"][name] == pytest.approx([1.1, 1.11, 1.12, 1.13])


@pytest.mark.parametrize(
    ("changes", "never_resamples"),
    [
        ({"resample_period": 4, "resample_last": False}, True),
        ({"resample_period": 5, "resample_last": True}, True),
        ({"resample_period": None, "resample_last": True}, True),
        ({"resample_period": 4, "resample_last": True}, False),
        ({"resample_period": 3, "resample_last": False}, False),
    ],
)
def test_searches_that_never_resample_have_one_canonical_form(changes: dict[str, Any], never_resamples: bool):
    runs = {
        better_inference.canonical(SearchConfig(16, 4, resampling=scheme, **changes))
        for scheme in ("multinomial", "systematic")
    }
    assert len(runs) == (1 if never_resamples else 2)
    assert any(run.resample_period is None for run in runs) == never_resamples


def test_two_names_of_one_search_are_trained_once(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path):
    given = {}

    def train_all(setup: _claims.Setup, runs: dict[str, Any]) -> dict[str, pathlib.Path]:
        given.update(runs)
        return {name: tmp_path / name for name in runs}

    monkeypatch.setattr(better_inference, "train_all", train_all)
    rates = {"at the end": [0.1, 0.2, 0.3], "during training": [0.1, 0.2, 0.3]}
    monkeypatch.setattr(better_inference, "solve_rates", lambda _: rates)
    setup = _claims.Setup(better_inference.CLAIM, "cpu", tmp_path, tmp_path)
    never = "weighted, never resampled"
    effect = better_inference.train_with(setup, 1e4, [never, better_inference.LIBRARY])
    assert list(given) == ["paper", "weighted_never_resampled"]
    assert list(effect["verdicts"]["at the end"]) == [never]
    assert f'"{better_inference.LIBRARY}" is the same search as "{never}" there.' in effect["sentence"]


def test_the_winner_has_the_surest_gain_and_not_the_greatest_mean():
    """It is chosen on the even states, where a large but uncertain gain loses to a sure one."""
    scale = better_inference.SCALES["smoke"]
    [budget] = scale.budgets
    states = np.arange(64)
    less = {
        better_inference.PAPER: 0 * states,
        "sure": np.where(states % 2, -1.0, 0.1 + 0.001 * states),
        "lucky": np.where(states % 4 == 0, 2.0, -1.0),
        "no": np.where(states % 2, 5.0, -0.1),
    }
    distances = {
        (budget, name): _oracle.Distances(kl=dict.fromkeys(_oracle.READINGS, 3.0 - gain), total_variation={})
        for name, gain in less.items()
    }
    assert better_inference.best(distances, scale, list(less), _oracle.JUDGED) == "sure"
    odd = better_inference.gain(distances, budget, "sure", _oracle.JUDGED, better_inference.ODD)
    assert odd == pytest.approx((-1, -1, -1))


def test_the_named_inferences_are_those_of_the_library_and_the_paper():
    inferences = better_inference.inferences(32, 8)
    assert inferences[better_inference.LIBRARY] == SearchConfig(32, 8)
    assert inferences[better_inference.PAPER] == dataclasses.replace(
        presets.get("paper/rubiks_cube").config.search, num_particles=32, horizon=8
    )


def test_zero_steps_leave_out_the_comparison_but_not_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    asked = []

    def trained_run(setup: _claims.Setup, *_: Any) -> Any:
        asked.append(setup.steps)
        raise InterruptedError

    monkeypatch.setattr(better_inference, "trained_run", trained_run)
    for steps in (0, 1e4, None):
        with pytest.raises(InterruptedError):
            better_inference.find(_claims.Setup(better_inference.CLAIM, "smoke", tmp_path, tmp_path, steps))
    assert asked == [None, 1e4, None]


@pytest.mark.parametrize("levels", [True, False])
def test_the_paper_scale_uses_downloaded_levels_if_there_are_any(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, levels: bool
):
    monkeypatch.setenv("SPO_DATA", str(tmp_path))
    asked = []
    if levels:
        monkeypatch.setattr(environments, "make", lambda name, **options: asked.append((name, options)))
    experiment = kl_to_oracle.boxoban_experiment("paper")
    if levels:
        assert (experiment.task, experiment.task_options) == asked.pop()
        assert experiment.task_options["evaluation"] == "unfiltered-valid"
    else:
        assert (experiment.task, experiment.task_options) == ("sokoban/generated", {})
    assert not experiment.config.search.resample_last
    assert experiment.network.channels == (32, 32)
    read = from_json(json.loads(json.dumps(to_json(experiment))))
    assert _runs.run_name(read) == _runs.run_name(experiment)


def test_solve_rates_are_of_search_and_policy():
    """One move from the goal, a search over all moves solves the cube, and an untrained policy does not."""
    options = {"size": 2, "min_scrambles": 1, "max_scrambles": 1, "eval_scrambles": 1, "time_limit": 2}
    config = SPOConfig(initial_temperature=0.01, search=SearchConfig(num_particles=128, horizon=1))
    experiment = Experiment("rubiks_cube", options, config=config, network=NetworkConfig(width=16, depth=1))
    rates = kl_to_oracle.solve_rates(untrained(experiment), num_episodes=64)
    assert rates["by the search of its training"].mean > 0.95
    assert rates["by its policy alone"].high < 0.9
    assert rates["by the search of its training"] == stats.share_interval(
        rates["by the search of its training"].mean, 64
    )
    unsolvable = dataclasses.replace(experiment, task="tiny/tree", task_options={})
    assert kl_to_oracle.solve_rates(untrained(unsolvable), num_episodes=4) == {}


def untrained(experiment: Experiment) -> _trained.Trained:
    """Returns an untrained network of the experiment."""
    trainer = Trainer(experiment)
    setting = trainer.setting
    learner = jax.tree.map(lambda x: x[0], trainer.init(jax.random.key(0)).learner)
    train = setting.task.train
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    return _trained.Trained(setting, network, learner, temperature=0.01, config=experiment.config, words="")


def test_the_time_of_a_search_has_no_compilation_in_it(monkeypatch):
    """The first random key of a process is compiled, and the first call of a program loads it."""
    calls = []

    def slow_at_first(seconds: float, value: Any) -> Any:
        def call(*arguments: Any) -> Any:
            calls.append(arguments)
            time.sleep(seconds if len(calls) <= 2 else 0.0)
            return value

        return call

    monkeypatch.setattr(jax.random, "fold_in", slow_at_first(0.2, jnp.zeros(2)))
    program = slow_at_first(0.2, (jnp.float32(3.0), jnp.int32(20)))
    scale = test_time_scaling.SCALES["smoke"]._replace(episodes=16, batch=16)
    point, _ = test_time_scaling.play("SPO", 8, program, (None, None), scale)
    assert point.seconds_per_step < 0.1 / 20
    assert (point.episodes, point.solved) == (16, 3 / 16)
