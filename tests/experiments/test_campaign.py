"""Tests of the list of runs of the core scale."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

import _claims
import _programs
import _runs
import _tasks
import campaign
import discrete

from reports.fake_runs import write_run
from spo.reports.run_files import check_metrics
from spo.reports.runs import load_run


def test_the_plan_has_every_comparison_of_the_core_scale():
    runs = campaign.planned_runs()
    pairs = {(run.task, run.algorithm) for run in runs.values()}
    assert {("brax/humanoid", "sampled_alphazero"), ("boxoban/unfiltered", "gumbel_alphazero")} <= pairs
    # The run with the paper's settings appears once: it is a budget, a target, a weighting and a temperature.
    shared = [run for run in runs.values() if (run.task, run.steps) == ("brax/ant", 5e6)]
    assert len(shared) == 10 + 5 + 3 + 1
    assert all(run.logs_per_evaluation == 1 for run in runs.values())
    # A report of a claim leaves ablations and the tuned cube out.
    compared = campaign.runs_of("discrete")
    assert compared.keys() <= runs.keys()
    assert len({(run.task, run.algorithm) for run in compared.values()}) == len(compared) == 11


def test_a_claim_at_the_core_scale_reads_stored_runs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_runs, "CORE_RUNS", tmp_path)
    setup = _claims.Setup(discrete.CLAIM, "core", tmp_path, tmp_path, tasks=("rubiks_cube",), against=("ppo",))
    with pytest.raises(SystemExit, match="Not stored: rubiks_cube-spo, rubiks_cube-ppo"):
        discrete.find(setup)
    for name, run in discrete.runs(setup).items():
        level = 0.9 if run.algorithm == "spo" else 0.1
        folder = write_run(
            tmp_path / _runs.run_name(run), [[0.0, level + 0.01 * s] for s in range(5)], algorithm=run.algorithm
        )
        (folder / "summary.json").write_text(json.dumps({"name": name}))
    parts = {finding.part: finding.verdict for finding in discrete.find(setup)}
    assert parts == {"per step": "held", "per second": "held"}


def test_boxoban_is_also_judged_on_levels_as_hard_as_those_of_training(tmp_path: Path):
    solved = {"spo": [0.8, 0.81, 0.82, 0.83], "ppo": [0.3, 0.31, 0.32, 0.33], "gumbel_alphazero": [0.9] * 4}
    folders = {"rubiks_cube-spo": tmp_path / "cube"}
    for name, values in solved.items():
        folder = folders[f"boxoban-{name}"] = write_run(tmp_path / name, [0.0, 0.1], algorithm=name)
        (folder / discrete.VALID_FILE).write_text(json.dumps({"per_seed": {"solved": values}}))
    [finding] = discrete.find_valid(folders)
    assert (finding.part, finding.verdict) == ("Boxoban on unfiltered-valid", "held")
    assert finding.part in discrete.CLAIM.parts
    assert "ppo 31.5%" in finding.sentence
    assert "Not part of the claim" in finding.sentence
    assert discrete.find_valid({"rubiks_cube-spo": tmp_path / "cube"}) == []


def test_small_runs_that_are_compared_have_the_same_noise_and_trust_region():
    setup = _claims.Setup(discrete.CLAIM, "cpu", Path(), Path())
    configs = {run.algorithm: run.config for run in discrete.runs(setup).values()}
    for field, algorithms in (
        ("root_exploration_weight", ("spo", "alphazero")),
        ("dirichlet_alpha", ("spo", "alphazero")),
        ("kl_bound", ("spo", "mpo", "vmpo")),
        ("initial_multiplier", ("spo", "mpo", "vmpo")),
    ):
        assert len({getattr(configs[name], field) for name in algorithms}) == 1, field
        assert not [name for name in configs if hasattr(configs[name], field) and name not in algorithms], field
    assert configs["spo"].trust_region


def test_only_records_of_finished_runs_are_stored_with_six_digits(tmp_path: Path):
    experiment = SimpleNamespace(task="boxoban/unfiltered", task_options={}, algorithm="spo")
    folder = write_run(tmp_path / "runs" / "one", [0.0, 1 / 3])
    with pytest.raises(SystemExit, match="not finished"):
        campaign.store("one", experiment, tmp_path / "runs", tmp_path / "stored")
    (folder / "summary.json").write_text("{}")
    (folder / "checkpoints").mkdir()
    with pytest.raises(SystemExit, match="not finished"):  # the evaluation on other levels is missing
        campaign.store("one", experiment, tmp_path / "runs", tmp_path / "stored")
    (folder / "evaluation_unfiltered_valid.json").write_text("{}")
    campaign.store("one", experiment, tmp_path / "runs", tmp_path / "stored")
    stored = sorted(path.name for path in (tmp_path / "stored" / "one").iterdir())
    assert stored == sorted([*campaign.STORED_FILES, "evaluation_unfiltered_valid.json"])
    assert load_run(tmp_path / "stored" / "one").evaluations[0][1]["metrics"]["episode/solved"] == 0.333333
    assert check_metrics(tmp_path / "stored" / "one")


def test_stored_metrics_of_five_seeds_stay_below_100_kb():
    """A run on Ant has the longest records. Evaluations have the other kind of actions as well."""
    longest: dict[str, int] = {}
    for line in (_claims.ROOT / "results/runs/h200/spo_ant/metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] != "train":
            others = {n.replace("episode/", "greedy/"): v for n, v in record["metrics"].items() if "episode/" in n}
            record["metrics"] |= others
        text = json.dumps(campaign.compact(record), separators=(",", ":"))
        assert "x_velocity" not in text
        longest[record["kind"]] = max(longest.get(record["kind"], 0), len(text) + 1)
    num = _tasks.CORE_EVALUATIONS
    total = 5 * (num * longest["train"] + (num + 1) * longest["evaluation"] + longest["final"])
    assert total < campaign.MAX_METRICS_BYTES


def test_records_come_back_in_one_file(tmp_path: Path):
    experiment = SimpleNamespace(task="rubiks_cube", task_options={}, algorithm="spo")
    runs = {"one": experiment, "two": experiment}
    for name in runs:
        write_run(tmp_path / "runs" / name, [0.0, 1.0])
    (tmp_path / "runs" / "one" / "summary.json").write_text("{}")
    campaign.pack(runs, tmp_path / "runs", tmp_path / "target", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["records.tar.gz"]
    with pytest.raises(SystemExit, match="records of one, which is no run of this plan"):
        campaign.unpack([tmp_path / "out" / "records.tar.gz"], {"two": experiment}, tmp_path / "target")
    campaign.unpack([tmp_path / "out" / "records.tar.gz"], runs, tmp_path / "target")
    assert list(campaign.missing_runs(runs, tmp_path / "runs", tmp_path / "target")) == ["two"]
    campaign.pack(runs, tmp_path / "runs", tmp_path / "target", tmp_path / "again")
    with tarfile.open(tmp_path / "again" / "records.tar.gz") as archive:
        assert not archive.getnames()  # stored already


def test_the_order_and_the_seconds_of_the_next_programs(tmp_path: Path):
    runs = campaign.planned_runs()
    seconds = {name: campaign.expected_seconds(run) for name, run in runs.items()}
    assert sum(filter(None, seconds.values())) < 15_000
    started = next(name for name, run in runs.items() if run.task == "brax/ant" and run.algorithm == "ppo")
    write_run(tmp_path / started, [0.0])
    order = campaign.next_programs(runs, tmp_path, tmp_path / "target")
    first, second, *_ = order
    assert first == started
    # 5e8 steps of SMC-ENT are the longest run.
    assert (runs[second].task, runs[second].algorithm) == ("rubiks_cube", "smc_ent")
    assert order[second] == pytest.approx(60 + 5e8 / _runs.stored_speeds()["rubiks_cube", "smc_ent"])
    # Half of a run takes half of the time.
    write_run(tmp_path / second, [0.0, 0.1], points=[0, 50_000_000])
    half = campaign.next_programs(runs, tmp_path, tmp_path / "target")
    assert half[second] - 60 == pytest.approx((order[second] - 60) / 2)


# --- Programs side by side --------------------------------------------------------------------------------------------
def sleeper(seconds: dict[str, float]) -> Callable[[str], list[str]]:
    return lambda name: ["/bin/sh", "-c", f"echo {name}; exec sleep {seconds[name]}"]


def test_programs_run_side_by_side_until_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_programs, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(_programs, "START_SECONDS", 0.0)
    # "long" can end in a later call. Beside it, "late" can't.
    expected = {"long": 10.0, "late": 5.0, "short": 0.1, "next": 0.1}
    command = sleeper({"long": 100, "late": 100, "short": 0.05, "next": 0.05})
    limits = _programs.Limits(side_by_side=2, seconds=1.5, later=10.0)
    codes = _programs.run_side_by_side(expected, command, tmp_path, limits)
    assert codes == {"short": 0, "next": 0, "long": None}
    assert (tmp_path / "short.log").read_text() == "short\n"
    assert _programs.run_side_by_side(expected, command, tmp_path, limits._replace(later=0.0)).keys() == {
        "short",
        "next",
    }


@pytest.mark.program
def test_a_call_trains_and_its_records_are_stored(tmp_path: Path):
    [name] = [name for name in campaign.planned_runs("smoke") if name.startswith("tiny-continuous_credit-ppo")]
    words = [sys.executable, campaign.__file__, "--scale", "smoke", "--only", name]
    folders = ["--folder", str(tmp_path / "runs"), "--target", str(tmp_path / "stored")]
    call = [*words, *folders, "--work", "300", "--out", str(tmp_path / "out")]
    subprocess.run(call, check=True, timeout=300)
    unpacked = [*words, *folders, "--unpack", str(tmp_path / "out" / "records.tar.gz")]
    told = subprocess.run(unpacked, check=True, capture_output=True, text=True).stdout
    assert f"stored   {name}" in told
    assert "Left: 0 of 1 runs" in told
    assert load_run(tmp_path / "stored" / name).finals.keys() == {0, 1}
