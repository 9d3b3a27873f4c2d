"""Claim 1: on discrete planning tasks, SPO is better than every baseline, at equal steps and at equal seconds.

Tasks: the paper's Rubik's cube (7 scrambles) and Boxoban (hard levels). Scores are normalised over the compared runs.
Held if SPO is better than each baseline of the paper. Gumbel AlphaZero is newer than the paper's AlphaZero and not one
of its baselines: it is trained and reported, but does not change the verdict. SMC-ENT has verdicts of its own. On
Boxoban, the core scale also compares levels that are as hard as those of training (unfiltered-valid).
"""

import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
from _axes import judge_at_stored_speeds, judge_axes, own_speeds
from _claims import AXIS_PARTS, Claim, Finding, Setup, main
from _rivals import better_than_each, compare_runs, make_family
from _runs import origin_of, train_all
from _tasks import CORE_BOXOBAN, alike, boxoban, cube

from spo.reports import stats

VALID_FILE = "evaluation_unfiltered_valid.json"
VALID = "Boxoban on unfiltered-valid"
CLAIM = Claim(
    1,
    "discrete",
    "SPO against all baselines, discrete",
    "SPO outperforms the baselines on Rubik's cube and Boxoban.",
    AXIS_PARTS | {VALID: ("core",)},
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
    folders = train_all(setup, runs(setup))
    comparison, judgement = compare_runs(folders, by="algorithm")
    baselines, reported = ([name for name in group if name in comparison.groups] for group in (BASELINES, REPORTED))
    if setup.scale == "core":
        return [*judge_at_stored_speeds(comparison, "spo", baselines), *find_valid(folders)]
    final = better_than_each(comparison, judgement, "spo", baselines, reported)
    return [final, *judge_axes(comparison, "spo", baselines, own_speeds(comparison))]


def find_valid(folders: Mapping[str, pathlib.Path]) -> list[Finding]:
    """Compares the shares of solved levels of unfiltered-valid, which the runs have not trained on.

    They are those of the best parameters on hard levels. Empty if there is no run on Boxoban.
    """
    scores = {
        name.removeprefix("boxoban-"): json.loads((folder / VALID_FILE).read_text("utf-8"))["per_seed"]["solved"]
        for name, folder in folders.items()
        if name.startswith("boxoban-")
    }
    rivals = [name for name in scores if name != "spo"]
    if not rivals:
        return []
    verdicts = {
        name: stats.verdict([np.array(scores["spo"])], [np.array(scores[name])], ("spo", name)) for name in rivals
    }
    family = make_family("spo", {name: verdicts[name] for name in rivals if name in BASELINES})
    means = ", ".join(f"{name} {statistics.fmean(values):.1%}" for name, values in scores.items())
    reported = "".join(f" Not part of the claim: {verdicts[name].sentence}" for name in rivals if name in REPORTED)
    probability = family.closest.probability
    finding = Finding(
        verdict=family.outcome,
        sentence=f"Levels solved: {means}. {family.describe()}{reported}",
        part=VALID,
        number=probability.value,
        number_name=f"P(spo > {family.closest.names[1]})",
        interval=(probability.low, probability.high),
        details={"solved per seed": scores, "against": family.to_json()},
        origin=origin_of(folder for name, folder in folders.items() if name.startswith("boxoban-")),
    )
    return [finding]


if __name__ == "__main__":
    main(CLAIM, find, TASKS, BASELINES + REPORTED)
