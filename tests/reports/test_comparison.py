"""Runs side by side, from folders that were written by hand: what is compared with what, and what is said of it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

from scipy import stats

from reports.fake_runs import write_run, write_suite
from spo.reports import figures, html_report
from spo.reports.comparison import compare, judge, to_json, verdict
from spo.reports.runs import load_runs

FEW = 300


# Finding runs.


def test_runs_are_found_by_name_below_a_folder_and_by_pattern_and_count_once(tmp_path: Path, monkeypatch):
    one = write_run(tmp_path / "a" / "one", [0.0, 0.5], final=0.6)
    write_run(tmp_path / "a" / "b" / "two", [0.0, 0.5], final=0.6)
    (tmp_path / "a" / "other").mkdir()
    (tmp_path / "a" / "other" / "config.json").write_text('{"name": "somebody else\'s"}')
    assert [run.folder.name for run in load_runs([one])] == ["one"]
    assert {run.folder.name for run in load_runs([tmp_path])} == {"one", "two"}
    monkeypatch.chdir(tmp_path)
    found = load_runs([f"{tmp_path}/a/o*", "a/one", one, tmp_path])
    assert sorted(run.folder.name for run in found) == ["one", "two"]


def test_a_run_is_read_as_it_was_written(tmp_path: Path):
    write_run(tmp_path / "run", [[0.0, 0.5], [0.1, 0.7]], final=[0.6, 0.8], points=[0, 500])
    (run,) = load_runs([tmp_path])
    assert sorted(run.evaluations) == sorted(run.finals) == [0, 1]
    assert [record["env_steps"] for record in run.evaluations[1]] == [0, 500]
    assert run.finals[1]["metrics"]["episode/solved"] == 0.8
    assert run.starts[0]["device"] == "NVIDIA H200"


def test_what_can_t_be_compared_is_refused_in_a_sentence(tmp_path: Path):
    with pytest.raises(ValueError, match="no folder"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="There is no run in"):
        load_runs([tmp_path])
    with pytest.raises(ValueError, match="There is no run in"):
        load_runs([f"{tmp_path}/x*"])
    empty = write_run(tmp_path / "empty", [0.0])
    (empty / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"empty has no evaluation.*leave it out"):
        load_runs([empty])
    (empty / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match="no evaluation"):
        load_runs([empty])
    with pytest.raises(ValueError, match="nothing to compare"):
        compare([])


def test_a_run_without_an_evaluation_is_left_out_if_nobody_named_it(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, 0.5], final=0.6)
    empty = write_run(tmp_path / "empty", [0.0])
    (empty / "metrics.jsonl").unlink()
    said: list[str] = []
    assert [run.folder.name for run in load_runs([tmp_path], said.append)] == ["one"]
    assert "empty has no evaluation" in said[0]
    assert [run.folder.name for run in load_runs([tmp_path / "o*", tmp_path])] == ["one"]
    with pytest.raises(ValueError, match="There is no run in"):
        load_runs([f"{tmp_path}/e*"])


def test_mixed_metrics_are_refused_until_one_is_chosen(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "two", [0.0, 0.4], final=0.4, metric="return", algorithm="ppo")
    runs = load_runs([tmp_path])
    with pytest.raises(ValueError, match="--metric return"):
        compare(runs)
    with pytest.raises(ValueError, match="solve_rate"):
        compare(runs, metric="solve_rate")
    assert compare(runs, metric="return").metrics == {"rubiks_cube": "episode/return"}


def test_groups_without_a_common_task_are_refused(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "two", [0.0, 0.4], final=0.4, algorithm="ppo", task="boxoban")
    with pytest.raises(ValueError, match="No task was run by all of ppo, spo"):
        compare(load_runs([tmp_path]))


def test_a_number_that_is_none_is_refused(tmp_path: Path):
    write_run(tmp_path / "one", [0.0, float("nan")], final=0.5)
    with pytest.raises(ValueError, match="not a finite number"):
        compare(load_runs([tmp_path]))


# Groups, tasks and scores.


def test_the_suite_has_its_scores_in_their_places(tmp_path: Path):
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


def test_zero_and_one_are_the_worst_and_the_best_ever_seen(tmp_path: Path):
    """Evaluations during training count: an untrained agent is the zero, not the worst of the trained ones."""
    write_run(tmp_path / "one", [-10.0, 20.0, 60.0], final=40.0, metric="return")
    write_run(tmp_path / "two", [0.0, 90.0], final=80.0, metric="return", algorithm="ppo")
    comparison = compare(load_runs([tmp_path]))
    assert comparison.limits("rubiks_cube") == (-10.0, 90.0)
    assert comparison.normalised_scores("spo", ["rubiks_cube"])[0].tolist() == [0.5]
    assert comparison.normalised_scores("ppo", ["rubiks_cube"])[0].tolist() == [0.9]


def test_an_unfinished_run_is_judged_by_its_last_evaluation_and_marked(tmp_path: Path):
    write_run(tmp_path / "one", [[0.0, 0.9, 0.5], [0.0, 0.7, 0.4]])
    comparison = compare(load_runs([tmp_path]))
    assert [(result.score, result.episodes, result.finished) for result in comparison.results] == [
        (0.5, 128, False),
        (0.4, 128, False),
    ]
    assert any("Not finished" in note and "one" in note for note in comparison.notes)


def test_groups_by_a_setting_are_in_its_order(tmp_path: Path):
    for particles in (128, 16, 4):
        write_run(tmp_path / str(particles), [0.0, 0.5], final=0.5, config={"search": {"num_particles": particles}})
    runs = load_runs([tmp_path])
    expected = ("num_particles 4", "num_particles 16", "num_particles 128")
    assert compare(runs, by="search.num_particles").groups == expected
    assert compare(runs, by="config.search.num_particles").groups == expected
    (pooled,) = compare(runs).groups
    assert pooled == "spo"
    assert any("differ in config.search.num_particles: --by" in note for note in compare(runs).notes)
    assert not any("differ in" in note for note in compare(runs, by="search.num_particles").notes)
    with pytest.raises(ValueError, match="no setting 'particles'"):
        compare(runs, by="particles")


def test_other_options_make_another_task_unless_groups_are_made_by_them(tmp_path: Path):
    for scrambles in (3, 7):
        write_run(tmp_path / str(scrambles), [0.0, 0.5], final=0.5, task_options={"scrambles": scrambles, "size": 3})
    runs = load_runs([tmp_path])
    assert compare(runs).tasks == ("rubiks_cube (scrambles 3)", "rubiks_cube (scrambles 7)")
    by_option = compare(runs, by="task_options.scrambles")
    assert by_option.tasks == ("rubiks_cube",)
    assert by_option.groups == ("scrambles 3", "scrambles 7")


def test_notes_name_what_weakens_the_result(tmp_path: Path):
    write_run(tmp_path / "alone", [0.0, 0.5], final=0.5)
    write_run(tmp_path / "b1", [0.0, 0.5], final=0.5, algorithm="ppo", seed=3)
    write_run(tmp_path / "b2", [0.0, 0.5], final=0.5, algorithm="ppo", seed=3, points=[0, 700])
    write_run(tmp_path / "b3", [0.0, 0.5], final=0.5, algorithm="ppo", task="boxoban", seed=3)
    notes = "\n".join(compare(load_runs([tmp_path])).notes)
    assert "spo on rubiks_cube is a single seed: it has no interval." in notes
    assert "spo was not run on boxoban: aggregates leave boxoban out." in notes
    assert "ppo on rubiks_cube has 2 seeds" in notes
    assert "the same seed more than once" in notes
    assert "700 to 1,000 steps long" in notes


# Judgement.


def test_judgement_is_that_of_the_statistics(tmp_path: Path):
    comparison = compare(load_runs([write_suite(tmp_path)]))
    judgement = judge(comparison, num_resamples=FEW)
    assert judgement.ranking == ("spo", "ppo")
    (only,) = judgement.verdicts
    assert only == verdict(comparison, "spo", "ppo", num_resamples=FEW)
    assert only.better == "spo"
    finals = comparison.scores("spo", ["brax/ant"])[0]
    assert judgement.finals["spo", "brax/ant"].value == pytest.approx(stats.trim_mean(finals, 0.25))
    curve = judgement.learning_curves["spo", "rubiks_cube"]
    assert curve.x.tolist() == [0, 500, 1000]
    assert not curve.interpolated
    assert curve.estimate.value[-1] == pytest.approx(
        stats.trim_mean(comparison.scores("spo", ["rubiks_cube"])[0], 0.25)
    )
    assert judgement.time_curves["spo", "rubiks_cube"].x.tolist() == [5, 55, 105]
    assert not judgement.relative_steps
    assert judgement.sample_efficiency["spo"].estimate.value[0] == 0.0
    assert judgement.profiles["ppo"].value[-1] == 0.0
    text = json.dumps(to_json(comparison, judgement), allow_nan=False)
    assert json.loads(text)["verdicts"][0]["better"] == "spo"


def test_tasks_of_different_lengths_are_aggregated_over_their_share(tmp_path: Path):
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


# The report.


class Page(HTMLParser):
    """The structure of a page: open elements, names and links."""

    VOID = ("meta", "br", "link", "img", "hr", "input")

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        values = dict(attributes)
        self.names += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("href", "src", "xlink:href") if name in values]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


def written_report(folder: Path, out: Path) -> tuple[str, list[Path]]:
    comparison = compare(load_runs([folder]))
    judgement = judge(comparison, num_resamples=FEW)
    paths = [
        path
        for name, figure in figures.draw_all(comparison, judgement).items()
        for path in figures.save(figure, out / name)
    ]
    svgs = {path.stem: path.read_text("utf-8") for path in paths if path.suffix == ".svg"}
    commands = {comparison.results[0].run.folder: "spo train --seed '<7>'"}
    html_report.write_report(out / "report.html", comparison, judgement, svgs, commands=commands, title="A & B")
    return (out / "report.html").read_text("utf-8"), paths


@pytest.fixture(scope="module")
def suite_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Path]]:
    root = tmp_path_factory.mktemp("suite")
    return written_report(write_suite(root / "runs"), root / "out")


def test_the_report_stands_alone(suite_report):
    text, paths = suite_report
    assert len(paths) == 2 * len(figures.FIGURES)
    assert all(path.stat().st_size > 1000 for path in paths)
    page = Page(text)
    assert page.open == []
    assert len(page.names) == len(set(page.names)), "the same name twice"
    assert all(link.startswith("#") and link[1:] in page.names for link in page.links)
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img", text)
    referenced = set(re.findall(r"url\(#([^)]+)\)", text))
    assert referenced <= set(page.names)
    assert "prefers-color-scheme: dark" in text
    assert "<title>A &amp; B</title>" in text


def test_the_report_says_what_was_run_and_what_came_of_it(suite_report):
    text, _ = suite_report
    for words in (
        "spo is better than ppo: significant and meaningful.",
        "p &lt; 0.001",
        "spo train --seed &#x27;&lt;7&gt;&#x27;",
        "2 × NVIDIA H200",
        "commit cccccccccccc",
        "learning_rate",  # of the runs that have no command, the settings
        *(heading for heading, _ in figures.FIGURES.values()),
    ):
        assert words in text, words


def test_colours_of_a_report_are_the_page_s(suite_report):
    """A colour of the light page that was left in would be unreadable on the dark one."""
    text, _ = suite_report
    figures_only = text[text.index("<main>") :]
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", figures_only)) <= {"#ffffff"}
    assert "var(--series-0)" in figures_only


def test_single_seeds_and_a_single_group_are_reported_without_intervals(tmp_path: Path):
    write_run(tmp_path / "runs" / "one", [0.0, 0.5], final=0.5)
    text, paths = written_report(tmp_path / "runs", tmp_path / "out")
    assert "There is one group, spo: nothing to compare it with." in text
    assert "no interval" in text
    assert ">nan" not in text
    assert not any("probability" in path.name for path in paths)
    comparison = compare(load_runs([tmp_path / "runs"]))
    judgement = judge(comparison, num_resamples=FEW)
    with pytest.raises(ValueError, match="two groups"):
        figures.probability_of_improvement(comparison, judgement)


def test_the_same_runs_give_the_same_bytes(tmp_path: Path):
    write_run(tmp_path / "run", [[0.0, 0.5], [0.0, 0.6]], final=[0.5, 0.6])
    comparison = compare(load_runs([tmp_path]))
    first, second = (
        [
            path.read_bytes()
            for path in figures.save(
                figures.learning_curves(comparison, judge(comparison, num_resamples=FEW)), tmp_path / name / "curves"
            )
        ]
        for name in ("first", "second")
    )
    assert first == second


def test_a_group_keeps_its_colour():
    assert figures.colours(["spo", "ppo"])["spo"] == figures.colours(["mpo", "spo", "mine"])["spo"]
    many = figures.colours([f"group {index}" for index in range(8)])
    assert len(set(many.values())) == 8
    mixed = figures.colours(["mine", "ppo", "spo", "yours"])
    assert len(set(mixed.values())) == 4


def test_curves_of_different_runs_are_drawn(tmp_path: Path):
    """Different lengths and points, one seed beside several, an unfinished run: the report says so and is drawn."""
    rng = np.random.default_rng(0)
    for seed in range(3):
        write_run(tmp_path / "runs" / f"spo{seed}", rng.uniform(size=4 + seed), final=0.5, seed=seed)
    write_run(tmp_path / "runs" / "ppo", [0.0, 0.4], algorithm="ppo", points=[0, 600])
    text, _ = written_report(tmp_path / "runs", tmp_path / "out")
    assert "straight lines" in text
    assert "undecided at this scale" in text
    assert "not finished" in text
