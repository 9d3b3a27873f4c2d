"""A real browser for tests of the page: the system's Chromium, driven by playwright."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


def find_browser() -> str | None:
    """Returns the path of a Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """Yields a browser, or skips the test where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = find_browser()
    if path is None:
        pytest.skip("needs chromium or google-chrome")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if is_root else [])
        yield browser
        browser.close()


@contextlib.contextmanager
def open_page(browser: Any, **options: Any) -> Iterator[Any]:
    """Yields an empty page. Fails if it writes an error to the console, raises one, or asks for anything else."""
    context = browser.new_context(**options)
    page, faults = context.new_page(), []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.set_default_timeout(10_000)
    yield page
    context.close()
    assert faults == []


def overflow(page: Any) -> int:
    """Returns the pixels by which the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
