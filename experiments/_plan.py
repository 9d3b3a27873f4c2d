"""Runs of the campaign: the comparisons and ablations of claims 1 to 7, and the tuned cube, with their costs."""

import importlib
import json
import math
from typing import Any

from _claims import ROOT, Setup
from _runs import run_name, stored_speeds
from _tasks import CORE_BOXOBAN, boxoban, is_tuned, tuned_cube

from spo.environments.boxoban import data_folder

CLAIMS = ("discrete", "continuous", "training_scaling", "temperatures", "kl_targets", "advantages")
TUNED_RUN = ROOT / "results" / "runs" / "h200" / "spo_rubiks_cube_tuned"
MAX_SECONDS = 540.0
"""Seconds after which some runs stop, if they have the GPU for themselves."""
UNKNOWN_SPEED = 1e4
"""Environment steps per second of a run whose speed was never measured."""


def planned_runs(scale: str = "core") -> dict[str, Any]:
    """Returns the runs of a scale by folder name. Claims share the runs that they have in common.

    The smoke scale has tiny runs of every kind: it tests the campaign itself.
    """
    runs = {}
    for name in CLAIMS:
        runs |= runs_of(name, scale)
    further = [tuned_cube(scale, algorithm) for algorithm in ("spo", "gumbel_alphazero")]
    if scale == "smoke":
        further += [boxoban(scale, algorithm) for algorithm in CORE_BOXOBAN]
    return runs | {run_name(run): run for run in further}


def runs_of(claim: str, scale: str = "core") -> dict[str, Any]:
    """Returns the runs of one claim by folder name."""
    experiment = importlib.import_module(claim)
    setup = Setup(experiment.CLAIM, scale, ROOT / "runs" / scale / claim, ROOT / "results" / "claims")
    return {run_name(run): run for run in experiment.runs(setup).values()}


def further_evaluations(experiment: Any) -> dict[str, tuple[str, ...]]:
    """Returns the evaluations of a finished run: name -> options of `spo evaluate`."""
    if experiment.task == "boxoban/unfiltered":
        return {"unfiltered_valid": ("--task.evaluation", "unfiltered-valid")}
    if experiment.task == "sokoban/generated":  # in place of the public levels
        return {"unfiltered_valid": ("--task.seed", "100", "--episodes", "8")}
    if is_tuned(experiment) and experiment.algorithm == "spo":
        small = ("--search.num-particles", "16", "--search.horizon", "4")
        return {"16x4": small, "last_16x4": (*small, "--last")}
    return {}


def lacks_levels(experiment: Any) -> bool:
    """Returns True if the run needs the public Boxoban levels and they are not there."""
    return experiment.task == "boxoban/unfiltered" and not (data_folder() / "boxoban" / "hard").exists()


def expected_seconds(experiment: Any) -> float:
    """Returns the seconds of training of all seeds on an H200.

    Seeds are taken to cost as much as one after another. The speed of a baseline on another Brax environment than Ant
    is estimated by that of SPO, and that of another search budget by the simulated steps.
    """
    speed = known_speed(experiment) or UNKNOWN_SPEED
    seconds = experiment.steps * experiment.num_seeds / speed
    search = getattr(experiment.config, "search", None)
    if search is not None and not is_tuned(experiment):
        seconds *= (1 + search.num_particles * search.horizon / 64) / 2  # half of the time is the search's
    return min(seconds, max_seconds(experiment))


def max_seconds(experiment: Any) -> float:
    """Returns the seconds after which training stops: those of Boxoban, and of the tuned cube with a tree search."""
    slow = is_tuned(experiment) and experiment.algorithm != "spo"
    return MAX_SECONDS if slow or experiment.task == "boxoban/unfiltered" else math.inf


def known_speed(experiment: Any) -> float | None:
    """Returns environment steps per second of one seed, if they were measured or can be estimated."""
    speeds, (task, algorithm) = stored_speeds(), (experiment.task, experiment.algorithm)
    if is_tuned(experiment):
        tuned = json.loads((TUNED_RUN / "summary.json").read_text("utf-8"))["env_steps_per_second"]
        # Gumbel AlphaZero with these settings was never timed.
        return tuned if algorithm == "spo" else tuned * speeds[task, algorithm] / speeds[task, "spo"]
    if (task, algorithm) in speeds:
        return speeds[task, algorithm]
    on_ant = speeds.get(("brax/ant", algorithm))
    if on_ant is None or (task, "spo") not in speeds:
        return None
    return on_ant * speeds[task, "spo"] / speeds["brax/ant", "spo"]
