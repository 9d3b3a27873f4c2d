"""Commands about finished and unfinished runs: play them, watch them, list them, take them elsewhere."""

import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

if TYPE_CHECKING:
    from spo.training.library import Agent

#: What a search may be given more of at test time: the setting of an algorithm -> what it is.
BUDGETS = {"search": "The search.", "num_simulations": "Simulations of the tree search per decision."}


def evaluate(*arguments: str) -> None:
    """Play a saved run with any search budget: `spo evaluate RUN --search.horizon 8 --episodes 1280`."""
    import tyro
    from tyro.conf import Positional, arg

    from spo.reports.runs import in_words
    from spo.training.experiment import EvaluationConfig
    from spo.training.run_folder import load_experiment

    def option(name: str, kind: Any, help: str, **default: Any) -> tuple[str, Any, Any]:
        return name, Annotated[kind, arg(help=help)], dataclasses.field(**default)

    run = Path(arguments[0]) if arguments and not arguments[0].startswith("-") else None
    experiment = None if run is None else load_experiment(run)
    judged = EvaluationConfig() if experiment is None else experiment.evaluation  # as the run itself was
    fields = [
        option("run", Positional[Path], "Folder of the run, or a file that `spo export` wrote."),
        option("episodes", int, "Episodes for each seed of the run.", default=1280),
        option("policy_only", bool, "Act by the bare policy instead of the search.", default=not judged.use_search),
        option("greedy", bool, "Take the most likely action instead of a draw.", default=judged.greedy),
        option("last", bool, "The last parameters instead of the best ones.", default=False),
        option("seed", int, "Where the randomness of the episodes comes from.", default=0),
        option("out", Path | None, "Write the result as JSON, too.", default=None),
    ]
    if experiment is not None:  # the run's own search is the default
        fields += [
            option(name, type(getattr(experiment.config, name)), help, default=getattr(experiment.config, name))
            for name, help in BUDGETS.items()
            if hasattr(experiment.config, name)
        ]
    parsed: Any = tyro.cli(
        dataclasses.make_dataclass("EvaluateOptions", fields),
        prog="spo evaluate",
        description="Play a saved run with any search budget. Name the run first: its search is the default.",
        args=list(arguments),
    )
    if run is None:
        raise ValueError(f"Name the run first: spo evaluate {parsed.run} ...")
    if parsed.episodes < 1:
        raise ValueError(f"There is nothing to judge by in {parsed.episodes} episodes: ask for 1 or more.")
    result = _evaluate(parsed)
    for name in ("solved", "return", "length"):
        if name in result:
            words = {key: in_words(f"episode/{name}", value) for key, value in result[name].items()}
            print(f"{name:8}{words['mean']}  (95 % interval {words['low']} to {words['high']})")
    print(f"{'step':8}{1000 * result['seconds_per_step']:.3g} ms for one action in one environment")
    print(f"{parsed.episodes} episodes for each of {len(result['per_seed']['return'])} seed(s) of {run}")
    if parsed.out is not None:
        parsed.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


def _evaluate(chosen: Any) -> dict[str, Any]:
    import jax
    import numpy as np

    from spo.reports import run_report
    from spo.training.experiment import build, to_json
    from spo.training.library import make_agent
    from spo.training.run_folder import load_learner

    which: Literal["best", "last"] = "last" if chosen.last else "best"
    experiment, learner = load_learner(chosen.run, which)
    budget = {name: getattr(chosen, name) for name in BUDGETS if hasattr(chosen, name)}
    experiment = dataclasses.replace(experiment, config=dataclasses.replace(experiment.config, **budget))
    built = build(experiment)
    use_search = not chosen.policy_only
    episodes = built.program.evaluate(learner, jax.random.key(chosen.seed), chosen.episodes, use_search, chosen.greedy)
    values = {"return": episodes.returns, "length": episodes.lengths}
    if "solved" in episodes.metrics:
        values["solved"] = episodes.metrics["solved"]
    per_seed = {name: np.asarray(value, float) for name, value in values.items()}
    agent = make_agent(built.algorithm, jax.tree.map(lambda leaf: leaf[0], learner), {})
    return {
        "run": str(chosen.run),
        "parameters": which,
        "episodes": chosen.episodes,
        "seed": chosen.seed,
        "use_search": use_search,
        "greedy": chosen.greedy,
        "search": None,
        **({name: to_json(experiment)["config"][name] for name in budget} if use_search else {}),
        **{name: run_report.episodes_interval(name, value.tolist())._asdict() for name, value in per_seed.items()},
        "per_seed": {name: value.mean(axis=1).tolist() for name, value in per_seed.items()},
        "seconds_per_step": _seconds_per_step(agent, built.task.evaluation, use_search, chosen.greedy),
    }


def _seconds_per_step(agent: "Agent", environment: Any, use_search: bool, greedy: bool, repeats: int = 20) -> float:
    """The median time to choose one action in one environment, compiling left out."""
    import jax

    state, timestep = jax.jit(environment.reset)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), repeats + 1)

    def seconds(key: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(agent.act(key, state, timestep, use_search=use_search, greedy=greedy))
        return time.perf_counter() - start

    return statistics.median([seconds(key) for key in keys][1:])


def render(
    run: Path,
    /,
    *,
    out: Path = Path("episode.gif"),
    episodes: int = 1,
    seed: int = 0,
    member: int = 0,
    policy_only: bool = False,
    greedy: bool = False,
    last: bool = False,
    fps: float = 4.0,
    max_steps: int = 1000,
) -> None:
    """Watch a saved run play: writes an animation.

    Args:
        run: folder of the run, or a file that `spo export` wrote.
        out: where to write it: .gif, .png (animated) or .webp.
        episodes: how many, one after the other.
        seed: where the randomness of the episodes comes from.
        member: which of the run's seeds plays.
        policy_only: act by the bare policy instead of the search, as it does if the run was judged that way.
        greedy: take the most likely action instead of a draw, as it does if the run was judged that way.
        last: the last parameters instead of the best ones.
        fps: frames per second.
        max_steps: longest part of an episode that is shown.
    """
    import functools

    import jax

    from spo.environments.rendering import rollout_frames, save_animation
    from spo.training.experiment import build
    from spo.training.library import make_agent
    from spo.training.run_folder import load_learner

    if episodes < 1:
        raise ValueError(f"There is nothing to see in {episodes} episodes: ask for 1 or more.")
    experiment, learner = load_learner(run, "last" if last else "best")
    if not 0 <= member < experiment.num_seeds:
        raise ValueError(f"{run} has {experiment.num_seeds} seed(s): --member counts them from 0, got {member}.")
    built = build(experiment)
    agent = make_agent(built.algorithm, jax.tree.map(lambda leaf: leaf[member], learner), {})
    judged = experiment.evaluation
    use_search, greedy = judged.use_search and not policy_only, judged.greedy or greedy
    act = functools.partial(agent.act, use_search=use_search, greedy=greedy)
    keys = jax.random.split(jax.random.key(seed), episodes)
    frames = [frame for key in keys for frame in rollout_frames(built.task.evaluation, act, key, max_steps)]
    save_animation(frames, out, fps)
    print(f"Wrote {out}: {episodes} episode(s), {len(frames)} frames.")


def runs(folder: Path = Path("runs"), /) -> None:
    """List the runs in a folder.

    Args:
        folder: where they lie.
    """
    import rich
    from rich.markup import escape
    from rich.table import Column, Table

    from spo.reports import run_report
    from spo.training.run_folder import list_runs

    found = list_runs(folder)
    if not found:
        raise ValueError(f"There is no run in {folder}: `spo train` makes one.")
    table = Table(Column("run", no_wrap=True), "task", "algorithm", "steps", "result", "started", "state", box=None)
    for entry in found:
        done = "finished" if entry["finished"] else f"at {entry['env_steps'] / entry['steps']:.0%}"
        metrics = entry["path"] / "metrics.jsonl"
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["started"]))
        cells = (
            str(entry["path"].relative_to(folder)),
            entry["task"],
            entry["algorithm"] + (f" x {entry['num_seeds']}" if entry["num_seeds"] > 1 else ""),
            f"{entry['env_steps']:,}",
            run_report.result_so_far(run_report.read_records(metrics)) if metrics.exists() else "",
            started,
            done,
        )
        table.add_row(*map(escape, cells))
    rich.print(table)


def export(run: Path, file: Path, /, *, which: Literal["best", "last"] = "best") -> None:
    """Write what a run has learned to one file, for `spo train --from FILE` and `spo evaluate FILE`.

    Args:
        run: folder of the run.
        file: what to write.
        which: the parameters of the best evaluation, or the last ones.
    """
    from spo.training import checkpoints

    checkpoints.export(run, file, which)
    print(f"Wrote {file}: {file.stat().st_size / 1e6:.1f} MB.")
