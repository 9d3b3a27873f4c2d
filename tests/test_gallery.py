"""The gallery: small pictures, and a page that shows what the stored records contain."""

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("flax")

ROOT = Path(__file__).resolve().parents[1]

RECORD = {
    "task": "tiny/chain",
    "task_options": {"length": 3},
    "algorithm": "spo",
    "env_steps": 12_345,
    "search": {"num_particles": 8, "horizon": 2},
    "results": {"final_return": {"mean": 1.25, "interval": [1.0, 1.5], "episodes": 64}},
    "episode": {"chosen_from": 4, "seed": 0, "steps": 3, "return": 1.0, "solved": None},
}


@pytest.fixture(scope="module")
def make_gallery():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")  # as if the program were run
        yield importlib.import_module("make_gallery")


def test_the_page_shows_the_stored_records(make_gallery, tmp_path):
    page = tmp_path / "gallery.md"
    page.write_text(make_gallery.PAGE.read_text("utf-8"), "utf-8")
    shutil.copytree(ROOT / "docs" / "images" / "gallery", tmp_path / "images" / "gallery")
    make_gallery.write_page(page, tmp_path / "images" / "gallery")
    assert page.read_text("utf-8") == make_gallery.PAGE.read_text("utf-8")


def test_pictures_are_small_and_have_a_record(make_gallery):
    files = sorted((ROOT / "docs" / "images" / "gallery").iterdir())
    assert files
    for file in files:
        assert file.stat().st_size <= make_gallery.MAX_BYTES
        assert file.with_suffix(".gif").exists()
        assert file.with_suffix(".json").exists()


def test_the_words_are_those_of_the_record(make_gallery):
    words = make_gallery.sentences(RECORD)
    assert "Trained for 12,345 steps with length 3." in words
    assert "The search has 8 particles and looks 2 steps ahead." in words
    assert "In 64 episodes it has a return of 1.25 (95 % interval 1 to 1.5)." in words
    assert "The episode has 3 steps, with a return of 1. It was chosen from 4" in words
    solved = RECORD | {"episode": RECORD["episode"] | {"solved": True}, "search": None, "results": {}}
    assert "The episode is solved in 3 steps" in make_gallery.sentences(solved)


def test_the_page_keeps_its_other_text(make_gallery, tmp_path):
    page, out = tmp_path / "gallery.md", tmp_path / "images"
    page.write_text(f"# Head\n\n{make_gallery.BEGIN}\nold\n{make_gallery.END}\nTail\n")
    out.mkdir()
    (out / "tiny-chain-spo.json").write_text(json.dumps(RECORD))
    make_gallery.write_page(page, out)
    make_gallery.write_page(page, out)
    text = page.read_text()
    assert text.startswith("# Head\n")
    assert text.endswith(f"{make_gallery.END}\nTail\n")
    assert text.count("](images/tiny-chain-spo.gif)") == 1
    assert "old" not in text
    page.write_text("# Head\n")
    with pytest.raises(ValueError, match="has no place for the gallery"):
        make_gallery.write_page(page, out)


def test_a_large_picture_is_made_smaller(make_gallery, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (20, 96, 96, 3), np.uint8)
    make_gallery.save_small(list(noise), tmp_path / "x.gif", fps=4, limit=60_000)
    assert (tmp_path / "x.gif").stat().st_size <= 60_000
    with Image.open(tmp_path / "x.gif") as image:
        image.seek(image.n_frames - 1)
        assert image.info["duration"] == 250 + 1000 * make_gallery.PAUSE
        assert image.n_frames < 20
    with pytest.raises(ValueError, match="can't be made smaller"):
        make_gallery.save_small(list(noise), tmp_path / "y.gif", fps=4, limit=10)
