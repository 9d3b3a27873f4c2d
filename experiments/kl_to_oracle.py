"""Claim 8: more particles and a longer horizon bring the search closer to a Monte-Carlo oracle.

The paper measures KL(oracle ‖ search) at the root in Sokoban, with 1 280 rollouts to the end of the episode for every
state and action, and finds that it falls with the number of particles N and with the horizon h. `_oracle` says what
the oracle is and how estimates are smoothed. The search is the paper's: multinomial, resampled after every
fourth step, be it the last one; a search of fewer steps is not resampled.

Held if the 95 % intervals over states, of the KL's fall from the fewest particles to the most (mean over horizons) and
from the shortest horizon to the longest (mean over N), are both above zero; not held if either is below zero.

Worlds. paper: Boxoban where its levels are found, else generated levels of the same size; a smaller ResNet than the
paper's, since the rollouts are 40 million evaluations of it, trained by what solves most levels soonest and judged on
unfiltered-valid. cpu: small generated levels with one box. smoke: a tree of a few nodes. boxoban.npz takes the place of
training, see `_trained`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
from _claims import HELD, Claim, Finding, Setup, main, with_settings
from _oracle import JUDGED, Distances, fixed_roots, in_words, make_oracle, mean_over_states, measure
from _trained import Trained, trained_run
from matplotlib.figure import Figure

from spo import environments, presets
from spo.acting import run_episodes
from spo.algorithms.spo import SearchConfig, SPOConfig, make_spo
from spo.networks.config import NetworkConfig
from spo.reports import figures
from spo.reports.statistics import Estimate, Interval, share_interval
from spo.training.experiment import EvaluationConfig, Experiment

CLAIM = Claim(
    8,
    "kl_to_oracle",
    "Closer to a Monte-Carlo oracle with N and h",
    "The KL from a Monte-Carlo oracle to the search's root estimate falls with particles and with the horizon.",
)


class Scale(NamedTuple):
    num_episodes: int  # to see how much the network solves
    num_states: int
    longest_walk: int  # states are met up to so many steps into an episode
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
    """One run: of the paper's world; of one that two cores learn in minutes; of one that shows that it runs."""
    if scale == "smoke":
        return Experiment(
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
    if scale == "cpu":
        return Experiment(
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
    """The task and its options: the public levels that are here, judged on unfiltered-valid, or else generated ones."""
    options = {"evaluation": "unfiltered-valid", "allow_partial": True}
    try:
        environments.make("boxoban/unfiltered", **options)
    except FileNotFoundError as error:
        print(f"{error} It is taken now.", flush=True)
        return "sokoban/generated", {}
    return "boxoban/unfiltered", options


def find(setup: Setup) -> Finding:
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
    by_reading = {reading: falls(scale, distances, reading) for reading in oracle.targets}
    judged = by_reading[JUDGED]
    weaker = min(judged, key=lambda name: judged[name][0])
    return Finding(
        verdict=judge(judged),
        sentence=f"The KL to the oracle {in_fall(judged['N'])} from N = {scale.particles[0]} to {scale.particles[-1]} "
        f"and {in_fall(judged['h'])} from h = {scale.horizons[0]} to {scale.horizons[-1]}; with the most particles it "
        f"is least at h = {closest(scale, distances)}. Between the oracle's own halves it is "
        f"{oracle.noise[JUDGED].mean():.3g}. Network: {agent.words}"
        + "".join(
            f"; it solves {100 * rate.mean:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f}) of "
            f"{experiment.task_options.get('evaluation', 'generated')} levels {how}"
            for how, rate in solved.items()
        )
        + ".",
        number=judged[weaker][0],
        number_name=f"fall of the KL with {weaker}",
        interval=judged[weaker][1:],
        details={
            "network": agent.words,
            "solved by the network": solved,
            "temperature": agent.temperature,
            "states": scale.num_states,
            "rollouts": scale.num_rollouts,
            "searches per state": scale.num_searches,
            "oracle's noise": {reading: mean_over_states(noise) for reading, noise in oracle.noise.items()},
            "fall": by_reading,
            "fall with h, by N": {
                n: mean_over_states(
                    distances[n, scale.horizons[0]].kl[JUDGED] - distances[n, scale.horizons[-1]].kl[JUDGED]
                )
                for n in scale.particles
            },
            "verdict by reading": {reading: judge(falls) for reading, falls in by_reading.items()},
            "settings": [
                {
                    "N": num_particles,
                    "h": horizon,
                    **{f"kl, {reading}": mean_over_states(kl) for reading, kl in distance.kl.items()},
                    "total variation": mean_over_states(distance.total_variation[JUDGED]),
                }
                for (num_particles, horizon), distance in distances.items()
            ],
        },
        figure=draw(scale, distances, oracle.noise[JUDGED], agent.setting.task.train.name),
    )


def solve_rates(agent: Trained, num_episodes: int) -> dict[str, Interval]:
    """Of the evaluation levels, those that the network solves, with 95 % intervals; none where none can be."""
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
    """How much less the KL is, state by state, at the most particles and at the longest horizon."""
    kl = np.array([[distances[n, h].kl[reading] for h in scale.horizons] for n in scale.particles])  # [N, h, S]
    return {
        "N": mean_over_states((kl[0] - kl[-1]).mean(axis=0)),
        "h": mean_over_states((kl[:, 0] - kl[:, -1]).mean(axis=0)),
    }


def in_fall(fall: Estimate) -> str:
    value, low, high = fall
    return (
        f"falls by {in_words(fall)} nats" if value >= 0 else f"rises by {in_words(Estimate(-value, -high, -low))} nats"
    )


def closest(scale: Scale, distances: dict[Any, Distances]) -> int:
    """The horizon of the least KL, with the most particles."""
    return min(scale.horizons, key=lambda horizon: distances[scale.particles[-1], horizon].kl[JUDGED].mean())


def judge(falls: dict[str, Estimate]) -> HELD:
    if all(low > 0 for _, low, _ in falls.values()):
        return "held"
    return "not held" if any(high < 0 for *_, high in falls.values()) else "undecided"


def draw(scale: Scale, distances: dict[Any, Distances], noise: np.ndarray, world: str) -> Figure:
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(6.4, 3.9), layout="constrained")
        axes = figure.subplots()
        for horizon, colour in zip(scale.horizons, figures.PALETTE, strict=False):
            kls = np.array([mean_over_states(distances[n, horizon].kl[JUDGED]) for n in scale.particles])
            axes.plot(scale.particles, kls[:, 0], "o-", color=colour, lw=1.8, ms=4, label=f"h = {horizon}")
            axes.fill_between(scale.particles, kls[:, 1], kls[:, 2], color=colour, alpha=0.12, lw=0)
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
        axes.set(
            xscale="log",
            xlabel="particles N",
            ylabel="KL(oracle ‖ search) in nats",
            title=f"{world}, {scale.num_states} states",
        )
        axes.set_xticks(scale.particles, [str(n) for n in scale.particles])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.legend(ncols=2)
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
