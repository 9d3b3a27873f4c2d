"""Claim 11, beyond the paper: on games of chance, a risk-neutral search is at least as good as a plain one.

SPO is trained on 2048 and Snake with the settings that `spo train --task X` chooses, five seeds, three times:

    plain             N = 16 particles, horizon 4
    4 outcomes        each step is scored by the mean of 4 outcomes (`spo.search.chance.sampled`), with N = 4
    shared outcomes   particles with the same action in the same state share outcomes (`chance.shared`), with N = 16

Each search takes N · M · h = 64 model steps. The horizon stays the same, because the searches should differ in how they
weigh luck, not in how far they look ahead. So four outcomes leave a quarter of the particles.

At test time, the last parameters of the plain runs are played with all three searches. Two more searches tell why:
plain with 4 particles, and 4 outcomes with 16 particles, which takes four times as many model steps. They are not
judged.

The final return is that of the best parameters, as in all claims. In the first runs these were mostly the untrained
ones, so parts about the last parameters were added, by the same rule. The interval on Snake at test time was wider than
the margin. So parts were added that play 16 times as many episodes, with other starts, by the same rule as well.

The number is the difference of the mean final return to that of plain, in shares of plain's. Its 95 % interval is
Welch's over seeds after training, and Student's of the paired differences at test time. Held if the interval lies above
-5 % on every game, and below 0 on none. Not held if plain is better on a game: the interval lies below 0.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from _claims import Claim, Finding, Outcome, Setup, main
from _rivals import compare_runs, scores_json
from _runs import origin_of, run_name, train_all, with_settings
from _tasks import NUM_SEEDS
from matplotlib.figure import Figure
from scipy import stats

from spo.networks.config import NetworkConfig
from spo.reports import comparison_figures, figures
from spo.reports.comparison import Comparison
from spo.reports.run_files import read_summary
from spo.reports.stats import Estimate, mean_interval
from spo.training.defaults import choose_experiment
from spo.training.experiment import EvaluationConfig
from spo.training.saved_learners import load_learner
from spo.training.trainer import Trainer

#: Search -> task -> mean return of each seed.
Returns: TypeAlias = dict[str, dict[str, list[float]]]

PLAIN = "plain"
RISK_NEUTRAL: dict[str, dict[str, Any]] = {
    "4 outcomes": {"num_particles": 4, "num_outcomes": 4},
    "shared outcomes": {"weighting": "shared_advantage"},
}
"""Risk-neutral searches: name -> settings that differ from the plain search."""
UNJUDGED: dict[str, dict[str, Any]] = {
    "plain, 4 particles": {"num_particles": 4},
    "16 particles, 4 outcomes": {"num_outcomes": 4},
}
"""Searches with other numbers of model steps, which are played at test time."""


class Parts(NamedTuple):
    """Names of the parts of the claim that judge one search."""

    best: str  # parameters, after training
    last: str
    test_time: str
    more_episodes: str  # at test time

    def played(self) -> tuple[str, ...]:
        """Returns the parts about test time, which the paper scale does not play."""
        return self.test_time, self.more_episodes


PARTS = {
    "4 outcomes": Parts("", "last parameters", "test time", "test time, more episodes"),
    "shared outcomes": Parts(
        "shared outcomes",
        "last parameters, shared outcomes",
        "test time, shared outcomes",
        "test time, more episodes, shared outcomes",
    ),
}
MORE_EPISODES = 16
"""Factor on the number of episodes in the last part."""
MARGIN = 0.05
"""Loss of return, as a share of plain's, that still counts as equally good."""
CLAIM = Claim(
    11,
    "chance",
    "Risk-neutral search on games of chance",
    "Beyond the paper: on 2048 and Snake, a risk-neutral search is at least as good as a plain one at equal model "
    "steps.",
    {
        part: ("smoke", "cpu") if part in parts.played() else ("smoke", "cpu", "paper")
        for kind in Parts._fields
        for parts in PARTS.values()
        for part in (getattr(parts, kind),)
    },
)


class Scale(NamedTuple):
    """Tasks with their options, and sizes."""

    tasks: dict[str, dict[str, Any]]
    steps: float | None  # None: as they are chosen for the task
    network: NetworkConfig | None  # None: as it is chosen for the task
    evaluation: EvaluationConfig
    test_episodes: int | None  # of each seed at test time; None: not played
    seed: int = 0  # the first one


_TASKS: dict[str, dict[str, Any]] = {"jumanji/game_2048": {}, "jumanji/snake": {"time_limit": 500}}
SCALES = {
    "smoke": Scale({"tiny/slippery": {}}, 256, NetworkConfig("mlp", 16, 1), EvaluationConfig(2, 8, 8), 8),
    "cpu": Scale(_TASKS, 3e4, NetworkConfig("mlp", 64, 2), EvaluationConfig(3, 8, 64), 64),
    # Trials before its first run, of Snake with shared outcomes, had the seeds 0 and 1.
    "paper": Scale(_TASKS, None, None, EvaluationConfig(5, 32, 128), None, seed=10),
}


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale, by "SEARCH on TASK"."""
    scale, found = SCALES[setup.scale], {}
    for task, options in chosen_tasks(setup).items():
        chosen = choose_experiment(task, "spo", scale.steps, task_options=options)
        plain = dataclasses.replace(
            with_settings(chosen, search={"unroll": 1}),
            network=scale.network or chosen.network,
            num_seeds=NUM_SEEDS[setup.scale],
            seed=scale.seed,
            evaluation=scale.evaluation,
        )
        found |= {f"{name} on {task}": searching(plain, name) for name in (PLAIN, *chosen_searches(setup))}
    return found


def chosen_searches(setup: Setup) -> tuple[str, ...]:
    """Returns the names of the risk-neutral searches to judge."""
    return setup.against or tuple(RISK_NEUTRAL)


def chosen_tasks(setup: Setup) -> dict[str, dict[str, Any]]:
    """Returns the tasks to train on, with their options."""
    tasks = SCALES[setup.scale].tasks
    return {task: tasks[task] for task in setup.tasks or tasks}


def searching(plain: Any, name: str) -> Any:
    """Returns the experiment with the search of this name."""
    return with_settings(plain, search=(RISK_NEUTRAL | UNJUDGED).get(name, {}))


def find(setup: Setup) -> list[Finding]:
    """Trains with all searches, plays the plain networks with all searches, and judges both."""
    experiments = runs(setup)
    folders = train_all(setup, experiments)
    before = {name: untrained_seeds(folder) for name, folder in folders.items()}
    findings = judge_training(setup, folders, before)
    if SCALES[setup.scale].test_episodes is not None:
        findings += judge_test_time(setup, folders)
    shared = {
        "model steps of a search": {name: run.config.search.model_steps for name, run in experiments.items()},
        "seeds whose best parameters are untrained": before,
    }
    origin = origin_of(folders.values())
    return [finding._replace(details=shared | dict(finding.details), origin=origin) for finding in findings]


def judge_training(setup: Setup, folders: Mapping[str, pathlib.Path], untrained: Mapping[str, int]) -> list[Finding]:
    """Judges the best and the last parameters after training with each search."""
    comparison, judgement = compare_runs(folders)
    searches = chosen_searches(setup)
    best, last = final_returns(comparison, searches)
    warning = (
        f" The best parameters are those before training in {sum(untrained.values())} of "
        f"{len(comparison.results)} seeds."
    )
    findings = []
    for name in searches:
        of_best = judge(name, differences(best, name, paired=False), "with the best parameters after training with it")
        of_last = judge(name, differences(last, name, paired=False), "with the last parameters after training with it")
        details = scores_json(comparison, judgement)
        findings += [
            of_best._replace(part=PARTS[name].best, sentence=of_best.sentence + warning, details=details),
            of_last._replace(part=PARTS[name].last, details=per_seed(last, PLAIN, name)),
        ]
    findings[0] = findings[0]._replace(figure=comparison_figures.learning_curves(comparison, judgement))
    return findings


def judge_test_time(setup: Setup, folders: Mapping[str, pathlib.Path]) -> list[Finding]:
    """Judges the searches at test time, with the networks of plain: with few episodes, then with more of them."""
    searches, others = chosen_searches(setup), () if setup.against else tuple(UNJUDGED)
    few = SCALES[setup.scale].test_episodes
    assert few is not None
    played = play_all(setup, folders, (PLAIN, *searches, *others), few, seed=11)
    more = play_all(setup, folders, (PLAIN, *searches), MORE_EPISODES * few, seed=12)
    found = {name: differences(played, name, paired=True) for name in (*searches, *others)}
    not_judged = {name: {task: list(estimate) for task, estimate in found[name].items()} for name in others}
    findings = []
    for name in searches:
        of_few = judge(name, found[name], "at test time, with the networks of plain")
        when = f"at test time, with the networks of plain and {MORE_EPISODES * few} episodes of each"
        of_more = judge(name, differences(more, name, paired=True), when)
        details = per_seed(played, PLAIN, name, *others) | {"not judged": not_judged}
        findings += [
            of_few._replace(part=PARTS[name].test_time, details=details),
            of_more._replace(part=PARTS[name].more_episodes, details=per_seed(more, PLAIN, name)),
        ]
    findings[0] = findings[0]._replace(figure=draw(found))
    return findings


def per_seed(returns: Returns, *names: str) -> dict[str, Any]:
    """Returns the details of a finding: the return of each seed with these searches."""
    return {"return per seed": {name: returns[name] for name in names}}


def final_returns(comparison: Comparison, searches: Sequence[str]) -> tuple[Returns, Returns]:
    """Returns the final returns per seed with the best and with the last parameters, by search and task."""
    best: Returns = {name: {} for name in (PLAIN, *searches)}
    last: Returns = {name: {} for name in (PLAIN, *searches)}
    for name, task in itertools.product(best, comparison.tasks):
        results = comparison.results_of(name, task)
        best[name][task] = [result.score for result in results]
        last[name][task] = [result.run.finals[result.seed]["metrics"]["last/return"] for result in results]
    return best, last


def untrained_seeds(folder: pathlib.Path) -> int:
    """Returns the number of seeds of a run whose best parameters are those before training."""
    summary = read_summary(folder)
    assert summary is not None
    return sum(steps == 0 for steps in summary["best_env_steps_per_seed"])


def play_all(
    setup: Setup, folders: Mapping[str, pathlib.Path], names: Sequence[str], num_episodes: int, seed: int
) -> Returns:
    """Plays the last parameters of the plain runs with these searches. Returns the returns per seed."""
    played: Returns = {name: {} for name in names}
    for task in chosen_tasks(setup):
        experiment, learner = load_learner(folders[f"{PLAIN} on {task}"], "last")
        for name in played:
            other = searching(experiment, name)
            stored = setup.runs / f"played-{num_episodes}-{run_name(other)}.json"
            played[name][task] = play(other, learner, num_episodes, seed, stored)
            print(f"  {name} in {num_episodes} episodes of {task}: {np.mean(played[name][task]):.4g}", flush=True)
    return played


def play(experiment: Any, learner: Any, num_episodes: int, seed: int, stored: pathlib.Path) -> list[float]:
    """Returns the mean return of each seed's learner, acting by the search of the experiment.

    An interrupted experiment reads what it has stored.
    """
    if stored.exists():
        return json.loads(stored.read_text("utf-8"))
    trainer = Trainer(experiment)
    # The same key, and so the same first states, for every search.
    episodes = trainer.evaluate(learner, jax.random.key(seed), num_episodes, use_search=True, greedy=False)
    returns = np.asarray(episodes.returns, float).mean(axis=1).tolist()
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps(returns), "utf-8")
    return returns


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
    difference = float(np.mean(a) - np.mean(b))
    if np.ptp(a) == np.ptp(b) == 0:  # no spread, no interval
        return difference, difference, difference
    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return difference, float(interval.low), float(interval.high)


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
    """Draws the intervals of all searches at test time, and the margin."""
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
    main(CLAIM, find, tasks=tuple(_TASKS), rivals=tuple(RISK_NEUTRAL))
