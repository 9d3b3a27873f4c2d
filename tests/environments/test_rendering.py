"""Frames of an episode, and animations that are read back as written."""

import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from spo.environments.rendering import (
    Rollout,
    add_captions,
    describe_steps,
    enlarge,
    frames_per_second,
    rollout,
    save_animation,
)
from spo.environments.tiny import tiny
from spo.types import ContinuousActions


def move_right(key, state, timestep):
    return jnp.int32(1)


def distinct_frames(count, height=12, width=20):
    """Pictures of a moving bar, in two colours, which a GIF palette stores exactly."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    for index in range(count):
        frames[index, :, 2 * index : 2 * index + 2] = (200, 100, 50)
    return list(frames)


def test_a_rollout_shows_the_start_every_state_and_the_end():
    env = tiny("chain", length=4).evaluation
    frames = rollout(env, move_right, jax.random.key(0), max_steps=100).frames
    state, _ = env.reset(jax.random.key(1))
    expected = [env.render(state._replace(row=jnp.int32(row))) for row in range(5)]
    assert len(frames) == 5
    for ours, theirs in zip(frames, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_rollout_stops_at_max_steps():
    assert len(rollout(tiny("chain").evaluation, move_right, jax.random.key(0), max_steps=2).frames) == 3


def test_an_error_of_the_users_function_is_a_sentence():
    def render(state):
        return {}["level"]

    with pytest.raises(
        ValueError, match=r"The `render` function of the environment raised KeyError \(in test_rend.*'level'"
    ):
        rollout(tiny("chain").evaluation._replace(render=render), move_right, jax.random.key(0), 1)


def test_the_policy_is_given_fresh_keys_and_the_current_state():
    seen = []

    def policy(key, state, timestep):
        seen.append((jax.random.key_data(key).tolist(), int(state.row), int(jnp.argmax(timestep.observation))))
        return jnp.int32(1)

    rollout(tiny("chain", length=3).evaluation, policy, jax.random.key(0), max_steps=10)
    assert [(row, shown) for _, row, shown in seen] == [(0, 0), (1, 1), (2, 2)]
    assert len({tuple(key) for key, _, _ in seen}) == 3


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp", ".GIF"])
def test_an_animation_reads_back_as_written(tmp_path, suffix):
    frames = distinct_frames(5)
    path = tmp_path / f"animation{suffix}"
    save_animation(frames, path, fps=20)
    with Image.open(path) as image:
        assert image.n_frames == 5
        for index, frame in enumerate(frames):
            image.seek(index)
            image.load()
            np.testing.assert_array_equal(np.asarray(image.convert("RGB")), frame)
            assert image.info["duration"] == 50
        assert image.info["loop"] == 0


def test_a_single_frame_and_a_path_as_text_are_accepted(tmp_path):
    save_animation(distinct_frames(1), str(tmp_path / "one.gif"))
    with Image.open(tmp_path / "one.gif") as image:
        assert image.size == (20, 12)


def test_invalid_arguments_are_refused(tmp_path):
    frames = distinct_frames(2)
    with pytest.raises(ValueError, match=r"end its name in .gif, .png, .webp, .mp4"):
        save_animation(frames, tmp_path / "film.avi")
    with pytest.raises(ValueError, match=r"There is no folder .*nowhere for 'film.gif'"):
        save_animation(frames, tmp_path / "nowhere" / "film.gif")
    with pytest.raises(ValueError, match="at least one frame"):
        save_animation([], tmp_path / "none.gif")
    with pytest.raises(ValueError, match="positive number of frames per second"):
        save_animation(frames, tmp_path / "still.gif", fps=0)
    with pytest.raises(ValueError, match=r"Frame 1 is float64\[12, 20, 3\]"):
        save_animation([frames[0], frames[1] / 255], tmp_path / "floats.gif")
    with pytest.raises(ValueError, match=r"Frame 0 is uint8\[12, 20\]"):
        save_animation([frames[0][..., 0]], tmp_path / "grey.gif")
    with pytest.raises(ValueError, match="scale them to one size"):
        save_animation([frames[0], frames[1][:-1]], tmp_path / "sizes.gif")
    with pytest.raises(ValueError, match="1 or more"):
        rollout(tiny("chain").evaluation, move_right, jax.random.key(0), max_steps=0)
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_an_episode_is_shown_longer(tmp_path):
    save_animation(distinct_frames(4), tmp_path / "x.gif", fps=20, pauses={1: 1.0, 3: 2.0})
    with Image.open(tmp_path / "x.gif") as image:
        durations = []
        for index in range(4):
            image.seek(index)
            durations.append(image.info["duration"])
    assert durations == [50, 1050, 50, 2050]


@pytest.mark.parametrize("size", [(64, 48), (63, 47)])
def test_a_video_has_the_frames_the_size_and_the_pause(tmp_path, size):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    colours = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
    frames = [np.full((*size, 3), colour, np.uint8) for colour in colours]
    save_animation(frames, tmp_path / "-x.MP4", fps=4, pauses={2: 1.5})
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    command = [ffmpeg.get_ffmpeg_exe(), "-i", f"file:{tmp_path / '-x.MP4'}", *raw]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"h264" in done.stderr
    assert b"yuv420p" in done.stderr
    assert b"4 fps" in done.stderr
    read = np.frombuffer(done.stdout, np.uint8).reshape(-1, 64, 48, 3).mean(axis=(1, 2))
    assert [int(np.argmax(colour)) for colour in read] == [0, 1, 2] + 6 * [2]
    np.testing.assert_allclose(read[:3], colours, atol=12)


def test_a_video_without_its_package_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"'film.mp4' needs imageio-ffmpeg.*pip install .*\[video\].* A name"):
        save_animation(distinct_frames(2), tmp_path / "film.mp4")
    save_animation(distinct_frames(2), tmp_path / "film.gif")


def test_captions_tell_the_step_the_return_and_the_end():
    episode = rollout(tiny("chain", length=3).evaluation, move_right, jax.random.key(0), max_steps=10)
    assert (len(episode.frames), episode.ended, episode.solved) == (4, True, None)
    assert describe_steps(episode, "chain") == [
        "chain, step 0, return 0",
        "chain, step 1, return 0",
        "chain, step 2, return 0",
        "chain, step 3, return 1: end",
    ]
    cut_off = rollout(tiny("chain").evaluation, move_right, jax.random.key(0), max_steps=1)
    assert describe_steps(cut_off, "chain")[-1] == "chain, step 1, return 0"
    assert describe_steps(episode._replace(solved=False), "cube")[-1].endswith(": not solved")
    assert describe_steps(episode._replace(solved=True), "cube")[-1].endswith(": solved")


def test_large_returns_are_written_in_full():
    captions = describe_steps(Rollout([], [0.1234, 999.0, 5878.6, -20000.0], ended=False, solved=None), "ant")
    assert captions == [
        "ant, step 0, return 0",
        "ant, step 1, return 0.123",
        "ant, step 2, return 999",
        "ant, step 3, return 6,878",
        "ant, step 4, return -13,122",
    ]


def test_physics_is_shown_faster_than_moves():
    moves = tiny("chain").evaluation
    assert frames_per_second(moves) == 4
    assert frames_per_second(moves._replace(action_spec=ContinuousActions(2))) == 20


def test_a_caption_grows_with_the_picture():
    heights = []
    for width in (200, 320, 1000):
        (frame,) = add_captions([np.zeros((8, width, 3), np.uint8)], ["step 1"])
        rows = np.flatnonzero((frame[8:] < 128).any(axis=(1, 2)))
        heights.append(rows[-1] - rows[0])
    assert heights[0] <= heights[1] < heights[2] / 2


@pytest.mark.parametrize("width", [20, 400])
def test_a_caption_stands_below_the_picture(width):
    frames = distinct_frames(2, width=width)
    short, long = add_captions(frames, ["one", "a caption that does not fit into the width of a narrow picture"])
    assert short.shape == long.shape
    assert short.shape[0] > 12
    left = (short.shape[1] - width) // 2
    np.testing.assert_array_equal(short[:12, left : left + width], frames[0])
    assert (short[12:] < 128).any()
    assert (long[12:] < 128).sum() > (short[12:] < 128).sum()
    if width == 400:
        assert short.shape[0] < add_captions(distinct_frames(1), ["many words " * 9])[0].shape[0]


# --- Small pictures ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "enlarged"), [((5, 5), (320, 320)), ((4, 16), (80, 320)), ((240, 180), (240, 180)), ((300, 2), (300, 2))]
)
def test_small_frames_are_enlarged_by_a_whole_factor(size, enlarged):
    frame = np.arange(np.prod(size) * 3).astype(np.uint8).reshape(*size, 3)
    (large,) = enlarge([frame])
    assert large.shape == (*enlarged, 3)
    factor = enlarged[0] // size[0]
    np.testing.assert_array_equal(large[::factor, ::factor], frame)
    np.testing.assert_array_equal(large[factor - 1 :: factor, factor - 1 :: factor], frame)


def test_a_frame_that_is_no_picture_is_not_enlarged():
    with pytest.raises(ValueError, match="Frame 0 is float32"):
        enlarge([np.zeros((5, 5), np.float32)])
