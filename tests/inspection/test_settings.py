"""Tests of the settings that the page can change."""

import pytest

from inspection.subjects import make_experiment
from spo.algorithms.planning import SearchConfig
from spo.inspection.settings import apply_settings, check_settings, make_controls, own_settings


def test_the_settings_of_a_run_are_its_own():
    experiment = make_experiment(search=SearchConfig(num_particles=12, horizon=3, readout="all_depths"))
    own = own_settings(experiment)
    assert own["num_particles"] == 12
    assert own["temperature"] is None
    assert apply_settings(experiment, own) == experiment
    values = {control.name: control.values for control in make_controls(experiment)}
    assert set(values) == set(own)
    assert values["num_particles"] == (2, 4, 8, 12, 16, 32, 64, 128, 256), "the own value is among the powers of two"
    assert all(own[name] in allowed for name, allowed in values.items() if name != "temperature")


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        ("ppo", {"greedy"}),
        ("alphazero", {"greedy", "use_search", "num_simulations"}),
        ("smc_ent", {"greedy", "use_search", "num_particles", "horizon", "resample_period", "temperature"}),
    ],
)
def test_the_kind_of_search_decides_the_settings(algorithm: str, names: set[str]):
    experiment = make_experiment(algorithm, "tiny/masked")
    assert set(own_settings(experiment)) == names
    assert apply_settings(experiment, own_settings(experiment)) == experiment


def test_changed_settings_reach_the_configuration():
    experiment = make_experiment()
    settings = check_settings(experiment, {"num_particles": 64, "resample_period": None, "temperature": 2.5})
    search = apply_settings(experiment, settings).config.search
    assert (search.num_particles, search.resample_period) == (64, None)
    assert settings["horizon"] == experiment.config.search.horizon


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_particles": 17}, "num_particles must be one of"),
        ({"num_particles": True}, "num_particles must be one of"),
        ({"num_particles": 10**9}, "num_particles must be one of"),
        ({"horizon": 1.0}, "horizon must be one of"),
        ({"temperature": 0}, "temperature must lie between"),
        ({"temperature": float("nan")}, "temperature must lie between"),
        ({"temperature": True}, "temperature must lie between"),
        ({"readout": "__import__('os')"}, "readout must be one of"),
        ({"readout": ["last"]}, "readout must be one of"),
        ({"gamma": 0.5}, "There is no setting 'gamma'"),
        (["num_particles"], "settings must be an object"),
        ({"readout": "mean_returns", "resample_period": 1}, "needs particles that are never resampled"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(given: object, words: str):
    with pytest.raises(ValueError, match=words):
        check_settings(make_experiment(), given)
