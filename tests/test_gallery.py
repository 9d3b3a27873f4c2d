"""The gallery: small pictures, and a page that shows what the stored records contain."""

import importlib
import json
import shlex
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

pytest.importorskip("flax")

import spo
from spo._version import __version__
from spo.cli import main, training
from spo.environments.rendering import Rollout
from spo.training.experiment import to_json

ROOT = Path(__file__).resolve().parents[1]

RECORD = {
    "task": "tiny/chain",
    "task_options": {"length": 3},
    "algorithm": "spo",
    "env_steps": 12_345,
    "search": {"num_particles": 8, "horizon": 2},
    "training": {"command": "spo train --task tiny/chain --steps 12000", "device": "CPU"},
    "results": {"final_return": {"mean": 1.25, "interval": [1.0, 1.5], "episodes": 64}},
    "episode": {"chosen_from": 4, "seed": 0, "steps": 3, "return": 1.0, "ended": True, "solved": None},
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
    assert "Trained for 12,345 steps, with length 3." in words
    assert "The search has 8 particles and looks 2 steps ahead." in words
    assert "In 64 episodes it has a return of 1.25 (95 % interval 1 to 1.5)." in words
    assert (
        "The episode has 3 steps, with a return of 1. It was chosen from 4: the one with the highest return." in words
    )
    assert words.endswith("\n```bash\nspo train --task tiny/chain --steps 12000\n```")
    assert "This command repeats the training on a CPU:" in words
    solved = RECORD | {"episode": RECORD["episode"] | {"solved": True}, "search": None, "results": {}, "training": None}
    words = make_gallery.sentences(solved)
    assert "The episode is solved in 3 steps" in words
    assert "It was chosen from 4: the longest of those that are solved." in words
    assert "command" not in words
    untrained = make_gallery.sentences(RECORD | {"env_steps": 0})
    assert untrained.startswith("The network is untrained, because no evaluation during training was as good")
    assert "Trained" not in untrained
    cut_off = RECORD | {"episode": RECORD["episode"] | {"ended": False}}
    assert "The picture shows the first 3 steps, with a return of 1." in make_gallery.sentences(cut_off)


EXPERIMENTS = {
    "spo train --task tiny/chain --task.length 3 --steps 4000 --learning-rate 0.01": "CPU",
    "spo train --task jumanji/snake --algorithm ppo --steps 100000": "CPU",
    "spo train --seed 3": "",
    "spo train paper/ant --algorithm ppo": "",
}


@pytest.mark.parametrize(("command", "device"), EXPERIMENTS.items())
def test_the_command_repeats_the_training(make_gallery, monkeypatch, command, device):
    """The settings of a run give the command that was typed: parsing it gives them again."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    experiment = _parsed(command, monkeypatch)
    config = {"spo_version": __version__, "start_from": None, **to_json(experiment)}
    written = make_gallery.training_command(json.loads(json.dumps(config)), on_gpu=False)
    assert written["device"] == device
    assert sorted(shlex.split(written["command"])) == sorted(shlex.split(command))
    assert _parsed(written["command"], monkeypatch) == experiment


def test_a_run_that_started_from_a_file_has_no_command(make_gallery, monkeypatch):
    config = {"spo_version": __version__, **to_json(_parsed("spo train --seed 3", monkeypatch))}
    assert make_gallery.training_command(config | {"start_from": {"file": "learner.npz"}}, on_gpu=False) is None


def _parsed(command, monkeypatch):
    """Returns the experiment that `spo train` would run."""
    experiments = []
    monkeypatch.setattr(training, "run", lambda experiment, *_, **__: experiments.append(experiment))
    main(shlex.split(command)[1:])
    return experiments[-1]


def test_a_long_command_is_broken_before_options(make_gallery):
    command = "spo train --task tiny/chain " + " ".join(f"--option-{i} {i}" for i in range(20))
    broken = make_gallery.break_command(command)
    assert max(map(len, broken.splitlines())) <= make_gallery.LINE + 6
    assert len(broken.splitlines()) == 4
    assert all(line.endswith(" \\") for line in broken.splitlines()[:-1])
    assert shlex.split(broken.replace("\\\n", "")) == shlex.split(command)  # as a shell reads it
    assert make_gallery.break_command("spo train --seed 3") == "spo train --seed 3"


def test_an_episode_is_chosen_played_and_described(make_gallery, tmp_path):
    agent = spo.train("tiny/chain", steps=500, progress=False)
    agent.save(tmp_path / "agent.npz")
    page = tmp_path / "gallery.md"
    page.write_text(f"{make_gallery.BEGIN}\n{make_gallery.END}\n")
    make_gallery.main((tmp_path / "agent.npz",), out=tmp_path / "images", page=page, episodes=2)
    record = json.loads((tmp_path / "images" / "tiny-chain-spo.json").read_text())
    assert record["training"]["command"].startswith("spo train --task tiny/chain --steps 500")
    assert record["episode"]["ended"]
    assert f"The episode has {record['episode']['steps']} steps" in page.read_text()
    with Image.open(tmp_path / "images" / "tiny-chain-spo.gif") as image:
        assert image.n_frames == record["episode"]["steps"] + 1


def test_the_longest_solved_episode_is_shown(make_gallery):
    def episode(rewards, solved):
        return Rollout([], rewards, ended=True, solved=solved)

    short, long, failed = episode([11.0], True), episode([-0.1, 0.9], True), episode(20 * [2.0], False)
    assert max((short, long, failed), key=make_gallery.preference) == long
    low, high = episode(9 * [0.1], None), episode(3 * [0.9], None)
    assert max((low, high), key=make_gallery.preference) == high
    assert max((failed, low), key=make_gallery.preference) == failed


def test_of_a_long_episode_fewer_frames_are_shown_and_a_short_one_slowly(make_gallery):
    assert make_gallery.choose_frames(41, 4.0) == (list(range(41)), 4.0)
    assert make_gallery.choose_frames(6, 4.0) == (list(range(6)), 2.0)
    shown, fps = make_gallery.choose_frames(703, 4.0)
    assert (shown[0], shown[1], shown[-1], fps) == (0, 8, 702, make_gallery.FAST)
    assert len(shown) / fps <= make_gallery.SECONDS
    assert sorted(set(shown)) == shown


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
    captions = [f"step {step}" for step in range(20)]
    make_gallery.save_small(list(noise), captions, tmp_path / "x.gif", fps=4, limit=60_000)
    assert (tmp_path / "x.gif").stat().st_size <= 60_000
    with Image.open(tmp_path / "x.gif") as image:
        image.seek(image.n_frames - 1)
        assert image.info["duration"] == 250 + 1000 * make_gallery.PAUSE
        assert image.n_frames < 20
    with pytest.raises(ValueError, match="can't be made smaller"):
        make_gallery.save_small(list(noise), captions, tmp_path / "y.gif", fps=4, limit=10)


def test_pictures_have_few_colours_and_flat_ones_stay(make_gallery):
    noise = list(np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), np.uint8))
    reduced = np.stack(make_gallery._with_few_colours(noise))
    assert len(np.unique(reduced.reshape(-1, 3), axis=0)) <= make_gallery.NUM_COLOURS
    assert np.abs(reduced.astype(int) - noise).mean() < 40  # 85 between two colours by chance
    flat = [np.full((8, 8, 3), 20 * index, np.uint8) for index in range(12)]
    np.testing.assert_array_equal(make_gallery._with_few_colours(flat)[-1], flat[-1])
