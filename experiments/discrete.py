"""Claim 1: on discrete planning tasks SPO is better than every baseline at equal environment steps.

The paper's Rubik's cube (7 scrambles) and Boxoban (hard levels): learning curves, aggregates, profiles and
probabilities of improvement, normalised over the runs compared. Held if SPO is better than each baseline of the paper.
Gumbel AlphaZero is younger than the paper's AlphaZero and not among them: it is trained and compared beside them.
"""

from _claims import Claim, Finding, Setup, better_than_each, main
from _tasks import boxoban, cube

CLAIM = Claim(
    1, "discrete", "SPO against all baselines, discrete", "SPO outperforms the baselines on Rubik's cube and Boxoban."
)
BASELINES = ("ppo", "mpo", "vmpo", "alphazero", "smc_ent")
BESIDE = ("gumbel_alphazero",)
#: Of the paper. The small scales have a small cube only.
WORLDS = ("rubiks_cube", "boxoban")


def find(setup: Setup) -> Finding:
    rivals = setup.against or (BASELINES[:1] if setup.scale == "smoke" else BASELINES + BESIDE)
    baselines, beside = ([name for name in rivals if name in group] for group in (BASELINES, BESIDE))
    if not baselines:
        raise SystemExit(f"--against needs one of the paper's baselines: {', '.join(BASELINES)}.")
    worlds = setup.worlds or (WORLDS if setup.scale == "paper" else ("rubiks_cube",))
    runs = {
        f"{world}-{algorithm}": cube(setup.scale, algorithm) if world == "rubiks_cube" else boxoban(algorithm)
        for world in worlds
        for algorithm in ("spo", *rivals)
    }
    return better_than_each(setup, runs, "spo", baselines, by="algorithm", beside=beside)


if __name__ == "__main__":
    main(CLAIM, find, WORLDS, BASELINES + BESIDE)
