"""Trains SPO and PPO on fourteen tasks with the settings that `spo train --task X` chooses, and no setting per task.

    python experiments/out_of_the_box.py                            # all rows, about two hours on two cores
    python experiments/out_of_the_box.py --tasks jumanji/snake --algorithms spo
    python experiments/out_of_the_box.py --gpu                      # eight larger tasks, for a GPU
    python experiments/out_of_the_box.py --table                    # rewrite the tables of docs/out_of_the_box.md
    python experiments/out_of_the_box.py --check                    # fail if the tables and the results differ

Each row trains three seeds in one program and stops after five minutes, compilation included. The score is the mean
return of the final evaluation of the best parameters, over seeds; SPO acts by its search. A task whose package is not
installed is skipped by name.
"""

import json
import platform
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "out_of_the_box.md"


class Suite(NamedTuple):
    """Tasks that one command trains. Its name is that of its file of tasks, folder of results and table of the page."""

    name: str

    def read_tasks(self) -> list[dict[str, Any]]:
        """Returns the tasks with their marks."""
        return tomllib.loads((ROOT / "experiments" / f"{self.name}.toml").read_text("utf-8"))["task"]

    @property
    def results(self) -> Path:
        """Folder of the results."""
        return ROOT / "results" / self.name


CPU, GPU = Suite("out_of_the_box"), Suite("out_of_the_box_gpu")


@dataclass(frozen=True)
class Options:
    """Trains with the settings chosen for each task, and writes one file per row under results/."""

    gpu: bool = False
    """Train the tasks of out_of_the_box_gpu.toml instead of those of out_of_the_box.toml."""
    tasks: tuple[str, ...] = ()
    """Names of tasks. None: all of the file."""
    algorithms: tuple[str, ...] = ("spo", "ppo")
    """Algorithms."""
    steps: float | None = None
    """Environment steps of each seed. None: those of the file, or as `spo train --task X` chooses them."""
    num_seeds: int = 3
    """Seeds of each row, in one program."""
    seconds: float = 300.0
    """Time for each row, compilation and final evaluation included."""
    out: Path | None = None
    """Folder of the results. None: results/out_of_the_box, or results/out_of_the_box_gpu."""
    table: bool = False
    """Train nothing: write the tables of the page from the results."""
    check: bool = False
    """Train nothing: fail if the tables of the page and the results differ."""


def main(options: Options) -> None:
    """Runs the command."""
    if options.table or options.check:
        write_page(check=options.check)
        return
    suite = GPU if options.gpu else CPU
    tasks = {task["name"]: task for task in suite.read_tasks()}
    unknown = sorted(set(options.tasks) - set(tasks))
    if unknown:
        raise SystemExit(f"{unknown[0]} is not in {suite.name}.toml: choose from {', '.join(tasks)}.")
    for name in options.tasks or tasks:
        for algorithm in options.algorithms:
            run_row(tasks[name], algorithm, options, options.out or suite.results)


def run_row(task: dict[str, Any], algorithm: str, options: Options, out: Path) -> None:
    """Trains one algorithm on one task and writes the result."""
    import spo
    from spo.provenance import command_line, git_commit
    from spo.reports.run_files import read_records
    from spo.training.experiment import to_json

    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            agent = spo.train(
                task["name"],
                options.steps or task.get("steps"),
                run=run,
                algorithm=algorithm,
                num_seeds=options.num_seeds,
                callback=stop_in_time(started, options.seconds, lambda: evaluated_lengths(run)),
                progress=False,
            )
            final = [record for record in read_records(run / "metrics.jsonl") if record["kind"] == "final"]
    except ImportError as error:
        print(f"{task['name']}: skipped. {error}", flush=True)
        return
    summary = agent.summary
    row = {
        "task": task["name"],
        "algorithm": algorithm,
        "score": summary["final"]["return"],
        "scores": [record["metrics"]["episode/return"] for record in final],
        "untrained": summary["initial"]["return"],
        "policy_only": summary["final_policy_only"].get("return"),
        "env_steps": summary["env_steps"],
        "env_steps_per_second": summary["env_steps_per_second"],
        "seconds": round(time.perf_counter() - started, 1),
        "num_seeds": options.num_seeds,
        "curve": [[point["env_steps"], point["return"]] for point in summary["evaluations"]],
        "settings": to_json(agent.learners.origin.experiment),
        "command": command_line(),
        "commit": git_commit(),
        "hardware": describe_hardware(),
        "date": time.strftime("%Y-%m-%d"),
    }
    if "mark" in task:
        row |= {"mark": task["mark"], "reached": row["score"] >= task["mark"]}
    out.mkdir(parents=True, exist_ok=True)
    name = f"{task['name'].replace('/', '-')}-{algorithm}.json"
    (out / name).write_text(json.dumps(row, indent=1) + "\n", "utf-8")
    verdict = f" ({'reached' if row['reached'] else 'missed'}, mark {task['mark']:g})" if "mark" in task else ""
    print(
        f"{task['name']} {algorithm}: {row['score']:.4g}{verdict}, {row['env_steps']:,} steps, {row['seconds']:.0f} s",
        flush=True,
    )


def stop_in_time(
    started: float, seconds: float, evaluated_lengths: Callable[[], list[float]]
) -> Callable[[dict[str, float], Any], None]:
    """Returns a callback that ends training where another interval would leave too little time to evaluate.

    `evaluated_lengths` returns the length of episodes in each evaluation so far. The one before training has compiled a
    program and can't be timed. Its episodes can be the longest, and the best parameters may turn out to be the first.
    """
    deadline = started + 0.9 * seconds  # a tenth is for the programs of the final evaluation, which are compiled then
    previous: float | None = None
    interval = seconds_per_step = 0.0  # longest times seen: of an interval, and of a step of all episodes

    def stop(metrics: dict[str, float], handle: Any) -> None:
        nonlocal previous, interval, seconds_per_step
        now = time.perf_counter()
        if previous is not None:  # the first interval also compiled
            if any(name.startswith("evaluation/") for name in metrics):
                seconds_per_step = max(seconds_per_step, (now - previous - interval) / evaluated_lengths()[-1])
            else:
                interval = max(interval, now - previous)
        evaluation = seconds_per_step * max(evaluated_lengths())
        # Another evaluation, and the final ones of the best and of the last parameters, each with twice the episodes.
        # An evaluation waits for its longest episode. With more episodes that one is longer, so two are added.
        if now + interval + 7 * evaluation > deadline:
            handle.stop()
        previous = now

    return stop


def evaluated_lengths(run: Path) -> list[float]:
    """Returns the mean length of episodes in each evaluation of a run, over its seeds."""
    from spo.reports.run_files import read_records

    lengths: dict[int, list[float]] = {}
    for record in read_records(run / "metrics.jsonl"):
        if record["kind"] == "evaluation":
            lengths.setdefault(record["iteration"], []).append(record["metrics"]["episode/length"])
    return [statistics.fmean(of_seeds) for of_seeds in lengths.values()]


def describe_hardware() -> str:
    """Returns the GPU, or the processor and the number of cores that this process may use."""
    import jax

    from spo.provenance import num_cores

    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    cores = num_cores()
    return f"{cores} {'core' if cores == 1 else 'cores'}, {platform.processor() or platform.machine()}"


# --- Tables -----------------------------------------------------------------------------------------------------------


def write_page(*, check: bool) -> None:
    """Writes the tables of the page, or compares them with the results."""
    old = new = PAGE.read_text("utf-8")
    for suite, make_table in ((CPU, make_cpu_table), (GPU, make_gpu_table)):
        new = replace_table(new, suite.name, make_table(suite.results))
    if not check:
        PAGE.write_text(new, "utf-8")
    elif new != old:
        raise SystemExit(f"{PAGE.name} and the results differ: run `python experiments/out_of_the_box.py --table`.")


def replace_table(page: str, name: str, table: str) -> str:
    """Returns the page with another table between the marks of that name."""
    before, after = f"<!-- table: {name} -->\n", "<!-- end of table -->"
    head, found, rest = page.partition(before)
    if not found or after not in rest:
        raise SystemExit(f"{PAGE.name} has no place for the table {name}: add the lines {before.strip()} and {after}.")
    return f"{head}{before}\n{table}\n\n{after}{rest.partition(after)[2]}"


def make_cpu_table(folder: Path) -> str:
    """Returns the table of all tasks: mark, figure of a library, and score and time of each algorithm."""
    lines = [
        "| Task | Used for the defaults | Mark | SPO | PPO | JAX library | Source of mark and figure |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in CPU.read_tasks():
        rows = [read_row(folder, task["name"], algorithm) for algorithm in ("spo", "ppo")]
        library = f"{task['library']:g}" if "library" in task else "-"
        used = "yes" if task["developed"] else "no, held out"
        cells = [task["name"], used, f"{task['mark']:g}", *map(format_score, rows), library, task["source"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def make_gpu_table(folder: Path) -> str:
    """Returns the table of all tasks: score, time and speed of each algorithm."""
    lines = ["| Task | SPO | steps per second | PPO | steps per second | Hardware |", "|---|---|---|---|---|---|"]
    for task in GPU.read_tasks():
        cells, hardware = [task["name"]], "-"
        for algorithm in ("spo", "ppo"):
            row = read_row(folder, task["name"], algorithm)
            cells += [format_score(row), "-" if row is None else f"{row['env_steps_per_second']:,.0f}"]
            hardware = hardware if row is None else row["hardware"]
        lines.append(f"| {' | '.join([*cells, hardware])} |")
    return "\n".join(lines)


def read_row(folder: Path, task: str, algorithm: str) -> dict[str, Any] | None:
    """Returns the result of a row; None if it was not run."""
    path = folder / f"{task.replace('/', '-')}-{algorithm}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def format_score(row: dict[str, Any] | None) -> str:
    """Returns score, steps and seconds; bold if a mark was reached. Names an untrained network that was the best."""
    if row is None:
        return "not run"
    score = f"**{row['score']:.4g}**" if row.get("reached") else f"{row['score']:.4g}"
    note = ", untrained network" if row["untrained"] >= max(mean for _, mean in row["curve"]) else ""
    return f"{score} ({row['env_steps'] / 1e3:,.0f}k steps, {row['seconds']:.0f} s{note})"


if __name__ == "__main__":
    main(tyro.cli(Options))
