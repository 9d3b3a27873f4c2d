"""Claim 3: more search in training helps, in particles N and in horizon h.

The paper trains with grids of N and h on its continuous environments. Performance rises with both. A long horizon with
few particles can hurt, because their weights collapse. A quarter of the budget stays competitive. Here particles are
resampled once, at the end of the horizon (resample_period = h), so only N and h differ.

The whole claim is held if the full budget is better than the smallest one, and no budget N h below the full one is
better than it. Budgets that are as large or larger are reported, but do not change the verdict: if they are better,
they support the claim. Its parts:

    particles    held if 16 particles are better than 4 with horizon 4, not held if they are worse
    horizon      held if horizon 4 is better than horizon 1 with 16 particles, not held if it is worse
    quarter      held if the best setting with a quarter of the full budget keeps up with it: the interval of
                 P(quarter > full) ends at 0.25 or above. Not held if the full budget is better than all of them.
"""

from typing import Any

from _claims import SCALES, Claim, Finding, Outcome, Setup, main
from _rivals import Family, against_each, better_than_each, compare_runs, scores_json
from _runs import origin_of, train_all, with_settings
from _tasks import ablated, ablated_cube

from spo.reports import comparison_figures
from spo.reports.comparison import Comparison
from spo.reports.judgement import Judgement, verdict
from spo.reports.stats import MEANINGFUL, format_p_value

CLAIM = Claim(
    3,
    "training_scaling",
    "Scaling the search in training",
    "Performance grows with particles and horizon; a quarter of the budget stays competitive.",
    {"": SCALES} | dict.fromkeys(("particles", "horizon", "quarter of the budget"), ("cpu", "core", "paper")),
)
_PAPER = [(4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (16, 1), (16, 2), (16, 8), (32, 4), (16, 4)]
GRIDS = {
    "smoke": [(2, 1), (4, 2)],
    "cpu": [(4, 1), (4, 4), (16, 1), (4, 16), (16, 4)],
    "core": _PAPER,
    "paper": _PAPER,
}
"""Pairs (N, h): the smallest budget first, the full one last.

On Ant at the paper scale, on Ant and the cube at the core scale, on the cube at the others.
"""


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale by name."""
    starts = [ablated(setup.scale), *([ablated_cube()] if setup.scale == "core" else [])]
    return {
        f"{n}x{h} on {start.task}": with_settings(
            start, search={"num_particles": n, "horizon": h, "resample_period": h}
        )
        for start in starts
        for n, h in GRIDS[setup.scale]
    }


def find(setup: Setup) -> list[Finding]:
    """Trains with every budget and compares the full one with each of the others."""
    comparison, judgement = compare_runs(train_all(setup, runs(setup)))
    whole = find_whole(setup, comparison, judgement)
    if setup.scale not in CLAIM.parts["particles"]:
        return [whole]
    more_particles = better_than_each(comparison, judgement, "16x4", ["4x4"])._replace(part="particles")
    longer = better_than_each(comparison, judgement, "16x4", ["16x1"])._replace(part="horizon")
    return [whole, more_particles, longer, find_quarter(setup, comparison, judgement)]


def find_quarter(setup: Setup, comparison: Comparison, judgement: Judgement) -> Finding:
    """Compares the best setting with a quarter of the budget with the full one."""
    quarters = [f"{n}x{h}" for n, h in GRIDS[setup.scale] if 4 * n * h == 16 * 4]
    best = max(quarters, key=lambda name: judgement.aggregates[name]["IQM"].value)
    family = against_each(comparison, "16x4", quarters)
    against = verdict(comparison, best, "16x4")
    if len(family.worse) == len(quarters):
        outcome: Outcome = "not held"
    else:
        outcome = "held" if against.probability.low >= 1 - MEANINGFUL else "undecided"
    return Finding(
        verdict=outcome,
        sentence=f"The best of {', '.join(quarters)} is {best}. {against.sentence}",
        part="quarter of the budget",
        number=against.probability.value,
        number_name=f"P({best} > 16x4)",
        interval=(against.probability.low, against.probability.high),
        details=scores_json(comparison, judgement) | {"against": family.to_json()},
        origin=origin_of(result.run.folder for result in comparison.results),
    )


def find_whole(setup: Setup, comparison: Comparison, judgement: Judgement) -> Finding:
    """Compares the full budget with each of the others."""
    grid = {f"{n}x{h}": (n, h) for n, h in GRIDS[setup.scale]}
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
        details=scores_json(comparison, judgement) | {"against": below.to_json(), "not judged": others.to_json()},
        figure=comparison_figures.final_scores(comparison, judgement),
        origin=origin_of(result.run.folder for result in comparison.results),
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
