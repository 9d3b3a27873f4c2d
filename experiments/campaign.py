"""Lists, trains and stores the runs of the core scale (`_plan.py`).

    python experiments/campaign.py                         what is stored, what is missing, and the seconds it takes
    python experiments/campaign.py --work 540 --out OUT    train what is missing for 540 seconds, several runs side by
                                                           side, and write the records of finished runs to OUT
    python experiments/campaign.py --print-shell           the command line of the next call, and the runs it starts
    python experiments/campaign.py --unpack FILE ...       store the records of such files in results/runs/core
    python experiments/campaign.py --run NAME --store      train this run, or resume it, and store its records

Runs are trained in runs/core. A run that has not ended after the time is stopped, and resumed by the next call on the
same machine. Its last parameters are exported to OUT. A run is started only if it can end in this call and the later
ones. Stored runs have no checkpoints, no metrics of episodes but return, length and solved, and numbers of six digits:
a metrics file stays below 100 kB. Expected seconds are those of one program alone on an H200, from the speeds in
results/benchmarks/h200/training.json. Boxoban needs the public levels in the folder that SPO_DATA names.
"""

import argparse
import json
import math
import pathlib
import sys
import tarfile
import tempfile
from typing import Any

from _claims import ROOT
from _plan import (
    CLAIMS,
    expected_seconds,
    further_evaluations,
    known_speed,
    lacks_levels,
    max_seconds,
    planned_runs,
    runs_of,
)
from _programs import START_SECONDS, Limits, run_side_by_side
from _runs import CORE_RUNS

from spo import files
from spo.reports.run_files import METRICS_CHECKSUM, read_records, read_summary, with_checksum

STORED_FILES = ("config.json", "environment.json", "metrics.jsonl", "summary.json")
EPISODES = ("episode", "greedy", "drawn", "policy_only", "last")
EPISODE_METRICS = ("return", "length", "solved", "return_deviation", "count")
MAX_METRICS_BYTES = 100_000
MAX_EXPORT_BYTES = 16 << 20


# --- State ------------------------------------------------------------------------------------------------------------
def evaluation_file(name: str) -> str:
    return f"evaluation_{name}.json"


def is_done(experiment: Any, folder: pathlib.Path) -> bool:
    """Returns True if a run is finished and has all its evaluations."""
    files_ = [folder / evaluation_file(name) for name in further_evaluations(experiment)]
    return read_summary(folder) is not None and all(path.exists() for path in files_)


def missing_runs(runs: dict[str, Any], folder: pathlib.Path, target: pathlib.Path) -> dict[str, Any]:
    """Returns the runs that are neither stored nor finished in `folder`."""
    return {
        name: run for name, run in runs.items() if not is_done(run, target / name) and not is_done(run, folder / name)
    }


def print_status(runs: dict[str, Any], folder: pathlib.Path, target: pathlib.Path) -> None:
    """Prints one line per run, the sum of what is missing, and the size of what is stored."""
    missing, left = missing_runs(runs, folder, target), 0.0
    for name, experiment in runs.items():
        seconds = expected_seconds(experiment)
        state = "stored" if is_done(experiment, target / name) else "missing" if name in missing else "trained"
        if state == "missing" and (folder / name / "config.json").exists():
            state = "started"
        left += seconds if name in missing else 0
        cost = f"{seconds:,.0f} s{'' if known_speed(experiment) else ' or less, never timed'}"
        print(f"{state:8} {name:45} {experiment.num_seeds} x {experiment.steps:<8.2g} {cost}")
    sizes = [path.stat().st_size for name in runs if (path := target / name / "metrics.jsonl").exists()]
    print(f"Left: {len(missing)} of {len(runs)} runs, about {left:,.0f} s of training, without compilation.")
    if sizes:
        print(f"Stored metrics: {sum(sizes) / 1e6:.1f} MB in {len(sizes)} files, at most {max(sizes) / 1e3:.0f} kB.")


# --- Training ---------------------------------------------------------------------------------------------------------
def train(name: str, experiment: Any, folder: pathlib.Path, limit: float = math.inf) -> None:
    """Trains one run for at most `limit` seconds, or resumes it, and evaluates it further."""
    from spo.cli.saved import evaluate
    from spo.training import loop

    def stop_in_time(metrics: dict[str, float], handle: Any) -> None:
        del metrics
        if handle.records[0]["time"]["wall_seconds"] >= limit:
            handle.stop()

    run = folder / name
    loop.train(experiment, run, resume=(run / "config.json").exists(), callbacks=[stop_in_time])
    for evaluation, options in further_evaluations(experiment).items():
        file = run / evaluation_file(evaluation)
        if not file.exists():
            evaluate(str(run), *options, "--out", str(file))


def next_programs(runs: dict[str, Any], folder: pathlib.Path, target: pathlib.Path) -> dict[str, float]:
    """Returns the seconds of the runs to train, in their order: those that were started first, then the longest."""
    missing = {name: run for name, run in missing_runs(runs, folder, target).items() if not lacks_levels(run)}
    left = {name: seconds_left(run, folder / name) for name, run in missing.items()}

    def order(name: str) -> tuple[bool, float]:
        return not (folder / name / "config.json").exists(), -left[name]

    return {name: START_SECONDS + left[name] for name in sorted(missing, key=order)}


def seconds_left(experiment: Any, folder: pathlib.Path) -> float:
    """Returns the expected seconds of what is left of a run."""
    seconds = expected_seconds(experiment)
    metrics = folder / "metrics.jsonl"
    done = [record["env_steps"] for record in read_records(metrics)] if metrics.exists() else []
    return seconds * max(0.0, 1 - max(done, default=0) / experiment.steps)


def work(runs: dict[str, Any], options: argparse.Namespace) -> None:
    """Trains missing runs until the time is over, and writes the records of all finished ones to `options.out`."""
    share = options.side_by_side

    def command(name: str) -> list[str]:
        words = [sys.executable, __file__, "--scale", options.scale, "--run", name, "--folder", options.folder]
        return [*map(str, words), "--share", str(share)]

    options.folder.mkdir(parents=True, exist_ok=True)
    programs = next_programs(runs, options.folder, options.target)
    run_side_by_side(programs, command, options.folder, Limits(share, options.work, options.later))
    if options.out is not None:
        pack(runs, options.folder, options.target, options.out)


# --- Storing ----------------------------------------------------------------------------------------------------------
def store(name: str, experiment: Any, folder: pathlib.Path, target: pathlib.Path = CORE_RUNS) -> None:
    """Copies the records of a finished run, without checkpoints. Its metrics get six digits."""
    source = folder / name
    if not is_done(experiment, source):
        sys.exit(f"{source} is not finished: run it again without --store.")
    (target / name).mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "environment.json", *map(evaluation_file, further_evaluations(experiment))):
        (target / name / file).write_bytes((source / file).read_bytes())
    metrics = target / name / "metrics.jsonl"
    lines = [json.dumps(compact(record), separators=(",", ":")) for record in read_records(source / "metrics.jsonl")]
    metrics.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    summary = (read_summary(source) or {}) | {METRICS_CHECKSUM: files.crc32(metrics)}
    (target / name / "summary.json").write_text(json.dumps(with_checksum(summary), indent=2) + "\n", encoding="utf-8")
    if metrics.stat().st_size > MAX_METRICS_BYTES:
        print(f"{metrics} has {metrics.stat().st_size:,} bytes: write fewer records.", file=sys.stderr)


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record without the environment's own metrics of episodes, and with floats of six digits."""

    def is_kept(name: str) -> bool:
        prefix, _, metric = name.partition("/")
        return prefix not in EPISODES or metric in EPISODE_METRICS

    kept = {name: value for name, value in record["metrics"].items() if is_kept(name)}
    return _rounded({**record, "metrics": kept})


def _rounded(value: Any) -> Any:
    """Returns records with floats of six digits."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def pack(runs: dict[str, Any], folder: pathlib.Path, target: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the records of finished runs that are not stored yet to one file, and exports the others."""
    from spo.training.saved_learners import export_learner

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as draft, tarfile.open(out / "records.tar.gz", "w:gz") as archive:
        for name, run in runs.items():
            if is_done(run, folder / name) and not is_done(run, target / name):
                store(name, run, folder, pathlib.Path(draft))
                archive.add(pathlib.Path(draft) / name, name)
    for name, run in runs.items():
        file = out / f"{name}.npz"
        if (folder / name / "checkpoints").is_dir() and not is_done(run, folder / name):
            try:
                export_learner(folder / name, file, "last")
            except (ValueError, OSError) as error:  # stopped before its first checkpoint
                print(f"{name} is not exported: {error}")
            if file.exists() and file.stat().st_size > MAX_EXPORT_BYTES:
                print(f"{name} is not exported: its file has {file.stat().st_size / 1e6:.0f} MB")
                file.unlink()


def unpack(paths: list[pathlib.Path], runs: dict[str, Any], target: pathlib.Path) -> None:
    """Stores the records of these files."""
    for path in paths:
        with tarfile.open(path) as archive:
            unknown = {member.name.split("/")[0] for member in archive.getmembers()} - runs.keys()
            if unknown:
                sys.exit(f"{path} has records of {', '.join(sorted(unknown))}, which is no run of this plan.")
            archive.extractall(target, filter="data")


def print_shell(runs: dict[str, Any], options: argparse.Namespace) -> None:
    """Prints the command line of the next call, and the runs that it starts first."""
    seconds = options.work or 540.0
    words = ["--scale", options.scale, *(["--only", *options.only] if options.only else []), "--work", f"{seconds:g}"]
    words += ["--later", f"{options.later:g}", "--side-by-side", str(options.side_by_side), "--out"]
    print(f'python experiments/campaign.py {" ".join(words)} "$OUT"')
    free = seconds + options.later
    for name, cost in next_programs(runs, options.folder, options.target).items():
        if cost <= free:
            free -= cost
            print(f"#  {name}, about {cost:,.0f} s alone")
    for name in [name for name, run in runs.items() if lacks_levels(run)]:
        print(f"#  {name} is left out: SPO_DATA must name the folder with the Boxoban levels")


def main() -> None:
    options = parse()
    if options.folders_of:
        print(*(options.target / name for name in runs_of(options.folders_of, options.scale)))
        return
    runs = planned_runs(options.scale)
    if unknown := set(options.run) - runs.keys():
        sys.exit(f"There is no run {', '.join(sorted(unknown))}: `python experiments/campaign.py` lists them.")
    for name in options.run:
        train(name, runs[name], options.folder, max_seconds(runs[name]) * options.share)
        if options.store:
            store(name, runs[name], options.folder, options.target)
    if options.only:
        runs = {name: run for name, run in runs.items() if any(part in name for part in options.only)}
    if options.unpack:
        unpack(options.unpack, runs, options.target)
    if options.print_shell:
        print_shell(runs, options)
    elif options.work is not None:
        work(runs, options)
    if not options.run and not options.print_shell:
        print_status(runs, options.folder, options.target)


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("core", "smoke"), default="core", help="smoke: tests the campaign itself")
    parser.add_argument("--run", nargs="+", default=[], metavar="NAME", help="train these runs")
    parser.add_argument("--store", action="store_true", help="store the records of these runs")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="runs whose names contain one of these")
    parser.add_argument("--work", type=float, metavar="SECONDS", help="train missing runs for this time")
    parser.add_argument(
        "--later",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="time of later calls on the same machine, in which runs can be resumed",
    )
    parser.add_argument("--side-by-side", type=int, default=3, help="programs at the same time")
    parser.add_argument("--share", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the records of finished runs, as one file")
    parser.add_argument("--print-shell", action="store_true", help="print the command line of the next call")
    parser.add_argument("--unpack", nargs="+", type=pathlib.Path, default=[], metavar="FILE", help="store records")
    parser.add_argument("--folders-of", choices=CLAIMS, help="print the folders of a claim's stored runs")
    parser.add_argument("--folder", type=pathlib.Path, help="folder of the training runs")
    parser.add_argument("--target", type=pathlib.Path, help="folder of the stored runs")
    options = parser.parse_args()
    options.folder = options.folder or ROOT / "runs" / options.scale
    options.target = options.target or (CORE_RUNS if options.scale == "core" else options.folder / "stored")
    return options


if __name__ == "__main__":
    main()
