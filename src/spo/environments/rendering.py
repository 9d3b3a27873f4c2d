"""Frames of an episode, and an animation of frames."""

import functools
import importlib.util
import itertools
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import jax
import numpy as np

from spo import files
from spo.installation import install_hint
from spo.quoting import is_raised_by_package, quote
from spo.types import Action, DiscreteActions, Environment, PRNGKey, State, TimeStep

#: Pillow's format of each suffix. A .png with several frames is an animated PNG (APNG).
_FORMATS = {".gif": "GIF", ".png": "PNG", ".webp": "WEBP"}
_VIDEO = ".mp4"
#: Pixels of a caption: least width of the picture, least height of its letters, width for each pixel of their height.
MIN_CAPTION_WIDTH, MIN_LETTERS, WIDTH_OF_LETTERS = 200, 12, 28
#: Pixels of the longer side of a picture, about, to which `enlarge` scales a smaller one.
ENLARGED_SIDE = 320


class Rollout(NamedTuple):
    """One episode as pictures, with what happened in it."""

    frames: list[np.ndarray]  # the start and each state up to the end
    rewards: list[float]  # of the steps between them
    ended: bool  # False: cut off after `max_steps`
    solved: bool | None  # None: the environment reports no such metric


def rollout(
    env: Environment, policy_fn: Callable[[PRNGKey, State, TimeStep], Action], key: PRNGKey, max_steps: int
) -> Rollout:
    """Plays one episode and draws it.

    Args:
        env: the environment.
        policy_fn: `(key, state, timestep) -> action`. A policy that searches needs the state.
        key: random key.
        max_steps: number of steps after which the episode is cut off.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps={max_steps} leaves no step to draw: use 1 or more.")
    if env.render is None:
        raise ValueError(f"The environment {env.name or 'of this run'} draws no pictures: give it a `render` function.")
    draw = functools.partial(_draw, env.render)
    step = jax.jit(env.step)
    key, key_reset = jax.random.split(key)
    state, timestep = jax.jit(env.reset)(key_reset)
    frames, rewards = [draw(state)], []
    for _ in range(max_steps):
        key, key_action, key_step = jax.random.split(key, 3)
        state, timestep = step(key_step, state, policy_fn(key_action, state, timestep))
        frames.append(draw(state))
        rewards.append(float(timestep.reward))
        if timestep.ended:
            break
    solved = bool(timestep.metrics["solved"] > 0) if "solved" in timestep.metrics else None
    return Rollout(frames, rewards, bool(timestep.ended), solved)


def _draw(render: Callable[[State], np.ndarray], state: State) -> np.ndarray:
    try:
        return np.asarray(render(state))
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, ValueError | OSError | ImportError) and is_raised_by_package(error):
            raise  # a sentence for users
        raise ValueError(f"The `render` function of the environment raised {quote(error)}.") from error


def frames_per_second(env: Environment) -> float:
    """Returns the speed of an animation: slow where each step is a move, fast where steps are short, as in physics."""
    return 4.0 if isinstance(env.action_spec, DiscreteActions) else 20.0


def describe_steps(episode: Rollout, title: str) -> list[str]:
    """Returns a caption for each frame of an episode: its title, the step and the return so far, and how it ends."""
    totals = [0.0, *itertools.accumulate(episode.rewards)]
    numbers = [f"{total:,.0f}" if abs(total) >= 1000 else f"{total:.3g}" for total in totals]
    captions = [f"{title}, step {step}, return {number}" for step, number in enumerate(numbers)]
    if episode.solved is not None:
        captions[-1] += ": solved" if episode.solved else ": not solved"
    elif episode.ended:
        captions[-1] += ": end"
    return captions


def enlarge(frames: Sequence[np.ndarray], side: int = ENLARGED_SIDE) -> list[np.ndarray]:
    """Returns small frames enlarged by a whole factor: their longer side is then about `side` pixels. Others stay."""
    for index, frame in enumerate(frames):
        _check_frame(index, frame)
    factor = max(1, round(side / max(max(frame.shape[:2]) for frame in frames)))
    return [frame.repeat(factor, axis=0).repeat(factor, axis=1) for frame in frames]


def add_captions(frames: Sequence[np.ndarray], captions: Sequence[str]) -> list[np.ndarray]:
    """Returns the frames with a line of text below each, or several lines where the picture is narrow.

    The letters grow with the picture, so they can be read where it is shown at the size of others.
    """
    from PIL import Image, ImageDraw, ImageFont

    width = max(MIN_CAPTION_WIDTH, *(frame.shape[1] for frame in frames))
    size = max(MIN_LETTERS, round(width / WIDTH_OF_LETTERS))
    font, line, margin = ImageFont.load_default(size), round(1.35 * size), round(size / 3)
    wrapped = [_wrap(caption, lambda text: font.getlength(text) <= width - 2 * margin) for caption in captions]
    height = line * max(map(len, wrapped)) + 2 * margin
    captioned = []
    for frame, lines in zip(frames, wrapped, strict=True):
        image = Image.new("RGB", (width, frame.shape[0] + height), "white")
        image.paste(Image.fromarray(frame), ((width - frame.shape[1]) // 2, 0))
        draw = ImageDraw.Draw(image)
        for row, text in enumerate(lines):
            draw.text((margin, frame.shape[0] + margin + line * row), text, fill="#24292F", font=font)
        captioned.append(np.asarray(image))
    return captioned


def _wrap(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Breaks a text between words into lines that fit. A longer word has a line of its own."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if fits(longer) or not lines[-1] else [*lines, word]
    return lines


def check_target(path: str | Path) -> None:
    """Raises ValueError or ImportError if no animation can be written to this file, before an episode is played."""
    path = Path(path)
    if path.suffix.lower() not in (*_FORMATS, _VIDEO):
        names = ", ".join((*_FORMATS, _VIDEO))
        raise ValueError(f"Cannot write an animation to {path.name!r}: end its name in {names}.")
    if path.suffix.lower() == _VIDEO and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ImportError(
            f"Writing {path.name!r} needs imageio-ffmpeg, which is not installed: {install_hint('video')}. A name that "
            "ends in .gif needs nothing more."
        )
    files.check_target(path)


def save_animation(
    frames: Sequence[np.ndarray],
    path: str | Path,
    fps: float = 10.0,
    *,
    pauses: Mapping[int, float] = MappingProxyType({}),
) -> None:
    """Writes an animation. The suffix of its name decides the format. All but .mp4 repeat.

    A GIF has a resolution of 0.01 s, and viewers slow down anything faster than 50 frames per second.

    Args:
        frames: RGB images, `uint8[height, width, 3]`, of one size.
        path: file that ends in .gif, .png (APNG), .webp or .mp4.
        fps: frames per second.
        pauses: number of a frame -> seconds that it is shown longer than the others, such as the end of an episode.
    """
    path = Path(path)
    check_target(path)
    if not fps > 0:
        raise ValueError(f"fps={fps} is not possible: give a positive number of frames per second.")
    _check_frames(frames)
    if path.suffix.lower() == _VIDEO:
        _save_video(frames, path, fps, pauses)
        return
    from PIL import Image  # only pictures need Pillow

    first, *others = [Image.fromarray(frame) for frame in frames]
    first.save(
        path,
        format=_FORMATS[path.suffix.lower()],
        save_all=True,
        append_images=others,
        duration=[round(1000.0 / fps + 1000.0 * pauses.get(index, 0.0)) for index in range(len(frames))],
        loop=0,
        # For WebP, which would lose detail. The other formats ignore it.
        lossless=True,
    )


def _check_frames(frames: Sequence[np.ndarray]) -> None:
    if not frames:
        raise ValueError("An animation needs at least one frame, got none.")
    shape = frames[0].shape
    for index, frame in enumerate(frames):
        _check_frame(index, frame)
        if frame.shape != shape:
            raise ValueError(
                f"Frame {index} has shape {frame.shape}, but frame 0 has {shape}: scale them to one size first."
            )


def _check_frame(index: int, frame: np.ndarray) -> None:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise ValueError(
            f"Frame {index} is {frame.dtype}{list(frame.shape)}: give RGB images, uint8[height, width, 3]."
        )


def _save_video(frames: Sequence[np.ndarray], path: Path, fps: float, pauses: Mapping[int, float]) -> None:
    """Writes H.264 that browsers and players show. All frames last equally long, so a pause repeats a frame."""
    import imageio_ffmpeg

    # Sizes are even: H.264 stores the colours of 2 x 2 pixels together.
    padding = [(0, frames[0].shape[0] % 2), (0, frames[0].shape[1] % 2), (0, 0)]
    pictures = [np.pad(frame, padding, mode="edge") for frame in frames]
    repeats = [1 + round(fps * pauses.get(index, 0.0)) for index in range(len(frames))]
    height, width = pictures[0].shape[:2]
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    target = ["-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4"]
    done = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *source, *target, f"file:{path}"],
        input=b"".join(picture.tobytes() * times for picture, times in zip(pictures, repeats, strict=True)),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"ffmpeg can't write {path}: {reason.rstrip('.') or f'exit code {done.returncode}'}.")


__all__ = [
    "Rollout",
    "add_captions",
    "check_target",
    "describe_steps",
    "enlarge",
    "frames_per_second",
    "rollout",
    "save_animation",
]
