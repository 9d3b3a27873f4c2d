"""Tests of the page in a real browser, with documents of made-up numbers. Skipped where there is no browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspection.browser import open_browser, open_page, overflow
from inspection.fake_documents import HOSTILE, fake_document
from spo.inspection.html import write_page

SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def visit(page: Any, folder: Path, document: dict[str, Any]) -> None:
    file = folder / "page.html"
    write_page(file, document)
    page.goto(file.as_uri())
    page.wait_for_selector(".decision, .ended")


def circles(page: Any) -> int:
    return page.locator(".dot").count()


def test_scrubbing_and_keys_show_other_decisions(browser: Any, tmp_path: Path):
    document = fake_document(num_particles=8)
    with open_page(browser, viewport=SIZES["wide"]) as page:
        visit(page, tmp_path, document)
        assert circles(page) == 4 * 8
        assert page.locator(".resample").count() == 1
        assert page.locator(".end").count() == 1
        assert page.locator(".line.died").count() > 0
        assert page.locator("h1").inner_text() == "spo on sokoban"
        assert HOSTILE in page.locator(".subtitle").inner_text(), "shown as text"
        assert page.locator("body img").count() == 0
        first = page.locator(".facts, [data-part=facts]").inner_text()
        page.keyboard.press("ArrowRight")
        assert page.locator("output").inner_text() == "before move 2 of 3"
        assert page.locator("[data-part=facts]").inner_text() != first
        assert page.locator(".observation").count() == 1, "a state without a picture shows its observation"
        page.keyboard.press("End")
        assert "ended after 3 moves" in page.locator(".ended").inner_text()
        assert page.locator(".outcome tbody tr").count() == 3
        page.keyboard.press("Home")
        assert page.locator("[data-part=facts]").inner_text() == first
        # The tab key reaches one particle, and arrow keys move among them without leaving the step.
        height = page.evaluate("document.documentElement.scrollHeight")
        page.locator(".dot[tabindex='0']").focus()
        before = page.locator(".details").inner_text()
        assert page.locator(".details .marked td").first.inner_text() == "▸ 1"
        assert page.locator(".details tbody tr").count() == 2, "the next depth is shown too"
        page.keyboard.press("ArrowRight")
        assert page.locator(".details").inner_text() != before
        assert page.locator("output").inner_text() == "before move 1 of 3"
        assert page.locator(".details .board").count() == 1, "the state of the particle is drawn"
        assert page.locator(".details figcaption").inner_text() == "The state at depth 2"
        assert page.locator(".details .marked td").first.inner_text() == "▸ 2"
        assert page.evaluate("document.documentElement.scrollHeight") == height, "room for the details is reserved"
        page.locator("[data-part=run]").focus()
        assert page.locator(".selecting .on-path").count() > 0, "the path stays marked while its details are shown"
        page.locator(".dot[tabindex='0']").focus()
        page.keyboard.press("Escape")
        assert page.locator(".selecting").count() == page.locator(".details table").count() == 0
        assert overflow(page) <= 0


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["particles", "continuous", "tree", "policy"])
def test_every_kind_at_both_widths_and_themes(browser: Any, tmp_path: Path, kind: str, size: str, theme: str):
    with open_page(browser, viewport=SIZES[size], color_scheme=theme) as page:
        visit(page, tmp_path, fake_document(kind))
        assert overflow(page) <= 0
        dots = {"particles": 32, "continuous": 32, "tree": 5, "policy": 0}[kind]
        assert circles(page) == dots
        assert page.locator(".density").count() == (2 if kind == "continuous" else 0)
        assert page.locator(".policy tbody tr").count() == (0 if kind == "continuous" else 12)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
        assert (brightness < 60) == (theme == "dark")
        if dots:
            page.locator(".dot").last.hover()
            assert page.locator(".details table").count() == 1


@pytest.mark.slow
def test_many_particles_are_folded(browser: Any, tmp_path: Path):
    with open_page(browser, viewport=SIZES["wide"]) as page:
        visit(page, tmp_path, fake_document(num_particles=256))
        assert "folded" in page.locator(".search-panel h3").first.inner_text()
        assert circles(page) <= 4 * 4
        page.locator(".dot[tabindex='0']").focus()
        assert "particles that began with" in page.locator(".details").inner_text()


@pytest.mark.slow
def test_details_stay_in_sight_on_a_narrow_page_until_they_are_closed(browser: Any, tmp_path: Path):
    with open_page(browser, viewport=SIZES["narrow"], has_touch=True) as page:
        visit(page, tmp_path, fake_document())
        height = page.evaluate("document.documentElement.scrollHeight")
        low = "node => window.scrollBy(0, node.getBoundingClientRect().bottom + 20 - window.innerHeight)"
        page.locator(".dot").first.evaluate(low)
        dot = page.locator(".dot").first.bounding_box()
        # A locator's own tap would scroll until nothing covers the particle.
        page.touchscreen.tap(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
        box = page.locator(".details-body").bounding_box()
        assert "on-path" in page.locator(".dot").first.get_attribute("class")
        tapped = page.locator(".dot").first.bounding_box()
        assert tapped["y"] + tapped["height"] <= box["y"], "the sheet does not cover the particle"
        assert 0 < box["y"] < box["y"] + box["height"] <= SIZES["narrow"]["height"] + 1
        assert page.locator(".selecting .on-path").count() > 0
        assert page.evaluate("document.documentElement.scrollHeight") == height, "the page does not grow"
        page.get_by_role("button", name="Close").tap()
        assert page.locator(".selecting").count() == page.locator(".details table").count() == 0
        assert page.evaluate("document.documentElement.scrollHeight") == height, "the page does not grow"


@pytest.mark.slow
def test_the_search_that_is_switched_off_is_not_called_missing(browser: Any, tmp_path: Path):
    document = fake_document("policy")
    for step in document["steps"][:-1]:
        step["decision"]["settings"]["use_search"] = False
    with open_page(browser) as page:
        visit(page, tmp_path, document)
        assert page.locator(".guide h3").first.inner_text() == "The search is off"
        assert page.locator(".policy thead").inner_text().split() == ["action", "chance"]


@pytest.mark.slow
def test_long_names_do_not_widen_a_narrow_page(browser: Any, tmp_path: Path):
    document = fake_document()
    document["run"] |= {"algorithm": "sampled_alphazero", "task": "module:" + 60 * "e", "name": "x" * 80}
    document["actions"]["names"] = [f"a_very_long_name_of_action_{index}" for index in range(20)]
    with open_page(browser, viewport=SIZES["narrow"]) as page:
        visit(page, tmp_path, document)
        assert overflow(page) <= 0
        assert page.locator("h1").inner_text() == "sampled_alphazero on module:" + 60 * "e"


@pytest.mark.slow
def test_actions_that_are_not_allowed_are_named(browser: Any, tmp_path: Path):
    document = fake_document("policy")
    document["steps"][0]["mask"] = [action in (0, 2) for action in range(20)]
    with open_page(browser) as page:
        visit(page, tmp_path, document)
        assert page.locator(".policy .forbidden").count() == 10
        assert page.locator(".policy tbody tr:not(.forbidden) .name").all_inner_texts() == ["up", HOSTILE]
        assert page.locator(".forbidden").first.inner_text().split("\t") == ["right", "not allowed in this state"]


@pytest.mark.slow
def test_the_theme_can_be_switched(browser: Any, tmp_path: Path):
    with open_page(browser, color_scheme="light") as page:
        visit(page, tmp_path, fake_document())
        colours = []
        for name in ("auto", "light", "dark"):
            assert page.locator("[data-part=theme]").inner_text() == f"Theme: {name}"
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            page.locator("[data-part=theme]").click()
        assert colours[0] == colours[1] != colours[2]


@pytest.mark.slow
def test_text_has_enough_contrast(browser: Any, tmp_path: Path):
    """Text colours against the page and the panels: at least 4.5, the ratio of WCAG AA."""
    for theme in ("light", "dark"):
        with open_page(browser, color_scheme=theme) as page:
            visit(page, tmp_path, fake_document())
            names = ("--ink", "--muted", "--accent", "--error", "--paper", "--panel")
            read = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
            colours = {name: page.evaluate(read, name) for name in names}
            for text in names[:4]:
                for ground in names[4:]:
                    assert contrast(colours[text], colours[ground]) >= 4.5, (theme, text, ground)


def contrast(first: str, second: str) -> float:
    """Returns the contrast ratio of two colours (WCAG 2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)
