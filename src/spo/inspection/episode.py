"""One episode with all of its decisions, as plain data for the page."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spo._version import __version__
from spo.algorithms.planning import SearchConfig
from spo.inspection.pictures import Budget, Pictures
from spo.inspection.protocol import FORMAT
from spo.inspection.records import describe_decision, describe_metrics, describe_observation, plain
from spo.inspection.settings import Settings, make_controls
from spo.inspection.subject import Subject
from spo.types import DiscreteActions, Environment, State, TimeStep

#: Pictures of simulated states in a file: at most 20 seconds of drawing and 3 MB.
EPISODE_BUDGET = Budget(seconds=20.0, characters=3_000_000)


class Origin(NamedTuple):
    """Names of the agent that is inspected, for the title of the page."""

    run: str
    which: str  # "best" or "last" parameters
    env_steps: int  # of its training
    member: int = 0  # which of the run's agents


def record_episode(
    subject: Subject,
    origin: Origin,
    *,
    seed: int,
    settings: Settings,
    max_steps: int,
    on_step: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Plays one episode and returns it as plain data: the document of the page.

    Args:
      subject: the agent.
      origin: names of the agent.
      seed: random seed of the episode.
      settings: settings of all decisions.
      max_steps: number of decisions after which the episode is cut off.
      on_step: receives the number of decisions so far.
    """
    pictures = Pictures(subject.environment, EPISODE_BUDGET)
    state, timestep = subject.reset(seed)
    steps, total = [], 0.0
    for index in range(max_steps):
        step = describe_state(pictures, index, state, timestep, total)
        steps.append(step)
        if bool(timestep.ended):
            break
        decided, timing = subject.decide(seed, index, state, timestep, settings)
        step["decision"] = describe_decision(
            decided, timing, settings, seed, subject.environment.action_spec, pictures.add_simulated
        )
        state, timestep = subject.step(seed, index, state, decided.action)
        step["taken"], step["reward"] = plain(decided.action), plain(timestep.reward)
        total += float(timestep.reward)
        on_step(index + 1)
    else:
        steps.append(describe_state(pictures, max_steps, state, timestep, total))
    return {**describe_subject(subject, origin), "seed": seed, "steps": steps, "pictures": pictures.by_name}


def describe_subject(subject: Subject, origin: Origin) -> dict[str, Any]:
    """Returns all of the document that does not depend on the episode."""
    experiment = subject.experiment
    return {
        "format": FORMAT,
        "version": __version__,
        "run": {
            "name": origin.run,
            "task": experiment.task,
            "algorithm": experiment.algorithm,
            "which": origin.which,
            "env_steps": origin.env_steps,
            "member": origin.member,
        },
        "actions": describe_actions(subject.environment),
        "method": describe_method(experiment.config, subject.environment),
        "settings": subject.own_settings,
        "controls": [control._asdict() for control in make_controls(experiment)],
    }


def describe_method(config: Any, environment: Environment) -> dict[str, Any] | None:
    """Returns what explains a search with particles and can't be changed on the page; None for other algorithms."""
    search = getattr(config, "search", None)
    if not isinstance(search, SearchConfig):
        return None
    discrete = isinstance(environment.action_spec, DiscreteActions)  # others have no candidates (`make_planner`)
    return {
        "num_root_candidates": search.num_root_candidates if discrete else None,
        "ess_threshold": search.ess_threshold,
        "weighting": search.weighting,
    }


def describe_actions(environment: Environment) -> dict[str, Any]:
    """Returns kind and names of the actions, or their bounds."""
    spec = environment.action_spec
    if isinstance(spec, DiscreteActions):
        names = environment.action_names or tuple(f"action {index}" for index in range(int(spec.num_actions)))
        return {"kind": "discrete", "names": list(names)}
    # A user's spec may hold numbers of NumPy, which JSON does not have.
    bounds = {
        name: list(map(float, bound)) if isinstance(bound, tuple) else float(bound)
        for name, bound in (("low", spec.low), ("high", spec.high))
    }
    return {"kind": "continuous", "size": int(spec.size), **bounds}


def describe_state(pictures: Pictures, index: int, state: State, timestep: TimeStep, total: float) -> dict[str, Any]:
    """Returns one step of the document, before its decision is made."""
    picture = pictures.add(state)
    mask = timestep.action_mask
    return {
        "index": index,
        "picture": picture,
        "observation": describe_observation(timestep.observation) if picture is None else None,
        "mask": None if mask is None or bool(np.all(mask)) else plain(mask),
        "metrics": describe_metrics(timestep.metrics),
        "return": plain(total),
        "end": "terminated" if bool(timestep.terminated) else "truncated" if bool(timestep.truncated) else None,
        "decision": None,
        "taken": None,
        "reward": None,
    }


__all__ = ["Origin", "describe_actions", "describe_method", "describe_state", "describe_subject", "record_episode"]
