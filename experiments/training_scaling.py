"""Claim 3: more search in training helps: particles N and horizon h.

The paper trains with grids of N and h on its continuous worlds: performance rises with both, a long horizon with few
particles can hurt (their weights collapse), and a quarter of the budget stays competitive. Particles are resampled
once, at the end of the horizon (resample_period = h), so that N and h are all that changes. Held if the full budget is
better than the smallest one and no budget N h below the full one is better than it. One as large or larger that is
better speaks for the claim: it is reported, not judged. The details say how all of them did.
"""

from _claims import (
    HELD,
    Claim,
    Finding,
    Setup,
    against_each,
    compare_runs,
    estimates,
    main,
    train_all,
    trained_on,
    with_settings,
)
from _tasks import continuous, cube

from spo.reports import figures
from spo.reports.statistics import p_in_words

CLAIM = Claim(
    3,
    "training_scaling",
    "Scaling the search in training",
    "Performance grows with particles and horizon; a quarter of the budget stays competitive.",
)
#: (N, h): the smallest budget first, the full one last, others between; on Ant at the paper's scale, on the cube below.
GRIDS = {
    "smoke": [(2, 1), (4, 2)],
    "cpu": [(4, 1), (4, 4), (16, 1), (4, 16), (16, 4)],
    "paper": [(4, 2), (4, 4), (4, 8), (8, 2), (8, 4), (16, 1), (16, 2), (16, 8), (32, 4), (16, 4)],
}


def find(setup: Setup) -> Finding:
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
    held: HELD = "undecided"
    if below.better:
        held = "not held"
    elif smallest in below.worse and not below.better_uncorrected:
        held = "held"
    first = below.verdicts[smallest]
    not_judged = "; ".join(
        f"P({name} > {full}) = {1 - against.probability.value:.2f}, {p_in_words(against.p_value)}"
        for name, against in others.verdicts.items()
    )
    return Finding(
        verdict=held,
        sentence=(
            f"Particles x horizon: {first.sentence} Smaller budgets better than {full}: {below.better_in_words}."
            + (f" As large or larger: {not_judged}." if not_judged else "")
        ),
        number=first.probability.value,
        number_name=f"P({full} > {smallest})",
        interval=(first.probability.low, first.probability.high),
        details=estimates(judgement) | {"against": below.record(), "not judged": others.record()},
        figure=figures.final_scores(comparison, judgement),
        hardware=trained_on(folders.values()),
    )


if __name__ == "__main__":
    main(CLAIM, find)
