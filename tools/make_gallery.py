"""Makes the gallery of the documentation: one small animation for each run, and the page's section about it.

    python tools/make_gallery.py RUN [RUN ...] --out docs/images/gallery

A run is a folder that `spo train` wrote, or a file that `spo export` wrote. Of several episodes the longest
solved one is shown, and of a task that can't be solved the one with the highest return. Of physics, the first five
seconds are shown. The page docs/gallery.md gets one section for each picture in the folder, between its two comments.
Its words, and the command that repeats the training, are from the run's record, which is stored beside the picture.
"""

import dataclasses
import functools
import json
import math
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from PIL import Image
from tyro.conf import Positional

from spo.cli.compare import changed_settings, command_of, to_flags
from spo.environments import rendering
from spo.reports.formatting import format_metric
from spo.reports.runs import load_run
from spo.training import exports
from spo.training.agents import make_agent, select_seed
from spo.training.defaults import choose_experiment
from spo.training.experiment import Experiment, to_json
from spo.training.saved_learners import load_learner_and_origin
from spo.training.trainer import Trainer
from spo.types import DiscreteActions

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
BEGIN, END = "<!-- gallery: begin -->", "<!-- gallery: end -->"
#: Limit of a picture, so that the page loads quickly.
MAX_BYTES = 700_000
#: Seconds of an animation, at least and at most, and those that its last picture is shown besides.
LEAST_SECONDS, SECONDS, PAUSE = 3.0, 10.0, 2.0
#: Seconds of physics, in real time.
SECONDS_OF_PHYSICS = 5.0
#: Frames per second of an episode that is too long for each step to be shown.
FAST = 10.0
#: Most steps of an episode.
MAX_STEPS = 2000
#: Colours of a picture.
NUM_COLOURS = 64
#: Most letters in a line of a command.
LINE = 100


def main(
    runs: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")],
    /,
    out: Path = ROOT / "docs" / "images" / "gallery",
    page: Path = PAGE,
    episodes: int = 8,
    seed: int = 0,
) -> None:
    """Draw runs for the gallery.

    Args:
        runs: Folders of runs, or files written by `spo export`.
        out: Folder for the pictures and their records.
        page: Page whose section is written.
        episodes: Number of episodes that are played. One of them is shown.
        seed: Random seed of the episodes.
    """
    out.mkdir(parents=True, exist_ok=True)
    for run in runs:
        episode, record, fps = play(run, episodes, seed)
        file = out / f"{picture_name(record)}.gif"
        captions = rendering.describe_steps(episode, f"{record['task']}, {record['algorithm']}")
        frames = rendering.enlarge(episode.frames)
        shown, fps = choose_frames(len(frames), fps)
        save_small([frames[index] for index in shown], [captions[index] for index in shown], file, fps)
        file.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        print(f"{file}: {file.stat().st_size / 1e3:.0f} kB, {len(shown)} of {len(frames)} frames")
    write_page(page, out)


def play(run: Path, episodes: int, seed: int) -> tuple[rendering.Rollout, dict[str, Any], float]:
    """Returns the episode of a run to show, what the page tells about it, and its frames per second."""
    learner, origin = load_learner_and_origin(run)
    experiment = dataclasses.replace(origin.experiment, num_devices=1)
    trainer = Trainer(experiment)
    environment = trainer.task.evaluation
    agent = make_agent(trainer.algorithm, select_seed(learner, 0), {})
    act = functools.partial(agent.act, use_search=experiment.evaluation.use_search, greedy=experiment.evaluation.greedy)
    fps = rendering.frames_per_second(environment)
    max_steps = MAX_STEPS if isinstance(environment.action_spec, DiscreteActions) else int(fps * SECONDS_OF_PHYSICS)
    # Only the one that is shown is drawn, in a second pass with the same key.
    undrawn = environment._replace(render=lambda state: np.zeros((1, 1, 3), np.uint8))  # noqa: ARG005
    keys = jax.random.split(jax.random.key(seed), episodes)
    played = [rendering.rollout(undrawn, act, key, max_steps) for key in keys]
    best = max(range(episodes), key=lambda index: preference(played[index]))
    shown = rendering.rollout(environment, act, keys[best], max_steps)
    record = describe(run, experiment, origin.env_steps[0])
    record["episode"] = {
        "chosen_from": episodes,
        "seed": seed,
        "steps": len(shown.rewards),
        "return": sum(shown.rewards),
        "ended": shown.ended,
        "solved": shown.solved,
    }
    return shown, record, fps


def preference(episode: rendering.Rollout) -> tuple[float, ...]:
    """Returns a key that is largest for the episode to show: the longest solved one, or the one with most return."""
    steps, total = len(episode.rewards), round(sum(episode.rewards), 6)
    return (1, steps, total) if episode.solved else (0, total, steps)


def describe(run: Path, experiment: Experiment, env_steps: int) -> dict[str, Any]:
    """Returns the record of a picture: the settings and results of its run as plain data."""
    plain, results = to_json(experiment), {}
    if run.is_dir():
        stored = load_run(run)
        summary, config, on_gpu = stored.summary, stored.config, stored.starts[-1]["platform"] == "gpu"
    else:
        header = exports.read_header(run)
        summary, config, on_gpu = None, {"spo_version": header["spo_version"], **header["experiment"]}, False
    for name in ("final_solve_rate", "final_return"):
        if summary is not None and name in summary:
            results[name] = {key: summary[f"{name}{suffix}"] for key, suffix in _SUFFIXES.items()}
    return {
        "task": experiment.task,
        "task_options": plain["task_options"],
        "algorithm": experiment.algorithm,
        "env_steps": env_steps,
        "search": plain["config"].get("search"),
        "training": training_command(config, on_gpu),
        "results": results,
    }


def training_command(config: dict[str, Any], on_gpu: bool) -> dict[str, str] | None:
    """Returns the shortest command that repeats a training, and the device on which it does ("" for any).

    `spo train --task` chooses settings for the device, and the command leaves out those that it would choose. None as
    for `command_of`, and for a run that started from a file.

    Args:
        config: settings of the run, as in its config.json.
        on_gpu: device of the run.
    """
    anywhere = command_of(config)
    if anywhere is None or config.get("start_from"):
        return None
    task, algorithm, steps, options = (config[name] for name in ("task", "algorithm", "steps", "task_options"))
    changed = changed_settings(config, choose_experiment(task, algorithm, steps, task_options=options, on_gpu=on_gpu))
    if changed is None:
        return {"command": anywhere, "device": ""}
    given = {"task": task, "algorithm": algorithm, "steps": steps}
    if algorithm == "spo":
        del given["algorithm"]
    given |= {f"task_options.{name}": value for name, value in options.items()}
    here = shlex.join(["spo", "train", *to_flags(given | changed, task)])
    if len(here) < len(anywhere):
        return {"command": here, "device": "GPU" if on_gpu else "CPU"}
    return {"command": anywhere, "device": ""}


_SUFFIXES = {"mean": "", "interval": "_interval", "episodes": "_episodes"}


def picture_name(record: dict[str, Any]) -> str:
    """Returns the name of a picture: one for each task and algorithm."""
    return re.sub(r"[^\w.-]+", "-", f"{record['task']}-{record['algorithm']}").strip("-.")


# --- Pictures ---------------------------------------------------------------------------------------------------------


def choose_frames(number: int, fps: float) -> tuple[list[int], float]:
    """Returns the numbers of the frames to show, and the frames per second.

    Of a long episode only every second frame, or fewer, is shown. The first and the last frame always are. A short
    one is shown slowly.
    """
    if number <= fps * SECONDS + 1:
        return list(range(number)), min(fps, number / LEAST_SECONDS)
    every = math.ceil((number - 1) / (FAST * SECONDS))
    return [*range(0, number - 1, every), number - 1], FAST


def save_small(
    frames: Sequence[np.ndarray], captions: Sequence[str], path: Path, fps: float, limit: int = MAX_BYTES
) -> None:
    """Writes a GIF of few colours, with half of the frames, or smaller ones, if it would be larger than the limit."""
    frames, captions, halve_frames = list(frames), list(captions), True
    while True:
        pictures = _with_few_colours(rendering.add_captions(frames, captions))
        rendering.save_animation(pictures, path, fps, pauses={len(pictures) - 1: PAUSE})
        if path.stat().st_size <= limit:
            return
        if min(frames[0].shape[:2]) < 32:
            raise ValueError(f"{path} can't be made smaller than {limit} bytes: show a shorter episode.")
        if halve_frames and len(frames) > 8:
            # The last one stays: it has the end of the episode in its caption. The episode lasts as long as before.
            frames, captions = (both[:-1][::2] + both[-1:] for both in (frames, captions))
            fps = fps / 2 if fps > 8 else fps
        else:
            frames = [_shrink(frame) for frame in frames]
        halve_frames = not halve_frames


def _with_few_colours(frames: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the frames with the same few colours. They need about two thirds of the space."""
    sample = np.concatenate([*frames[::8], frames[-1]])
    palette = Image.fromarray(sample).quantize(NUM_COLOURS, method=Image.Quantize.MEDIANCUT)
    images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    return [np.asarray(image.convert("RGB")) for image in images]


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
    trained = f"Trained for {record['env_steps']:,} steps"
    if record["env_steps"] == 0:
        trained = "The network is untrained, because no evaluation during training was as good as that before training"
    words = [trained + (f", with {options}." if options else ".")]
    if record["search"] is not None:
        search = record["search"]
        words.append(f"The search has {search['num_particles']} particles and looks {search['horizon']} steps ahead.")
    for name, result in record["results"].items():
        metric, verb = ("solved", "solves") if name == "final_solve_rate" else ("return", "has a return of")
        mean, low, high = (format_metric(f"episode/{metric}", value) for value in (result["mean"], *result["interval"]))
        words.append(f"In {result['episodes']:,} episodes it {verb} {mean} (95 % interval {low} to {high}).")
        break  # the first is the headline
    episode = record["episode"]
    ending = {True: "The episode is solved in", False: "The episode is not solved in", None: "The episode has"}
    beginning = ending[episode["solved"]] if episode["ended"] else "The picture shows the first"
    total = format_metric("episode/return", episode["return"])
    rule = "the longest of those that are solved" if episode["solved"] else "the one with the highest return"
    words.append(
        f"{beginning} {episode['steps']} steps, with a return of {total}. "
        f"It was chosen from {episode['chosen_from']}: {rule}."
    )
    return "\n".join(words) + training(record["training"])


def training(command: dict[str, str] | None) -> str:
    """Returns the paragraph with the command that repeats a training. Empty if there is none."""
    if command is None:
        return ""
    where = f" on a {command['device']}" if command["device"] else ""
    return (
        f"\n\nThis command repeats the training{where}:\n\n<!-- not run: trains for minutes -->\n```bash\n"
        f"{break_command(command['command'])}\n```"
    )


def break_command(command: str) -> str:
    """Returns a command on lines of at most about `LINE` letters, broken before its options."""
    lines = [""]
    for option in re.split(r" (?=--)", command):
        if lines[-1] and len(lines[-1]) + len(option) > LINE:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {option}" if lines[-1] else option
    return " \\\n".join(lines)


if __name__ == "__main__":
    tyro.cli(main)
