"""Tests of figures: files, colours and curves."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

from reports.fake_runs import FEW, write_run, write_suite
from spo.reports import comparison_figures, figures, html_report, stats
from spo.reports.comparison import compare
from spo.reports.judgement import judge
from spo.reports.runs import load_runs


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_same_runs_give_the_same_bytes(tmp_path: Path, suffix: str):
    write_run(tmp_path / "run", [[0.0, 0.5], [0.0, 0.6]], final=[0.5, 0.6])
    comparison = compare(load_runs([tmp_path]))
    paths = [
        figures.save(
            comparison_figures.learning_curves(comparison, judge(comparison, num_resamples=FEW)),
            tmp_path / name / f"curves{suffix}",
        )
        for name in ("first", "second")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_figures_are_small_files_with_a_white_page(tmp_path: Path):
    comparison = compare(load_runs([write_suite(tmp_path / "runs")]))
    drawn = comparison_figures.draw_all(comparison, judge(comparison, num_resamples=FEW))
    assert set(drawn) == set(comparison_figures.FIGURES)
    for name, figure in drawn.items():
        svg = figures.save(figure, tmp_path / f"{name}.svg")
        assert 1_000 < svg.stat().st_size < 100_000
        page = svg.read_text("utf-8").split('id="patch_1"')[1].split("</g>")[0]
        assert "#ffffff" in page
        assert figures.save(figure, tmp_path / f"{name}.png").stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"\.svg or \.png"):
        figures.save(figure, tmp_path / "figure.gif")


def test_a_curve_is_a_line_with_a_band_where_it_has_an_interval():
    axes = figures.new_figure(3, 2).add_subplot()
    x, nan = np.arange(3.0), float("nan")
    estimate = stats.Estimate(np.array([1.0, 2.0, 3.0]), np.array([nan, 1.5, 2.5]), np.array([nan, 2.5, 3.5]))
    figures.draw_curve(axes, stats.Curve(x, estimate), "#123456", label="a")
    figures.draw_curve(axes, stats.plain_curve(x, 2 * x), "#654321")
    first, second = axes.lines
    assert list(first.get_ydata()) == [1.0, 2.0, 3.0]
    assert list(second.get_ydata()) == [0.0, 2.0, 4.0]
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).y0 == 1.5
    figures.draw_curve(axes, stats.plain_curve(x[:1], x[:1]), "#123456")
    assert axes.lines[-1].get_marker() == "o", "a single point would be invisible as a line"


def test_a_group_has_the_same_colour_in_every_figure():
    assert figures.colours(["spo", "ppo"])["spo"] == figures.colours(["mpo", "spo", "mine"])["spo"]
    many = figures.colours([f"group {index}" for index in range(8)])
    assert len(set(many.values())) == 8
    many = figures.colours([f"group {index}" for index in range(20)])
    assert len(set(many.values())) == 20
    mixed = figures.colours(["mine", "ppo", "spo", "yours"])
    assert len(set(mixed.values())) == 4


def test_no_group_has_the_colour_of_axes_or_of_open_verdicts():
    greys = [colour for colour in figures.PALETTE if len({colour[i : i + 2] for i in (1, 3, 5)}) == 1]
    assert greys == []
    assert len(set(figures.PALETTE)) == len(figures.PALETTE)
    assert len(set(html_report._DARK_PALETTE)) == len(figures.PALETTE)


def test_every_panel_has_a_title_and_a_label(tmp_path: Path):
    comparison = compare(load_runs([write_suite(tmp_path / "runs", num_seeds=2)]))
    drawn = comparison_figures.draw_all(comparison, judge(comparison, num_resamples=FEW))
    for name, figure in drawn.items():
        for axes in figure.axes:
            assert axes.get_title(loc="left"), name
            assert axes.get_xlabel(), name
