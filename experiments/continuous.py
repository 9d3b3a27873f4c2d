"""Claim 2: on continuous control, SPO is better than every baseline, at equal steps and at equal seconds.

Tasks: the paper's Ant, HalfCheetah and Humanoid. Held if SPO is better than each baseline over all tasks together.
SMC-ENT has verdicts of its own.
"""

from typing import Any

from _axes import judge_at_stored_speeds, judge_axes, own_speeds
from _claims import AXIS_PARTS, Claim, Finding, Setup, main
from _rivals import better_than_each, compare_runs
from _runs import train_all
from _tasks import continuous

CLAIM = Claim(
    2,
    "continuous",
    "SPO against all baselines, continuous",
    "SPO outperforms the baselines on Brax's environments.",
    AXIS_PARTS,
)
BASELINES = ("ppo", "mpo", "vmpo", "sampled_alphazero", "smc_ent")
TASKS = {
    "smoke": ("tiny/continuous_credit",),
    "cpu": ("brax/inverted_pendulum",),
    "core": ("paper/ant", "paper/halfcheetah", "paper/humanoid"),
    "paper": ("paper/ant", "paper/halfcheetah", "paper/humanoid"),
}


def runs(setup: Setup) -> dict[str, Any]:
    """Returns the runs of a scale by name."""
    baselines = setup.against or (BASELINES[:1] if setup.scale == "smoke" else BASELINES)
    return {
        f"{task.replace('/', '-')}-{algorithm}": continuous(setup.scale, task, algorithm)
        for task in setup.tasks or TASKS[setup.scale]
        for algorithm in ("spo", *baselines)
    }


def find(setup: Setup) -> list[Finding]:
    """Trains SPO and the baselines and compares SPO with each of them."""
    comparison, judgement = compare_runs(train_all(setup, runs(setup)), by="algorithm")
    baselines = [name for name in BASELINES if name in comparison.groups]
    if setup.scale == "core":
        return judge_at_stored_speeds(comparison, "spo", baselines)
    final = better_than_each(comparison, judgement, "spo", baselines)
    return [final, *judge_axes(comparison, "spo", baselines, own_speeds(comparison))]


if __name__ == "__main__":
    main(CLAIM, find, TASKS["paper"], BASELINES)
