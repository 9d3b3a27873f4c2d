"""Tests of groups, tasks, scores and their statistics, with run folders written by hand."""

import json
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from scipy import stats as scipy_stats

from reports.fake_runs import FEW, write_run, write_suite
from spo.reports.comparison import Comparison, compare
from spo.reports.judgement import judge, to_json, verdict
from spo.reports.run_files import with_checksum
from spo.reports.runs import load_runs


def test_mixed_metrics_raise_until_one_is_chosen(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "two", [0.0, 0.4], final=0.4, metric="return", algorithm="ppo")
    runs = load_runs([tmp_path])
    with pytest.raises(ValueError, match="--metric return"):
        compare(runs)
    with pytest.raises(ValueError, match="solve_rate"):
        compare(runs, metric="solve_rate")
    assert compare(runs, metric="return").metrics == {"rubiks_cube": "episode/return"}


def test_without_a_common_task_the_largest_comparable_set_is_compared(tmp_path: Path):
    """Every group that is left was run on every task that is left, and the others are named with the reason."""
    runs = [("spo", "cube"), ("ppo", "cube"), ("spo", "ant"), ("ppo", "ant"), ("mpo", "ant"), ("own", "chain")]
    for algorithm, task in [*runs, ("spo", "chain")]:
        write_run(tmp_path / f"{algorithm}-{task}", [0.0, 0.5], final=0.5, task=task, algorithm=algorithm)
    comparison = compare(load_runs([tmp_path]))
    assert (comparison.groups, comparison.tasks) == (("ppo", "spo"), ("ant", "cube"))
    assert {(result.group, result.task) for result in comparison.results} == set(runs[:4])
    assert comparison.notes[0] == (
        "No task was run by all groups, so the largest comparable set of runs is compared, ppo and spo on ant and "
        "cube. Left out: mpo (not run on ant and cube), own (not run on ant and cube), runs on chain."
    )
    write_run(tmp_path / "sac-ant", [[0.0, 0.5]] * 2, final=[0.5] * 2, task="ant", algorithm="sac")
    for algorithm in ("a", "b"):
        write_run(tmp_path / f"{algorithm}-ant", [0.0, 0.5], final=0.5, task="ant", algorithm=algorithm)
    comparison = compare(load_runs([tmp_path]))
    assert (comparison.groups, comparison.tasks) == (("a", "b", "mpo", "ppo", "sac", "spo"), ("ant",))


def test_runs_that_are_left_out_do_not_choose_the_kind_of_actions(tmp_path: Path):
    for algorithm in ("spo", "ppo"):
        write_run(
            tmp_path / algorithm, [0.0, 0.5], final=0.5, task="cube", algorithm=algorithm, evaluation={"greedy": True}
        )
    write_run(tmp_path / "own", [0.0, 0.5], final=0.5, task="chain", algorithm="own")
    assert compare(load_runs([tmp_path])).actions == "greedy"


def test_groups_without_a_common_task_raise(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "two", [0.0, 0.4], final=0.4, algorithm="ppo", task="boxoban")
    with pytest.raises(ValueError, match="No task was run by two of ppo, spo"):
        compare(load_runs([tmp_path]))


def test_an_evaluation_that_is_nan_raises(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, float("nan")], final=0.5)
    with pytest.raises(ValueError, match="not a finite number"):
        compare(load_runs([tmp_path]))


def test_scores_belong_to_their_group_and_task(tmp_path: Path):
    comparison = compare(load_runs([write_suite(tmp_path)]))
    assert comparison.groups == ("ppo", "spo")
    assert comparison.tasks == ("brax/ant", "rubiks_cube")
    assert comparison.metrics == {"brax/ant": "episode/return", "rubiks_cube": "episode/solved"}
    assert comparison.notes == ()
    for group in comparison.groups:
        for task, scores in zip(comparison.tasks, comparison.scores(group, comparison.tasks), strict=True):
            written = [
                json.loads(
                    (tmp_path / f"{group}-{task.replace('/', '-')}-{seed}" / "metrics.jsonl")
                    .read_text()
                    .splitlines()[-1]
                )
                for seed in range(5)
            ]
            assert scores.tolist() == [record["metrics"]["episode/return"] for record in written]


def test_the_lowest_and_the_highest_score_are_normalised_to_0_and_1(tmp_path: Path):
    """Evaluations during training count, so an untrained agent scores 0, not the worst of the trained ones."""
    write_run(tmp_path / "one", [-10.0, 20.0, 60.0], final=40.0, metric="return")
    write_run(tmp_path / "two", [0.0, 90.0], final=80.0, metric="return", algorithm="ppo")
    comparison = compare(load_runs([tmp_path]))
    assert comparison.limits("rubiks_cube") == (-10.0, 90.0)
    assert comparison.normalised_scores("spo", ["rubiks_cube"])[0].tolist() == [0.5]
    assert comparison.normalised_scores("ppo", ["rubiks_cube"])[0].tolist() == [0.9]


def test_an_unfinished_run_is_scored_by_its_latest_evaluation_and_marked(tmp_path: Path):
    write_run(tmp_path / "one", [[0.0, 0.9, 0.5], [0.0, 0.7, 0.4]])
    comparison = compare(load_runs([tmp_path]))
    assert [(result.score, result.episodes, result.finished) for result in comparison.results] == [
        (0.5, 128, False),
        (0.4, 128, False),
    ]
    assert any("Not finished" in note and "one" in note for note in comparison.notes)


def test_groups_by_a_setting_are_sorted_by_its_value(tmp_path: Path):
    for particles in (128, 16, 4):
        write_run(tmp_path / str(particles), [0.0, 0.5], final=0.5, config={"search": {"num_particles": particles}})
    runs = load_runs([tmp_path])
    expected = ("num_particles 4", "num_particles 16", "num_particles 128")
    assert compare(runs, by="search.num_particles").groups == expected
    assert compare(runs, by="config.search.num_particles").groups == expected
    pooled = compare(runs, by="algorithm")
    assert pooled.groups == ("spo",)
    assert any("differ in search.num_particles: --by search.num_particles sep" in note for note in pooled.notes)
    assert not any("differ in" in note for note in compare(runs, by="search.num_particles").notes)
    with pytest.raises(ValueError, match="no setting 'particles'"):
        compare(runs, by="particles")


def test_runs_of_one_algorithm_with_other_settings_are_groups_of_their_own(tmp_path: Path):
    """Seeds of equal settings are one group. Evaluations, checksums and records are no reason for a group."""
    for index, (rate, seed) in enumerate([(0.01, 0), (0.01, 1), (0.001, 0), (0.001, 1)]):
        settings = {"search": {"num_particles": 16}, "learning_rate": rate}
        few = {"num_evaluations": 2 + seed}
        extra = {"config": settings, "evaluation": few, "specs": {"observation": str(index)}}
        path = write_run(tmp_path / str(index), [0.0, 0.5], final=0.5, seed=seed, **extra) / "config.json"
        path.write_text(json.dumps(with_checksum(json.loads(path.read_text()))))
    write_run(tmp_path / "ppo", [0.0, 0.5], final=0.5, algorithm="ppo", config={"learning_rate": 0.3})
    comparison = compare(load_runs([tmp_path]))
    assert comparison.by == "settings"
    assert comparison.groups == ("ppo", "spo, learning_rate 0.001", "spo, learning_rate 0.01")
    assert [len(comparison.results_of(group, "rubiks_cube")) for group in comparison.groups] == [1, 2, 2]
    notes = "\n".join(comparison.notes)
    assert "differ in evaluation.num_evaluations, which concerns evaluations only." in notes
    assert "--by" not in notes
    assert "sha256" not in notes
    together = "\n".join(compare(load_runs([tmp_path]), by="algorithm").notes)
    assert "spo on rubiks_cube combines runs that differ in learning_rate, evaluation.num_evaluations: --by learn" in (
        together
    )


def test_an_algorithm_with_other_settings_on_another_task_is_one_group(tmp_path: Path):
    for task, rate in (("brax/ant", 0.01), ("rubiks_cube", 0.001)):
        for algorithm in ("spo", "ppo"):
            folder = tmp_path / f"{algorithm}-{task.replace('/', '-')}"
            settings = {"learning_rate": rate}
            write_run(folder, [0.0, 0.5], final=0.5, task=task, algorithm=algorithm, config=settings)
    comparison = compare(load_runs([tmp_path]))
    assert (comparison.by, comparison.groups) == ("algorithm", ("ppo", "spo"))


def test_groups_of_settings_without_a_common_task_are_not_separated(tmp_path: Path):
    for task, rate in (("brax/ant", 0.01), ("brax/ant", 0.02), ("rubiks_cube", 0.001)):
        folder = tmp_path / f"{task.replace('/', '-')}-{rate}"
        write_run(folder, [0.0, 0.5], final=0.5, task=task, config={"learning_rate": rate})
    assert compare(load_runs([tmp_path])).groups == ("spo",)


def test_names_of_groups_have_as_many_settings_as_tell_them_apart(tmp_path: Path):
    for index in range(2):
        few = dict.fromkeys("abcd", index)
        write_run(tmp_path / f"few{index}", [0.0, 0.5], final=0.5, config=few)
    assert compare(load_runs([tmp_path])).groups == ("spo, a 0, b 0, c 0", "spo, a 1, b 1, c 1")
    write_run(tmp_path / "last", [0.0, 0.5], final=0.5, config=dict.fromkeys("abc", 1) | {"d": 5})
    assert compare(load_runs([tmp_path])).groups[-1] == "spo, a 1, b 1, c 1, d 5"


def test_a_start_file_separates_groups_by_its_name(tmp_path: Path):
    write_run(tmp_path / "new", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "from", [0.3, 0.5], final=0.5, start_from={"file": "a.npz", "env_steps": [5], "which": "best"})
    assert compare(load_runs([tmp_path])).groups == ("spo, start_from None", "spo, start_from a.npz")
    assert compare(load_runs([tmp_path]), by="start_from").groups == ("start_from None", "a.npz")


def test_other_options_are_another_task_unless_they_define_the_groups(tmp_path: Path):
    for scrambles in (3, 7):
        write_run(tmp_path / str(scrambles), [0.0, 0.5], final=0.5, task_options={"scrambles": scrambles, "size": 3})
    runs = load_runs([tmp_path])
    assert compare(runs).tasks == ("rubiks_cube (scrambles 3)", "rubiks_cube (scrambles 7)")
    by_option = compare(runs, by="task_options.scrambles")
    assert by_option.tasks == ("rubiks_cube",)
    assert by_option.groups == ("scrambles 3", "scrambles 7")


def test_notes_name_the_weaknesses_of_a_result(tmp_path: Path):
    write_run(tmp_path / "alone", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "b1", [0.0, 0.5], final=0.5, algorithm="ppo", seed=3)
    write_run(tmp_path / "b2", [0.0, 0.5], final=0.5, algorithm="ppo", seed=3, points=[0, 700])
    write_run(tmp_path / "b3", [0.0, 0.5], final=0.5, algorithm="ppo", task="boxoban", seed=3)
    notes = "\n".join(compare(load_runs([tmp_path])).notes)
    assert "spo on rubiks_cube is a single seed: it has no interval." in notes
    assert "spo was not run on boxoban: aggregates leave boxoban out." in notes
    assert "ppo on rubiks_cube has 2 seeds" in notes
    assert "the same seed more than once" in notes
    assert "runs of 700 to 1,000 steps" in notes


def test_the_judgement_contains_the_statistics_of_the_runs(tmp_path: Path):
    comparison = compare(load_runs([write_suite(tmp_path)]))
    judgement = judge(comparison, num_resamples=FEW)
    assert judgement.ranking == ("spo", "ppo")
    (only,) = judgement.verdicts
    assert only == verdict(comparison, "spo", "ppo", num_resamples=FEW)
    assert only.better == "spo"
    finals = comparison.scores("spo", ["brax/ant"])[0]
    assert judgement.finals["spo", "brax/ant"].value == pytest.approx(scipy_stats.trim_mean(finals, 0.25))
    curve = judgement.learning_curves["spo", "rubiks_cube"]
    assert curve.x.tolist() == [0, 500, 1000]
    assert not curve.interpolated
    assert curve.estimate.value[-1] == pytest.approx(
        scipy_stats.trim_mean(comparison.scores("spo", ["rubiks_cube"])[0], 0.25)
    )
    assert judgement.time_curves["spo", "rubiks_cube"].x.tolist() == [0, 50, 100]
    assert not judgement.relative_steps
    assert judgement.sample_efficiency["spo"].estimate.value[0] == 0.0
    assert judgement.profiles["ppo"].value[-1] == 0.0
    text = json.dumps(to_json(comparison, judgement), allow_nan=False)
    assert json.loads(text)["verdicts"][0]["better"] == "spo"


def test_the_time_axis_leaves_out_compilation(tmp_path: Path):
    """A run with cached programs may end before the first evaluation of one that compiles."""
    write_run(tmp_path / "cached", [0.0, 0.5], final=0.5, compile_seconds=1.0)
    write_run(tmp_path / "compiled", [0.0, 0.7], final=0.7, compile_seconds=500.0, seed=1)
    judgement = judge(compare(load_runs([tmp_path])), num_resamples=FEW)
    curve = judgement.time_curves["spo", "rubiks_cube"]
    assert curve.x.tolist() == [0, 100]
    assert curve.estimate.value.tolist() == pytest.approx([0.0, 0.6])
    assert judgement.notes == ()


def test_curves_without_a_common_part_are_left_out_with_a_note(tmp_path: Path):
    write_run(tmp_path / "early", [0.0, 0.5], final=0.5, points=[0, 100])
    write_run(tmp_path / "late", [0.6, 0.7], final=0.7, points=[200, 300], seed=1)
    comparison = compare(load_runs([tmp_path]))
    judgement = judge(comparison, num_resamples=FEW)
    assert judgement.learning_curves == judgement.time_curves == judgement.sample_efficiency == {}
    assert judgement.notes == (
        "spo on rubiks_cube has no curve over environment steps: one of its runs ends before another starts.",
        "spo on rubiks_cube has no curve over training time: one of its runs ends before another starts.",
        "spo has no curve of sample efficiency: one of its runs ends before another starts.",
    )
    assert to_json(comparison, judgement)["notes"][-3:] == list(judgement.notes)


def test_tasks_of_different_lengths_are_aggregated_over_the_share_of_steps(tmp_path: Path):
    for algorithm in ("spo", "ppo"):
        write_run(tmp_path / f"{algorithm}1", [0.0, 0.2, 0.4], final=0.4, algorithm=algorithm)
        write_run(
            tmp_path / f"{algorithm}2", [0.0, 5.0], final=5.0, metric="return", points=[0, 10**8], task="brax/ant",
            algorithm=algorithm,
        )  # fmt: skip
    judgement = judge(compare(load_runs([tmp_path])), num_resamples=FEW)
    assert judgement.relative_steps
    assert judgement.sample_efficiency["spo"].x.tolist() == [0.0, 0.5, 1.0]
    assert judgement.sample_efficiency["spo"].interpolated


# --- Kinds of actions -------------------------------------------------------------------------------------------------
def test_all_runs_are_compared_with_the_same_kind_of_actions(tmp_path: Path):
    drawn = write_run(tmp_path / "spo", [0.0, 0.5], final=0.6, algorithm="spo", others=("greedy", 0.25))
    greedy = {"algorithm": "ppo", "others": ("drawn", -0.25), "evaluation": {"greedy": True}}
    best = write_run(tmp_path / "ppo", [0.25, 0.5], final=0.75, **greedy)
    runs = load_runs([drawn, best])

    def scores(comparison: Comparison) -> dict[str, list[float]]:
        return {result.group: [*result.values, result.score] for result in comparison.results}

    mixed = compare(runs)
    assert mixed.actions == "drawn"
    assert scores(mixed) == {"spo": [0.0, 0.5, 0.6], "ppo": [0.0, 0.25, 0.5]}
    assert scores(compare(runs, actions="greedy")) == {"spo": [0.25, 0.75, 0.85], "ppo": [0.25, 0.5, 0.75]}
    assert compare(runs[1:]).actions == "greedy"
    assert to_json(mixed, judge(mixed, num_resamples=FEW))["actions"] == "drawn"


def test_a_run_without_the_other_kind_of_actions_is_refused(tmp_path: Path):
    run = write_run(tmp_path / "old", [0.0, 0.5])
    with pytest.raises(ValueError, match=r"old has no evaluations with greedy actions: .* \(--actions drawn\)"):
        compare(load_runs([run]), actions="greedy")
