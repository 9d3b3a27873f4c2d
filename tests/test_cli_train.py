"""The door: what is typed becomes an experiment, and one small run goes through every command."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tyro")
pytest.importorskip("flax")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import spo
from spo import presets
from spo.algorithms.registry import ALGORITHMS
from spo.algorithms.spo import SearchConfig, SPOConfig
from spo.cli import main, saved, training
from spo.environments import rendering
from spo.networks.config import NetworkConfig
from spo.training import experiment, intervals, library, loop, processes
from spo.training.experiment import EvaluationConfig, Experiment


class Answer:
    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, " ".join(err.replace("│", " ").split())


def spo_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    code = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code or 0
    return Answer(code, *capsys.readouterr())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Experiment, Path, dict[str, Any]]]:
    """What `spo train` would have run."""
    calls: list[tuple[Experiment, Path, dict[str, Any]]] = []
    monkeypatch.setattr(
        training, "run", lambda experiment, folder, **options: calls.append((experiment, folder, options))
    )
    return calls


def experiment_for(asked: list, capsys: pytest.CaptureFixture[str], *arguments: str) -> Experiment:
    answer = spo_command(capsys, "train", *arguments)
    assert answer.code == 0, answer.err
    return asked.pop()[0]


# --- What is typed ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", presets.PRESETS)
def test_without_options_the_preset_is_run_as_it_is(asked, capsys, preset):
    assert experiment_for(asked, capsys, preset) == presets.get(preset)


def test_without_a_preset_the_default_is_run(asked, capsys):
    assert experiment_for(asked, capsys) == presets.get("default")


def test_options_reach_their_fields(asked, capsys):
    start = presets.get("paper/rubiks_cube")
    typed = experiment_for(
        asked,
        capsys,
        *("paper/rubiks_cube", "--num-seeds", "5", "--steps", "1e6", "--seed", "3", "--algorithm", "spo"),
        *("--learning-rate", "0.01", "--no-trust-region", "--fixed-temperature", "--old-policy", "rollout"),
        *("--search.num-particles", "32", "--search.resample-period", "None", "--search.resampling=residual"),
        *("--evaluation.episodes", "7", "--evaluation.greedy", "--network.width", "64", "--task.min-scrambles", "1"),
    )
    assert typed == dataclasses.replace(
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


def test_channels_are_as_many_numbers_as_wanted(asked, capsys):
    typed = experiment_for(asked, capsys, "paper/boxoban", "--network.channels", "32", "64", "--seed", "1")
    assert typed == dataclasses.replace(presets.get("paper/boxoban"), seed=1, network=NetworkConfig(channels=(32, 64)))
    typed = experiment_for(asked, capsys, "paper/boxoban", "--network.channels", "16")
    assert typed.network == NetworkConfig(channels=(16,))


def test_every_field_is_an_option_with_a_sentence(capsys):
    """Nothing that decides a result is out of reach, and each option says what it is."""
    help_text = spo_command(capsys, "train", "--help").out
    words = help_text.split()
    kinds = {"": SPOConfig, "search.": SearchConfig, "evaluation.": EvaluationConfig, "network.": NetworkConfig}
    for prefix, kind in kinds.items():
        for field in dataclasses.fields(kind):
            if field.name != "search":
                assert any(f"--{prefix}{field.name.replace('_', '-')}" in word for word in words), field.name
    for option in (
        "task",
        "algorithm",
        "steps",
        "seed",
        "num-seeds",
        "run",
        "resume",
        "from",
        "deterministic",
        "quiet",
    ):
        assert f"--{option}" in help_text
    flat = " ".join(help_text.replace("│", " ").split())
    assert "Particles per root (N). (default: 16)" in flat
    steps = presets.get("default").steps
    assert (
        f"Environment steps, per seed. The last interval between two lines of metrics is finished. (default: {steps})"
        in flat
    )
    assert "--task.eval-scrambles INT (default: 4)" in flat
    assert "paper/humanoid" in flat


def test_help_shows_the_defaults_of_the_preset(capsys):
    def temperature(*arguments: str) -> str:
        flat = " ".join(spo_command(capsys, "train", *arguments, "--help").out.replace("│", " ").split())
        return flat.split("temperature at the start (η). (default: ")[1].split(")")[0]

    assert temperature("paper/ant") == "10.0"
    assert temperature("paper/rubiks_cube") == "0.5"


def test_another_task_brings_its_own_options(asked, capsys):
    typed = experiment_for(asked, capsys, "--task", "tiny/chain", "--steps", "100")
    assert (typed.task, typed.task_options) == ("tiny/chain", {})
    typed = experiment_for(
        asked, capsys, "--task", "boxoban/unfiltered", "--task.folder", "levels", "--task.time-limit=9"
    )
    assert typed.task_options == {"folder": "levels", "time_limit": 9}
    json.dumps(typed.task_options)  # a path would not be plain data


def test_options_that_a_task_hands_on_are_read_as_literals(asked, capsys):
    typed = experiment_for(
        asked, capsys, "--task", "tiny/chain", "--task.length", "7", "--task.exit-reward=0.5", "--task.name", "x"
    )
    assert typed.task_options == {"length": 7, "exit_reward": 0.5, "name": "x"}


def test_an_option_that_is_handed_on_does_not_swallow_the_next(asked, capsys):
    answer = spo_command(capsys, "train", "--task", "tiny/chain", "--task.length", "--quiet")
    assert (answer.code, "--task.length needs a value" in answer.err) == (2, True)


@pytest.mark.parametrize("task", ["sokoban/generated", "tiny/chain"])
def test_another_task_has_its_own_network(asked, capsys, task):
    """The default preset's has the width of a small cube, which a ResNet has not."""
    assert experiment_for(asked, capsys, "--task", task).network == NetworkConfig()
    sized = experiment_for(asked, capsys, "--task", task, "--network.channels", "16")
    assert sized.network == NetworkConfig(channels=(16,))
    assert experiment_for(asked, capsys, "tuned/rubiks_cube", "--task", task).network == NetworkConfig(dtype="bfloat16")


def test_where_a_run_goes(asked, capsys, tmp_path):
    spo_command(capsys, "train", "paper/ant")
    _, folder, _ = asked.pop()
    assert folder.parent == Path("runs")
    assert folder.name.startswith("paper-ant-20")
    switches = ("--deterministic", "--quiet", "--wandb", "cubes")
    spo_command(capsys, "train", "--run", str(tmp_path / "x"), "--from", "learner.npz", *switches)
    _, folder, options = asked.pop()
    assert folder == tmp_path / "x"
    expected = {"resume": False, "start_from": Path("learner.npz"), "deterministic": True}
    assert options == expected | {"quiet": True, "wandb": "cubes", "distributed": False}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("paper/rubik_cube",), "There is no preset 'paper/rubik_cube'. Did you mean 'paper/rubiks_cube'"),
        (("--lerning-rate", "1"), "--learning-rate FLOAT"),
        (("--search.resampling", "best"), "'multinomial', 'stratified', 'systematic', 'residual'"),
        (("--num-envs", "many"), "--num-envs"),
        (("--algorithm", "spoo"), "'spo'"),
        (("--task", "rubik_cube"), "Did you mean 'rubiks_cube'"),
        (("--task.scrambles", "1"), "--task.min-scrambles"),
        (("--steps", "1e3", "paper/ant"), "Name the preset first: spo train paper/ant"),
        (("--resume", "nowhere"), "nowhere holds no run"),
        (("paper/ant", "--resume", "nowhere"), "leave paper/ant out"),
        (("--task",), "--task"),
        (("--task", "tiny/chain", "--task.length"), "--task.length needs a value"),
    ],
)
def test_what_can_be_set_right_is_answered_with_what_is_allowed(asked, capsys, arguments, words):
    answer = spo_command(capsys, "train", *arguments)
    assert answer.code == 2
    assert words in answer.err
    assert not asked


def test_an_option_of_the_task_that_does_not_exist_is_refused_when_it_is_built(capsys, tmp_path):
    answer = spo_command(capsys, "train", "--task", "tiny/chain", "--task.lenght", "3", "--run", str(tmp_path / "x"))
    assert answer.code == 2
    assert "tiny/chain has no option 'lenght': it takes exit_reward, length" in answer.err


# --- One run through all commands -------------------------------------------------------------------------------------
TINY = (
    *("--task.size", "2", "--task.max-scrambles", "2", "--task.eval-scrambles", "1", "--task.time-limit", "4"),
    *("--steps", "192", "--num-seeds", "2", "--num-devices", "1", "--logs-per-evaluation", "1"),
    *("--num-envs", "8", "--rollout-length", "4", "--sequence-length", "4", "--num-updates", "1"),
    *("--batch-size", "4", "--replay-size", "256", "--network.width", "16", "--network.depth", "1"),
    *("--search.num-particles", "4", "--search.horizon", "2", "--search.unroll", "1"),
    *("--evaluation.num-evaluations", "2", "--evaluation.episodes", "16", "--evaluation.final-episodes", "32"),
)


@pytest.fixture(scope="module", autouse=True)
def own_compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs keep compiled programs in a folder: here in one of their own, and only as long as these tests last."""
    earlier = jax.config.jax_compilation_cache_dir
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    yield
    jax.config.update("jax_compilation_cache_dir", earlier)
    compilation_cache.reset_cache()


@pytest.fixture(autouse=True)
def rank_promotion() -> Iterator[None]:
    """flashbax promotes ranks, so whole runs can't forbid it."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    with jax.numpy_rank_promotion("allow"):
        main(["train", *TINY, "--run", str(folder)])
    return folder


def test_train_leaves_a_run_with_a_picture(run: Path):
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["search"]["num_particles"] == 4
    assert json.loads((run / "summary.json").read_text())["env_steps"] == 192


def test_train_ends_with_a_report_and_a_finished_run_has_nothing_to_resume(run: Path, capsys):
    answer = spo_command(capsys, "train", "--resume", str(run))
    assert answer.code == 0
    assert "nothing to resume" in answer.out
    assert "Trained spo on rubiks_cube, size 2" in answer.out
    assert f"spo evaluate {run}" in answer.out


def test_resume_goes_on_with_the_settings_of_the_run(run: Path, capsys, asked):
    assert spo_command(capsys, "train", "--resume", str(run)).code == 0
    resumed, folder, options = asked.pop()
    assert (resumed.num_seeds, resumed.config.search.num_particles, resumed.task_options["size"]) == (2, 4, 2)
    assert (folder, options["resume"]) == (run, True)
    answer = spo_command(capsys, "train", "--resume", str(run), "--run", "elsewhere")
    assert (answer.code, "leave --run out" in answer.err) == (2, True)


def test_one_of_several_processes_meets_the_others_before_it_trains(capsys, monkeypatch, tmp_path):
    happened: list[str] = []
    monkeypatch.setattr(processes, "join", lambda: happened.append("met"))
    monkeypatch.setattr(processes, "is_first", lambda: False)  # nothing is drawn or said
    monkeypatch.setattr(loop, "train", lambda *_, **__: happened.append("trained"))
    answer = spo_command(capsys, "train", "--run", str(tmp_path / "run"), "--distributed")
    assert (answer.code, answer.out, happened) == (0, "", ["met", "trained"])
    answer = spo_command(capsys, "train", "--distributed")
    assert (answer.code, "name it, with --run FOLDER" in answer.err) == (2, True)


def test_a_device_without_enough_memory_is_answered_with_what_to_lower(capsys, monkeypatch, tmp_path):
    def exhausted(*_: Any, **__: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 byte.")

    monkeypatch.setattr(loop, "train", exhausted)
    answer = spo_command(capsys, "train", "--run", str(tmp_path / "run"), "--quiet")
    assert answer.code == 2
    assert "ran out of memory" in answer.err
    assert "--num-envs" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_another_algorithm_brings_its_own_settings(asked, capsys, algorithm):
    typed = experiment_for(asked, capsys, "paper/rubiks_cube", "--algorithm", algorithm, "--gamma", "0.5")
    expected = presets.get("paper/rubiks_cube", algorithm)
    assert typed == dataclasses.replace(expected, config=dataclasses.replace(expected.config, gamma=0.5))


def test_a_folder_with_a_run_is_not_written_over(run: Path, capsys):
    answer = spo_command(capsys, "train", *TINY, "--run", str(run))
    assert answer.code == 2
    assert "holds a run already" in answer.err


def test_evaluate_with_another_search_budget(run: Path, capsys, tmp_path, monkeypatch):
    searches, calls = [], []

    def build(chosen: Experiment) -> experiment.Built:
        """Builds, and listens to what is asked of what was built."""
        built = real_build(chosen)
        searches.append(chosen.config.search)

        def evaluate(learner: Any, key: Any, *how: Any) -> Any:
            calls.append(how)
            return built.program.evaluate(learner, key, *how)

        return built._replace(program=built.program._replace(evaluate=evaluate))

    real_build = experiment.build
    monkeypatch.setattr(experiment, "build", build)
    out = tmp_path / "result.json"
    answer = spo_command(capsys, "evaluate", str(run), "--search.horizon", "3", "--episodes", "8", "--out", str(out))
    assert answer.code == 0, answer.err
    assert (searches[-1].horizon, searches[-1].num_particles) == (3, 4)
    assert calls == [(8, True, False)]  # episodes, by search, greedily
    result = json.loads(out.read_text())
    assert (result["search"]["horizon"], result["search"]["num_particles"]) == (3, 4)
    assert (result["parameters"], result["episodes"], result["greedy"]) == ("best", 8, False)
    for name in ("solved", "return", "length"):
        assert len(result["per_seed"][name]) == 2
        assert result[name]["low"] <= result[name]["mean"] <= result[name]["high"]
        assert result[name]["mean"] == pytest.approx(sum(result["per_seed"][name]) / 2)
    assert 0 < result["seconds_per_step"] < 10
    assert "95 % interval" in answer.out
    assert "ms for one action" in answer.out


@pytest.mark.slow  # because it trains a run of its own
def test_evaluate_a_tree_search_with_another_number_of_simulations(capsys, tmp_path):
    run, out = tmp_path / "run", tmp_path / "result.json"
    sizes = ["--num-envs", "4", "--rollout-length", "4", "--sequence-length", "4", "--batch-size", "4"]
    sizes += ["--num-updates", "1", "--num-simulations", "4", "--network.width", "8", "--steps", "16"]
    sizes += ["--evaluation.num-evaluations", "1", "--evaluation.episodes", "2", "--evaluation.final-episodes", "2"]
    answer = spo_command(capsys, "train", "default", "--algorithm", "alphazero", *sizes, "--run", str(run), "--quiet")
    assert answer.code == 0, answer.err
    arguments = ["--num-simulations", "9", "--episodes", "2", "--out", str(out)]
    assert spo_command(capsys, "evaluate", str(run), *arguments).code == 0
    assert json.loads(out.read_text())["num_simulations"] == 9


def test_evaluate_by_the_policy_alone_repeats_itself(run: Path, capsys, tmp_path, monkeypatch):
    results = []
    asked_for = []
    act = library.make_agent

    def make_agent(algorithm: Any, learner: Any, summary: Any) -> Any:
        def listen(*arguments: Any, **how: Any) -> Any:
            asked_for.append(how)
            return agent.act(*arguments, **how)

        agent = act(algorithm, learner, summary)
        return agent._replace(act=listen)

    monkeypatch.setattr(library, "make_agent", make_agent)
    for name in ("a", "b"):
        arguments = (
            "--policy-only",
            "--greedy",
            "--last",
            "--episodes",
            "8",
            "--seed",
            "5",
            "--out",
            str(tmp_path / name),
        )
        assert spo_command(capsys, "evaluate", str(run), *arguments).code == 0
        results.append(json.loads((tmp_path / name).read_text()))
    assert results[0]["search"] is None
    assert results[0]["parameters"] == "last"
    assert results[0]["per_seed"] == results[1]["per_seed"]
    assert asked_for[0] == {"use_search": False, "greedy": True}  # what is timed is what was played


def test_evaluate_answers_wrong_options(run: Path, capsys):
    answer = spo_command(capsys, "evaluate", str(run), "--search.depth", "3")
    assert answer.code == 2
    assert "Unrecognized options: --search.depth" in answer.err
    assert "--search.horizon" in spo_command(capsys, "evaluate", str(run), "--help").out
    answer = spo_command(capsys, "evaluate", "nowhere")
    assert (answer.code, "holds no run" in answer.err) == (2, True)


@pytest.mark.parametrize("episodes", [0, -1])
def test_evaluate_needs_an_episode(run: Path, capsys, episodes):
    answer = spo_command(capsys, "evaluate", str(run), "--episodes", str(episodes))
    assert (answer.code, "ask for 1 or more" in answer.err) == (2, True)


@pytest.mark.parametrize("judged", [EvaluationConfig(greedy=True, use_search=False), EvaluationConfig()])
def test_evaluate_plays_as_the_run_was_judged(run: Path, capsys, monkeypatch, tmp_path, judged):
    """Unless it is told otherwise: its figure is to be compared with the run's own."""
    played: list[Any] = []

    def play(chosen: Any) -> None:
        played.append(chosen)
        raise ValueError("That is enough.")

    monkeypatch.setattr(saved, "_evaluate", play)
    config = json.loads((run / "config.json").read_text()) | {"evaluation": dataclasses.asdict(judged)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "That is enough." in spo_command(capsys, "evaluate", str(tmp_path)).err
    assert (played[0].greedy, played[0].policy_only) == (judged.greedy, not judged.use_search)
    spo_command(capsys, "evaluate", str(tmp_path), "--no-greedy", "--no-policy-only")
    assert (played[1].greedy, played[1].policy_only) == (False, False)


def test_render_writes_an_animation(run: Path, capsys, tmp_path):
    from PIL import Image

    out = tmp_path / "episode.gif"
    answer = spo_command(capsys, "render", str(run), "--out", str(out), "--episodes", "2", "--member", "1")
    assert answer.code == 0, answer.err
    with Image.open(out) as picture:
        assert 3 <= picture.n_frames <= 2 * 5  # two episodes of one to four steps; equal neighbours are merged
    assert "2 episode(s)" in answer.out
    answer = spo_command(capsys, "render", str(run), "--member", "2")
    assert (answer.code, "has 2 seed(s)" in answer.err) == (2, True)


@pytest.mark.parametrize("judged", [EvaluationConfig(greedy=True, use_search=False), EvaluationConfig()])
def test_render_plays_as_the_run_was_judged(run: Path, capsys, monkeypatch, tmp_path, judged):
    played: list[dict[str, bool]] = []

    def frames(environment: Any, act: Any, key: Any, max_steps: int) -> list[np.ndarray]:
        played.append(act.keywords)
        return [np.zeros((4, 4, 3), np.uint8)]

    monkeypatch.setattr(rendering, "rollout_frames", frames)
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text()) | {"evaluation": dataclasses.asdict(judged)}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for options in ((), ("--greedy", "--policy-only")):
        answer = spo_command(capsys, "render", str(tmp_path / "run"), "--out", str(tmp_path / "x.gif"), *options)
        assert answer.code == 0, answer.err
    as_judged = {"use_search": judged.use_search, "greedy": judged.greedy}
    assert played == [as_judged, {"use_search": False, "greedy": True}]


def test_runs_lists_it(run: Path, capsys):
    answer = spo_command(capsys, "runs", str(run.parent))
    row = next(line for line in answer.out.splitlines() if line.strip().startswith("tiny"))
    for words in ("rubiks_cube", "spo x 2", "192", "solved", "finished"):
        assert words in row
    answer = spo_command(capsys, "runs", str(run / "checkpoints"))
    assert (answer.code, "There is no run in" in answer.err) == (2, True)


def test_export_and_begin_from_it(run: Path, capsys, tmp_path):
    file = tmp_path / "learner.npz"
    assert spo_command(capsys, "export", str(run), str(file), "--which", "last").code == 0
    answer = spo_command(capsys, "train", *TINY, "--from", str(file), "--run", str(tmp_path / "next"), "--quiet")
    assert (answer.code, answer.out) == (0, ""), answer.err
    assert json.loads((tmp_path / "next" / "config.json").read_text())["start_from"]["which"] == "last"


def test_an_exported_file_is_played_as_its_run_is(run: Path, capsys, tmp_path):
    file = tmp_path / "learner.npz"
    assert spo_command(capsys, "export", str(run), str(file)).code == 0
    results = []
    for source in (run, file):
        out = tmp_path / "result.json"
        answer = spo_command(capsys, "evaluate", str(source), "--episodes", "8", "--out", str(out))
        assert answer.code == 0, answer.err
        results.append(json.loads(out.read_text()))
    assert results[0]["per_seed"] == results[1]["per_seed"]
    assert results[0]["search"] == results[1]["search"]
    answer = spo_command(capsys, "evaluate", str(file), "--last")
    assert (answer.code, "holds the best parameters" in answer.err) == (2, True)
    agents = [spo.load(source, member=1) for source in (run, file)]
    jax.tree.map(np.testing.assert_array_equal, agents[0].params, agents[1].params)
    assert agents[1].summary == {}


def test_load_gives_an_agent(run: Path):
    agents = [spo.load(run, member=member) for member in (0, 1)]
    assert agents[0].summary["env_steps"] == 192
    leaves = [jax.tree.leaves(agent.params) for agent in agents]
    assert all(first.shape == second.shape for first, second in zip(*leaves, strict=True))
    assert any(jnp.any(first != second) for first, second in zip(*leaves, strict=True))
    with pytest.raises(ValueError, match=r"There are 2 seed.s., counted from 0: there is no member 2"):
        spo.load(run, member=2)


# --- As a library -----------------------------------------------------------------------------------------------------
TINY_CONFIG = SPOConfig(
    num_envs=16,
    rollout_length=8,
    sequence_length=8,
    batch_size=16,
    learning_rate=1e-2,
    search=SearchConfig(num_particles=8, horizon=1, unroll=1),
)
TINY_NETWORK = NetworkConfig(width=16, depth=1)


def test_five_lines_train_an_agent_that_knows_the_better_arm():
    """A bandit that pays 0, .5 or 1; the known answer is the last arm."""
    seen: list[dict[str, float]] = []
    evaluation = EvaluationConfig(num_evaluations=2, episodes=32, final_episodes=64)
    world = spo.environments.make("tiny/bandit").train
    agent = spo.train(
        world, steps=2000, config=TINY_CONFIG, network=TINY_NETWORK, evaluation=evaluation, on_evaluation=seen.append
    )
    state, timestep = world.reset(jax.random.key(1))
    assert int(agent.act(jax.random.key(2), state, timestep, greedy=True)) == 2
    assert int(agent.act(jax.random.key(2), None, timestep, use_search=False, greedy=True)) == 2
    assert agent.summary["final"]["return"] > 0.8  # untrained: 0.5
    assert agent.summary["evaluations"] == seen
    assert [entry["env_steps"] for entry in seen] == [1024, 2048]


def test_the_agent_has_the_parameters_of_the_best_evaluation(monkeypatch: pytest.MonkeyPatch):
    """Evaluations are told to go up and down: of two, the better one's parameters stay."""

    def params(steps: float, *returns: float) -> Any:
        answers = iter([-1.0, *returns])  # the first is of untrained parameters
        monkeypatch.setattr(intervals, "_evaluate", lambda *_, **__: {"episode/return": jnp.array([next(answers)])})
        evaluation = EvaluationConfig(num_evaluations=len(returns))
        agent = spo.train("tiny/bandit", steps, config=TINY_CONFIG, network=TINY_NETWORK, evaluation=evaluation)
        return jax.tree.leaves(agent.params)

    def same(first: Any, second: Any) -> bool:
        return all(bool(jnp.all(a == b)) for a, b in zip(first, second, strict=True))

    early, late = params(1024, 1.0), params(2048, 0.0, 1.0)
    assert same(params(2048, 1.0, 0.0), early)
    assert not same(early, late)


def test_what_can_not_be_trained_on_is_a_sentence():
    with pytest.raises(ValueError, match="Can't train on a int: give a"):
        spo.train(3)


def test_importing_spo_brings_nothing_in():
    import subprocess
    import sys

    script = "import spo, sys; assert 'jax' not in sys.modules; assert not hasattr(spo, 'trian'); print(spo.train)"
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "function train" in printed
