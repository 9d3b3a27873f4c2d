"""One small run through every command."""

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tyro")
pytest.importorskip("flax")

import jax
import jax.numpy as jnp
import numpy as np

import spo
from cli.command import spo_command
from spo import presets
from spo.cli import main, saved, training
from spo.environments import rendering
from spo.reports.run_files import with_checksum
from spo.training import agents, evaluation, exports, loop, processes
from spo.training.experiment import EvaluationConfig, to_json
from spo.training.run_folder import RunFolder
from spo.training.saved_learners import load_experiment
from spo.training.trainer import Trainer

TINY = (
    *("--task.size", "2", "--task.max-scrambles", "2", "--task.eval-scrambles", "1", "--task.time-limit", "4"),
    *("--steps", "192", "--num-seeds", "2", "--num-devices", "1", "--logs-per-evaluation", "1"),
    *("--num-envs", "8", "--rollout-length", "4", "--sequence-length", "4", "--num-updates", "1"),
    *("--batch-size", "4", "--replay-size", "256", "--network.width", "16", "--network.depth", "1"),
    *("--search.num-particles", "4", "--search.horizon", "2", "--search.unroll", "1"),
    *("--evaluation.num-evaluations", "2", "--evaluation.episodes", "16", "--evaluation.final-episodes", "32"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with two seeds."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    main(["train", *TINY, "--run", str(folder)])
    return folder


# --- spo train --------------------------------------------------------------------------------------------------------
def test_train_writes_settings_summary_and_picture(run: Path):
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["search"]["num_particles"] == 4
    assert json.loads((run / "summary.json").read_text())["env_steps"] == 192


def test_train_ends_with_a_report_and_a_finished_run_has_nothing_to_resume(run: Path, capsys):
    result = spo_command(capsys, "train", "--resume", str(run))
    assert result.code == 0
    assert "nothing to resume" in result.out
    assert "Trained spo on rubiks_cube, size 2" in result.out
    assert f"spo evaluate {run}" in result.out


def test_the_report_of_a_finished_run_names_spo_render_only_if_there_are_pictures(run: Path, capsys, monkeypatch):
    assert f"spo render {run}" in spo_command(capsys, "train", "--resume", str(run)).out
    monkeypatch.setattr(training, "_can_render", lambda experiment: False)
    assert "spo render" not in spo_command(capsys, "train", "--resume", str(run)).out


def test_an_environment_without_pictures_is_known_without_its_run():
    assert training._can_render(presets.get("default"))
    assert not training._can_render(presets.get("default", task="cli.without_pictures:make_env"))


def test_resume_uses_the_settings_of_the_run(run: Path, capsys, requested):
    assert spo_command(capsys, "train", "--resume", str(run)).code == 0
    resumed, folder, options = requested.pop()
    assert (resumed.num_seeds, resumed.config.search.num_particles, resumed.task_options["size"]) == (2, 4, 2)
    assert (folder, options["resume"]) == (run, True)
    result = spo_command(capsys, "train", "--resume", str(run), "--run", "elsewhere")
    assert (result.code, "leave --run out" in result.err) == (2, True)


def test_a_command_can_be_started_again_as_it_is(capsys, monkeypatch, tmp_path):
    calls: list[tuple[Any, bool, Any]] = []

    def train(experiment, folder, *, resume, start_from, **_):
        calls.append((experiment, resume, start_from))
        if not resume:
            RunFolder.unused(folder).create(experiment).release()
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "train", train)
    file, folder = tmp_path / "learner.npz", str(tmp_path / "run")
    exports.write_learner(file, {}, {"spo_version": spo.__version__, "experiment": to_json(presets.get("default"))})
    for _ in range(2):
        command = ("train", "--steps", "64", "--from", str(file), "--run", folder, "--resume", "auto", "--quiet")
        assert spo_command(capsys, *command).code == 130
    experiment = dataclasses.replace(presets.get("default"), steps=64)
    assert calls == [(experiment, False, file), (experiment, True, None)]
    result = spo_command(capsys, "train", "--resume", "auto")
    assert (result.code, "--resume auto needs the folder of the run: add --run FOLDER" in result.err) == (2, True)


def test_one_of_several_processes_joins_the_others_before_it_trains(capsys, monkeypatch, tmp_path):
    calls: list[str] = []
    monkeypatch.setattr(processes, "join", lambda: calls.append("join"))
    monkeypatch.setattr(processes, "is_first", lambda: False)  # only the first process draws and prints
    monkeypatch.setattr(loop, "train", lambda *_, **__: calls.append("train"))
    result = spo_command(capsys, "train", "--run", str(tmp_path / "run"), "--distributed")
    assert (result.code, result.out, calls) == (0, "", ["join", "train"])


def test_a_device_without_enough_memory_prints_what_to_lower(capsys, monkeypatch, tmp_path):
    def exhausted(*_: Any, **__: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 byte.")

    monkeypatch.setattr(loop, "train", exhausted)
    result = spo_command(capsys, "train", "--run", str(tmp_path / "run"), "--quiet")
    assert result.code == 2
    assert "too little memory" in result.err
    assert "--num-envs" in result.err
    assert "Traceback" not in result.err


def test_a_folder_with_a_run_is_not_overwritten(run: Path, capsys):
    result = spo_command(capsys, "train", *TINY, "--run", str(run))
    assert result.code == 2
    assert "holds a run already" in result.err


# --- spo inspect ------------------------------------------------------------------------------------------------------
def test_inspect_writes_a_page_with_another_search_budget(run: Path, capsys, tmp_path):
    out = tmp_path / "page.html"
    options = ("--search.horizon", "3", "--max-steps", "2", "--member", "1", "--seed", "5", "--out", str(out))
    answer = spo_command(capsys, "inspect", str(run), *options)
    assert answer.code == 0, answer.err
    assert f"Wrote {out}" in answer.out
    data = re.search(r'id="document">(.*?)</script>', out.read_text("utf-8"), re.DOTALL)
    document = json.loads(data[1])
    assert (document["run"]["name"], document["run"]["member"], document["seed"]) == (run.name, 1, 5)
    search = document["steps"][0]["decision"]["search"]
    assert (search["num_particles"], search["horizon"]) == (4, 3)
    assert document["settings"]["horizon"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "nowhere"),
        ((), "spo inspect needs RUN"),
        (("RUN", "--member", "2"), "There are 2 seed(s), counted from 0: there is no member 2."),
        (("RUN", "--max-steps", "0"), "--max-steps must be 1 or more, got 0."),
        (("RUN", "--search.horizon", "0"), "search.horizon must be 1 or more, got 0."),
        (("RUN", "--task.size", "3"), "The run's network can't act in this variant"),
        (("RUN", "--out", "no/such/folder/page.html"), "There is no folder no/such/folder"),
    ],
)
def test_inspect_refuses_wrong_options_with_a_sentence(run: Path, capsys, arguments, words):
    answer = spo_command(capsys, "inspect", *(str(run) if argument == "RUN" else argument for argument in arguments))
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err


# --- spo evaluate -----------------------------------------------------------------------------------------------------
def test_evaluate_with_another_search_budget(run: Path, capsys, tmp_path, monkeypatch):
    searches, calls = [], []

    real_evaluate = evaluation.evaluate_in_parts

    def evaluate(trainer: Trainer, learner: Any, key: Any, num_episodes: int, **how: Any) -> Any:
        searches.append(trainer.experiment.config.search)
        calls.append((num_episodes, how["use_search"], how["greedy"]))
        episodes = real_evaluate(trainer, learner, key, num_episodes, **how)
        del how["on_progress"]
        at_once = trainer.evaluate(learner, key, num_episodes, **how)
        jax.tree.map(np.testing.assert_array_equal, episodes, at_once)  # the parts change no number
        return episodes

    monkeypatch.setattr(evaluation, "evaluate_in_parts", evaluate)
    out = tmp_path / "result.json"
    answer = spo_command(capsys, "evaluate", str(run), "--search.horizon", "3", "--episodes", "8", "--out", str(out))
    assert answer.code == 0, answer.err
    assert (searches[-1].horizon, searches[-1].num_particles) == (3, 4)
    assert calls == [(8, True, False)]
    result = json.loads(out.read_text())
    assert (result["search"]["horizon"], result["search"]["num_particles"]) == (3, 4)
    assert (result["parameters"], result["episodes"], result["greedy"]) == ("best", 8, False)
    for name in ("solved", "return", "length"):
        assert len(result["per_seed"][name]) == 2
        assert result[name]["low"] <= result[name]["mean"] <= result[name]["high"]
        assert result[name]["mean"] == pytest.approx(sum(result["per_seed"][name]) / 2)
    assert 0 < result["seconds_per_step"] < 10
    other = result["other_actions"]
    assert (other["kind"], other["episodes"]) == ("greedy", 2)
    assert 0 <= other["solved"]["mean"] <= 1
    assert f"greedy {other['length']['mean']:.3g}" in answer.out
    low, high = (f"{other['length'][end]:.3g}" for end in ("low", "high"))
    assert f"greedy {other['length']['mean']:.3g}, {low} to {high})" in answer.out
    assert "8 episodes with drawn actions, and 2 with greedy ones, for each of 2 seed(s)" in answer.out
    assert "95 % interval" in answer.out
    assert "ms for one action" in answer.out


def test_evaluate_another_variant_of_the_task(run: Path, capsys, tmp_path):
    out = tmp_path / "result.json"
    options = ("--task.eval-scrambles", "9", "--task.time-limit", "2", "--episodes", "4", "--policy-only")
    answer = spo_command(capsys, "evaluate", str(run), *options, "--out", str(out))
    assert answer.code == 0, answer.err
    result = json.loads(out.read_text())
    assert (result["task_options"]["eval_scrambles"], result["task_options"]["size"]) == (9, 2)
    assert result["length"]["high"] <= 2
    assert "eval_scrambles 9" in answer.out
    answer = spo_command(capsys, "evaluate", str(run), "--task.size", "3", "--episodes", "4")
    assert answer.code == 2
    assert "can't act in this variant of rubiks_cube" in answer.err
    assert "int8[6, 3, 3]" in answer.err
    answer = spo_command(capsys, "evaluate", str(run), "--task.scrambles", "3")
    assert (answer.code, "Did you mean --task" in answer.err) == (2, True)


def test_evaluate_shows_all_options_without_a_run_and_only_its_own_with_one(run: Path, capsys, tmp_path):
    text = spo_command(capsys, "evaluate", "--help").out
    for option in ("--search.horizon", "--num-simulations", "--policy-only", "--task.eval-scrambles", "--episodes"):
        assert option in text
    text = spo_command(capsys, "evaluate", str(run), "--help").out
    assert "--search.horizon" in text
    assert "--num-simulations" not in text
    config = json.loads((run / "config.json").read_text())
    ppo = to_json(presets.get("default", "ppo"))
    config |= {"algorithm": "ppo", "config": ppo["config"]}
    (tmp_path / "config.json").write_text(json.dumps(with_checksum(config)))
    text = spo_command(capsys, "evaluate", str(tmp_path), "--help").out
    assert "--greedy" in text
    for option in ("--search", "--num-simulations", "--policy-only"):
        assert option not in text


@pytest.mark.program
def test_evaluate_a_tree_search_with_another_number_of_simulations(capsys, tmp_path):
    run, out = tmp_path / "run", tmp_path / "result.json"
    sizes = ["--num-envs", "4", "--rollout-length", "4", "--sequence-length", "4", "--batch-size", "4"]
    sizes += ["--num-updates", "1", "--num-simulations", "4", "--network.width", "8", "--steps", "16"]
    sizes += ["--evaluation.num-evaluations", "1", "--evaluation.episodes", "2", "--evaluation.final-episodes", "2"]
    result = spo_command(capsys, "train", "default", "--algorithm", "alphazero", *sizes, "--run", str(run), "--quiet")
    assert result.code == 0, result.err
    arguments = ["--num-simulations", "9", "--episodes", "2", "--out", str(out)]
    assert spo_command(capsys, "evaluate", str(run), *arguments).code == 0
    assert json.loads(out.read_text())["num_simulations"] == 9


def test_an_exported_file_evaluates_like_its_run_with_the_policy_alone(run: Path, capsys, tmp_path, monkeypatch):
    file = tmp_path / "learner.npz"
    assert spo_command(capsys, "export", str(run), str(file), "--which", "last").code == 0
    results, timed = [], []
    real_make_agent = agents.make_agent

    def make_agent(algorithm: Any, learner: Any, summary: Any) -> Any:
        def act(*arguments: Any, **how: Any) -> Any:
            timed.append(how)
            return agent.act(*arguments, **how)

        agent = real_make_agent(algorithm, learner, summary)
        return dataclasses.replace(agent, act=act)

    monkeypatch.setattr(agents, "make_agent", make_agent)
    switches = ("--policy-only", "--greedy", "--episodes", "8", "--seed", "5")
    for source in ((str(run), "--last"), (str(file),)):  # the file has the last parameters only
        out = tmp_path / "result.json"
        result = spo_command(capsys, "evaluate", *source, *switches, "--out", str(out))
        assert result.code == 0, result.err
        results.append(json.loads(out.read_text()))
    assert results[0]["search"] is None
    assert results[0]["parameters"] == results[1]["parameters"] == "last"
    assert results[0]["per_seed"] == results[1]["per_seed"]
    assert timed[0] == {"use_search": False, "greedy": True}  # the timing is of the actions that were evaluated


def test_evaluate_lists_the_options_of_the_search(run: Path, capsys):
    result = spo_command(capsys, "evaluate", str(run), "--search.depth", "3")
    assert result.code == 2
    assert "Unrecognized options: --search.depth" in result.err
    assert "--search.horizon" in spo_command(capsys, "evaluate", str(run), "--help").out
    result = spo_command(capsys, "evaluate", "nowhere")
    assert (result.code, "holds no run" in result.err) == (2, True)
    result = spo_command(capsys, "evaluate", "--episodes", "3", str(run))
    assert (result.code, f"Name the run first: spo evaluate {run}" in result.err) == (2, True)


@pytest.mark.parametrize("episodes", [0, -1])
def test_evaluate_needs_an_episode(run: Path, capsys, episodes):
    result = spo_command(capsys, "evaluate", str(run), "--episodes", str(episodes))
    assert (result.code, f"--episodes must be 1 or more, got {episodes}" in result.err) == (2, True)
    result = spo_command(capsys, "evaluate", str(run), "--seed", "-1")
    assert (result.code, "--seed must lie between 0 and" in result.err) == (2, True)


def test_evaluate_refuses_a_file_that_cannot_be_written_before_it_starts(run: Path, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation, "evaluate_in_parts", lambda *_, **__: pytest.fail("episodes are played"))
    for out, words in ((tmp_path / "nope" / "x", "There is no folder"), (tmp_path, "is a folder: name a file")):
        answer = spo_command(capsys, "evaluate", str(run), "--episodes", "8", "--out", str(out))
        assert answer.code == 2
        assert words in answer.err


@pytest.mark.parametrize("settings", [EvaluationConfig(greedy=True, use_search=False), EvaluationConfig()])
def test_evaluate_acts_as_in_the_evaluations_of_the_run(run: Path, capsys, monkeypatch, tmp_path, settings):
    """Unless an option says otherwise: the two results are compared with each other."""
    played: list[Any] = []

    def evaluate(chosen: Any, _: Any) -> None:
        played.append(chosen)
        raise ValueError("No episode is needed.")

    monkeypatch.setattr(saved, "_evaluate", evaluate)
    config = json.loads((run / "config.json").read_text()) | {"evaluation": dataclasses.asdict(settings)}
    (tmp_path / "config.json").write_text(json.dumps(with_checksum(config)))
    assert "No episode is needed." in spo_command(capsys, "evaluate", str(tmp_path)).err
    assert (played[0].greedy, played[0].use_search) == (settings.greedy, settings.use_search)
    spo_command(capsys, "evaluate", str(tmp_path), "--no-greedy", "--no-policy-only")
    assert (played[1].greedy, played[1].use_search) == (False, True)


# --- spo render -------------------------------------------------------------------------------------------------------
def test_render_writes_an_animation(run: Path, capsys, tmp_path):
    from PIL import Image

    out = tmp_path / "episode.gif"
    result = spo_command(capsys, "render", str(run), "--out", str(out), "--episodes", "2", "--member", "1")
    assert result.code == 0, result.err
    with Image.open(out) as picture:
        assert 4 <= picture.n_frames <= 2 * 5  # two episodes of one to four steps
        assert picture.info["duration"] == 250  # milliseconds: four moves a second
    assert "2 episode(s)" in result.out
    result = spo_command(capsys, "render", str(run), "--member", "2")
    assert (result.code, "has 2 seed(s)" in result.err) == (2, True)


@pytest.mark.parametrize("settings", [EvaluationConfig(greedy=True, use_search=False), EvaluationConfig()])
def test_render_acts_as_in_the_evaluations_of_the_run(run: Path, capsys, monkeypatch, tmp_path, settings):
    played: list[dict[str, bool]] = []

    def rollout(environment: Any, act: Any, key: Any, max_steps: int) -> rendering.Rollout:
        played.append(act.keywords)
        return rendering.Rollout([np.zeros((4, 4, 3), np.uint8)], [], ended=True, solved=None)

    monkeypatch.setattr(rendering, "rollout", rollout)
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text()) | {"evaluation": dataclasses.asdict(settings)}
    (tmp_path / "run" / "config.json").write_text(json.dumps(with_checksum(config)))
    for options in ((), ("--greedy", "--policy-only")):
        result = spo_command(capsys, "render", str(tmp_path / "run"), "--out", str(tmp_path / "x.gif"), *options)
        assert result.code == 0, result.err
    as_evaluated = {"use_search": settings.use_search, "greedy": settings.greedy}
    assert played == [as_evaluated, {"use_search": False, "greedy": True}]


# --- spo runs, spo export, and loading --------------------------------------------------------------------------------
def test_runs_lists_it(run: Path, capsys):
    result = spo_command(capsys, "runs", str(run.parent))
    header, row = (line.split("\t") for line in result.out.splitlines())
    assert header == ["run", "task", "algorithm", "steps", "result", "started", "state"]
    assert (row[:4], row[6]) == (["tiny", "rubiks_cube", "spo x 2", "192"], "finished")
    assert row[4].startswith("solved")
    result = spo_command(capsys, "runs", str(run / "checkpoints"))
    assert (result.code, "There is no run in" in result.err) == (2, True)


def test_runs_fits_a_terminal_and_can_be_filtered(run: Path, capsys, monkeypatch):
    for options in (("--task", "cube"), ("--algorithm", "spo", "--sort", "result"), ("--since", "1d", "--reverse")):
        assert "finished" in spo_command(capsys, "runs", str(run.parent), *options).out
    for options in (("--task", "brax"), ("--algorithm", "ppo"), ("--since", "2999-01-01")):
        result = spo_command(capsys, "runs", str(run.parent), *options)
        assert (result.code, "None of the 1 runs" in result.err) == (2, True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    shown = spo_command(capsys, "runs", str(run.parent)).out
    assert max(map(len, shown.splitlines())) <= 80


def test_a_damaged_run_is_listed_among_the_others(run: Path, capsys, tmp_path):
    for name in ("good", "bad"):
        shutil.copytree(run, tmp_path / name, ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "bad" / "summary.json").write_text("{")
    result = spo_command(capsys, "runs", str(tmp_path))
    states = {line.split("\t")[0]: line.split("\t")[-1] for line in result.out.splitlines()[1:]}
    assert (result.code, states) == (0, {"good": "finished", "bad": "damaged"})
    assert f"{tmp_path / 'bad'} is damaged" in result.err


def test_train_starts_from_an_exported_file(run: Path, capsys, tmp_path):
    file = tmp_path / "learner.npz"
    assert spo_command(capsys, "export", str(run), str(file), "--which", "last").code == 0
    result = spo_command(capsys, "train", *TINY, "--from", str(file), "--run", str(tmp_path / "next"), "--quiet")
    assert result.code == 0, result.err
    assert re.fullmatch(rf"{tmp_path}/next: solved [\d.]+ %, 192 steps\n", result.out)  # one line, with --quiet
    assert json.loads((tmp_path / "next" / "config.json").read_text())["start_from"]["which"] == "last"


def test_an_exported_file_has_the_settings_and_the_parameters_of_its_run(run: Path, capsys, tmp_path):
    file = tmp_path / "learner.npz"
    assert spo_command(capsys, "export", str(run), str(file)).code == 0
    assert load_experiment(file) == load_experiment(run)
    result = spo_command(capsys, "evaluate", str(file), "--last")
    assert (result.code, "holds the best parameters" in result.err) == (2, True)
    loaded = [spo.load(source, member=1) for source in (run, file)]
    jax.tree.map(np.testing.assert_array_equal, loaded[0].params, loaded[1].params)
    assert loaded[1].summary == {}


def test_load_gives_an_agent(run: Path):
    loaded = [spo.load(run, member=member) for member in (0, 1)]
    assert loaded[0].summary["env_steps"] == 192
    leaves = [jax.tree.leaves(agent.params) for agent in loaded]
    assert all(first.shape == second.shape for first, second in zip(*leaves, strict=True))
    assert any(jnp.any(first != second) for first, second in zip(*leaves, strict=True))
    with pytest.raises(ValueError, match=r"There are 2 seed.s., counted from 0: there is no member 2"):
        spo.load(run, member=2)


def test_export_says_when_the_best_network_is_untrained(run: Path, capsys, monkeypatch, tmp_path):
    assert (
        "untrained" not in spo_command(capsys, "export", str(run), str(tmp_path / "trained.npz"), "--which", "last").out
    )
    monkeypatch.setattr(exports, "read_header", lambda path: {"env_steps": [0]})
    result = spo_command(capsys, "export", str(run), str(tmp_path / "agent.npz"))
    assert "The best parameters are those of the untrained network" in result.out


def test_a_host_without_enough_memory_gets_the_same_sentence_as_a_device(capsys, monkeypatch, tmp_path):
    def exhausted(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 7.11 PiB for an array with shape (1000,)")

    monkeypatch.setattr(loop, "train", exhausted)
    result = spo_command(capsys, "train", "--run", str(tmp_path / "run"), "--quiet")
    assert result.code == 2
    assert result.err.startswith("spo: There is too little memory: 7.11 PiB could not be allocated. Lower one of these")


def test_what_only_concerns_evaluations_can_change_when_a_run_is_resumed(run: Path, capsys, monkeypatch):
    """Even if the settings of training can't."""
    given: list[Any] = []
    monkeypatch.setattr(loop, "train", lambda experiment, folder, **_: given.append(experiment.evaluation))
    spo_command(capsys, "train", "--resume", str(run), "--evaluation.final-episodes", "7", "--quiet")
    assert [evaluation.final_episodes for evaluation in given] == [7]


def test_ctrl_c_ends_an_evaluation_without_a_traceback(run: Path, capsys, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "evaluate_in_parts", interrupted)
    result = spo_command(capsys, "evaluate", str(run), "--episodes", "4")
    assert (result.code, result.err) == (130, "")
