"""Tests of the live page in a real browser. Its requests are answered by a session, without a server."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from inspection.browser import open_browser, open_page, overflow
from inspection.subjects import make_subject
from spo.inspection.episode import Origin
from spo.inspection.html import make_page
from spo.inspection.session import Session

pytestmark = pytest.mark.slow
ADDRESS = "http://localhost:1"


@pytest.fixture
def page() -> Iterator[Any]:
    with live_page("spo", "rubiks_cube") as opened:
        yield opened


@contextlib.contextmanager
def live_page(algorithm: str, task: str, **options: Any) -> Iterator[Any]:
    session = Session(make_subject(algorithm, task), Origin("runs/x", "best", 100))

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix(ADDRESS).partition("?")[0]
        if path == "/":
            route.fulfill(body=make_page(session.answer("/api/session", {})), content_type="text/html")
            return
        assert route.request.headers["x-spo-token"] == "secret"
        if path == "/api/status":
            route.fulfill(body=json.dumps({"compiling": False, "queue": 0}), content_type="application/json")
            return
        try:
            body, status = session.answer(path, route.request.post_data_json), 200
        except ValueError as error:
            # A status of 400 would be an error in the console: what the page shows is the same.
            body, status = {"error": str(error)}, 400
        route.fulfill(body=json.dumps(body), status=status, content_type="application/json")

    size = {"width": 1280, "height": 900}
    with open_browser() as browser, open_page(browser, **{"viewport": size} | options) as opened:
        opened.route(f"{ADDRESS}/**", answer)
        opened.goto(f"{ADDRESS}/?token=secret")
        opened.wait_for_selector(".decision")
        yield opened


def weights(page: Any) -> list[str]:
    return page.locator(".dot").evaluate_all("dots => dots.map(dot => dot.getAttribute('aria-label'))")


def searched(page: Any) -> None:
    page.wait_for_selector(".live:not(.busy)")


def colours(panel: Any) -> dict[str, str]:
    """Returns the class of the colour of each action with a bar."""
    rows = panel.locator(".policy tbody tr").all()
    return {row.locator(".name").inner_text(): row.locator(".after").get_attribute("class").split()[-1] for row in rows}


def has_count(page: Any, selector: str, count: int) -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count)


def test_the_search_can_be_changed(page: Any):
    assert page.locator(".dot").count() == 32
    before = weights(page)
    page.locator("[aria-label='Settings of the search'] input[name=temperature]").fill("1000")
    page.get_by_role("button", name="Search again").click()
    searched(page)
    assert weights(page) != before
    assert "Searched in" in page.locator(".status").inner_text()
    form = page.locator("[aria-label='Settings of the search']")
    form.locator("select[name=num_particles]").select_option("4")
    searched(page)
    has_count(page, ".dot", 16)


def test_actions_are_played_and_taken_back(page: Any):
    start = page.locator("[data-part=state] svg").inner_html()
    page.locator("button.play").nth(3).click()
    page.wait_for_selector("output:text-is('before move 2')")
    assert page.locator("[data-part=state] svg").inner_html() != start
    page.get_by_role("button", name="Take back").click()
    page.wait_for_selector("output:text-is('before move 1')")
    assert page.locator("[data-part=state] svg").inner_html() == start
    page.locator("input[name=start]").fill("0")
    page.get_by_role("button", name="New episode").click()
    searched(page)
    assert "solved cube" in page.locator("[data-part=state] svg").get_attribute("aria-label")


def test_two_settings_stand_side_by_side(page: Any):
    page.locator("input[name=compare]").check()
    searched(page)
    has_count(page, ".decision", 2)
    second = page.locator("[aria-label='Settings of the second search']")
    second.locator("input[name=seed]").fill("5")
    second.locator("input[name=seed]").press("Enter")
    searched(page)
    panels = page.locator(".decision")
    assert panels.nth(0).locator(".dot").count() == panels.nth(1).locator(".dot").count() == 32
    boxes = [panels.nth(index).bounding_box() for index in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    first, second_ = (colours(panels.nth(index)) for index in (0, 1))
    shared = first.keys() & second_.keys()
    assert len(shared) > 3
    assert {name: first[name] for name in shared} == {name: second_[name] for name in shared}
    assert len(set(first.values())) > 3
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    legends = [panels.nth(index).locator(".legend").inner_text() for index in (0, 1)]
    assert ["with the first settings" in legend for legend in legends] == [False, True]


def test_a_control_that_changes_during_a_search_is_searched_too(page: Any):
    page.evaluate(
        """() => {
            for (const [value, seed] of [["8", "1"], ["4", "2"]]) {
                const form = document.querySelector("[aria-label='Settings of the search']");
                form.querySelector("select[name=num_particles]").value = value;
                form.querySelector("input[name=seed]").value = seed;
                form.dispatchEvent(new Event("change"));
            }
        }"""
    )
    has_count(page, ".dot", 16)


def test_another_seed_searches_again_and_says_what_changed(page: Any):
    seed = page.locator("[aria-label='Settings of the search'] input[name=seed]")
    status = page.locator("[data-part=status]")
    assert "Change a setting" in status.inner_text()
    before = weights(page)
    page.get_by_role("button", name="Another seed").click()
    searched(page)
    assert seed.input_value() == "1"
    assert weights(page) != before
    assert "Chosen: " in status.inner_text()
    assert "before" in status.inner_text()
    # The status has its room from the start, in sight above the page.
    assert status.bounding_box()["height"] > 0
    page.mouse.wheel(0, 600)
    assert status.bounding_box()["y"] < 200


def test_keys_stay_on_the_button_that_was_pressed(page: Any):
    button = page.locator("button.play").nth(3)
    label = button.get_attribute("aria-label")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("output:text-is('before move 2')")
    searched(page)
    left = page.locator(f'button[aria-label="{label}"]').count()
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == (label if left else None)


def test_the_settings_are_explained_for_keys_too(page: Any):
    help_ = page.locator(".live details.glossary")
    help_.locator("summary").focus()
    page.keyboard.press("Enter")
    assert "Number of imagined futures" in help_.inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_an_algorithm_without_a_search_is_live_too(width: int):
    with live_page("ppo", "tiny/lqr", viewport={"width": width, "height": 844}) as page:
        page.get_by_role("button", name="Decide again").click()
        searched(page)
        assert "Decided in" in page.locator("[data-part=status]").inner_text()
        page.locator(".by-hand summary").click()
        page.locator(".by-hand input").fill("0.25")
        page.get_by_role("button", name="Play these numbers").click()
        page.wait_for_selector("output:text-is('before move 2')")
        assert "Played 0.250" in page.locator("[data-part=status]").inner_text()
        assert page.locator(".dot").count() == 0
        assert overflow(page) <= 0
