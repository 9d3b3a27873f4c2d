"""Claim 2: on continuous control, SPO is better than every baseline at equal environment steps.

Tasks: the paper's Ant, HalfCheetah and Humanoid. Held if SPO is better than each baseline over all tasks together.
"""

from _claims import Claim, Finding, Setup, main
from _rivals import better_than_each
from _tasks import continuous

CLAIM = Claim(
    2, "continuous", "SPO against all baselines, continuous", "SPO outperforms the baselines on Brax's environments."
)
BASELINES = ("ppo", "mpo", "vmpo", "sampled_alphazero", "smc_ent")
TASKS = {
    "smoke": ("tiny/continuous_credit",),
    "cpu": ("brax/inverted_pendulum",),
    "paper": ("paper/ant", "paper/halfcheetah", "paper/humanoid"),
}


def find(setup: Setup) -> Finding:
    """Trains SPO and the baselines and compares SPO with each of them."""
    baselines = setup.against or (BASELINES[:1] if setup.scale == "smoke" else BASELINES)
    runs = {
        f"{task.replace('/', '-')}-{algorithm}": continuous(setup.scale, task, algorithm)
        for task in setup.tasks or TASKS[setup.scale]
        for algorithm in ("spo", *baselines)
    }
    return better_than_each(setup, runs, "spo", baselines, by="algorithm")


if __name__ == "__main__":
    main(CLAIM, find, TASKS["paper"], BASELINES)
