"""Claim 11, beyond the paper: on games of chance, a risk-neutral search is at least as good as a plain one.

SPO is trained on 2048 and Snake with the settings that `spo train --task X` chooses, five seeds, three times:

    plain             N = 16 particles, horizon 4
    4 outcomes        each step is scored by the mean of 4 outcomes (`spo.search.chance.sampled`), with N = 4
    shared outcomes   particles with the same action in the same state share outcomes (`chance.shared`), with N = 16

Each search takes N · M · h = 64 model steps. The horizon stays the same, because the searches should differ in how they
weigh luck, not in how far they look ahead. So four outcomes leave a quarter of the particles.

At test time, the last parameters of the plain runs are played with all three searches.

The number is the difference of the mean final return to that of plain, in shares of plain's. Its 95 % interval is
Welch's over seeds after training, and Student's of the paired differences at test time. Held if the interval lies above
-5 % on every game, and below 0 on none. Not held if plain is better on a game: the interval lies below 0.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from _claims import Claim, Finding, Outcome, Setup, main
from _rivals import compare_runs, scores_json
from _runs import origin_of, train_all, with_settings
from _tasks import NUM_SEEDS
from matplotlib.figure import Figure
from scipy import special

from spo.networks.config import NetworkConfig
from spo.reports import comparison_figures, figures
from spo.reports.stats import Estimate, mean_interval
from spo.training.defaults import choose_experiment
from spo.training.experiment import EvaluationConfig
from spo.training.run_folder import load_learner
from spo.training.trainer import Trainer

PLAIN = "plain"
WAYS: dict[str, dict[str, Any]] = {
    "4 outcomes": {"num_particles": 4, "num_outcomes": 4},
    "shared outcomes": {"weighting": "shared_advantage"},
}
"""Risk-neutral searches: name -> settings that differ from the plain search."""
PARTS = {"4 outcomes": ("", "test time"), "shared outcomes": ("shared outcomes", "test time, shared outcomes")}
"""Name -> parts of the claim: after training, and at test time."""
MARGIN = 0.05
"""Loss of return, as a share of plain's, that still counts as equally good."""
CLAIM = Claim(
    11,
    "chance",
    "Risk-neutral search on games of chance",
    "Beyond the paper: on 2048 and Snake, a risk-neutral search is at least as good as a plain one at equal model "
    "steps.",
    {part: ("smoke", "cpu", "paper") for time in (0, 1) for part in (parts[time] for parts in PARTS.values())},
)


class Scale(NamedTuple):
    """Tasks with their options, and sizes."""

    tasks: dict[str, dict[str, Any]]
    steps: float | None  # None: as they are chosen for the task
    network: NetworkConfig | None  # None: as it is chosen for the task
    evaluation: EvaluationConfig
    test_episodes: int  # of each seed at test time


_TASKS: dict[str, dict[str, Any]] = {"jumanji/game_2048": {}, "jumanji/snake": {"time_limit": 500}}
SCALES = {
    "smoke": Scale({"tiny/slippery": {}}, 256, NetworkConfig("mlp", 16, 1), EvaluationConfig(2, 8, 8), 8),
    "cpu": Scale(_TASKS, 3e4, NetworkConfig("mlp", 64, 2), EvaluationConfig(3, 8, 64), 64),
    "paper": Scale(_TASKS, None, None, EvaluationConfig(10, 64, 512), 512),
}


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale, by "SEARCH on TASK"."""
    scale, found = SCALES[setup.scale], {}
    for task, options in scale.tasks.items():
        chosen = choose_experiment(task, "spo", scale.steps, task_options=options)
        plain = dataclasses.replace(
            with_settings(chosen, search={"unroll": 1}),
            network=scale.network or chosen.network,
            num_seeds=NUM_SEEDS[setup.scale],
            evaluation=scale.evaluation,
        )
        found |= {f"{name} on {task}": searching(plain, name) for name in (PLAIN, *WAYS)}
    return found


def searching(plain: Any, name: str) -> Any:
    """Returns the experiment with the search of this name."""
    return with_settings(plain, search=WAYS.get(name, {}))


def model_steps(experiment: Any) -> int:
    """Returns the number of model steps of one search: N · M · h."""
    search = experiment.config.search
    return search.num_particles * search.num_outcomes * search.horizon


def find(setup: Setup) -> list[Finding]:
    """Trains with all searches, plays the plain networks with all searches, and judges both."""
    experiments = runs(setup)
    folders = train_all(setup, experiments)
    origin = origin_of(folders.values())
    comparison, judgement = compare_runs(folders)
    tasks = SCALES[setup.scale].tasks
    trained = {
        name: {task: [result.score for result in comparison.results_of(name, task)] for task in comparison.tasks}
        for name in (PLAIN, *WAYS)
    }
    played = {name: {} for name in trained}
    for task in tasks:
        experiment, learner = load_learner(folders[f"{PLAIN} on {task}"], "last")
        for name in played:
            played[name][task] = play(searching(experiment, name), learner, SCALES[setup.scale].test_episodes)
            print(f"  {name} at test time on {task}: {np.mean(played[name][task]):.4g}", flush=True)
    shared = {"model steps of a search": {name: model_steps(experiment) for name, experiment in experiments.items()}}
    after = {name: differences(trained, name, paired=False) for name in WAYS}
    at_test = {name: differences(played, name, paired=True) for name in WAYS}
    findings = []
    for name, (in_training, at_test_time) in PARTS.items():
        first = name == next(iter(PARTS))
        findings += [
            judge(name, after[name], "after training with it")._replace(
                part=in_training,
                details=shared | scores_json(comparison, judgement),
                figure=comparison_figures.learning_curves(comparison, judgement) if first else None,
                origin=origin,
            ),
            judge(name, at_test[name], "at test time, with the networks of plain")._replace(
                part=at_test_time,
                details=shared | {"return per seed": {other: played[other] for other in (PLAIN, name)}},
                figure=draw(at_test) if first else None,
                origin=origin,
            ),
        ]
    return findings


def play(experiment: Any, learner: Any, num_episodes: int) -> list[float]:
    """Returns the mean return of each seed's learner, acting by the search of the experiment."""
    trainer = Trainer(experiment)
    # The same key, and so the same first states, for every search.
    episodes = trainer.evaluate(learner, jax.random.key(11), num_episodes, use_search=True, greedy=False)
    return np.asarray(episodes.returns, float).mean(axis=1).tolist()


# --- Verdict ----------------------------------------------------------------------------------------------------------
def differences(
    returns: Mapping[str, Mapping[str, Sequence[float]]], name: str, *, paired: bool
) -> dict[str, Estimate]:
    """Returns the difference of the mean return to plain's, in shares of plain's, with its interval, by task."""
    found = {}
    for task, plain in returns[PLAIN].items():
        scale = abs(float(np.mean(plain)))
        if paired:
            interval = mean_interval((np.asarray(returns[name][task]) - plain).tolist())
        else:
            interval = welch_interval(returns[name][task], plain)
        found[task] = Estimate(*(value / scale for value in interval))
    return found


def welch_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Returns mean(a) - mean(b) with Welch's 95 % interval: the two may have different variances."""
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (a, b)]
    difference = float(np.mean(a) - np.mean(b))
    if sum(parts) == 0:
        return difference, difference, difference
    freedom = sum(parts) ** 2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, (a, b), strict=True))
    half = float(special.stdtrit(freedom, 0.975)) * math.sqrt(sum(parts))
    return difference, difference - half, difference + half


def decide(found: Mapping[str, Estimate]) -> Outcome:
    """Returns held if no game loses more than the margin, and not held if plain is better on one."""
    if any(estimate.high < 0 for estimate in found.values()):
        return "not held"
    return "held" if all(estimate.low > -MARGIN for estimate in found.values()) else "undecided"


def judge(name: str, found: Mapping[str, Estimate], when: str) -> Finding:
    """Returns the verdict on one risk-neutral search. The number is that of the game with the lowest bound."""
    words = ", ".join(f"{e.value:+.1%} ({e.low:+.1%} to {e.high:+.1%}) on {task}" for task, e in found.items())
    worst = min(found, key=lambda task: found[task].low)
    estimate = found[worst]
    return Finding(
        verdict=decide(found),
        sentence=f"The return with {name} differs from that of the plain search, {when}, by {words}.",
        number=estimate.value,
        number_name=f"difference of the return to plain's on {worst}, share of plain's",
        interval=(estimate.low, estimate.high),
    )


def draw(found: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """Draws the intervals of all risk-neutral searches at test time, and the margin."""
    rows = [(f"{name}, {task}", estimate) for name, of in found.items() for task, estimate in of.items()]
    with figures.style():
        figure = figures.new_figure(6.4, 1.2 + 0.35 * len(rows))
        axes = figure.add_subplot()
        for row, (_, estimate) in enumerate(rows):
            figures.draw_interval(axes, row, estimate, figures.PALETTE[0])
        axes.axvline(0, color=figures.MUTED, lw=1)
        axes.axvline(-MARGIN, color=figures.MUTED, lw=1, ls=(0, (3, 3)))
        axes.xaxis.set_major_formatter(figures.PER_CENT)
        axes.set(xlabel="return less plain's at test time; dashed: the margin")
        figures.label_rows(axes, [name for name, _ in rows])
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
