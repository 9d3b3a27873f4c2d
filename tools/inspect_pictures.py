"""Draw the pictures of docs/inspect.md: pages of `spo inspect` in the Chromium of the system.

    python tools/inspect_pictures.py RUN TREE_RUN --seed 35 -- --search.horizon 8 --search.resample-period 2

RUN is a saved run of SPO on the cube, TREE_RUN one that searches with a tree. Options of `spo inspect RUN` follow `--`.
The pictures are the page at 1280 and at 390 pixels, the tree on a dark page, and two settings side by side on a live
page.
"""

import argparse
import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
#: A picture has few colours: a fraction of the size.
NUM_COLOURS = 128
MOST_BYTES = 150_000


def main() -> None:
    arguments = sys.argv[1:]
    place = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("tree_run", metavar="TREE_RUN")
    parser.add_argument("--seed", default="0", help="random seed of the episode of RUN")
    chosen = parser.parse_args(arguments[:place])
    options = ["--seed", chosen.seed, *arguments[place + 1 :]]
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        page, tree = Path(folder, "page.html"), Path(folder, "tree.html")
        subprocess.run([*spo_inspect(chosen.run), *options, "--out", str(page)], check=True)
        subprocess.run([*spo_inspect(chosen.tree_run), "--out", str(tree)], check=True)
        draw(browser, page.as_uri(), "inspect_cube", viewport=WIDE)
        draw(browser, page.as_uri(), "inspect_narrow", viewport=NARROW, part="search")
        draw(browser, tree.as_uri(), "inspect_tree", viewport=WIDE, color_scheme="dark")
        with serve(chosen.run, options) as address:
            draw(browser, address, "inspect_live", viewport=WIDE, part="live")


def spo_inspect(run: str) -> list[str]:
    return [sys.executable, "-m", "spo", "inspect", run]


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("This needs Chromium or Chrome.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def serve(run: str, options: list[str]) -> Iterator[str]:
    """Yields the address of the live page."""
    command = [*spo_inspect(run), *options, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        yield found[0]
        server.terminate()


def draw(browser: Any, address: str, name: str, part: str = "page", **options: Any) -> None:
    """Writes the picture of a page, or of a part of it."""
    with contextlib.closing(browser.new_context(**options)) as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector(".decision")
        if part == "live":
            compare(page)
        clip = None
        if part != "page":
            first, last = {"search": (".why", ".search-panel"), "live": ("header", ".circles")}[part]
            clip = frame(page, first, last)
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))
        target = IMAGES / f"{name}.png"
        few = picture.convert("RGB").quantize(NUM_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(target, optimize=True)
        size = target.stat().st_size
        print(f"{target}: {picture.width} x {picture.height}, {size / 1000:.0f} kB")
        assert size <= MOST_BYTES, "too large for the documentation"


def compare(page: Any) -> None:
    """Shows a second search, with a high temperature, beside the first one."""
    page.locator("input[name=compare]").check()
    page.wait_for_selector(".decisions.compared")
    temperature = page.locator("[aria-label='Settings of the second search'] input[name=temperature]")
    temperature.fill("1")
    temperature.press("Enter")
    page.wait_for_selector(".live:not(.busy)")
    page.wait_for_timeout(500)


def frame(page: Any, first: str, last: str) -> dict[str, float]:
    """Returns the rectangle from the top of one element to the bottom of another one, over the width of the page."""
    top = page.locator(first).first.bounding_box()
    bottom = page.locator(last).first.bounding_box()
    height = bottom["y"] + bottom["height"] - top["y"]
    return {"x": 0, "y": top["y"], "width": page.viewport_size["width"], "height": height}


if __name__ == "__main__":
    main()
