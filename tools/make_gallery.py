"""Makes the gallery of the documentation: one small animation for each run, and the page's section about it.

    python tools/make_gallery.py RUN [RUN ...] --out docs/images/gallery

A run is a folder that `spo train` wrote, or a file that `spo export` wrote. Of several episodes the one with the
highest return is shown, and of equal ones the longest. The page docs/gallery.md gets one section for each picture in
the folder, between its two comments. Its words are from the run's record, which is stored beside the picture.
"""

import dataclasses
import functools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from PIL import Image
from tyro.conf import Positional

from spo.environments import rendering
from spo.reports.formatting import format_metric
from spo.reports.runs import read_summary
from spo.training.experiment import Experiment, to_json
from spo.training.library import make_agent
from spo.training.saved_learners import load_learner_and_origin
from spo.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
BEGIN, END = "<!-- gallery: begin -->", "<!-- gallery: end -->"
#: Limit of a picture, so that the page loads quickly.
MAX_BYTES = 1_000_000
#: Seconds that the last picture is shown.
PAUSE = 1.5


def main(
    runs: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")],
    /,
    out: Path = ROOT / "docs" / "images" / "gallery",
    page: Path = PAGE,
    episodes: int = 8,
    seed: int = 0,
    fps: float = 4.0,
    max_steps: int = 200,
) -> None:
    """Draw runs for the gallery.

    Args:
        runs: Folders of runs, or files written by `spo export`.
        out: Folder for the pictures and their records.
        page: Page whose section is written.
        episodes: Number of episodes that are played. One of them is shown.
        seed: Random seed of the episodes.
        fps: Frames per second.
        max_steps: Most steps of an episode.
    """
    out.mkdir(parents=True, exist_ok=True)
    for run in runs:
        episode, record = play(run, episodes, seed, max_steps)
        file = out / f"{picture_name(record)}.gif"
        captions = rendering.describe_steps(episode, f"{record['task']}, {record['algorithm']}")
        save_small(rendering.add_captions(episode.frames, captions), file, fps)
        file.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        print(f"{file}: {file.stat().st_size / 1e3:.0f} kB, {len(episode.frames)} frames")
    write_page(page, out)


def play(run: Path, episodes: int, seed: int, max_steps: int) -> tuple[rendering.Rollout, dict[str, Any]]:
    """Returns the episode of a run to show, and what the page tells about it."""
    learner, origin = load_learner_and_origin(run)
    experiment = dataclasses.replace(origin.experiment, num_devices=1)
    trainer = Trainer(experiment)
    agent = make_agent(trainer.algorithm, jax.tree.map(lambda leaf: leaf[0], learner), {})
    act = functools.partial(agent.act, use_search=experiment.evaluation.use_search, greedy=experiment.evaluation.greedy)
    keys = jax.random.split(jax.random.key(seed), episodes)
    played = [rendering.rollout(trainer.task.evaluation, act, key, max_steps) for key in keys]
    shown = max(played, key=lambda episode: (round(sum(episode.rewards), 6), len(episode.rewards)))
    record = describe(experiment, origin.env_steps[0], read_summary(run) if run.is_dir() else None)
    record["episode"] = {
        "chosen_from": episodes,
        "seed": seed,
        "steps": len(shown.rewards),
        "return": sum(shown.rewards),
        "solved": shown.solved,
    }
    return shown, record


def describe(experiment: Experiment, env_steps: int, summary: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the record of a picture: the settings and results of its run as plain data."""
    plain = to_json(experiment)
    results = {}
    for name in ("final_solve_rate", "final_return"):
        if summary is not None and name in summary:
            results[name] = {key: summary[f"{name}{suffix}"] for key, suffix in _SUFFIXES.items()}
    return {
        "task": experiment.task,
        "task_options": plain["task_options"],
        "algorithm": experiment.algorithm,
        "env_steps": env_steps,
        "search": plain["config"].get("search"),
        "results": results,
    }


_SUFFIXES = {"mean": "", "interval": "_interval", "episodes": "_episodes"}


def picture_name(record: dict[str, Any]) -> str:
    """Returns the name of a picture: one for each task and algorithm."""
    return re.sub(r"[^\w.-]+", "-", f"{record['task']}-{record['algorithm']}").strip("-.")


# --- Pictures ---------------------------------------------------------------------------------------------------------


def save_small(frames: Sequence[np.ndarray], path: Path, fps: float, limit: int = MAX_BYTES) -> None:
    """Writes a GIF below the limit: with half of the frames, or smaller ones, if it would be larger."""
    frames, halve_frames = list(frames), True
    while True:
        rendering.save_animation(frames, path, fps, pauses={len(frames) - 1: PAUSE})
        if path.stat().st_size <= limit:
            return
        if min(frames[0].shape[:2]) < 32:
            raise ValueError(f"{path} can't be made smaller than {limit} bytes: use a lower --max-steps.")
        if halve_frames and len(frames) > 8:
            # The last one stays: it has the end of the episode in its caption. The episode lasts as long as before.
            frames, fps = frames[:-1][::2] + frames[-1:], fps / 2 if fps > 8 else fps
        else:
            frames = [_shrink(frame) for frame in frames]
        halve_frames = not halve_frames


def _shrink(frame: np.ndarray) -> np.ndarray:
    height, width = frame.shape[:2]
    return np.asarray(Image.fromarray(frame).resize((width * 3 // 4, height * 3 // 4), Image.Resampling.LANCZOS))


# --- Page -------------------------------------------------------------------------------------------------------------


def write_page(page: Path, out: Path) -> None:
    """Writes the sections of all pictures in a folder between the comments of the page."""
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the gallery: write the lines {BEGIN} and {END} into it.")
    records = [(file, json.loads(file.read_text("utf-8"))) for file in sorted(out.glob("*.json"))]
    sections = [section(record, file.with_suffix(".gif"), page) for file, record in records]
    page.write_text(f"{before}{BEGIN}\n\n{''.join(sections)}{END}{after}", "utf-8")


def section(record: dict[str, Any], picture: Path, page: Path) -> str:
    """Returns the section of one picture."""
    link = Path(os.path.relpath(picture, page.parent)).as_posix()
    title = f"{record['task']}, {record['algorithm']}"
    return f"## {title}\n\n![An episode of {title}]({link})\n\n{sentences(record)}\n\n"


def sentences(record: dict[str, Any]) -> str:
    """Returns the words below a picture."""
    options = ", ".join(f"{name} {value}" for name, value in record["task_options"].items())
    words = [f"Trained for {record['env_steps']:,} steps" + (f" with {options}." if options else ".")]
    if record["search"] is not None:
        search = record["search"]
        words.append(f"The search has {search['num_particles']} particles and looks {search['horizon']} steps ahead.")
    for name, result in record["results"].items():
        metric, verb = ("solved", "solves") if name == "final_solve_rate" else ("return", "has a return of")
        mean, low, high = (format_metric(f"episode/{metric}", value) for value in (result["mean"], *result["interval"]))
        words.append(f"In {result['episodes']:,} episodes it {verb} {mean} (95 % interval {low} to {high}).")
        break  # the first is the headline
    episode = record["episode"]
    ending = {True: " is solved in", False: " is not solved in", None: " has"}[episode["solved"]]
    words.append(
        f"The episode{ending} {episode['steps']} steps, with a return of {episode['return']:.3g}. It was chosen from "
        f"{episode['chosen_from']}: the one with the highest return, and of equal ones the longest."
    )
    return "\n".join(words)


if __name__ == "__main__":
    tyro.cli(main)
