"""Claim 3: more search in training helps, in particles N and in horizon h.

The paper trains with grids of N and h on its continuous environments. Performance rises with both. A long horizon with
few particles can hurt, because their weights collapse. A quarter of the budget stays competitive. Here particles are
resampled once, at the end of the horizon (resample_period = h), so only N and h differ.

Held if the full budget is better than the smallest one, and no budget N h below the full one is better than it. Budgets
that are as large or larger are reported, but do not change the verdict: if they are better, they support the claim.
"""

from _claims import Claim, Finding, Outcome, Setup, main
from _rivals import Family, against_each, compare_runs, scores_json
from _runs import origin_of, train_all, with_settings
from _tasks import continuous, cube

from spo.reports import comparison_figures
from spo.reports.stats import format_p_value

CLAIM = Claim(
    3,
    "training_scaling",
    "Scaling the search in training",
    "Performance grows with particles and horizon; a quarter of the budget stays competitive.",
)
GRIDS = {
    "smoke": [(2, 1), (4, 2)],
    "cpu": [(4, 1), (4, 4), (16, 1), (4, 16), (16, 4)],
    "paper": [(4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (16, 1), (16, 2), (16, 8), (32, 4), (16, 4)],
}
"""Pairs (N, h): the smallest budget first, the full one last. On Ant at the paper scale, on the cube at the others."""


def find(setup: Setup) -> Finding:
    """Trains with every budget and compares the full one with each of the others."""
    start = continuous("paper", "paper/ant") if setup.scale == "paper" else cube(setup.scale)
    grid = {f"{n}x{h}": (n, h) for n, h in GRIDS[setup.scale]}
    runs = {
        name: with_settings(start, search={"num_particles": n, "horizon": h, "resample_period": h, "unroll": 1})
        for name, (n, h) in grid.items()
    }
    folders = train_all(setup, runs)
    comparison, judgement = compare_runs(folders)
    smallest, *_, full = grid
    budgets = {name: n * h for name, (n, h) in grid.items()}
    below = against_each(comparison, full, [name for name in grid if budgets[name] < budgets[full]])
    others = against_each(comparison, full, [name for name in grid if name != full and name not in below.verdicts])
    first = below.verdicts[smallest]
    return Finding(
        verdict=decide(below, smallest),
        sentence=describe(below, others, smallest),
        number=first.probability.value,
        number_name=f"P({full} > {smallest})",
        interval=(first.probability.low, first.probability.high),
        details=scores_json(judgement) | {"against": below.to_json(), "not judged": others.to_json()},
        figure=comparison_figures.final_scores(comparison, judgement),
        origin=origin_of(folders.values()),
    )


def decide(below: Family, smallest: str) -> Outcome:
    """Applies the rule at the top of this file."""
    if below.better:
        return "not held"
    return "held" if smallest in below.worse and not below.better_uncorrected else "undecided"


def describe(below: Family, others: Family, smallest: str) -> str:
    """Returns the finding in words."""
    full = below.champion
    sentence = f"Particles x horizon: {below.verdicts[smallest].sentence} "
    sentence += f"Smaller budgets better than {full}: {below.format_better()}."
    reported = "; ".join(
        f"P({name} > {full}) = {1 - against.probability.value:.2f}, {format_p_value(against.p_value)}"
        for name, against in others.verdicts.items()
    )
    return sentence + (f" As large or larger: {reported}." if reported else "")


if __name__ == "__main__":
    main(CLAIM, find)
