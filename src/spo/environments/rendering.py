"""From episodes to pictures: frames of a rollout, and an animation of frames."""

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from spo.types import Action, Environment, PRNGKey, State, TimeStep


def rollout_frames(
    env: Environment, policy_fn: Callable[[PRNGKey, State, TimeStep], Action], key: PRNGKey, max_steps: int
) -> list[np.ndarray]:
    """Pictures of one episode: its start, and each state it reaches up to its end or `max_steps`.

    `policy_fn(key, state, timestep)` chooses the actions; it gets the state for the sake of those that search.
    """
    if max_steps < 1:
        raise ValueError(f"There is nothing to see in max_steps={max_steps} steps: ask for 1 or more.")
    step = jax.jit(env.step)
    key, key_reset = jax.random.split(key)
    state, timestep = jax.jit(env.reset)(key_reset)
    frames = [np.asarray(env.render(state))]
    for _ in range(max_steps):
        key, key_action, key_step = jax.random.split(key, 3)
        state, timestep = step(key_step, state, policy_fn(key_action, state, timestep))
        frames.append(np.asarray(env.render(state)))
        if timestep.ended:
            break
    return frames


#: The formats by suffix, as Pillow names them. A .png with several frames is an animated one (APNG).
_FORMATS = {".gif": "GIF", ".png": "PNG", ".webp": "WEBP"}


def save_animation(frames: Sequence[np.ndarray], path: str | Path, fps: float = 10.0) -> None:
    """Write frames, `uint8[height, width, 3]` each, as an animation that repeats: .gif, .png (APNG) or .webp.

    GIF counts time in hundredths of a second and viewers slow down anything faster than 50 frames per second.
    """
    from PIL import Image  # only pictures need Pillow

    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"Can't write an animation to {path.name!r}: end its name in {', '.join(_FORMATS)}.")
    if not fps > 0:
        raise ValueError(f"fps={fps} shows nothing: give a positive number of frames per second.")
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
        # WebP loses detail otherwise; the other two know no such thing and pay no attention.
        lossless=True,
    )


__all__ = ["rollout_frames", "save_animation"]
