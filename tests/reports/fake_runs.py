"""Writes run folders by hand, with the files that `spo train` writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CONFIG: dict[str, Any] = {
    "spo_version": "0",
    "start_from": None,
    "task": "rubiks_cube",
    "task_options": {},
    "algorithm": "spo",
    "steps": 1000.0,
    "seed": 0,
    "num_seeds": 1,
    "config": {"search": {"num_particles": 16}, "learning_rate": 0.001},
}
FEW = 300
"""Bootstrap samples in tests."""
START = {
    "python": "3.12.0",
    "packages": {"jax": "0.11"},
    "git_commit": "c" * 40,
    "device": "NVIDIA H200",
    "num_devices": 2,
}


def write_run(
    folder: Path,
    curve: Sequence[float] | Sequence[Sequence[float]],
    *,
    final: float | Sequence[float] | None = None,
    metric: str = "solved",
    points: Sequence[int] | None = None,
    others: tuple[str, float] | None = None,
    compile_seconds: float = 5.0,
    **config: Any,
) -> Path:
    """Writes one run of one or more seeds: evaluations at these `points`, and the final ones if it has any.

    `others` are the other kind of actions in all evaluations, and how much better they are.
    """
    folder.mkdir(parents=True)
    curves = np.atleast_2d(np.asarray(curve, float))
    finals = [] if final is None else np.atleast_1d(final).tolist()
    points = points or np.linspace(0, 1000, curves.shape[1]).astype(int).tolist()

    def record(kind: str, seed: int, step: int, value: float, episodes: int) -> dict[str, Any]:
        metrics = {"episode/return": value, "episode/count": float(episodes)}
        if metric == "solved":
            metrics["episode/solved"] = value
        if others is not None:
            prefix, better = others
            metrics |= {f"{prefix}/{n.removeprefix('episode/')}": v + better for n, v in metrics.items()}
        time = {"wall_seconds": compile_seconds + step / 10, "env_steps_per_second": 10.0}
        return {"kind": kind, "seed": seed, "iteration": step, "env_steps": step, "metrics": metrics, "time": time}

    records = [
        record("evaluation", seed, step, value, 128)
        for seed, values in enumerate(curves.tolist())
        for step, value in zip(points, values, strict=True)
    ]
    records += [record("final", seed, points[-1], value, 1280) for seed, value in enumerate(finals)]
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_seeds": len(curves)} | config))
    (folder / "environment.json").write_text(json.dumps({"starts": [START]}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


def write_suite(root: Path, num_seeds: int = 5) -> Path:
    """Writes runs of two algorithms on two tasks, one scored by its return. "spo" is better on both."""
    rng = np.random.default_rng(0)
    for algorithm, level in (("spo", 0.8), ("ppo", 0.4)):
        for task, metric, scale in (("rubiks_cube", "solved", 1.0), ("brax/ant", "return", 9000.0)):
            for seed in range(num_seeds):
                score = level + 0.05 * rng.normal()
                write_run(
                    root / f"{algorithm}-{task.replace('/', '-')}-{seed}",
                    [0.0, scale * score / 2, scale * score],
                    final=scale * score,
                    metric=metric,
                    algorithm=algorithm,
                    task=task,
                    seed=seed,
                )
    return root
