"""The experiments that train, at the scale that shows that they run; and the table of all claims."""

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from reports.fake_runs import write_run
from spo import presets

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
NAMES = ["discrete", "continuous", "training_scaling", "temperatures", "kl_targets", "advantages"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that claims share the runs they have in common."""
    return tmp_path_factory.mktemp("claims")


@pytest.mark.parametrize("name", NAMES)
def test_runs_and_says_what_it_found(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    claims = importlib.import_module("_claims")
    experiment = importlib.import_module(name)
    monkeypatch.setattr(
        sys, "argv", [name, "--scale", "smoke", "--runs", str(folder / "runs"), "--out", str(folder / "claims")]
    )
    claims.main(experiment.CLAIM, experiment.find)
    record = json.loads((folder / "claims" / f"{name}.smoke.json").read_text("utf-8"))
    assert record["verdict"] in ("held", "not held", "undecided")
    assert record["command"] == f"python experiments/{name}.py --scale smoke"
    assert record["sentence"] in capsys.readouterr().out
    assert (folder / "claims" / f"{name}.smoke.png").stat().st_size > 5_000
    # A second time nothing is trained: all runs are there.
    claims.main(experiment.CLAIM, experiment.find)
    assert "All runs are there already" in capsys.readouterr().out


def test_the_committed_table_is_that_of_the_committed_findings():
    claims, table = importlib.import_module("_claims"), importlib.import_module("claims")
    found = sorted(importlib.import_module(name).CLAIM for name in table.NAMES)
    results = EXPERIMENTS.parent / "results"
    assert (results / "claims.md").read_text("utf-8") == claims.claims_table(results / "claims", found), (
        "run python experiments/claims.py"
    )


def test_some_worlds_and_rivals_can_be_chosen_and_the_row_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    claims = importlib.import_module("_claims")
    claim = claims.Claim(1, "discrete", "SPO against all", "It is better.")
    setups = []

    def find(setup):
        setups.append(setup)
        return claims.Finding("held", "It is.", hardware="1 x NVIDIA H200")

    def run(*options: str):
        monkeypatch.setattr(sys, "argv", ["discrete", "--out", str(tmp_path), *options])
        claims.main(claim, find, worlds=("cube", "boxoban"), rivals=("ppo", "mpo"))

    run("--scale", "paper", "--worlds", "cube", "--against", "ppo", "mpo", "--steps", "2e6")
    assert (setups[0].worlds, setups[0].against) == (("cube",), ("ppo", "mpo"))
    record = json.loads((tmp_path / "discrete.paper.json").read_text("utf-8"))
    assert record["shortened"] == "--worlds cube --against ppo mpo --steps 2e+06"
    assert record["command"].endswith("--scale paper --worlds cube --against ppo mpo --steps 2e+06")
    assert record["hardware"] == "1 x NVIDIA H200"
    with pytest.raises(SystemExit):
        run("--scale", "cpu", "--worlds", "cube")


def test_hardware_is_that_of_the_runs_and_not_of_who_compares_them(tmp_path: Path):
    claims = importlib.import_module("_claims")
    for name in ("one", "two"):
        start = {"device": "NVIDIA H200", "num_devices": 2}
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(json.dumps({"starts": [start, start]}))
    assert claims.trained_on([tmp_path / "one", tmp_path / "two"]) == "2 x NVIDIA H200"


def test_the_table_has_a_row_for_every_claim_and_scale(tmp_path: Path):
    claims = importlib.import_module("_claims")
    claim = claims.Claim(1, "discrete", "SPO against all", "It is better.")
    setup = claims.Setup(claim, "cpu", tmp_path / "runs", tmp_path / "claims")
    claims.write(setup, claims.Finding("held", "SPO | PPO.", 0.9, "P(spo > ppo)", (0.8, 1.0)), seconds=3.0)
    rows = claims.claims_table(tmp_path / "claims", [claim]).splitlines()[-3:]
    assert "not run" in rows[0]
    assert "| cpu | **held** | P(spo > ppo) 0.9 (0.8 to 1) | SPO \\| PPO. |" in rows[1]
    assert "not run" in rows[2]


def test_the_table_names_the_network_and_what_was_left_out():
    claims = importlib.import_module("_claims")
    details = {"network": "spo on a cube", "left out": {"SPO": [], "AlphaZero": [2048, 4096]}}
    found = claims.what_was_found({"sentence": "So it is.", "details": details})
    assert found == (
        "So it is. Left out, because it takes too long: AlphaZero at 2048 and 4096. Network: spo on a cube."
    )
    said = "With spo on a cube it is."
    assert claims.what_was_found({"sentence": said, "details": {"network": "spo on a cube"}}) == said


def test_the_claims_are_about_the_papers_inference():
    tasks, trained = importlib.import_module("_tasks"), importlib.import_module("_trained")
    of_paper = presets.get("paper/rubiks_cube").config.search
    for experiment in (tasks.cube("cpu"), tasks.cube("smoke"), trained.cube_experiment("cpu")):
        for name in presets.PAPER_INFERENCE:
            assert getattr(experiment.config.search, name) == getattr(of_paper, name)


def test_claims_have_numbers_of_their_own():
    names = [path.stem for path in EXPERIMENTS.glob("*.py") if not path.stem.startswith("_") and path.stem != "claims"]
    claims = [importlib.import_module(name).CLAIM for name in names]
    assert sorted(claim.name for claim in claims) == sorted(names)
    assert sorted(claim.number for claim in claims) == list(range(1, 11))


def test_settings_reach_their_place():
    claims, tasks = importlib.import_module("_claims"), importlib.import_module("_tasks")
    start = tasks.cube("cpu")
    other = claims.with_settings(start, search={"horizon": 7}, initial_temperature=3.0, steps=5.0)
    assert (other.config.search.horizon, other.config.initial_temperature, other.steps) == (7, 3.0, 5.0)
    assert other.config.search.num_particles == start.config.search.num_particles
    assert claims.run_name(other) != claims.run_name(start)


def test_all_seeds_must_be_able_to_decide():
    """Fewer than four seeds on one task can't be told from chance."""
    tasks = importlib.import_module("_tasks")
    assert tasks.NUM_SEEDS["cpu"] >= 4
    assert tasks.NUM_SEEDS["paper"] == 5


# What is found, from runs written by hand: each setting has five seeds about its level, a step of one apart.


def scores_about(level: float) -> list[float]:
    return [level + 0.01 * seed for seed in range(5)]


def found(name: str, scale: str, scores: Mapping[str, Sequence[float]], folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The finding of an experiment whose runs, by name, end with these scores (one per seed)."""
    claims, experiment = importlib.import_module("_claims"), importlib.import_module(name)

    def train_all(_, runs):
        folders = {}
        for run in runs:
            finals = list(scores[run])
            algorithm = run.rpartition("-")[2] if name in ("discrete", "continuous") else "spo"
            curves = [[0.0, score] for score in finals]
            folders[run] = write_run(folder / run, curves, final=finals, algorithm=algorithm)
            start = {"device": "NVIDIA H200", "num_devices": 1}
            (folders[run] / "environment.json").write_text(json.dumps({"starts": [start]}))
        return folders

    monkeypatch.setattr(claims, "train_all", train_all)
    if hasattr(experiment, "train_all"):
        monkeypatch.setattr(experiment, "train_all", train_all)
    return experiment.find(claims.Setup(experiment.CLAIM, scale, folder / "runs", folder / "claims"))


#: 23 of 25 pairs above `scores_about(0.5)`, p = 0.032: better, but one of five is by chance in 5 * 0.016 of cases.
HARDLY_BETTER = [0.525, 0.55, 0.56, 0.57, 0.58]


@pytest.mark.parametrize(
    ("ppo", "expected", "words", "p_holm"),
    [
        (scores_about(0.1), "held", "Better than spo: none.", 1.0),
        (scores_about(0.9), "not held", "Better than spo: ppo.", 5 / 252),
        (HARDLY_BETTER, "undecided", "none; before Holm's correction for 5 rivals also ppo (p = 0.079", 5 * 4 / 252),
        (scores_about(0.505), "undecided", "Better than spo: none.", None),
    ],
    ids=["all worse", "one better", "one better by chance", "one as good"],
)
def test_one_better_rival_of_many_must_be_beyond_the_chance_of_many(
    ppo, expected, words, p_holm, tmp_path, monkeypatch
):
    rivals = ("ppo", "mpo", "vmpo", "alphazero", "smc_ent", "gumbel_alphazero")
    scores = {f"rubiks_cube-{name}": scores_about(0.1) for name in rivals}
    # The last one is not the paper's: however good it is, it decides nothing.
    scores |= {f"rubiks_cube-{name}": about for name, about in (("spo", scores_about(0.5)), ("ppo", ppo))}
    scores["rubiks_cube-gumbel_alphazero"] = scores_about(2.0)
    finding = found("discrete", "cpu", scores, tmp_path, monkeypatch)
    assert (finding.verdict, words in finding.sentence) == (expected, True), finding.sentence
    against = finding.details["against"]
    assert set(against) == set(rivals)
    assert finding.sentence.endswith("P(gumbel_alphazero > spo) = 1.00 (1.00 to 1.00), p = 0.008.")
    assert against["gumbel_alphazero"]["better"] == "gumbel_alphazero"
    assert finding.hardware == "1 x NVIDIA H200"
    assert (against["mpo"]["better"], against["mpo"]["p_holm"]) == ("spo", 1.0)
    assert against["mpo"]["p"] == pytest.approx(2 / 252)
    if p_holm is not None:
        assert against["ppo"]["p_holm"] == pytest.approx(p_holm)


ADAPTIVE = scores_about(0.5)
#: 18 of 25 pairs below it: P = 0.72 (0.36 to 1), p = 0.31.
HARDLY_WORSE = [0.49, 0.495, 0.505, 0.515, 0.535]


@pytest.mark.parametrize(
    ("fixed", "expected", "words"),
    [
        # Three are beaten, but the fourth may be much better: P = 0.48 (0.12 to 0.88).
        ({0.1: [score + 0.001 * (-1) ** i for i, score in enumerate(ADAPTIVE)]}, "undecided", "reaches below 0.25"),
        (
            {0.1: HARDLY_WORSE},
            "held",
            "keeps up (the interval of P(adaptive > fixed 0.1) ends at",
        ),
        ({0.1: HARDLY_BETTER}, "undecided", "before Holm's correction for 4 rivals also fixed 0.1 (p = 0.063 with it)"),
        ({0.1: scores_about(0.9)}, "not held", "Better than the adaptive one: fixed 0.1."),
        # It keeps up with all of them, and none is worse: these temperatures may all be the same.
        (dict.fromkeys((0.01, 0.1, 1.0, 10.0), HARDLY_WORSE), "undecided", "Worse: none."),
    ],
    ids=["absurd ones beaten", "keeps up with the best", "one better by chance", "one better", "all the same"],
)
def test_an_adaptive_temperature_must_keep_up_with_the_best_fixed_one(fixed, expected, words, tmp_path, monkeypatch):
    fixed = dict.fromkeys((0.01, 0.1, 1.0, 10.0), scores_about(0.2)) | fixed
    scores = {"adaptive": ADAPTIVE} | {f"fixed {value:g}": runs for value, runs in fixed.items()}
    finding = found("temperatures", "cpu", scores, tmp_path, monkeypatch)
    assert (finding.verdict, words in finding.sentence) == (expected, True), finding.sentence
    assert set(finding.details["against"]) == set(scores) - {"adaptive"}


def test_a_fixed_temperature_that_is_better_without_the_correction_leaves_the_claim_undecided(tmp_path, monkeypatch):
    """Though it is not the best: that one has six poor runs of ten, and the adaptive one keeps up with it."""
    adaptive = [0.5 + 0.01 * seed for seed in range(10)]
    scores = {name: [0.2 + 0.01 * seed for seed in range(10)] for name in ("fixed 1", "fixed 10")}
    scores |= {"adaptive": adaptive, "fixed 0.1": [0.1] * 6 + [9.0] * 4, "fixed 0.01": [x + 0.035 for x in adaptive]}
    finding = found("temperatures", "cpu", scores, tmp_path, monkeypatch)
    assert "none; before Holm's correction for 4 rivals also fixed 0.01" in finding.sentence
    assert "fixed 0.1, with which the adaptive one keeps up" in finding.sentence
    assert finding.verdict == "undecided"


@pytest.mark.parametrize(
    ("levels", "expected", "words"),
    [
        ({}, "held", "Smaller budgets better than 16x4: none. As large or larger: P(16x8 > 16x4) = 0.00"),
        ({"16x8": 0.9, "32x4": 0.9}, "held", "P(16x8 > 16x4) = 1.00, p = 0.008; P(32x4 > 16x4) = 1.00, p = 0.008."),
        ({"8x4": 0.9}, "not held", "Smaller budgets better than 16x4: 8x4."),
        ({"4x2": 0.9}, "not held", "Smaller budgets better than 16x4: 4x2."),
        ({"4x2": 0.5}, "undecided", "Smaller budgets better than 16x4: none."),
        ({"8x4": HARDLY_BETTER}, "undecided", "before Holm's correction for 7 rivals also 8x4"),
    ],
    ids=["full is best", "larger is better", "a smaller one better", "the smallest better", "as good", "by chance"],
)
def test_more_search_than_the_full_budget_may_be_better(levels, expected, words, tmp_path, monkeypatch):
    names = [f"{n}x{h}" for n, h in importlib.import_module("training_scaling").GRIDS["paper"]]
    levels = dict.fromkeys(names, 0.2) | {"16x4": 0.5} | levels
    scores = {name: scores_about(v) if isinstance(v, float) else v for name, v in levels.items()}
    finding = found("training_scaling", "paper", scores, tmp_path, monkeypatch)
    assert (finding.verdict, words in finding.sentence) == (expected, True), finding.sentence
    assert set(finding.details["not judged"]) == {"16x8", "32x4"}
    assert set(finding.details["against"]) == set(names) - {"16x4", "16x8", "32x4"}
