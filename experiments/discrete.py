"""Claim 1: on discrete planning tasks, SPO is better than every baseline, at equal steps and at equal seconds.

Tasks: the paper's Rubik's cube (7 scrambles) and Boxoban (hard levels). Scores are normalised over the compared runs.
Held if SPO is better than each baseline of the paper. Gumbel AlphaZero is newer than the paper's AlphaZero and not one
of its baselines: it is trained and reported, but does not change the verdict. SMC-ENT has verdicts of its own.
"""

from typing import Any

from _axes import judge_axes, own_speeds
from _claims import AXIS_PARTS, Claim, Finding, Setup, main
from _rivals import better_than_each, compare_runs
from _runs import stored_speeds, train_all
from _tasks import CORE_BOXOBAN, alike, boxoban, cube

CLAIM = Claim(
    1,
    "discrete",
    "SPO against all baselines, discrete",
    "SPO outperforms the baselines on Rubik's cube and Boxoban.",
    AXIS_PARTS,
)
BASELINES = ("ppo", "mpo", "vmpo", "alphazero", "smc_ent")
REPORTED = ("gumbel_alphazero",)
TASKS = ("rubiks_cube", "boxoban")
"""Tasks of the core and paper scales. The smaller scales have a small cube only."""


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale by name."""
    rivals = setup.against or (BASELINES[:1] if setup.scale == "smoke" else BASELINES + REPORTED)
    tasks = setup.tasks or (TASKS if setup.scale in ("core", "paper") else TASKS[:1])
    makers = {"rubiks_cube": cube, "boxoban": boxoban}
    return {
        f"{task}-{algorithm}": _comparable(setup.scale, makers[task](setup.scale, algorithm))
        for task in tasks
        for algorithm in ("spo", *rivals)
        if not (setup.scale == "core" and task == "boxoban" and algorithm not in CORE_BOXOBAN)
    }


def _comparable(scale: str, experiment: Any) -> Any:
    """Returns a small run with the noise and the trust region of all algorithms. The others have the paper's."""
    return alike(experiment) if scale in ("smoke", "cpu") else experiment


def find(setup: Setup) -> list[Finding]:
    """Trains SPO and the baselines and compares SPO with each of them."""
    if setup.against and not set(setup.against) & set(BASELINES):
        raise SystemExit(f"--against needs one of the paper's baselines: {', '.join(BASELINES)}.")
    comparison, judgement = compare_runs(train_all(setup, runs(setup)), by="algorithm")
    baselines, reported = ([name for name in group if name in comparison.groups] for group in (BASELINES, REPORTED))
    if setup.scale == "core":
        return judge_axes(comparison, "spo", baselines, stored_speeds())
    final = better_than_each(comparison, judgement, "spo", baselines, reported)
    return [final, *judge_axes(comparison, "spo", baselines, own_speeds(comparison))]


if __name__ == "__main__":
    main(CLAIM, find, TASKS, BASELINES + REPORTED)
