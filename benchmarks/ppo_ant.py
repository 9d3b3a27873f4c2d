"""Our PPO and Brax's PPO on Ant: same physics, same environment steps, same number of evaluation episodes.

    python benchmarks/ppo_ant.py --out results/benchmarks/h200/ppo_ant.json

Brax's PPO (brax.training) has the settings that its authors published for Ant. Ours has the paper's settings, without
and with normalised observations, which Brax's PPO uses. Both are evaluated on 128 episodes with actions sampled from
the policy.
"""

import argparse
import dataclasses
import pathlib
import tempfile
import time
from typing import Any

import _timing
import jax
import jax.numpy as jnp

from spo import presets
from spo.reports.run_files import read_records
from spo.training import loop

VARIANTS: dict[str, dict[str, Any]] = {"paper": {}, "paper, observations normalised": {"normalise_observations": True}}
#: Settings of the training notebook in the Brax repository.
BRAX_SETTINGS = {
    "num_envs": 4096,
    "batch_size": 2048,
    "unroll_length": 5,
    "num_minibatches": 32,
    "num_updates_per_batch": 4,
    "learning_rate": 3e-4,
    "discounting": 0.97,
    "entropy_cost": 1e-2,
    "reward_scaling": 10,
    "normalize_observations": True,
}
TINY = {"num_envs": 8, "num_minibatches": 2}
TINY_BRAX = {"num_envs": 8, "batch_size": 4, "num_minibatches": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=float, default=2e7)
    parser.add_argument("--evaluations", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--no-brax", dest="brax", action="store_false", help="omit Brax's PPO")
    parser.add_argument("--tiny", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rows: list[dict] = []

    def record(implementation: str, points: list[dict]) -> None:
        rows.extend({"implementation": implementation, **point, **_timing.provenance()} for point in points)
        _timing.write_rows(rows, options.out)
        for point in points:
            print(f"{implementation}: return {point['return']:,.0f} at {point['env_steps']:,} steps", flush=True)

    for name in options.variants:
        record(f"spo, {name}", ours(VARIANTS[name], options))
    if options.brax:
        record("brax", theirs(options))


def ours(settings: dict[str, Any], options: argparse.Namespace) -> list[dict]:
    chosen = presets.get("paper/ant", "ppo")
    config = dataclasses.replace(chosen.config, **settings, **(TINY if options.tiny else {}))
    evaluation = dataclasses.replace(
        chosen.evaluation,
        num_evaluations=options.evaluations,
        episodes=options.episodes,
        final_episodes=options.episodes,
    )
    chosen = dataclasses.replace(chosen, config=config, steps=options.steps, evaluation=evaluation)
    with tempfile.TemporaryDirectory() as folder:
        loop.train(chosen, pathlib.Path(folder) / "run", checkpoint_seconds=1e9)
        records = read_records(pathlib.Path(folder) / "run" / "metrics.jsonl")
    return [
        {
            "env_steps": record["env_steps"],
            "return": record["metrics"]["episode/return"],
            "wall_seconds": record["time"]["wall_seconds"],
        }
        for record in records
        if record["kind"] == "evaluation"
    ]


def theirs(options: argparse.Namespace) -> list[dict]:
    from brax import envs
    from brax.training.agents.ppo import train

    if not hasattr(jax, "device_put_replicated"):
        # Brax calls this function, which JAX has removed. On one device it only adds an axis.
        jax.device_put_replicated = lambda tree, _: jax.tree.map(lambda x: jnp.asarray(x)[None], tree)  # type: ignore
    points: list[dict] = []
    start = time.perf_counter()

    def progress(steps: int, metrics: Any) -> None:
        value = float(metrics["eval/episode_reward"])
        points.append({"env_steps": int(steps), "return": value, "wall_seconds": time.perf_counter() - start})

    train.train(
        environment=envs.get_environment("ant", backend="spring"),
        num_timesteps=round(options.steps),
        episode_length=1000,
        num_evals=options.evaluations + 1,  # the first before training
        num_eval_envs=options.episodes,
        progress_fn=progress,
        **BRAX_SETTINGS | (TINY_BRAX if options.tiny else {}),
    )
    return points


if __name__ == "__main__":
    main()
