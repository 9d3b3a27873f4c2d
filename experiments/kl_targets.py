"""Claim 6: the KL between the search's policy and the prior reaches its target.

The target ε_η limits how much a search may improve the policy. Training adapts the temperature to it. The paper shows
the KL at its target for several targets. The experiment takes the mean KL over the last part of training, with its 95 %
interval between seeds. Held if that interval is within 15 % of the target, for every target.

The second part is about the scores, on Ant: "larger targets are better" is held if the largest target is better than
the smallest one, and not held if the smallest one is better than the largest one.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
from _claims import SCALES, Claim, Finding, Outcome, Setup, main
from _rivals import better_than_each, compare_runs, scores_json
from _runs import origin_of, train_all, with_settings
from _tasks import ablated, cube
from matplotlib.figure import Figure

from spo.reports import figures
from spo.reports.runs import load_run
from spo.reports.stats import Curve, Estimate, Interval, mean_interval

LARGER = "larger targets are better"
CLAIM = Claim(
    6,
    "kl_targets",
    "The KL follows its target",
    "The KL to the prior follows the target ε, for several targets.",
    {"": SCALES, LARGER: ("core", "paper")},
)
_PAPER = [0.05, 0.1, 0.2, 0.5]
TARGETS = {"smoke": [0.5], "cpu": [0.1, 0.2, 0.5, 1.0], "core": _PAPER, "paper": _PAPER}
TOLERANCE = 0.15
LAST = 0.3
"""Last part of training that counts."""


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale by name."""
    start = ablated(setup.scale) if setup.scale in ("core", "paper") else settling_cube(setup.scale)
    return {name: with_settings(start, temperature_kl_bound=target) for name, target in targets(setup).items()}


def targets(setup: Setup) -> dict[str, float]:
    """Returns the targets of a scale by name."""
    return {f"ε {target:g}": target for target in TARGETS[setup.scale]}


def find(setup: Setup) -> list[Finding]:
    """Trains with every target, compares the KL at the end of training with it, and the scores with each other."""
    folders = train_all(setup, runs(setup))
    comparison, judgement = compare_runs(folders)
    findings = [find_ratios(folders, targets(setup), scores_json(comparison, judgement))]
    if setup.scale in CLAIM.parts[LARGER]:
        smallest, *_, largest = targets(setup)
        larger = better_than_each(comparison, judgement, largest, [smallest])
        findings.append(larger._replace(part=LARGER))
    return findings


def find_ratios(folders: dict[str, pathlib.Path], targets: dict[str, float], scores: dict[str, Any]) -> Finding:
    """Compares the KL at the end of training with the targets."""
    curves = {name: kl_curves(folder) for name, folder in folders.items()}
    ratios = {name: final_ratio(kls, targets[name]) for name, (_, kls) in curves.items()}
    off = {name: max(abs(low - 1), abs(high - 1)) for name, (_, low, high) in ratios.items()}
    worst = max(off, key=lambda name: off[name])
    means = ", ".join(f"{target:g}: {ratios[name].mean * target:.3f}" for name, target in targets.items())
    return Finding(
        verdict=decide(ratios),
        sentence=f"Target and mean KL: {means}. The furthest from its target, relative to it, is {worst}.",
        number=ratios[worst].mean,
        number_name=f"KL / target for {worst}",
        interval=(ratios[worst].low, ratios[worst].high),
        details={"kl over target": ratios} | scores,
        figure=draw(curves, targets),
        origin=origin_of(folders.values()),
    )


def decide(ratios: dict[str, Interval]) -> Outcome:
    """Applies the rule at the top of this file to the intervals of KL / target."""
    if all(max(abs(low - 1), abs(high - 1)) <= TOLERANCE for _, low, high in ratios.values()):
        return "held"
    outside = any(low > 1 + TOLERANCE or high < 1 - TOLERANCE for _, low, high in ratios.values())
    return "not held" if outside else "undecided"


def settling_cube(scale: str) -> Any:
    """Returns a short run on the cube in which the temperature can settle.

    It has a higher learning rate of the temperature. Its replay contains four rollouts, as in the paper: the replay of
    the small preset contains nearly all of the run, so the temperature would adapt to old searches. Its cubes have more
    scrambles than those of the small preset: on easy cubes little is left to improve, and no temperature has a KL of 1.
    """
    start = cube(scale)
    if scale == "cpu":
        start = dataclasses.replace(start, task_options={"min_scrambles": 4, "max_scrambles": 6, "eval_scrambles": 5})
    four_rollouts = 4 * start.config.num_envs * start.config.rollout_length
    return with_settings(start, dual_learning_rate=3e-2, replay_size=four_rollouts)


def kl_curves(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the environment steps [T] and the KL of the search [seed, T] of a run's training records."""
    by_seed = list(load_run(folder).training.values())
    kls = [[record["metrics"]["search/kl"] for record in records] for records in by_seed]
    return np.array([record["env_steps"] for record in by_seed[0]]), np.array(kls)


def final_ratio(kls: np.ndarray, target: float) -> Interval:
    """Returns the mean of KL / target over the last part of training, with its interval between seeds."""
    last = kls[:, -max(1, round(LAST * kls.shape[1])) :]
    return mean_interval((last.mean(axis=1) / target).tolist())


def draw(curves: dict[str, tuple[np.ndarray, np.ndarray]], targets: dict[str, float]) -> Figure:
    """Draws the mean KL over seeds, their range, and the targets as dotted lines."""
    with figures.style():
        figure = figures.new_figure(6.4, 4.0)
        axes = figure.add_subplot()
        for (name, (steps, kls)), colour in zip(curves.items(), figures.PALETTE, strict=False):
            seeds = Estimate(kls.mean(axis=0), kls.min(axis=0), kls.max(axis=0))
            figures.draw_curve(axes, Curve(steps, seeds), colour, label=name)
            axes.axhline(targets[name], color=colour, ls=":", lw=1)
        axes.set(xlabel="environment steps", ylabel="KL(search ‖ prior) in nats", yscale="log", title="KL per target")
        figures.format_steps(axes)
        axes.legend(title="target")
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
