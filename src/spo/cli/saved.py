"""The commands that read saved runs: `spo evaluate`, `spo render`, `spo runs` and `spo export`."""

import dataclasses
import datetime
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

if TYPE_CHECKING:
    from spo.cli.options import EvaluateOptions
    from spo.reports.overview import Overview
    from spo.training.experiment import Experiment
    from spo.training.library import Agent
    from spo.types import Task

RunArgument = Annotated[Path, arg(metavar="RUN")]


def evaluate(*arguments: str) -> None:
    """Evaluate a saved run, with any search budget: `spo evaluate RUN --search.horizon 8 --task.eval-scrambles 10`."""
    from spo import files
    from spo.checks import PositiveInt, Seed, check_value
    from spo.cli.options import EvaluateOptions, parse_saved_run_options

    description = "Evaluate a saved run."
    chosen, others = parse_saved_run_options(EvaluateOptions, "evaluate", description, EVALUATE_WITHOUT_RUN, arguments)
    check_value("--episodes", chosen.episodes, PositiveInt)
    check_value("--seed", chosen.seed, Seed)
    if chosen.out is not None:
        files.check_target(chosen.out)
    result = _evaluate(chosen, others)
    _print_result(result, chosen)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


EVALUATE_WITHOUT_RUN = (
    "Evaluate a saved run: `spo evaluate RUN ...`, with the run first. A run with a search has the options of its kind "
    "of search, and every run has those of its own task. Those of rubiks_cube are listed here; `spo evaluate RUN "
    "--help` lists the options of a run, with its own settings as defaults."
)


def _print_result(result: dict[str, Any], chosen: "EvaluateOptions") -> None:
    from spo.reports.formatting import format_metric

    other = result["other_actions"]
    for name in ("solved", "return", "length"):
        if name in result:
            words, others = (
                {key: format_metric(f"episode/{name}", value) for key, value in values.items()}
                for values in (result[name], other[name])
            )
            print(
                f"{name:8}{words['mean']}  (95 % interval {words['low']} to {words['high']}; "
                f"{other['kind']} {others['mean']}, {others['low']} to {others['high']})"
            )
    print(f"{'step':8}{1000 * result['seconds_per_step']:.3g} ms for one action in one environment")
    variant = "".join(f", {name} {value}" for name, value in result["task_options"].items())
    seeds = f"{len(result['per_seed']['return'])} seed(s)"
    kind = "greedy" if result["greedy"] else "drawn"
    print(
        f"{chosen.episodes} episodes with {kind} actions, and {other['episodes']} with {other['kind']} ones, for each "
        f"of {seeds} of {chosen.run}, {result['task']}{variant}"
    )


def _evaluate(chosen: "EvaluateOptions", other_task_options: dict[str, Any]) -> dict[str, Any]:
    from spo.cli.options import to_evaluated
    from spo.training.agents import make_agent, select_seed
    from spo.training.evaluation import evaluate_both_kinds
    from spo.training.experiment import to_json
    from spo.training.saved_learners import load_learner_and_origin
    from spo.training.sinks.display import evaluation_progress
    from spo.training.trainer import Trainer

    learner, origin = load_learner_and_origin(chosen.run, "last" if chosen.last else None)
    trained = dataclasses.replace(origin.experiment, num_devices=1)
    experiment = to_evaluated(trained, chosen, other_task_options)
    trainer = Trainer(experiment)
    check_variant(trained, experiment, trainer.task)
    with evaluation_progress(getattr(chosen.task_options, "time_limit", None)) as on_progress:
        result = evaluate_both_kinds(
            trainer,
            learner,
            chosen.seed,
            chosen.episodes,
            use_search=chosen.use_search,
            greedy=chosen.greedy,
            on_progress=on_progress,
        )
    agent = make_agent(trainer.algorithm, select_seed(learner, 0), {})
    plain = to_json(experiment)
    budget = {name: plain["config"][name] for name in chosen.changed_settings}
    return {
        "run": str(chosen.run),
        "task": experiment.task,
        "task_options": plain["task_options"],
        "parameters": origin.which,
        "search": None,
        **(budget if chosen.use_search else {}),
        **result,
        "seconds_per_step": _seconds_per_step(agent, trainer.task.evaluation, chosen.use_search, chosen.greedy),
    }


def check_variant(trained: "Experiment", evaluated: "Experiment", task: "Task") -> None:
    """Raises ValueError if the task to evaluate has other observations or actions than that of the run."""
    from spo.environments.own import describe_specs
    from spo.training.tasks import make_task

    if trained.task_options == evaluated.task_options:
        return
    before, after = describe_specs(make_task(trained).evaluation), describe_specs(task.evaluation)
    for name, verb, of_run in (("observation", "is", "that of the run is"), ("actions", "are", "those of the run are")):
        if before[name] != after[name]:
            raise ValueError(
                f"The run's network can't act in this variant of {trained.task}: its {name} {verb} {after[name]} and "
                f"{of_run} {before[name]}. Choose --task options that keep the {name}."
            )


def _seconds_per_step(agent: "Agent", environment: Any, use_search: bool, greedy: bool, repeats: int = 20) -> float:
    """Returns the median time to choose one action in one environment, without compilation."""
    import jax

    state, timestep = jax.jit(environment.reset)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), repeats + 1)

    def seconds(key: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(agent.act(key, state, timestep, use_search=use_search, greedy=greedy))
        return time.perf_counter() - start

    return statistics.median([seconds(key) for key in keys][1:])


def render(
    run: RunArgument,
    /,
    *,
    out: Path = Path("episode.gif"),
    episodes: int = 1,
    seed: int = 0,
    member: int = 0,
    policy_only: bool = False,
    greedy: bool = False,
    last: bool = False,
    fps: float | None = None,
    max_steps: int = 1000,
    pause: float = 2.0,
    caption: bool = True,
) -> None:
    """Write an animation of a saved run: `spo render RUN --out episode.mp4`.

    A small picture is enlarged by a whole factor, to about 320 pixels.

    Args:
        run: Folder of a run, or a file written by `spo export`.
        out: File for the animation: .gif, .png (animated), .webp or .mp4.
        episodes: Number of episodes, shown one after the other.
        seed: Random seed of the episodes.
        member: Which of the run's agents acts. A run trains one for each random seed; they are counted from 0.
        policy_only: Choose actions with the policy network alone, without the search. Always so if the run's own
            evaluations do not search.
        greedy: Take the most likely action instead of a random one. Always so if the run's own evaluations are greedy.
        last: Use the parameters from the end of training instead of those of the best evaluation.
        fps: Frames per second. None: 4, and 20 with continuous actions, whose steps are short.
        max_steps: Most steps that are shown of an episode.
        pause: Seconds that the end of an episode is shown before the next one, or before the animation repeats.
        caption: Write the task, the algorithm, the step, the return and the end of the episode below the picture.
    """
    import functools

    import jax

    from spo.checks import NonNegativeFloat, PositiveFloat, PositiveInt, Seed, check_value
    from spo.environments import rendering
    from spo.training.agents import make_agent, select_seed
    from spo.training.saved_learners import load_learner
    from spo.training.trainer import Trainer

    check_value("--episodes", episodes, PositiveInt)
    check_value("--max-steps", max_steps, PositiveInt)
    if fps is not None:
        check_value("--fps", fps, PositiveFloat)
    check_value("--pause", pause, NonNegativeFloat)
    check_value("--seed", seed, Seed)
    rendering.check_target(out)
    experiment, learner = load_learner(run, "last" if last else None)
    if not 0 <= member < experiment.num_seeds:
        raise ValueError(f"{run} has {experiment.num_seeds} seed(s), counted from 0: there is no --member {member}.")
    trainer = Trainer(experiment)
    agent = make_agent(trainer.algorithm, select_seed(learner, member), {})
    evaluation = experiment.evaluation
    use_search, greedy = evaluation.use_search and not policy_only, evaluation.greedy or greedy
    act = functools.partial(agent.act, use_search=use_search, greedy=greedy)
    keys = jax.random.split(jax.random.key(seed), episodes)
    frames, captions, pauses = [], [], {}
    for number, key in enumerate(keys, start=1):
        episode = rendering.rollout(trainer.task.evaluation, act, key, max_steps)
        title = f"{experiment.task}, {experiment.algorithm}" + (f", episode {number}" if episodes > 1 else "")
        frames += episode.frames
        captions += rendering.describe_steps(episode, title)
        pauses[len(frames) - 1] = pause
    frames = rendering.enlarge(frames)
    fps = fps or rendering.frames_per_second(trainer.task.evaluation)
    rendering.save_animation(rendering.add_captions(frames, captions) if caption else frames, out, fps, pauses=pauses)
    print(f"Wrote {out}: {episodes} episode(s), {len(frames)} frames.")


def runs(
    folder: Annotated[Path, arg(metavar="[FOLDER]")] = Path("runs"),
    /,
    *,
    task: str = "",
    algorithm: str = "",
    since: str = "",
    sort: Literal["started", "run", "task", "algorithm", "steps", "result", "state"] = "started",
    reverse: bool = False,
) -> None:
    """List the runs in a folder. In a file or a pipe the columns are separated by tabs.

    Args:
        folder: Folder with the runs, at any depth.
        task: List only runs of tasks whose name contains this text, such as brax.
        algorithm: List only runs of this algorithm.
        since: List only runs that were started on this day or later: 2026-11-01, 2026-11-01T12:30, or 7d for the
            last seven days.
        sort: Column that decides the order. The best result comes first, and otherwise the smallest value.
        reverse: Reverse the order.
    """
    from spo.checks import print_message
    from spo.cli.tables import print_table
    from spo.reports import overview

    after = overview.parse_since(since, datetime.datetime.now()) if since else float("-inf")
    found = overview.list_overviews(folder)
    if not found:
        raise ValueError(f"There is no run in {folder}: `spo train` starts one.")
    chosen = overview.sort(overview.select(found, task=task, algorithm=algorithm, since=after), sort)
    if not chosen:
        raise ValueError(f"None of the {len(found)} runs in {folder} is of this kind: leave out an option.")
    header = ("run", "task", "algorithm", "steps", "result", "started", "state")
    rows = [_cells(run, folder) for run in (reversed(chosen) if reverse else chosen)]
    print_table(header, rows, cut=("task", "algorithm"), own_line=True)
    for run in chosen:
        if run.damage:
            print_message(f"{run.folder} is damaged. {run.damage}")


def _cells(run: "Overview", root: Path) -> tuple[str, ...]:
    from spo.reports.formatting import format_count

    brief = sys.stdout.isatty()  # programs read whole numbers, without commas
    return (
        str(run.folder.relative_to(root)),
        run.task,
        run.algorithm + (f" x {run.num_seeds}" if run.num_seeds > 1 else ""),
        format_count(run.env_steps) if brief else str(run.env_steps),
        run.result_text,
        time.strftime("%Y-%m-%d" if brief else "%Y-%m-%d %H:%M", time.localtime(run.started)),
        run.state,
    )


def export(
    run: RunArgument, file: Annotated[Path, arg(metavar="FILE")], /, *, which: Literal["best", "last"] = "best"
) -> None:
    """Write the learned parameters of a run to one file, for `spo train --from FILE` and `spo evaluate FILE`.

    Args:
        run: Folder of a run.
        file: File to write, such as agent.npz, in a folder that exists.
        which: Parameters of the best evaluation, or from the end of training.
    """
    from spo.reports.summary import untrained_sentence
    from spo.training import exports
    from spo.training.run_folder import RunFolder
    from spo.training.saved_learners import export_learner

    export_learner(run, file, which)
    print(f"Wrote {file}: {file.stat().st_size / 1e6:.1f} MB.")
    env_steps = exports.read_header(file)["env_steps"]
    if untrained := untrained_sentence(env_steps, RunFolder.open(run).starts_from_learner):
        print(untrained)
