"""Claim 9: the ELBO rises with every expectation and every maximisation step (Proposition 1), if steps are exact.

On random tabular MDPs every step is exact, in 64 bits. J(q, π) is the discounted return of q from a uniform start, with
a cost of α KL(q ‖ π) in every step. One round is

    E   q ∝ π exp(Q/α), with Q of the last q and its KL, as in the paper
    M   the π of a family with the greatest E_q[log π], states weighted by their discounted visits under q

There are three families, each with an M-step in closed form:

    any policy          π = q
    trust region        the maximum of E_q[log π] − λ KL(π_old ‖ π), a mixture of q and π_old
    groups of states    one distribution for all states of a group, so π cannot equal q

Held if no step of any MDP loses more than rounding, 1e-10 of |J| + 1. The interval is Wilson's, of the share of random
MDPs in which some step does.
"""

from typing import NamedTuple

import numpy as np
import scipy.special
from _claims import Claim, Finding, Setup, main
from matplotlib.figure import Figure

from spo.reports import figures
from spo.reports.stats import Curve, Estimate, share_interval

CLAIM = Claim(
    9,
    "elbo",
    "The ELBO rises with every step",
    "With exact expectation and maximisation steps the ELBO never falls (Proposition 1).",
)
NUM_MDPS = {"smoke": 3, "cpu": 100, "paper": 1000}
NUM_STATES, NUM_ACTIONS, NUM_GROUPS = 8, 4, 3
NUM_ROUNDS = 40
TRUST_REGION = 4.0  # λ
TOLERANCE = 1e-10
FAMILIES = ("any policy", "trust region", "groups of states")


class MDPs(NamedTuple):
    """M random MDPs without terminal states, each with its own γ and α."""

    transitions: np.ndarray  # [M, S, A, S]
    rewards: np.ndarray  # [M, S, A]
    gamma: np.ndarray  # [M, 1, 1]
    alpha: np.ndarray  # [M, 1, 1]


def random_mdps(seed: int, count: int) -> MDPs:
    """Draws transitions from a Dirichlet and rewards from a normal distribution."""
    rng = np.random.default_rng(seed)
    pairs = (count, NUM_STATES, NUM_ACTIONS)
    return MDPs(
        transitions=rng.dirichlet(np.full(NUM_STATES, 0.3), pairs),
        rewards=rng.normal(size=pairs),
        gamma=rng.uniform(0.5, 0.98, (count, 1, 1)),
        alpha=np.exp(rng.uniform(np.log(0.05), np.log(2.0), (count, 1, 1))),
    )


def discounted_transitions(mdps: MDPs, q: np.ndarray) -> np.ndarray:
    """Returns γ · P(next state | state) under q, [M, S, S]."""
    return mdps.gamma * np.einsum("msa,msat->mst", q, mdps.transitions)


def values(mdps: MDPs, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns V^q [M, S] with the cost α KL(q ‖ π) in every step. Its mean over states is J(q, π)."""
    payoff = q * mdps.rewards - mdps.alpha * scipy.special.rel_entr(q, policy)
    system = np.eye(NUM_STATES) - discounted_transitions(mdps, q)
    return np.linalg.solve(system, payoff.sum(axis=2)[..., None])[..., 0]


def e_step(mdps: MDPs, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns π exp(Q/α), normalised."""
    future = np.einsum("msat,mt->msa", mdps.transitions, values(mdps, q, policy))
    return scipy.special.softmax(np.log(policy) + (mdps.rewards + mdps.gamma * future) / mdps.alpha, axis=2)


def m_step(family: str, mdps: MDPs, q: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Returns the policy of the family with the greatest E_q[log π]."""
    if family == "any policy":
        return np.maximum(q, 1e-300)  # keeps logarithms finite
    if family == "trust region":
        return (q + TRUST_REGION * policy) / (1 + TRUST_REGION)
    # The mean of q over the states of a group, weighted by discounted visits.
    system = np.eye(NUM_STATES) - np.swapaxes(discounted_transitions(mdps, q), 1, 2)
    visits = np.linalg.solve(system, np.full((len(q), NUM_STATES, 1), 1 / NUM_STATES))
    group = np.arange(NUM_STATES) % NUM_GROUPS
    same = group[:, None] == group[None, :]
    return np.maximum(np.einsum("st,mta->msa", same, visits * q) / np.einsum("st,mto->mso", same, visits), 1e-300)


def climb(family: str, mdps: MDPs) -> np.ndarray:
    """Returns J [M, 1 + 2 · rounds] after every E- and M-step, starting with a uniform policy."""
    policy = q = np.full(mdps.rewards.shape, 1 / NUM_ACTIONS)
    objective = [values(mdps, q, policy).mean(axis=1)]
    for _ in range(NUM_ROUNDS):
        q = e_step(mdps, q, policy)
        objective.append(values(mdps, q, policy).mean(axis=1))
        policy = m_step(family, mdps, q, policy)
        objective.append(values(mdps, q, policy).mean(axis=1))
    return np.stack(objective, axis=1)


def find(setup: Setup) -> Finding:
    """Takes exact steps in random MDPs and counts those in which the ELBO falls."""
    mdps = random_mdps(seed=0, count=NUM_MDPS[setup.scale])
    curves = {family: climb(family, mdps) for family in FAMILIES}
    # Fall of each step in units of |J| + 1. A rise is negative.
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
    """Draws the median rise of J over the MDPs, with the range from 5 to 95 %."""
    with figures.style():
        figure = figures.new_figure(6.4, 3.6)
        axes = figure.add_subplot()
        for (family, curve), colour in zip(curves.items(), figures.PALETTE, strict=False):
            rise = (curve - curve[:, :1]) / np.max([c[:, -1] - c[:, 0] for c in curves.values()], axis=0)[:, None]
            rounds = np.arange(rise.shape[1]) / 2
            low, median, high = np.percentile(rise, [5, 50, 95], axis=0)
            figures.draw_curve(axes, Curve(rounds, Estimate(median, low, high)), colour, label=family)
        axes.set(
            xlabel="rounds of one E- and one M-step",
            ylabel="rise of the ELBO\n(share of the MDP's largest)",
            title=f"Exact steps in {len(curve)} random MDPs: median and 5 to 95 %",
            xlim=(0, NUM_ROUNDS),
        )
        axes.legend(loc="lower right")
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
