"""Frames of an episode, and an animation of frames."""

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from spo.types import Action, Environment, PRNGKey, State, TimeStep

#: Pillow's format of each suffix. A .png with several frames is an animated PNG (APNG).
_FORMATS = {".gif": "GIF", ".png": "PNG", ".webp": "WEBP"}


def rollout_frames(
    env: Environment, policy_fn: Callable[[PRNGKey, State, TimeStep], Action], key: PRNGKey, max_steps: int
) -> list[np.ndarray]:
    """Plays one episode and draws its start and each state up to its end.

    Args:
        env: the environment.
        policy_fn: `(key, state, timestep) -> action`. A policy that searches needs the state.
        key: random key.
        max_steps: number of steps after which the episode is cut off.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps={max_steps} leaves no step to draw: use 1 or more.")
    draw = env.render
    if draw is None:
        raise ValueError(f"The environment {env.name or 'of this run'} draws no pictures: give it a `render` function.")
    step = jax.jit(env.step)
    key, key_reset = jax.random.split(key)
    state, timestep = jax.jit(env.reset)(key_reset)
    frames = [np.asarray(draw(state))]
    for _ in range(max_steps):
        key, key_action, key_step = jax.random.split(key, 3)
        state, timestep = step(key_step, state, policy_fn(key_action, state, timestep))
        frames.append(np.asarray(draw(state)))
        if timestep.ended:
            break
    return frames


def save_animation(frames: Sequence[np.ndarray], path: str | Path, fps: float = 10.0) -> None:
    """Writes an animation that repeats.

    A GIF has a resolution of 0.01 s, and viewers slow down anything faster than 50 frames per second.

    Args:
        frames: RGB images, `uint8[height, width, 3]`, of one size.
        path: file that ends in .gif, .png (APNG) or .webp.
        fps: frames per second.
    """
    from PIL import Image  # only pictures need Pillow

    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"Cannot write an animation to {path.name!r}: end its name in {', '.join(_FORMATS)}.")
    if not fps > 0:
        raise ValueError(f"fps={fps} is not possible: give a positive number of frames per second.")
    if not frames:
        raise ValueError("An animation needs at least one frame, got none.")
    shape = frames[0].shape
    for index, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
            raise ValueError(
                f"Frame {index} is {frame.dtype}{list(frame.shape)}: give RGB images, uint8[height, width, 3]."
            )
        if frame.shape != shape:
            raise ValueError(
                f"Frame {index} has shape {frame.shape}, but frame 0 has {shape}: scale them to one size first."
            )
    first, *others = [Image.fromarray(frame) for frame in frames]
    first.save(
        path,
        format=_FORMATS[path.suffix.lower()],
        save_all=True,
        append_images=others,
        duration=round(1000.0 / fps),
        loop=0,
        # For WebP, which would lose detail. The other formats ignore it.
        lossless=True,
    )


__all__ = ["rollout_frames", "save_animation"]
