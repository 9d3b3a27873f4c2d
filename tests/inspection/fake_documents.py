"""Documents of `spo.inspection.protocol` with made-up numbers, for tests of the page without any search."""

from typing import Any

import numpy as np

from spo.inspection.protocol import FORMAT

#: A name that would add an element to the page if it were written as markup.
HOSTILE = "</script><img src=x onerror=alert(1)>"


def fake_document(kind: str = "particles", num_particles: int = 8, num_steps: int = 3) -> dict[str, Any]:
    """Returns an episode with decisions of one kind: particles, continuous, tree or policy."""
    random = np.random.default_rng(0)
    steps = [_step(random, kind, num_particles, index) for index in range(num_steps)]
    last = {**_state(random, num_steps), "end": "terminated"}
    continuous = kind == "continuous"
    names = ["up", "right", HOSTILE, "left", *(f"action {index}" for index in range(4, 20))]
    actions = {"kind": "continuous", "size": 2, "low": -1.0, "high": 1.0}
    return {
        "format": FORMAT,
        "version": "0",
        "run": {"name": HOSTILE, "task": "sokoban", "algorithm": "spo", "which": "best", "env_steps": 10, "member": 0},
        "actions": actions if continuous else {"kind": "discrete", "names": names},
        "method": {"num_root_candidates": None, "ess_threshold": None, "weighting": "advantage"},
        "settings": {"num_particles": num_particles, "greedy": False},
        "controls": [],
        "seed": 0,
        "steps": [*steps, last],
        "pictures": {"board": {"kind": "sokoban", "size": 3, "cells": "111134101"}},
    }


def _state(random: np.random.Generator, index: int) -> dict[str, Any]:
    drawn = index % 2 == 0
    parts = [
        {"name": "", "shape": [3], "values": [0.5, -1.25, 0]},
        {"name": "map", "shape": [2, 2], "values": [0, 1, 2, 3]},
    ]
    return {
        "index": index,
        "picture": "board" if drawn else None,
        "observation": None if drawn else parts,
        "mask": None,
        "metrics": {"solved": 0.0},
        "return": float(index),
        "end": None,
        "decision": None,
        "taken": None,
        "reward": float(random.integers(3)),
    }


def _step(random: np.random.Generator, kind: str, num_particles: int, index: int) -> dict[str, Any]:
    makers = {"particles": _particles, "continuous": _particles, "tree": _tree, "policy": lambda *_: None}
    search = makers[kind](random, kind, num_particles)
    action: Any = [0.25, -0.5] if kind == "continuous" else 2
    decision = {
        "settings": {"num_particles": num_particles, "greedy": False},
        "seed": 0,
        "action": action,
        "value": 0.5 + index,
        "temperature": 0.1 if search and search["kind"] == "particles" else None,
        "policy": _policy(random, kind, num_particles, search),
        "search": search,
        "seconds": 0.01,
        "compile_seconds": 0.0,
    }
    return {**_state(random, index), "decision": decision, "taken": action}


def _policy(random: np.random.Generator, kind: str, num_particles: int, search: Any) -> dict[str, Any]:
    if kind == "continuous":
        weights = random.dirichlet(np.ones(num_particles)).tolist()
        after = {"actions": random.uniform(-1, 1, (num_particles, 2)).tolist(), "weights": weights}
        return {"kind": "continuous", "before": random.uniform(0, 1, (2, 32)).tolist(), "after": after}
    before, after_ = random.dirichlet(np.ones(20), 2).tolist()
    return {"kind": "discrete", "before": before, "after": after_ if search else None}


def _particles(random: np.random.Generator, kind: str, num_particles: int) -> dict[str, Any]:
    """Returns four depths with a resample after the second."""
    identity = list(range(num_particles))
    weights = random.dirichlet(np.ones(num_particles), 4)
    resampled = sorted(random.choice(num_particles, num_particles, p=weights[1]).tolist())
    shape = (4, num_particles)
    actions = random.uniform(-1, 1, (*shape, 2)) if kind == "continuous" else random.integers(0, 4, shape)
    ended = np.zeros(shape, bool)
    ended[2:, 0] = True
    return {
        "kind": "particles",
        "valid": True,
        "num_particles": num_particles,
        "horizon": 4,
        "value": 0.75,
        "ess": (1 / (weights**2).sum(axis=1)).tolist(),
        "live": (num_particles - ended.sum(axis=1)).tolist(),
        "root_actions": [4, 3, 3, 3],
        "resampled": [False, True, False, False],
        "parent": [identity, identity, resampled, identity],
        "action": actions.tolist(),
        "reward": random.uniform(0, 1, shape).tolist(),
        "particle_value": random.uniform(0, 1, shape).tolist(),
        "ended": ended.tolist(),
        "weight": weights.tolist(),
        "survivor": identity,
        "picture": [["board"] * num_particles] * 4,
    }


def _tree(random: np.random.Generator, kind: str, num_particles: int) -> dict[str, Any]:
    del random, kind, num_particles
    return {
        "kind": "tree",
        "value": 0.5,
        "parent": [-1, 0, 0, 1, 1, 3],
        "action": [None, 0, 2, 1, 3, 0],
        "prior": [None, 0.5, 0.25, 0.25, 0.5, 0.1],
        "reward": [None, 0.0, 1.0, 0.0, 0.0, 1.0],
        "ended": [False, False, True, False, False, True],
        "visits": [6, 4, 1, 2, 1, 1],
        "node_value": [0.5, 0.4, 1.0, 0.3, 0.2, 1.0],
        "picture": None,
    }
