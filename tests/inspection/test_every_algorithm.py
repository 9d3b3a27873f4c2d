"""Tests of the page of every algorithm in a real browser: agents before training, on tasks of every kind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspection.browser import open_browser, open_page, overflow
from inspection.subjects import make_subject
from spo.algorithms.registry import ALGORITHMS
from spo.inspection.episode import Origin, record_episode
from spo.inspection.html import write_page

pytestmark = pytest.mark.slow

#: algorithm, task and heading of its search. None: the algorithm does not search.
PAGES = [
    ("spo", "tiny/chain", "Genealogy of"),
    ("spo", "tiny/lqr", "Genealogy of"),
    ("spo", "jumanji/knapsack", "Genealogy of"),  # a dictionary as observation, and 50 actions
    ("smc_ent", "tiny/lottery", "Genealogy of"),  # chance
    ("smc_ent", "tiny/lqr", "Genealogy of"),
    ("alphazero", "tiny/lottery", "Tree of"),
    ("gumbel_alphazero", "rubiks_cube", "Tree of"),
    ("sampled_alphazero", "tiny/chain", "Tree of"),
    ("sampled_alphazero", "tiny/lqr", "Tree of"),
    ("ppo", "rubiks_cube", None),
    ("ppo", "tiny/lqr", None),
    ("mpo", "tiny/masked", None),
    ("mpo", "tiny/lqr", None),
    ("vmpo", "tiny/cliff", None),
    ("vmpo", "tiny/lqr", None),
]
WINDOWS = [
    ({"width": width, "height": height}, theme)
    for width, height in ((1280, 900), (390, 844))
    for theme in ("light", "dark")
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def test_every_algorithm_has_a_page():
    assert {algorithm for algorithm, _, _ in PAGES} == set(ALGORITHMS)


@pytest.mark.parametrize(("algorithm", "task", "heading"), PAGES)
def test_the_page_of_an_algorithm(browser: Any, tmp_path: Path, algorithm: str, task: str, heading: str | None):
    if task.startswith("jumanji"):
        pytest.importorskip("jumanji")
    subject = make_subject(algorithm, task)
    origin = Origin("runs/x", "best", 100)
    document = record_episode(subject, origin, seed=0, settings=subject.own_settings, max_steps=2)
    write_page(tmp_path / "page.html", document)
    for size, theme in WINDOWS:
        with open_page(browser, viewport=size, color_scheme=theme) as page:
            page.goto((tmp_path / "page.html").as_uri())
            page.wait_for_selector(".decision")
            check_decision(page, heading)
            check_scrubbing(page, len(document["steps"]))


def check_decision(page: Any, heading: str | None) -> None:
    assert overflow(page) <= 0
    assert "was chosen" in page.locator(".why").inner_text()
    assert page.locator(".policy tbody tr, .density").count() > 0
    headings = page.locator(".search-panel h3").all_inner_texts()
    if heading is None:
        assert headings == []
        assert page.locator(".dot").count() == 0
        assert "does not search" in page.locator(".guide").text_content()
    else:
        assert [text for text in headings if text.startswith(heading)] == headings != []
        assert page.locator(".legend li").count() >= 2
        page.locator(".dot[tabindex='0']").focus()
        assert page.locator(".details tbody tr").count() == 1
        assert page.locator(".details-body").evaluate("node => node.getBoundingClientRect().top < innerHeight")
    assert not {"undefined", "NaN", "null", "[object Object]"} & set(page.locator("body").inner_text().split())


def check_scrubbing(page: Any, num_steps: int) -> None:
    assert page.locator("output").inner_text() == f"before move 1 of {num_steps - 1}"
    before = page.locator(".episode").inner_text()
    page.locator("[data-part=forward]").click()
    assert page.locator(".episode").inner_text() != before
    page.locator("[data-part=slider]").fill(str(num_steps - 1))
    assert page.locator(".ended").count() == 1
    assert overflow(page) <= 0
    assert page.locator("[data-part=forward]").is_disabled()
