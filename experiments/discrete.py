"""Claim 1: on discrete planning tasks, SPO is better than every baseline at equal environment steps.

Tasks: the paper's Rubik's cube (7 scrambles) and Boxoban (hard levels). Scores are normalised over the compared runs.
Held if SPO is better than each baseline of the paper. Gumbel AlphaZero is newer than the paper's AlphaZero and not one
of its baselines: it is trained and reported, but does not change the verdict.
"""

from _claims import Claim, Finding, Setup, main
from _rivals import better_than_each
from _tasks import boxoban, cube

CLAIM = Claim(
    1, "discrete", "SPO against all baselines, discrete", "SPO outperforms the baselines on Rubik's cube and Boxoban."
)
BASELINES = ("ppo", "mpo", "vmpo", "alphazero", "smc_ent")
REPORTED = ("gumbel_alphazero",)
TASKS = ("rubiks_cube", "boxoban")
"""Tasks of the paper scale. The smaller scales have a small cube only."""


def find(setup: Setup) -> Finding:
    """Trains SPO and the baselines and compares SPO with each of them."""
    rivals = setup.against or (BASELINES[:1] if setup.scale == "smoke" else BASELINES + REPORTED)
    baselines, reported = ([name for name in rivals if name in group] for group in (BASELINES, REPORTED))
    if not baselines:
        raise SystemExit(f"--against needs one of the paper's baselines: {', '.join(BASELINES)}.")
    tasks = setup.tasks or (TASKS if setup.scale == "paper" else TASKS[:1])
    runs = {
        f"{task}-{algorithm}": cube(setup.scale, algorithm) if task == "rubiks_cube" else boxoban(algorithm)
        for task in tasks
        for algorithm in ("spo", *rivals)
    }
    return better_than_each(setup, runs, "spo", baselines, by="algorithm", reported=reported)


if __name__ == "__main__":
    main(CLAIM, find, TASKS, BASELINES + REPORTED)
