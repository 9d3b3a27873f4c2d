"""Settings as TOML: every experiment reads back as written, and a wrong file is refused with a sentence."""

import dataclasses
import json
import math
import tomllib

import pytest

from spo import presets
from spo.algorithms.registry import ALGORITHMS
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.training import config_files
from spo.training.experiment import Experiment, to_json
from spo.training.run_folder import RunFolder
from training.tiny_run import tiny_experiment


def read_back(experiment: Experiment, tmp_path) -> Experiment:
    """Writes and reads an experiment. The start has other settings in all places, which the file replaces."""
    path = tmp_path / "settings.toml"
    path.write_text(config_files.to_toml(experiment, "Settings."), "utf-8")
    start = Experiment(
        task=experiment.task,
        algorithm=experiment.algorithm,
        task_options={"left": "over"},
        seed=99,
        num_devices=7,
        config=ALGORITHMS[experiment.algorithm][0](),
        network=NetworkConfig(width=3, depth=2),
    )
    return config_files.change(start, config_files.read_toml(path), str(path))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("preset", presets.PRESETS)
def test_every_preset_reads_back_as_written(preset, algorithm, tmp_path):
    if presets.has(preset, algorithm):
        experiment = presets.get(preset, algorithm)
        assert read_back(experiment, tmp_path) == experiment


def test_all_kinds_of_values_read_back_as_written(tmp_path):
    options = {"num_rows": 7, "rate": 0.1, "name": 'a "b"\n\t\\ é 😀 \x7f \x00', "ids": [1, 2], "empty": [], "on": True}
    options |= {"nothing": None, "a key": {"with a table": {"x.y": [[1.5], ["z"]]}}, "large": 10**18, "small": 1e-300}
    experiment = Experiment(
        task="jumanji/snake",
        task_options=options,
        network=NetworkConfig(channels=(16, 32)),
        config=SPOConfig(search=dataclasses.replace(SPOConfig().search, resample_period=None)),
    )
    again = read_back(experiment, tmp_path)
    assert again == experiment
    assert type(again.network.channels) is tuple


def test_an_infinite_bound_reads_back(tmp_path):
    line = f"bound = {config_files._value(('bound',), math.inf)}"
    assert tomllib.loads(line)["bound"] == math.inf


def test_values_without_a_toml_form_are_refused():
    for value in ([None], [{"a": 1}], "None"):
        with pytest.raises(ValueError, match=r"task_options\.x can't be written to a TOML file"):
            config_files.to_toml(Experiment(task_options={"x": value}), "Settings.")


def test_a_title_is_one_comment(tmp_path):
    text = config_files.to_toml(Experiment(), "a\ntask = 3")
    assert tomllib.loads(text)["task"] == "rubiks_cube"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lerning_rate = 1", r"There is no setting 'lerning_rate'"),
        (
            "[config]\nlerning_rate = 1",
            r"There is no setting 'config.lerning_rate'. Did you mean 'config.learning_rate",
        ),
        ("[config]\nlearning-rate = 1", r"Did you mean 'config.learning_rate'"),
        ("learning_rate = 1", r"no setting 'learning_rate'. Did you mean 'config.learning_rate'"),
        ("[config]\nnum_particles = 1", r"Did you mean 'config.search.num_particles'"),
        ("[config.search]\nhorizn = 1", r"Did you mean 'config.search.horizon'"),
        ("[specs]\nx = 1", r"There is no setting 'specs'"),
        (
            "[task_options]\nmin_scrambels = 1",
            r"no option 'min_scrambels' for \[task_options\]. Did you mean 'min_scra",
        ),
        ("[task_options]\ntime_limit = 'long'", r"time_limit must be a whole number, got 'long'"),
        ("[task_options]\nday = 2026-01-01", r"task_options.day is of type date, which can't be stored"),
        ("steps = 'many'", r"steps must be a number, got 'many'"),
        ("steps = 0", r"steps must be a number between 1"),
        ("seed = 1.5", r"seed must be a whole number, got 1.5"),
        ("seed = true", r"seed must be a whole number, got True"),
        ("seed = 'None'", r"seed must be a whole number, got None"),
        ("network = 3", r"network must be a table, \[network\], got 3"),
        ("task_options = 3", r"task_options must be a dictionary"),
        ("[seed]\nx = 1", r"seed must be a whole number"),
        ("[config]\nnum_envs = 0", r"config.num_envs must be 1 or more, got 0"),
        ("[config.search]\nresampling = 'best'", r"config.search.resampling must be one of multinomial"),
        ("[network]\nchannels = ['a']", r"network.channels contains a value that must be a whole number"),
        ("[evaluation]\ngreedy = 1", r"evaluation.greedy must be True or False, got 1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(text, words, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.toml: .*{words}"):
        config_files.change(presets.get("default"), config_files.read_toml(path), str(path))


@pytest.mark.parametrize("content", [b"seed 3", b"\xff", b"a = " + b"[" * 100_000, b"seed = 1\nseed = 2"])
def test_what_is_not_toml_is_refused(content, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.toml is not TOML: "):
        config_files.read_toml(path)


def test_settings_of_a_run_are_not_toml(tmp_path):
    RunFolder.unused(tmp_path / "run").create(tiny_experiment()).release()
    with pytest.raises(ValueError, match="`spo train --like RUN`"):
        config_files.read_toml(tmp_path / "run" / "config.json")
    with pytest.raises(ValueError, match=r"The settings .*nowhere can't be read: No such file"):
        config_files.read_toml(tmp_path / "nowhere")


# --- Earlier runs -----------------------------------------------------------------------------------------------------
def stored_run(tmp_path, experiment: Experiment | None = None, **changes):
    """Returns the folder of a run whose config.json has other entries. Its checksum is left out, as in old versions."""
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(experiment or tiny_experiment()).release()
    config = json.loads(folder.config_path.read_text()) | changes
    folder.config_path.write_text(json.dumps({name: value for name, value in config.items() if name != "sha256"}))
    return folder.path


def test_a_run_provides_its_settings_but_not_its_specs(tmp_path):
    folder = stored_run(tmp_path, tiny_experiment(specs={"observation": "float32[3]"}))
    said = []
    assert config_files.settings_of(folder, said.append) == tiny_experiment()
    assert said == []


def test_a_run_of_an_older_version_gets_new_defaults_and_a_sentence(tmp_path):
    settings = to_json(tiny_experiment())
    del settings["config"]["trust_region"]
    folder = stored_run(tmp_path, spo_version="0.0.1", config=settings["config"])
    said = []
    assert config_files.settings_of(folder, said.append) == tiny_experiment()
    assert len(said) == 1
    assert "was written by spo 0.0.1, which had no config.trust_region: they get the defaults of spo" in said[0]


def test_a_run_with_unknown_settings_is_refused_with_both_versions(tmp_path):
    settings = to_json(tiny_experiment())["config"] | {"magic": 1}
    folder = stored_run(tmp_path, spo_version="0.0.1", config=settings)
    with pytest.raises(ValueError, match=r"was written by spo 0\.0\.1 and this is spo .*SPOConfig has no magic"):
        config_files.settings_of(folder, print)


def test_a_changed_record_is_refused(tmp_path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment()).release()
    folder.config_path.write_text(folder.config_path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ValueError, match="was changed after the run's start"):
        config_files.settings_of(folder.path, print)


def test_a_run_that_started_from_a_learner_says_how_to_repeat_that(tmp_path):
    folder = stored_run(tmp_path, start_from={"file": "a.npz", "env_steps": [1], "which": "best"})
    said = []
    config_files.settings_of(folder, said.append)
    assert f"add --from {folder / 'start.npz'}" in said[0]
