"""Claim 3: more search in training helps: particles N and horizon h.

The paper trains with grids of N and h on its continuous worlds: performance rises with both, a long horizon with few
particles can hurt (their weights collapse), and a quarter of the budget stays competitive. Held if the full budget is
better than the smallest one and no other one is better than the full one. The details say how all of them did.
"""

from _claims import HELD, Claim, Finding, Setup, compare_runs, estimates, main, train_all, with_settings
from _tasks import continuous, cube

from spo.evaluation import figures
from spo.evaluation.comparison import verdict

CLAIM = Claim(
    3,
    "training_scaling",
    "Scaling the search in training",
    "Performance grows with particles and horizon; a quarter of the budget stays competitive.",
)
#: (N, h): the smallest budget first, the full one last; on Ant at the paper's scale, on the cube below it.
GRIDS = {
    "smoke": [(2, 1), (4, 2)],
    "cpu": [(4, 1), (4, 4), (16, 1), (4, 16), (16, 4)],
    "paper": [(4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (16, 1), (16, 2), (16, 8), (32, 4), (16, 4)],
}


def find(setup: Setup) -> Finding:
    start = continuous("paper", "paper/ant") if setup.scale == "paper" else cube(setup.scale)
    runs = {
        f"{n}x{h}": with_settings(start, search={"num_particles": n, "horizon": h, "resample_period": h, "unroll": 1})
        for n, h in GRIDS[setup.scale]
    }
    comparison, judgement = compare_runs(train_all(setup, runs))
    smallest, *between, full = runs
    first = verdict(comparison, full, smallest)
    better = [name for name in between if verdict(comparison, full, name).better == name]
    held: HELD = "undecided"
    if better or first.better == smallest:
        held = "not held"
    elif first.better == full:
        held = "held"
    return Finding(
        verdict=held,
        sentence=f"Particles x horizon: {first.sentence} Better than {full}: {', '.join(better) or 'no other'}.",
        number=first.probability.value,
        number_name=f"P({full} > {smallest})",
        interval=(first.probability.low, first.probability.high),
        details=estimates(judgement),
        figure=figures.final_scores(comparison, judgement),
    )


if __name__ == "__main__":
    main(CLAIM, find)
