"""Claim 8: more particles and a longer horizon bring the search closer to a Monte-Carlo oracle.

The paper measures KL(oracle ‖ search) at the root in Sokoban. Its oracle uses 1 280 rollouts to the end of the episode
for every state and action. The KL falls with the number of particles N and with the horizon h. `_oracle` defines the
oracle and the smoothing of estimates. The search is the paper's: multinomial resampling after every fourth step, the
last one included. A search of fewer than four steps is not resampled.

Held if the KL falls with N and with h: both 95 % intervals over states are above zero. The first is of its fall from
the fewest particles to the most (mean over horizons), the second from the shortest horizon to the longest (mean over
N). Not held if either interval is below zero.

The parts "particles" and "horizon with N = ..." have a verdict each, by the same rule: the fall with N, and the fall
with h for each N alone. Few particles over a long horizon can hurt, so they may differ.

    scale    task
    paper    Boxoban, or generated levels of the same size if its levels are not downloaded. The network is a smaller
             ResNet than the paper's, because the rollouts evaluate it 40 million times.
    cpu      small generated levels with one box
    smoke    a tree with a few nodes

A file boxoban.npz replaces training, see `_trained`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from _claims import Claim, Finding, Setup, decide_by_intervals, main
from _oracle import JUDGED, Distances, Oracle, fixed_roots, format_estimate, make_oracle, mean_over_states, measure
from _runs import with_settings
from _trained import Trained, trained_run
from matplotlib.figure import Figure

from spo import environments, presets
from spo.acting import run_episodes
from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig, make_spo
from spo.networks.config import NetworkConfig
from spo.reports import figures
from spo.reports.stats import Curve, Estimate, Interval, share_interval
from spo.training.experiment import EvaluationConfig, Experiment

_SCALES = ("smoke", "cpu", "paper")
CLAIM = Claim(
    8,
    "kl_to_oracle",
    "Closer to a Monte-Carlo oracle with N and h",
    "The KL from a Monte-Carlo oracle to the search's root estimate falls with particles and with the horizon.",
    {"": _SCALES, "particles": _SCALES}
    | {f"horizon with N = {n}": ("cpu", "paper") for n in (4, 16, 64)}
    | {"horizon with N = 256": ("paper",)},
)


class Scale(NamedTuple):
    """Sizes of the experiment."""

    num_episodes: int  # that measure the share of levels that the network solves
    num_states: int
    longest_walk: int  # largest number of steps from the start of an episode to a state
    num_rollouts: int
    num_searches: int
    particles: tuple[int, ...]
    horizons: tuple[int, ...]


SCALES = {
    "smoke": Scale(
        num_episodes=64,
        num_states=8,
        longest_walk=1,
        num_rollouts=32,
        num_searches=16,
        particles=(4, 32),
        horizons=(1, 2),
    ),
    "cpu": Scale(
        num_episodes=256,
        num_states=64,
        longest_walk=8,
        num_rollouts=256,
        num_searches=32,
        particles=(4, 16, 64),
        horizons=(1, 2, 4, 8),
    ),
    "paper": Scale(
        num_episodes=1280,
        num_states=64,
        longest_walk=24,
        num_rollouts=1280,
        num_searches=64,
        particles=(4, 16, 64, 256),
        horizons=(1, 2, 4, 8),
    ),
}


def boxoban_experiment(scale: str) -> Experiment:
    """Returns the run that trains the network of a scale."""
    if scale == "paper":
        return _paper_experiment()
    return SMOKE_EXPERIMENT if scale == "smoke" else CPU_EXPERIMENT


SMOKE_EXPERIMENT = Experiment(
    task="tiny/tree",
    steps=1024,
    logs_per_evaluation=1,
    config=SPOConfig(
        num_envs=8,
        rollout_length=4,
        sequence_length=4,
        batch_size=8,
        num_updates=4,
        replay_size=256,
        search=SearchConfig(4, horizon=2, resample_period=2, unroll=1, **presets.PAPER_INFERENCE),
    ),
    network=NetworkConfig(width=16, depth=1),
    evaluation=EvaluationConfig(num_evaluations=2, episodes=64, final_episodes=64),
)
CPU_EXPERIMENT = Experiment(
    task="sokoban/generated",
    task_options={"size": 7, "num_boxes": 1, "num_pulls": 12, "time_limit": 30},
    steps=1e5,
    config=SPOConfig(
        num_envs=64,
        rollout_length=16,
        sequence_length=16,
        batch_size=32,
        num_updates=8,
        replay_size=32_768,
        learning_rate=1e-3,
        dual_learning_rate=5e-3,
        gamma=0.97,
        trust_region=False,
        root_exploration_weight=0.0,
        search=SearchConfig(num_particles=8, unroll=1, **presets.PAPER_INFERENCE),
    ),
    network=NetworkConfig(channels=(16,)),
    evaluation=EvaluationConfig(num_evaluations=5, final_episodes=256),
)


def _paper_experiment() -> Experiment:
    """Returns a run with the settings that solve the most levels in the fewest steps."""
    task, options = boxoban_or_generated()
    return dataclasses.replace(
        with_settings(
            presets.get("paper/boxoban"),
            num_updates=64,
            decay_learning_rates=True,
            dual_learning_rate=1e-3,
            gamma=0.97,
            kl_bound=1e-2,
            correct_root_exploration=True,
            search={"resample_last": False},
        ),
        task=task,
        task_options=options,
        steps=2e7,
        network=NetworkConfig(channels=(32, 32), dtype="bfloat16"),
    )


def boxoban_or_generated() -> tuple[str, dict[str, Any]]:
    """Returns the task and its options: the downloaded levels, evaluated on unfiltered-valid, or generated ones."""
    options = {"evaluation": "unfiltered-valid", "allow_partial": True}
    try:
        environments.make("boxoban/unfiltered", **options)
    except FileNotFoundError as error:
        print(f"{error} Generated levels are used instead.", flush=True)
        return "sokoban/generated", {}
    return "boxoban/unfiltered", options


def find(setup: Setup) -> list[Finding]:
    """Measures the KL of searches with every N and h from the same states of one network."""
    scale = SCALES[setup.scale]
    experiment, agent = trained_run(setup, "boxoban", boxoban_experiment(setup.scale))
    solved = solve_rates(agent, scale.num_episodes)
    key_states, key_oracle, key_search = jax.random.split(jax.random.key(1), 3)
    root = fixed_roots(agent, key_states, scale.num_states, scale.longest_walk)
    oracle = make_oracle(agent, root, key_oracle, scale.num_rollouts, max_steps=1000, cache=setup.runs / "oracle.npz")
    grid = {
        (num_particles, horizon): SearchConfig(
            num_particles, horizon, gamma=agent.config.search.gamma, **presets.PAPER_INFERENCE
        )
        for num_particles in scale.particles
        for horizon in scale.horizons
    }
    distances = measure(agent, root, oracle, grid, key_search, scale.num_searches)
    judged = falls(scale, distances, JUDGED)
    weaker = min(judged, key=lambda name: judged[name].value)
    levels = experiment.task_options.get("evaluation", "generated")
    sentence = describe(scale, distances, oracle) + f" Network: {agent.words}"
    for how, rate in solved.items():
        percent = "{:.1f} % ({:.1f} to {:.1f})".format(*(100 * bound for bound in rate))
        sentence += f"; it solves {percent} of {levels} levels {how}"
    whole = Finding(
        verdict=decide_by_intervals(judged.values()),
        sentence=f"{sentence}.",
        number=judged[weaker].value,
        number_name=f"fall of the KL with {weaker}",
        interval=(judged[weaker].low, judged[weaker].high),
        details={"network": agent.words, "solved by the network": solved, "temperature": agent.temperature}
        | details(scale, distances, oracle),
        figure=draw(scale, distances, oracle.noise[JUDGED], agent.setting.task.train.name),
    )
    parts = {"particles": judged["N"]}
    parts |= {f"horizon with N = {n}": fall for n, fall in falls_with_horizon(scale, distances).items()}
    return [whole, *(find_part(part, fall) for part, fall in parts.items() if setup.scale in CLAIM.parts.get(part, ()))]


def find_part(part: str, fall: Estimate) -> Finding:
    """Returns the verdict about one fall of the KL."""
    return Finding(
        verdict=decide_by_intervals([fall]),
        sentence=f"The KL to the oracle {format_fall(fall)}.",
        part=part,
        number=fall.value,
        number_name="fall of the KL",
        interval=(fall.low, fall.high),
    )


def falls_with_horizon(scale: Scale, distances: dict[Any, Distances]) -> dict[int, Estimate]:
    """Returns N -> fall of the KL from the shortest horizon to the longest, paired state by state."""
    first, last = scale.horizons[0], scale.horizons[-1]
    return {
        n: mean_over_states(distances[n, first].kl[JUDGED] - distances[n, last].kl[JUDGED]) for n in scale.particles
    }


def describe(scale: Scale, distances: dict[Any, Distances], oracle: Oracle) -> str:
    """Returns the finding in words."""
    judged = falls(scale, distances, JUDGED)
    return (
        f"The KL to the oracle {format_fall(judged['N'])} from N = {scale.particles[0]} to {scale.particles[-1]} "
        f"and {format_fall(judged['h'])} from h = {scale.horizons[0]} to {scale.horizons[-1]}; with the most particles "
        f"it is least at h = {closest(scale, distances)}. Between the oracle's own halves it is "
        f"{oracle.noise[JUDGED].mean():.3g}."
    )


def details(scale: Scale, distances: dict[Any, Distances], oracle: Oracle) -> dict[str, Any]:
    """Returns all numbers of the finding as plain data."""
    by_reading = {reading: falls(scale, distances, reading) for reading in oracle.targets}
    return {
        "states": scale.num_states,
        "rollouts": scale.num_rollouts,
        "searches per state": scale.num_searches,
        "oracle's noise": {reading: mean_over_states(noise) for reading, noise in oracle.noise.items()},
        "fall": by_reading,
        "fall with h, by N": falls_with_horizon(scale, distances),
        "verdict by reading": {reading: decide_by_intervals(falls.values()) for reading, falls in by_reading.items()},
        "settings": [
            {
                "N": num_particles,
                "h": horizon,
                **{f"kl, {reading}": mean_over_states(kl) for reading, kl in distance.kl.items()},
                "total variation": mean_over_states(distance.total_variation[JUDGED]),
            }
            for (num_particles, horizon), distance in distances.items()
        ],
    }


def solve_rates(agent: Trained, num_episodes: int) -> dict[str, Interval]:
    """Returns the shares of evaluation levels that the network solves. Empty if the task cannot be solved."""
    algorithm = make_spo(agent.setting, agent.config)
    rates = {}
    for how, use_search in (("by the search of its training", True), ("by its policy alone", False)):
        act = functools.partial(algorithm.act, agent.learner, use_search=use_search, greedy=False)
        play = functools.partial(run_episodes, agent.setting.task.evaluation, act, num_episodes=num_episodes)
        solved = jax.jit(play)(jax.random.key(2)).metrics.get("solved")
        if solved is not None:
            rates[how] = share_interval(float(solved.mean()), num_episodes)
    return rates


def falls(scale: Scale, distances: dict[Any, Distances], reading: str) -> dict[str, Estimate]:
    """Returns the falls of the KL: from the fewest particles to the most, and from the shortest horizon to the longest.

    They are means over states, paired state by state.
    """
    kl = np.array([[distances[n, h].kl[reading] for h in scale.horizons] for n in scale.particles])  # [N, h, S]
    return {
        "N": mean_over_states((kl[0] - kl[-1]).mean(axis=0)),
        "h": mean_over_states((kl[:, 0] - kl[:, -1]).mean(axis=0)),
    }


def format_fall(fall: Estimate) -> str:
    """Formats a fall of the KL, or a rise if it is negative."""
    if fall.value >= 0:
        return f"falls by {format_estimate(fall)} nats"
    return f"rises by {format_estimate(Estimate(-fall.value, -fall.high, -fall.low))} nats"


def closest(scale: Scale, distances: dict[Any, Distances]) -> int:
    """Returns the horizon of the least KL, with the most particles."""
    return min(scale.horizons, key=lambda horizon: distances[scale.particles[-1], horizon].kl[JUDGED].mean())


def draw(scale: Scale, distances: dict[Any, Distances], noise: np.ndarray, task: str) -> Figure:
    """Draws the KL over the number of particles, one curve per horizon."""
    with figures.style():
        figure = figures.new_figure(6.4, 3.9)
        axes = figure.add_subplot()
        particles = np.array(scale.particles)
        for horizon, colour in zip(scale.horizons, figures.PALETTE, strict=False):
            kls = [mean_over_states(distances[n, horizon].kl[JUDGED]) for n in scale.particles]
            curve = Curve(particles, Estimate(*np.array(kls).T))
            figures.draw_curve(axes, curve, colour, label=f"h = {horizon}", marker="o")
        axes.axhline(noise.mean(), color=figures.MUTED, lw=1, ls=(0, (3, 3)))
        axes.annotate(
            "between the halves of the oracle",
            (1, noise.mean()),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=7.5,
            color=figures.MUTED,
        )
        title = f"{task}, {scale.num_states} states"
        axes.set(xscale="log", xlabel="particles N", ylabel="KL(oracle ‖ search) in nats", title=title)
        axes.set_xticks(scale.particles, [str(n) for n in scale.particles])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.legend(ncols=2)
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
