"""`spo config`, `spo train --config` and `spo train --like`: a run is repeated and changed from its own record."""

import dataclasses
import io
import json

import pytest

pytest.importorskip("tyro")
pytest.importorskip("flax")

from cli.command import one_line, spo_command
from spo import presets
from spo._version import __version__
from spo.algorithms.ppo import PPOConfig
from spo.algorithms.registry import ALGORITHMS
from spo.networks.config import NetworkConfig
from spo.training import exports
from spo.training.experiment import Experiment, to_json
from spo.training.run_folder import RunFolder
from training.tiny_run import tiny_experiment

CHOICES = [(preset, name) for preset in presets.PRESETS for name in ALGORITHMS if presets.has(preset, name)]


def trained(requested: list, capsys: pytest.CaptureFixture[str], *arguments: str) -> Experiment:
    result = spo_command(capsys, "train", *arguments)
    assert result.code == 0, result.err
    return requested.pop()[0]


def refusal(requested: list, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    result = spo_command(capsys, *arguments)
    assert (result.code, result.out, requested) == (2, "", [])
    assert "Traceback" not in result.err
    return result.err


def store(folder, experiment: Experiment) -> str:
    RunFolder.unused(folder).create(experiment).release()
    return str(folder)


# --- Round trips ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("preset", "algorithm"), CHOICES)
def test_a_printed_preset_trains_the_preset(requested, capsys, monkeypatch, preset, algorithm):
    printed = spo_command(capsys, "config", preset, "--algorithm", algorithm)
    assert printed.code == 0, printed.err
    monkeypatch.setattr("sys.stdin", io.StringIO(printed.out))
    assert trained(requested, capsys, "--config", "-") == presets.get(preset, algorithm)


@pytest.mark.parametrize(("preset", "algorithm"), [("default", "spo"), ("paper/ant", "ppo"), ("paper/boxoban", "mpo")])
def test_a_run_is_repeated_from_its_record(requested, capsys, tmp_path, preset, algorithm):
    experiment = dataclasses.replace(presets.get(preset, algorithm), seed=4, num_seeds=2)
    run = store(tmp_path / "run", experiment)
    assert trained(requested, capsys, "--like", run) == experiment
    file = tmp_path / "run.toml"
    file.write_text(spo_command(capsys, "config", run).out)
    assert trained(requested, capsys, f"--config={file}") == experiment


# --- Changes ----------------------------------------------------------------------------------------------------------
def test_options_override_a_run(requested, capsys, tmp_path):
    run = store(tmp_path / "run", tiny_experiment())
    changed = trained(requested, capsys, "--like", run, "--learning-rate", "1e-4", "--task.time-limit", "9")
    start = tiny_experiment()
    assert changed == dataclasses.replace(
        start,
        config=dataclasses.replace(start.config, learning_rate=1e-4),
        task_options=start.task_options | {"time_limit": 9},
    )


def test_options_override_a_file_and_the_file_overrides_the_preset(requested, capsys, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("seed = 5\n[config]\ngamma = 0.5\nnum_envs = 32\n[config.search]\nresample_period = 'None'\n")
    start = presets.get("tuned/rubiks_cube")
    changed = trained(requested, capsys, "tuned/rubiks_cube", "--config", str(file), "--num-envs", "16")
    config = dataclasses.replace(start.config, gamma=0.5, num_envs=16)
    config = dataclasses.replace(config, search=dataclasses.replace(config.search, resample_period=None))
    assert changed == dataclasses.replace(start, seed=5, config=config)
    assert trained(requested, capsys, "--config", str(file)).network == presets.get("default").network


def test_a_file_decides_the_algorithm_and_the_task(requested, capsys, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('algorithm = "ppo"\ntask = "tiny/chain"\n[task_options]\nlength = 7\n[config]\nnum_epochs = 2\n')
    experiment = trained(requested, capsys, "--config", str(file))
    start = presets.get("default", "ppo", "tiny/chain")
    config = dataclasses.replace(start.config, num_epochs=2)
    assert experiment == dataclasses.replace(start, task_options={"length": 7}, config=config)


def test_another_algorithm_and_task_have_their_own_settings(requested, capsys, tmp_path):
    run = store(tmp_path / "run", tiny_experiment(seed=3))
    other = trained(requested, capsys, "--like", run, "--algorithm", "ppo")
    assert other == tiny_experiment(seed=3, algorithm="ppo", config=PPOConfig())
    other = trained(requested, capsys, "--like", run, "--task", "tiny/chain", "--task.length", "9")
    network = NetworkConfig()
    assert other == tiny_experiment(seed=3, task="tiny/chain", task_options={"length": 9}, network=network)


def test_help_shows_the_settings_of_the_run_or_the_file(capsys, tmp_path):
    run = store(tmp_path / "run", tiny_experiment())
    text = one_line(spo_command(capsys, "train", "--like", run, "--help").out)
    assert "those of the run" in text
    assert text.split("--num-envs INT")[1].split("(default: ")[1].startswith("8)")
    file = tmp_path / "mine.toml"
    file.write_text("seed = 12345")
    text = one_line(spo_command(capsys, "train", "--config", str(file), "--help").out)
    assert "those of the file" in text
    assert "Random seed. (default: 12345)" in text


# --- Own environments -------------------------------------------------------------------------------------------------
def test_a_run_in_an_own_environment_is_repeated(requested, capsys, tmp_path):
    specs = {"observation": "float32[4]", "actions": {"kind": "DiscreteActions", "num_actions": 2}}
    task = "training.own_environments:corridor"
    experiment = tiny_experiment(task=task, task_options={"length": 6}, specs=specs)
    run = store(tmp_path / "run", experiment)
    again = trained(requested, capsys, "--like", run, "--task.slip", "0.5")
    # Another length would have other observations: the new run stores its own.
    assert again == dataclasses.replace(experiment, task_options={"length": 6, "slip": 0.5}, specs=None)
    assert "specs" not in spo_command(capsys, "config", run).out


@pytest.mark.parametrize("command", [("train", "--like"), ("config",)])
def test_an_object_is_refused_with_a_sentence(requested, capsys, tmp_path, command):
    run = store(tmp_path / "run", tiny_experiment(task="object:maze", task_options={}))
    words = refusal(requested, capsys, *command, run)
    assert "The environment 'maze' of" in words
    assert "add --task module:function" in words
    kind = store(tmp_path / "other", tiny_experiment(network=NetworkConfig(kind="object:net")))
    assert "add --network.kind module:function" in refusal(requested, capsys, *command, kind)


def test_an_object_can_be_replaced(requested, capsys, tmp_path):
    run = store(tmp_path / "run", tiny_experiment(task="object:maze", task_options={}))
    assert trained(requested, capsys, "--like", run, "--task", "tiny/chain").task == "tiny/chain"


# --- Exported learners ------------------------------------------------------------------------------------------------
def export(path, experiment: Experiment) -> str:
    """Writes the settings of a learner, without its arrays."""
    exports.write_learner(path, {}, {"spo_version": __version__, "which": "best", "experiment": to_json(experiment)})
    return str(path)


@pytest.mark.parametrize(
    "experiment",
    [
        tiny_experiment(task="training.own_environments:corridor", task_options={"length": 6}),
        tiny_experiment(task="tiny/chain", task_options={"length": 9}, algorithm="ppo", config=PPOConfig(num_epochs=2)),
    ],
    ids=["own environment", "built-in environment"],
)
def test_a_run_from_a_learner_has_its_settings(requested, capsys, tmp_path, experiment):
    file = export(tmp_path / "learner.npz", experiment)
    assert trained(requested, capsys, "--from", file) == experiment
    changed = trained(requested, capsys, "--from", file, "--steps", "64", "--task.length", "7")
    assert changed == dataclasses.replace(experiment, steps=64, task_options={"length": 7})


def test_a_preset_replaces_the_settings_of_a_learner_but_not_its_network(requested, capsys, tmp_path):
    file = export(tmp_path / "learner.npz", tiny_experiment(task="tiny/chain", task_options={}))
    for start in (["default"], ["--like", store(tmp_path / "run", presets.get("default"))]):
        experiment = trained(requested, capsys, *start, "--from", file)
        assert experiment == dataclasses.replace(presets.get("default"), network=tiny_experiment().network)


def test_help_names_the_learner_that_provides_the_settings(capsys, tmp_path):
    file = export(tmp_path / "learner.npz", tiny_experiment())
    assert "those of the learner" in one_line(spo_command(capsys, "train", "--from", file, "--help").out)
    assert "the preset default" in one_line(spo_command(capsys, "train", "default", "--from", file, "--help").out)


def test_a_learner_with_an_object_needs_a_name_for_it(requested, capsys, tmp_path):
    file = export(tmp_path / "learner.npz", tiny_experiment(network=NetworkConfig(kind="object:net")))
    assert "add --network.kind module:function" in refusal(requested, capsys, "train", "--from", file)
    named = trained(requested, capsys, "--from", file, "--network.kind", "training.own_networks:small_cnn")
    assert named.network.kind == "training.own_networks:small_cnn"


# --- Errors -----------------------------------------------------------------------------------------------------------
def test_two_sources_are_refused(requested, capsys, tmp_path):
    run = store(tmp_path / "run", tiny_experiment())
    assert "leave paper/ant out" in refusal(requested, capsys, "train", "paper/ant", "--like", run)
    both = refusal(requested, capsys, "train", "--like", run, "--config", "x.toml")
    assert "--like and --config both provide the settings" in both
    assert "use one of them" in refusal(requested, capsys, "train", "--resume", run, "--like", run)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('algorithm = "spoo"', "mine.toml: There is no algorithm 'spoo'. Did you mean 'spo'"),
        ("algorithm = 3", "mine.toml: algorithm must be text, got 3."),
        ("task = []", "mine.toml: task must be text, got []."),
        (
            "[config]\nlerning_rate = 1",
            "mine.toml: There is no setting 'config.lerning_rate'. Did you mean 'config.lea",
        ),
        ('task = "rubik_cube"', "mine.toml: There is no environment 'rubik_cube'. Did you mean"),
        ("x", "mine.toml is not TOML"),
    ],
)
def test_a_wrong_file_is_a_sentence(requested, capsys, tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(text)
    assert words in refusal(requested, capsys, "train", "--config", "mine.toml")


def test_unknown_sources_are_sentences(requested, capsys, tmp_path):
    assert "nowhere holds no run" in refusal(requested, capsys, "train", "--like", "nowhere")
    assert "Did you mean 'default'" in refusal(requested, capsys, "config", "defualt")
    assert "holds no run" in refusal(requested, capsys, "config", str(tmp_path))
    run = store(tmp_path / "run", tiny_experiment())
    path = RunFolder(tmp_path / "run").config_path
    config = {name: value for name, value in json.loads(path.read_text()).items() if name != "sha256"}
    path.write_text(json.dumps(config | {"spo_version": "0.0.1", "magic": 1}))
    words = refusal(requested, capsys, "train", "--like", run)
    assert "was written by spo 0.0.1" in words
    assert "Experiment has no magic" in words
