"""From the command line of `spo train` to an experiment, and the help text of every option."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("tyro")
pytest.importorskip("flax")

from cli.command import one_line, spo_command
from spo import presets
from spo.algorithms.planning import SearchConfig
from spo.algorithms.registry import ALGORITHMS
from spo.algorithms.spo import SPOConfig
from spo.cli.commands import COMMANDS
from spo.networks.config import NetworkConfig
from spo.training import exports
from spo.training.defaults import choose_experiment
from spo.training.experiment import EvaluationConfig, Experiment, ScalingConfig, to_json
from spo.training.run_folder import RunFolder


def experiment_for(requested: list, capsys: pytest.CaptureFixture[str], *arguments: str) -> Experiment:
    result = spo_command(capsys, "train", *arguments)
    assert result.code == 0, result.err
    return requested.pop()[0]


# --- Values -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", presets.PRESETS)
def test_without_options_the_preset_is_run(requested, capsys, preset):
    assert experiment_for(requested, capsys, preset) == presets.get(preset)


def test_without_a_preset_the_default_is_run(requested, capsys):
    assert experiment_for(requested, capsys) == presets.get("default")


def test_options_reach_their_fields(requested, capsys):
    start = presets.get("paper/rubiks_cube")
    experiment = experiment_for(
        requested,
        capsys,
        *("paper/rubiks_cube", "--num-seeds", "5", "--steps", "1e6", "--seed", "3", "--algorithm", "spo"),
        *("--learning-rate", "0.01", "--no-trust-region", "--fixed-temperature", "--old-policy", "rollout"),
        *("--search.num-particles", "32", "--search.resample-period", "None", "--search.resampling=residual"),
        *("--evaluation.episodes", "7", "--evaluation.greedy", "--network.width", "64", "--task.min-scrambles", "1"),
    )
    assert experiment == dataclasses.replace(
        start,
        num_seeds=5,
        steps=1e6,
        seed=3,
        task_options={"min_scrambles": 1},
        config=dataclasses.replace(
            start.config,
            learning_rate=0.01,
            trust_region=False,
            fixed_temperature=True,
            old_policy="rollout",
            search=dataclasses.replace(
                start.config.search, num_particles=32, resample_period=None, resampling="residual"
            ),
        ),
        evaluation=dataclasses.replace(start.evaluation, episodes=7, greedy=True),
        network=dataclasses.replace(start.network, width=64),
    )
    assert type(experiment) is Experiment


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_another_algorithm_has_its_own_settings(requested, capsys, algorithm):
    experiment = experiment_for(requested, capsys, "paper/rubiks_cube", "--algorithm", algorithm, "--gamma", "0.5")
    expected = presets.get("paper/rubiks_cube", algorithm)
    assert experiment == dataclasses.replace(expected, config=dataclasses.replace(expected.config, gamma=0.5))


def test_channels_are_a_list_of_any_length(requested, capsys):
    experiment = experiment_for(requested, capsys, "paper/boxoban", "--network.channels", "32", "64", "--seed", "1")
    network = NetworkConfig(channels=(32, 64))
    assert experiment == dataclasses.replace(presets.get("paper/boxoban"), seed=1, network=network)
    experiment = experiment_for(requested, capsys, "paper/boxoban", "--network.channels", "16")
    assert experiment.network == NetworkConfig(channels=(16,))


def test_another_task_has_its_own_options(requested, capsys):
    experiment = experiment_for(requested, capsys, "--task", "tiny/chain", "--steps", "100")
    assert (experiment.task, experiment.task_options) == ("tiny/chain", {})
    experiment = experiment_for(
        requested, capsys, "--task", "boxoban/unfiltered", "--task.folder", "levels", "--task.time-limit=9"
    )
    assert experiment.task_options == {"folder": "levels", "time_limit": 9}
    json.dumps(experiment.task_options)  # fails for a path


def test_options_for_another_library_are_read_as_literals(requested, capsys):
    experiment = experiment_for(
        requested, capsys, "--task", "jumanji/snake", "--task.num-rows", "7", "--task.rate=0.5", "--task.name", "x"
    )
    assert experiment.task_options == {"num_rows": 7, "rate": 0.5, "name": "x"}


@pytest.mark.parametrize("task", ["sokoban/generated", "tiny/chain"])
def test_another_task_has_its_own_network(requested, capsys, task):
    """The width of the default preset fits the cube, and a ResNet has no width."""
    assert experiment_for(requested, capsys, "default", "--task", task).network == NetworkConfig()
    sized = experiment_for(requested, capsys, "default", "--task", task, "--network.channels", "16")
    assert sized.network == NetworkConfig(channels=(16,))
    tuned = experiment_for(requested, capsys, "tuned/rubiks_cube", "--task", task)
    assert tuned.network == NetworkConfig(dtype="bfloat16")


def test_without_a_preset_the_settings_are_chosen_for_the_task(requested, capsys):
    options = ("--task", "tiny/chain", "--algorithm", "ppo", "--steps", "12345")
    assert experiment_for(requested, capsys, *options) == choose_experiment("tiny/chain", "ppo", 12345)
    changed = experiment_for(requested, capsys, *options, "--gamma", "0.5", "--scaling.no-rewards")
    assert (changed.config.gamma, changed.scaling) == (0.5, ScalingConfig(observations=True))
    for arguments, is_chosen in ((options, True), (("default", *options), False)):
        spo_command(capsys, "train", *arguments)
        assert requested.pop()[2]["is_chosen"] is is_chosen


def test_folder_and_switches_of_a_run(requested, capsys, tmp_path):
    spo_command(capsys, "train", "paper/ant")
    _, folder, _ = requested.pop()
    assert folder.parent == Path("runs")
    assert folder.name.startswith("brax-ant-spo-20")
    switches = ("--deterministic", "--quiet", "--wandb", "cubes", "--checkpoint-seconds", "9")
    spo_command(capsys, "train", "--run", str(tmp_path / "x"), "--from", "learner.npz", *switches)
    _, folder, options = requested.pop()
    assert folder == tmp_path / "x"
    expected = {"resume": False, "start_from": Path("learner.npz"), "deterministic": True, "checkpoint_seconds": 9.0}
    assert options == expected | {"is_chosen": False, "quiet": True, "wandb": "cubes"}


def test_the_last_of_repeated_options_counts(requested, capsys):
    """As for the parser, so that a script can add to a command."""
    experiment = experiment_for(requested, capsys, "--task", "rubiks_cube", "--task", "tiny/chain", "--steps", "64")
    assert experiment == choose_experiment("tiny/chain", "spo", 64)
    again = ("--task.time-limit", "5", "--task.time-limit", "9")
    assert experiment_for(requested, capsys, "--task", "rubiks_cube", *again).task_options == {"time_limit": 9}


@pytest.mark.parametrize(
    ("words", "joins"), [(("--distributed",), True), (("--distributed", "--no-distributed"), False)]
)
def test_processes_join_before_the_task_is_looked_at(requested, capsys, monkeypatch, words, joins):
    """Settings for a task follow from the device, and JAX can't join other processes once it has been used."""
    calls: list[str] = []
    monkeypatch.setattr("spo.training.processes.join", lambda: calls.append("join"))
    monkeypatch.setattr(
        "spo.training.defaults.choose_experiment", lambda *_, **__: calls.append("choose") or Experiment()
    )
    experiment_for(requested, capsys, "--task", "rubiks_cube", "--run", "x", "--quiet", *words)
    assert calls[:2] == (["join", "choose"] if joins else ["choose"])
    calls.clear()
    spo_command(capsys, "train", "--run", "x", "--distributed", "--help")
    assert not calls


def test_a_repeated_command_starts_from_the_copy_in_the_run(requested, capsys, tmp_path):
    """The file itself may be gone."""
    learner, folder = tmp_path / "learner.npz", tmp_path / "run"
    experiment = presets.get("default", task="tiny/chain")
    exports.write_learner(learner, {}, {"experiment": to_json(experiment), "env_steps": 0, "which": "best"})
    command = ("--from", str(learner), "--run", str(folder), "--resume", "auto")
    assert experiment_for(requested, capsys, *command) == experiment
    RunFolder.unused(folder).create(experiment, start_from=learner).release()
    learner.unlink()
    assert experiment_for(requested, capsys, *command) == experiment


@pytest.mark.parametrize(("option", "other"), [("--task", "rubiks_cube"), ("--algorithm", "ppo")])
def test_a_run_is_resumed_with_its_own_task_and_algorithm(requested, capsys, tmp_path, option, other):
    RunFolder.unused(tmp_path / "run").create(presets.get("default", task="tiny/chain")).release()
    result = spo_command(capsys, "train", "--resume", str(tmp_path / "run"), option, other)
    assert result.code == 2
    assert f"leave {option} {other} out" in result.err
    assert not requested


@pytest.mark.parametrize("words", [("--resume", "auto"), ("--resume=auto",)], ids=["two words", "one word"])
def test_the_settings_of_a_run_that_may_be_continued_are_those_of_the_command(requested, capsys, tmp_path, words):
    command = ("--task", "tiny/chain", "--steps", "64")
    run = ("--run", str(tmp_path / "x"))
    spo_command(capsys, "train", *command, *words, *run)
    experiment, folder, options = requested.pop()
    assert (folder, options["resume"]) == (tmp_path / "x", "auto")
    assert experiment == experiment_for(requested, capsys, *command, *run)


# --- Help -------------------------------------------------------------------------------------------------------------
def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    result = spo_command(capsys, *arguments, "--help")
    assert result.code == 0, result.err
    return one_line(result.out)


def options_without_help(text: str) -> list[str]:
    """Returns the options whose default follows their name and type at once."""
    return re.findall(r"(--[\w.-]+) (?:\S+ )?\((?:default|required)", text)


def test_every_field_is_an_option(capsys):
    text = help_of(capsys, "train")
    kinds = {"": SPOConfig, "search.": SearchConfig, "evaluation.": EvaluationConfig, "network.": NetworkConfig}
    kinds["scaling."] = ScalingConfig
    fields = [f"{prefix}{field.name}" for prefix, kind in kinds.items() for field in dataclasses.fields(kind)]
    fields += [field.name for field in dataclasses.fields(Experiment)]
    groups = {"search", "network", "scaling", "evaluation", "config", "task_options", "specs"}
    options = [field.replace("_", "-") for field in fields if field not in groups]
    for option in [*options, "run", "resume", "from", "deterministic", "quiet", "distributed", "wandb"]:
        assert re.search(rf"--{option}[ ,]", text), option
    assert "paper/humanoid" in text


def test_an_option_without_help_is_found():
    assert options_without_help("--a INT (default: 3) --b INT Size of it. (default: 3)") == ["--a"]
    assert options_without_help("--a, --no-a (default: True) --b, --no-b Size of it. (default: True)") == ["--no-a"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_has_help(capsys, command):
    text = help_of(capsys, command)
    assert options_without_help(text) == []
    assert "--" in text.replace("--help", "")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_option_of_an_algorithm_has_help(capsys, algorithm):
    assert options_without_help(help_of(capsys, "train", "--algorithm", algorithm)) == []


@pytest.mark.parametrize(
    ("task", "package", "words"),
    [
        ("rubiks_cube", "jax", "--task.eval-scrambles INT Random turns that scramble the cube"),
        ("sokoban/generated", "jax", "--task.num-boxes INT Boxes in each level."),
        ("tiny/chain", "jax", "--task.exit-reward FLOAT Reward of action 0."),
        ("boxoban/unfiltered", "jax", "--task.allow-partial, --task.no-allow-partial Accept a split"),
        ("brax/ant", "brax", "--task.backend STR Physics engine"),
        ("jumanji/game_2048", "jumanji", "--task.no-time-limit-is-termination Treat the end"),
        ("gymnax/CartPole-v1", "gymnax", "--task.time-limit {None}|INT Longest episode"),
        ("pgx/2048", "pgx", "--task.time-limit INT Longest episode"),
        ("xminigrid/MiniGrid-Empty-5x5", "xminigrid", "--task.benchmark {None}|STR Set of rulesets"),
    ],
)
def test_every_option_of_a_task_has_help(capsys, task, package, words):
    pytest.importorskip(package)
    text = help_of(capsys, "train", "--task", task)
    assert words in text
    assert options_without_help(text) == []


def test_help_shows_the_defaults_of_the_preset(capsys):
    def temperature(*arguments: str) -> str:
        text = help_of(capsys, "train", *arguments)
        return text.split("--initial-temperature FLOAT")[1].split("(default: ")[1].split(")")[0]

    assert temperature("paper/ant") == "10.0"
    assert temperature("paper/rubiks_cube") == "0.5"


@pytest.fixture
def own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an own environment that needs an option."""
    lines = ["from spo.environments import make", "def typed(n: int):", '    """Makes it.', "", "    Args:"]
    lines += ["        n: Length of it.", '    """', '    return make("tiny/chain", length=n)']
    (tmp_path / "needs_length.py").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "needs_length:typed"


def test_help_needs_no_option_of_the_task(capsys, own_task):
    assert "--task.n INT Length of it. (required)" in help_of(capsys, "train", "--task", own_task)
    assert "--task.n INT Length of it. (required)" in help_of(capsys, "train", "--task", own_task, "--steps", "3")


def test_a_wrong_option_beside_a_missing_one_is_named(requested, capsys, own_task):
    result = spo_command(capsys, "train", "--task", own_task, "--task.m", "3")
    assert result == (2, "", f"spo: {own_task} needs --task.n, and has no --task.m.")
    result = spo_command(capsys, "train", "default", "--task", own_task)
    assert result.err == "spo: spo train needs --task.n INT. Length of it. `spo train --help` lists the options."


# --- Errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("paper/rubik_cube",), "There is no preset 'paper/rubik_cube'. Did you mean 'paper/rubiks_cube'"),
        (("--lerning-rate", "1"), "Did you mean --learning-rate"),
        (("--search.resampling", "best"), "must be one of multinomial, stratified, systematic, residual"),
        (("--num-envs", "many"), "--num-envs"),
        (("--algorithm", "spoo"), "There is no algorithm 'spoo'. Did you mean 'spo'"),
        (("--task", "rubik_cube"), "Did you mean 'rubiks_cube'"),
        (("--task.scrambles", "1"), "--task.min-scrambles"),
        (("--steps", "1e3", "paper/ant"), "Name the preset first: spo train paper/ant"),
        (("--resume", "nowhere"), "nowhere holds no run"),
        (("paper/ant", "--resume", "nowhere"), "leave paper/ant out"),
        (("--task",), "--task"),
        (("--task", "jumanji/snake", "--task.num-rows"), "--task.num-rows needs a value"),
        (("--task", "jumanji/snake", "--task.num-rows", "--quiet"), "--task.num-rows needs a value"),
        (("--task", "tiny/chain", "--task.lenght", "3"), "--task.length"),
        (("--task", "collections:OrderedDict"), "its module imports nothing of spo"),
        (("--distributed",), "give all of them the same --run FOLDER"),
    ],
)
def test_a_wrong_command_line_prints_what_is_allowed(requested, capsys, arguments, words):
    result = spo_command(capsys, "train", *arguments)
    assert result.code == 2
    assert words in result.err
    assert not requested


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--num-envs", "0"), "num_envs must be 1 or more, got 0."),
        (("--gamma", "1.5"), "gamma must lie between 0 and 1, got 1.5."),
        (("--search.horizon", "0"), "horizon must be 1 or more, got 0."),
        (("--network.width", "0"), "width must be 1 or more, got 0."),
        (("--evaluation.episodes", "0"), "episodes must be"),
        (("--steps", "nan"), "steps must be"),
        (("--task", "rubiks_cube", "--task.time-limit", "abc"), "--task.time-limit must be a whole number, got 'abc'."),
        (("--task", "jumanji/game_2048", "--task.time-limit", "1,000"), "jumanji/game_2048 has no option 'time_limit'"),
        (("--num-seeds", "0"), "num_seeds must be"),
        (
            ("--task", "jumanji/snake", "--task.num-row", "3"),
            "jumanji/snake has no option 'num_row': it takes num_cols, num_rows",
        ),
    ],
)
def test_a_wrong_value_prints_a_sentence_before_a_folder_exists(capsys, tmp_path, arguments, words):
    result = spo_command(capsys, "train", *arguments, "--run", str(tmp_path / "run"))
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
    assert "Chosen" not in result.out  # the settings are printed after the checks
    assert not (tmp_path / "run").exists()
