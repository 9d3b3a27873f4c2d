"""Values of the settings of a sweep, and the points that it tries."""

import itertools

import numpy as np
import pytest

from spo.sweeps.space import Choices, Range, Result, grid, num_points, parse_values, pick

LOG = Range(1e-4, 1e-2, is_log=True, is_int=False)
SIZES = Range(4.0, 8.0, is_log=False, is_int=True)


# --- Reading ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1e-4", "3e-4"], Choices(("1e-4", "3e-4"))),
        (["last"], Choices(("last",))),
        (["1e-4..1e-2:log"], LOG),
        (["4..8"], SIZES),
        (["4..8.0"], Range(4.0, 8.0, is_log=False, is_int=False)),
        (["-2..3"], Range(-2.0, 3.0, is_log=False, is_int=True)),
        (["../levels"], None),
    ],
)
def test_words_are_choices_or_a_range(words, expected):
    if expected is None:
        with pytest.raises(ValueError, match="is no range"):
            parse_values("x", words)
    else:
        assert parse_values("x", words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs values"),
        (["1", "2", "1"], "has the value 1 twice"),
        (["1..2", "3"], "one range or several values"),
        (["2..1"], "the lower end must be below"),
        (["0..1:log"], "must lie above 0"),
        (["1..inf"], "is no range"),
        (["1..2:lin"], "is no range"),
    ],
)
def test_wrong_words_are_refused_with_the_name_of_the_setting(words, message):
    with pytest.raises(ValueError, match=message) as error:
        parse_values("learning-rate", words)
    assert "--vary learning-rate" in str(error.value)


# --- Ranges -----------------------------------------------------------------------------------------------------------
def test_a_range_has_both_ends():
    assert (LOG.at(0.0), LOG.at(1.0)) == ("0.0001", "0.01")
    assert (SIZES.at(0.0), SIZES.at(1.0)) == ("4", "8")


def test_a_logarithmic_range_is_uniform_in_the_logarithm():
    assert float(LOG.at(0.5)) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("is_log", [False, True])
def test_whole_numbers_of_a_range_all_occur(is_log):
    values = Range(4.0, 8.0, is_log, is_int=True)
    shares = np.linspace(0.0, 1.0, 1001)
    counts = np.bincount([int(values.at(share)) for share in shares], minlength=9)[4:]
    assert (counts > 0).all()
    if not is_log:  # equally often
        assert counts.max() - counts.min() <= 2


# --- Points -----------------------------------------------------------------------------------------------------------
SPACE = {"a": Choices(("1", "2", "3")), "b": Choices(("x", "y"))}


def test_a_grid_has_every_combination_once_and_the_last_setting_changes_fastest():
    points = list(grid(SPACE))
    assert [(point["a"], point["b"]) for point in points] == list(itertools.product("123", "xy"))
    assert num_points(SPACE) == len(points)
    assert [pick(SPACE, "grid", number, seed=0) for number in range(6)] == points


def test_random_points_of_choices_are_all_different():
    points = [pick(SPACE, "random", number, seed=3) for number in range(6)]
    assert sorted(map(str, points)) == sorted(map(str, grid(SPACE)))
    assert points != list(grid(SPACE))


def test_a_random_point_depends_on_its_number_and_the_seed_alone():
    space = {"rate": LOG, "size": SIZES, "kind": SPACE["b"]}
    points = [pick(space, "random", number, seed=1) for number in range(20)]
    assert points == [pick(space, "random", number, seed=1) for number in range(20)]
    assert points[3] != pick(space, "random", 3, seed=2)
    assert len(set(map(str, points))) == 20
    assert all(1e-4 <= float(point["rate"]) <= 1e-2 and 4 <= int(point["size"]) <= 8 for point in points)
    assert {point["kind"] for point in points} == {"x", "y"}
    assert num_points(space) == float("inf")


# --- Optuna -----------------------------------------------------------------------------------------------------------
def test_tpe_finds_the_best_region():
    pytest.importorskip("optuna")
    space = {"rate": LOG, "size": SIZES, "kind": SPACE["b"]}

    def score(point):
        return -abs(np.log10(float(point["rate"])) + 3) - abs(int(point["size"]) - 6) + (point["kind"] == "y")

    results: list[Result] = []
    for number in range(40):
        point = pick(space, "tpe", number, 0, results)
        results.append(Result(point, score(point)))
    first, last = (np.mean([result.score for result in part]) for part in (results[:10], results[-10:]))
    assert last > first + 0.5
    assert results == [Result(pick(space, "tpe", n, 0, results[:n]), results[n].score) for n in range(40)]


def test_tpe_avoids_points_that_are_being_tried():
    pytest.importorskip("optuna")
    space = {"rate": Range(0.0, 1.0, is_log=False, is_int=False)}
    results = [Result({"rate": f"{x:.2f}"}, -((x - 0.5) ** 2)) for x in np.linspace(0, 1, 30)]
    alone = [float(pick(space, "tpe", number, 0, results)["rate"]) for number in range(30)]
    tried = [{"rate": f"{0.45 + 0.005 * n:.3f}"} for n in range(20)]
    beside = [float(pick(space, "tpe", number, 0, results, tried)["rate"]) for number in range(30)]
    assert np.mean(np.abs(np.array(alone) - 0.5) < 0.05) > np.mean(np.abs(np.array(beside) - 0.5) < 0.05)


def test_without_optuna_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(ValueError, match=r"needs optuna: pip install .*\[sweep\]"):
        pick({"rate": LOG}, "tpe", 0, 0)
