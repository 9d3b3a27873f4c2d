"""A program in place of `spo train`: it writes the run of a trial in a fraction of a second.

    python fake_trial.py train --score 3 --steps 5 [--seconds 0.1] [--fail MESSAGE] --run FOLDER ...

It evaluates once per step with the given score, and ends with a checkpoint's exit code when it is terminated.
"""

import itertools
import json
import pathlib
import signal
import sys
import time


def main(words: list[str]) -> None:
    given = {name.removeprefix("--"): value for name, value in itertools.pairwise(words)}
    folder = pathlib.Path(given["run"])
    if "fail" in given:
        sys.exit(f"spo: {given['fail']}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder.mkdir(parents=True, exist_ok=True)
    score, steps = float(given["score"]), int(given["steps"])
    config = {"spo_version": "0", "task": "fake", "algorithm": "spo", "steps": steps, "num_seeds": 1}
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "metrics.jsonl"
    done = len(path.read_text().splitlines()) if path.exists() else 0
    for step in range(done, steps + 1):
        record = {"kind": "evaluation", "seed": 0, "env_steps": step, "metrics": {"episode/return": score * (step > 0)}}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        time.sleep(float(given.get("seconds", 0)))
    (folder / "summary.json").write_text(json.dumps({"env_steps": steps, "final_return": score}))


if __name__ == "__main__":
    main(sys.argv[1:])
