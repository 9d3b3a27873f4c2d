"""Claim 9: the ELBO rises with every expectation and every maximisation step (Proposition 1), if steps are exact.

On random tabular MDPs everything is exact, in 64 bits. J(q, π) is the return of q from a uniform start, each step
paying α KL(q ‖ π); a step is worth γ of the one before it. One round is

    E   q ∝ π exp(Q/α), with Q that of the last q and its KL: the line of the paper
    M   the π of its family with the greatest E_q[log π], states weighted by how often q is there

for three families, each with an M-step in closed form: any policy (π = q); any policy, held back by a trust region
(the maximum of E_q[log π] − λ KL(π_old ‖ π) is a mixture); a policy that has to do the same in groups of states, and
therefore can't be q.

Held if no step of any MDP loses more than rounding, 1e-10 of |J| + 1. The interval is Wilson's, for the share of random
MDPs in which some step does.
"""

from typing import NamedTuple

import matplotlib
import numpy as np
import scipy.special
from _claims import Claim, Finding, Setup, main
from matplotlib.figure import Figure

from spo.reports import figures
from spo.reports.statistics import share_interval

CLAIM = Claim(
    9,
    "elbo",
    "The ELBO rises with every step",
    "With exact expectation and maximisation steps the ELBO never falls (Proposition 1).",
)
NUM_WORLDS = {"smoke": 3, "cpu": 100, "paper": 1000}
NUM_STATES, NUM_ACTIONS, NUM_GROUPS = 8, 4, 3
NUM_ROUNDS = 40
HELD_BACK = 4.0  # λ of the trust region
TOLERANCE = 1e-10
FAMILIES = ("any policy", "trust region", "groups of states")


class Worlds(NamedTuple):
    """M random MDPs without ends, each with its own γ and α."""

    transitions: np.ndarray  # [M, S, A, S]
    rewards: np.ndarray  # [M, S, A]
    gamma: np.ndarray  # [M, 1, 1]
    alpha: np.ndarray  # [M, 1, 1]


def random_worlds(seed: int, count: int) -> Worlds:
    rng = np.random.default_rng(seed)
    pairs = (count, NUM_STATES, NUM_ACTIONS)
    return Worlds(
        transitions=rng.dirichlet(np.full(NUM_STATES, 0.3), pairs),
        rewards=rng.normal(size=pairs),
        gamma=rng.uniform(0.5, 0.98, (count, 1, 1)),
        alpha=np.exp(rng.uniform(np.log(0.05), np.log(2.0), (count, 1, 1))),
    )


def expected_moves(worlds: Worlds, q: np.ndarray) -> np.ndarray:
    """γ · P(next state | state) under q, [M, S, S]."""
    return worlds.gamma * np.einsum("msa,msat->mst", q, worlds.transitions)


def values(worlds: Worlds, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """V^q [M, S] with the price α KL(q ‖ π) on every step. Its mean over states is J(q, π)."""
    pay = q * worlds.rewards - worlds.alpha * scipy.special.rel_entr(q, policy)
    system = np.eye(NUM_STATES) - expected_moves(worlds, q)
    return np.linalg.solve(system, pay.sum(axis=2)[..., None])[..., 0]


def e_step(worlds: Worlds, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    future = np.einsum("msat,mt->msa", worlds.transitions, values(worlds, q, policy))
    return scipy.special.softmax(np.log(policy) + (worlds.rewards + worlds.gamma * future) / worlds.alpha, axis=2)


def m_step(family: str, worlds: Worlds, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    if family == "any policy":
        return np.maximum(q, 1e-300)  # an action may become impossible, its logarithm may not
    if family == "trust region":
        return (q + HELD_BACK * policy) / (1 + HELD_BACK)
    # The same in all states of a group: the mean of q over them, by how often q is there.
    system = np.eye(NUM_STATES) - np.swapaxes(expected_moves(worlds, q), 1, 2)
    often = np.linalg.solve(system, np.full((len(q), NUM_STATES, 1), 1 / NUM_STATES))
    group = np.arange(NUM_STATES) % NUM_GROUPS
    same = group[:, None] == group[None, :]
    return np.maximum(np.einsum("st,mta->msa", same, often * q) / np.einsum("st,mto->mso", same, often), 1e-300)


def climb(family: str, worlds: Worlds) -> np.ndarray:
    """J [M, 1 + 2 · rounds] after every E- and M-step, from a uniform policy."""
    policy = q = np.full(worlds.rewards.shape, 1 / NUM_ACTIONS)
    objective = [values(worlds, q, policy).mean(axis=1)]
    for _ in range(NUM_ROUNDS):
        q = e_step(worlds, q, policy)
        objective.append(values(worlds, q, policy).mean(axis=1))
        policy = m_step(family, worlds, q, policy)
        objective.append(values(worlds, q, policy).mean(axis=1))
    return np.stack(objective, axis=1)


def find(setup: Setup) -> Finding:
    worlds = random_worlds(seed=0, count=NUM_WORLDS[setup.scale])
    curves = {family: climb(family, worlds) for family in FAMILIES}
    # Of each step, in units of |J| + 1: a fall is positive.
    falls = {family: -np.diff(curve) / (1 + np.abs(curve[:, 1:])) for family, curve in curves.items()}
    worst = max(float(fall.max()) for fall in falls.values())
    falling = np.any([fall.max(axis=1) > TOLERANCE for fall in falls.values()], axis=0)
    share = share_interval(float(falling.mean()), len(falling))
    num_steps = sum(fall.size for fall in falls.values())
    return Finding(
        verdict="not held" if falling.any() else "held",
        sentence=f"In {len(falling)} random MDPs and {num_steps:,} exact steps the ELBO fell beyond rounding in "
        f"{int(falling.sum())} MDPs; the largest fall of a step was {max(worst, 0.0):.1e} of |J| + 1.",
        number=share.mean,
        number_name="share of MDPs in which a step loses",
        interval=(round(share.low, 6), round(share.high, 6)),
        details={
            "tolerance": TOLERANCE,
            "rounds": NUM_ROUNDS,
            "largest fall of a step": {family: float(fall.max()) for family, fall in falls.items()},
            "median rise in all": {f: float(np.median(curve[:, -1] - curve[:, 0])) for f, curve in curves.items()},
        },
        figure=draw(curves),
    )


def draw(curves: dict[str, np.ndarray]) -> Figure:
    """The rise of J in the middle of the MDPs, and in the middle 90 % of them."""
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for (family, curve), colour in zip(curves.items(), figures.PALETTE, strict=False):
            rise = (curve - curve[:, :1]) / np.max([c[:, -1] - c[:, 0] for c in curves.values()], axis=0)[:, None]
            rounds = np.arange(rise.shape[1]) / 2
            low, middle, high = np.percentile(rise, [5, 50, 95], axis=0)
            axes.plot(rounds, middle, color=colour, lw=1.8, label=family)
            axes.fill_between(rounds, low, high, color=colour, alpha=0.12, lw=0)
        axes.set(
            xlabel="rounds of one E- and one M-step",
            ylabel="rise of the ELBO\n(share of the MDP's greatest)",
            title=f"Exact steps in {len(curve)} random MDPs: median and 5 to 95 %",
            xlim=(0, NUM_ROUNDS),
        )
        axes.legend(loc="lower right")
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
