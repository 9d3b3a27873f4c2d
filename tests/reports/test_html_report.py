"""Tests of the HTML report: its structure, its words and its colours."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

from reports.fake_runs import FEW, write_run, write_suite
from spo.reports import comparison_figures, html_report
from spo.reports.comparison import compare
from spo.reports.judgement import judge
from spo.reports.runs import load_runs


class Page(HTMLParser):
    """Parses the structure of a page: open elements, names and links."""

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


def written_report(folder: Path, out: Path) -> str:
    comparison = compare(load_runs([folder]))
    judgement = judge(comparison, num_resamples=FEW)
    drawn = comparison_figures.draw_all(comparison, judgement)
    commands = {comparison.results[0].run.folder: "spo train --seed '<7>'"}
    html_report.write_report(out, comparison, judgement, drawn, commands=commands, title="A & B")
    return out.read_text("utf-8")


@pytest.fixture(scope="module")
def suite_report(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("suite")
    return written_report(write_suite(root / "runs"), root / "report.html")


def test_the_report_needs_no_other_file(suite_report):
    text = suite_report
    page = Page(text)
    assert text.count("<svg") == len(comparison_figures.FIGURES)
    assert page.open == []
    assert len(page.names) == len(set(page.names)), "the same name twice"
    assert all(link.startswith("#") and link[1:] in page.names for link in page.links)
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<img", text)
    referenced = set(re.findall(r"url\(#([^)]+)\)", text))
    assert referenced <= set(page.names)
    assert "prefers-color-scheme: dark" in text
    assert "<title>A &amp; B</title>" in text


def test_the_report_contains_runs_and_verdicts(suite_report):
    text = suite_report
    for words in (
        "spo is better than ppo: significant and meaningful.",
        "p &lt; 0.001",
        "spo train --seed &#x27;&lt;7&gt;&#x27;",
        "2 × NVIDIA H200",
        "commit cccccccccccc",
        "learning_rate",  # runs without a command show their settings
        *(heading for heading, _ in comparison_figures.FIGURES.values()),
    ):
        assert words in text, words


def test_figures_have_the_colours_of_the_page(suite_report):
    """A fixed colour of the light page would be unreadable on the dark one."""
    text = suite_report
    figures_only = text[text.index("<main>") :]
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", figures_only)) <= {"#ffffff"}
    assert "var(--series-0)" in figures_only


def test_single_seeds_and_a_single_group_are_reported_without_intervals(tmp_path: Path):
    write_run(tmp_path / "runs" / "one", [0.0, 0.5], final=0.5)
    text = written_report(tmp_path / "runs", tmp_path / "report.html")
    assert "There is one group, spo: nothing to compare it with." in text
    assert "no interval" in text
    assert ">nan" not in text
    assert 'id="probability_of_improvement"' not in text
    comparison = compare(load_runs([tmp_path / "runs"]))
    judgement = judge(comparison, num_resamples=FEW)
    with pytest.raises(ValueError, match="two groups"):
        comparison_figures.probability_of_improvement(comparison, judgement)


def test_the_report_names_different_points_and_unfinished_runs(tmp_path: Path):
    """Runs differ in lengths, points and number of seeds, and one is unfinished."""
    rng = np.random.default_rng(0)
    for seed in range(3):
        write_run(tmp_path / "runs" / f"spo{seed}", rng.uniform(size=4 + seed), final=0.5, seed=seed)
    write_run(tmp_path / "runs" / "ppo", [0.0, 0.4], algorithm="ppo", points=[0, 600])
    text = written_report(tmp_path / "runs", tmp_path / "report.html")
    assert "a straight line" in text
    assert "undecided at this scale" in text
    assert "not finished" in text
