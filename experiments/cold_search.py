"""Plays one run of SPO on a task with the metric "solved" at several temperatures, with and without a discount.

    spo train --run runs/cube
    python experiments/cold_search.py runs/cube --out results/trials/cold_search.json

Without a discount (`search.gamma` 1, as in the paper) the advantages of a path add up to r + V(s_h) - V(s_0), however
long the path is. A state next to the goal then has the value of the goal, so the search is indifferent between both,
and at a low temperature it follows the errors of the critic. With the critic's own discount every step costs value.
The question is whether this explains why the share of solved cubes falls for a while late in training, when the
learned temperature is low.
"""

import dataclasses
import json
import pathlib
import time
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import tyro
from _claims import hardware

from spo import losses
from spo.provenance import command_line, git_commit
from spo.reports.stats import share_interval
from spo.training.experiment import Experiment, to_json
from spo.training.saved_learners import load_learner_and_origin
from spo.training.trainer import Trainer


@dataclass(frozen=True)
class Options:
    """Plays one run of SPO at several temperatures, with and without a discount in the search."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of a run of SPO, or a file written by `spo export`."""
    temperatures: tuple[float, ...] = (1e-2, 3e-3, 1e-3, 3e-4)
    """Temperatures of the search, beside the one that the run has learned."""
    episodes: int = 4096
    """Episodes for each row."""
    seed: int = 0
    """Random seed of the episodes."""
    out: pathlib.Path | None = None
    """File for the result, as JSON."""


def main(options: Options) -> None:
    """Runs the command."""
    learner, origin = load_learner_and_origin(options.run)
    experiment = dataclasses.replace(origin.experiment, num_devices=1, num_seeds=1)
    first_seed = jax.tree.map(lambda leaf: leaf[:1], learner)
    learned = float(first_seed.duals.temperature[0])
    discounts = (1.0, experiment.config.gamma)
    trainers = {gamma: Trainer(with_search_gamma(experiment, gamma)) for gamma in discounts}
    rows = []
    for temperature in (learned, *options.temperatures):
        for gamma, trainer in trainers.items():
            row = {"temperature": temperature, "search_gamma": gamma}
            rows.append(row | play(trainer, with_temperature(first_seed, temperature), options))
            print(row_text(rows[-1]), flush=True)
    if options.out is not None:
        result = {
            "learned_temperature": learned,
            "rows": rows,
            "settings": to_json(experiment),
            "env_steps": origin.env_steps[0],
            "command": command_line(),
            "commit": git_commit(),
            "hardware": hardware(),
            "date": time.strftime("%Y-%m-%d"),
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def with_search_gamma(experiment: Experiment, gamma: float) -> Experiment:
    """Returns the experiment with another discount factor in the search."""
    search = dataclasses.replace(experiment.config.search, gamma=gamma)
    return dataclasses.replace(experiment, config=dataclasses.replace(experiment.config, search=search))


def with_temperature(learner: Any, temperature: float) -> Any:
    """Returns the learner with another temperature."""
    raw = jnp.full_like(learner.duals.raw_temperature, losses.raw_from_positive(temperature))
    return learner._replace(duals=learner.duals._replace(raw_temperature=raw))


def play(trainer: Trainer, learner: Any, options: Options) -> dict[str, Any]:
    """Returns the share of solved episodes with its 95 % interval, and the mean length."""
    key = jax.random.key(options.seed)
    episodes = trainer.evaluate(learner, key, options.episodes, use_search=True, greedy=False)
    solved = float(episodes.metrics["solved"].mean())
    low, high = share_interval(solved, options.episodes)[1:]
    return {"solved": solved, "low": low, "high": high, "length": float(episodes.lengths.mean())}


def row_text(row: dict[str, Any]) -> str:
    """Returns a row as a line for people."""
    return (
        f"temperature {row['temperature']:.2g}, search.gamma {row['search_gamma']:g}: solved {row['solved']:.1%} "
        f"({row['low']:.1%} to {row['high']:.1%}), {row['length']:.2f} steps"
    )


if __name__ == "__main__":
    main(tyro.cli(Options))
