"""The frame of every experiment: claim, scale, finding, command line and the table of all claims.

An experiment is a file with a `CLAIM` and a function from a `Setup` to its `Finding`s, one for each part of the claim.
Its last line calls `main`. A finding is stored as results/claims/NAME.SCALE.json, or NAME.PART.SCALE.json, next to its
picture. `claims.py` writes results/claims.md from these files. A finding is valid for its scale only.
"""

import argparse
import datetime
import json
import pathlib
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from spo.provenance import git_commit, num_cores
from spo.reports import figures

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCALES = ("smoke", "cpu", "core", "paper")
Outcome = Literal["held", "not held", "undecided"]
AXIS_PARTS = {
    "": ("smoke", "cpu", "paper"),
    **{
        f"{rivals}per {axis}": ("smoke", "cpu", "core", "paper")
        for rivals in ("", "SMC-ENT ")
        for axis in ("step", "second")
    },
}
"""Parts of the claims about baselines: final scores at equal steps, and curves at equal steps and seconds."""


class Claim(NamedTuple):
    """A claim of the paper, or of this project."""

    number: int
    name: str
    """Name of the experiment's file and of its results."""
    title: str
    statement: str
    parts: Mapping[str, tuple[str, ...]] = {"": ("smoke", "cpu", "paper")}
    """Parts with a verdict of their own, and the scales of each. The part without a name is the whole claim."""

    def file_name(self, part: str, scale: str) -> str:
        """Returns the name of the file of a finding."""
        return ".".join(filter(None, (self.name, re.sub(r"[^a-z0-9]+", "_", part.lower()), scale, "json")))


class Setup(NamedTuple):
    """Options of one run of an experiment."""

    claim: Claim
    scale: str
    runs: pathlib.Path
    """Folder of this claim for files that are used again."""
    out: pathlib.Path
    """Folder of the findings."""
    steps: float | None = None
    """Environment steps of every training run. None: those of the scale."""
    num_seeds: int | None = None
    """Seeds of every training run. None: those of the scale."""
    tasks: tuple[str, ...] = ()
    """Tasks of the scale to use. Empty: all of them."""
    against: tuple[str, ...] = ()
    """Rivals to compare with. Empty: all of them."""

    @property
    def shortened(self) -> str:
        """Options that make the training of the scale shorter, as on the command line. Empty if there are none."""
        text = "".join(
            f" --{name} {shlex.join(chosen)}"
            for name, chosen in (("tasks", self.tasks), ("against", self.against))
            if chosen
        )
        text += "" if self.steps is None else f" --steps {self.steps:g}"
        return text + ("" if self.num_seeds is None else f" --num-seeds {self.num_seeds}")


class Origin(NamedTuple):
    """Hardware and commit of training runs, which may come from another machine."""

    hardware: str
    commit: str


class Finding(NamedTuple):
    """Result of an experiment at one scale."""

    verdict: Outcome
    sentence: str
    number: float | None = None
    """Number that the verdict depends on."""
    number_name: str = ""
    interval: tuple[float, float] | None = None
    """95 % interval of the number."""
    details: Mapping[str, Any] = {}
    figure: Figure | None = None
    origin: Origin | None = None
    """Origin of the training runs. None: this machine and this source."""
    part: str = ""
    """Part of the claim that the verdict is about."""


def decide_by_intervals(intervals: Iterable[tuple[float, float, float]]) -> Outcome:
    """Returns held if all intervals (value, low, high) are above zero, not held if one is below it."""
    intervals = list(intervals)
    if all(low > 0 for _, low, _ in intervals):
        return "held"
    return "not held" if any(high < 0 for *_, high in intervals) else "undecided"


def main(
    claim: Claim,
    find: Callable[[Setup], Finding | Sequence[Finding]],
    tasks: Sequence[str] = (),
    rivals: Sequence[str] = (),
) -> None:
    """Runs the command line of an experiment.

    Args:
        claim: the claim.
        find: the experiment.
        tasks: tasks of the paper scale, if some of them can be chosen.
        rivals: rivals, if some of them can be chosen.
    """
    parser = argparse.ArgumentParser(description=f"Claim {claim.number}, {claim.title}. {claim.statement}")
    parser.add_argument(
        "--scale",
        choices=[scale for scale in SCALES if any(scale in scales for scales in claim.parts.values())],
        default="cpu",
        help="smoke: tests that the program runs; cpu: 10 to 20 minutes on two cores; core: the stored runs of "
        "experiments/campaign.py; paper: the paper's settings",
    )
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "claims", help="folder of training runs")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "claims", help="folder of findings")
    parser.add_argument("--steps", type=float, help="environment steps of every training run, per seed")
    parser.add_argument("--num-seeds", type=int, help="seeds of every training run")
    if tasks:
        parser.add_argument("--tasks", nargs="+", choices=tasks, default=[], help="some tasks of the paper scale")
    if rivals:
        parser.add_argument("--against", nargs="+", choices=rivals, default=[], help="some of the rivals")
    options = parser.parse_args()
    chosen, against = (tuple(getattr(options, name, ())) for name in ("tasks", "against"))
    if chosen and options.scale != "paper":
        parser.error("--tasks needs --scale paper: the smaller scales have one task each.")
    folder = options.runs / options.scale / claim.name
    setup = Setup(claim, options.scale, folder, options.out, options.steps, options.num_seeds, chosen, against)
    start = time.perf_counter()
    found = find(setup)
    seconds = time.perf_counter() - start
    for finding in [found] if isinstance(found, Finding) else found:
        path = write(setup, finding, seconds)
        title = f"Claim {claim.number}{f', {finding.part},' if finding.part else ''} at scale {setup.scale}"
        print(f"\n{title}: {finding.verdict}. {finding.sentence}\nWritten to {path}.")


def write(setup: Setup, finding: Finding, seconds: float) -> pathlib.Path:
    """Writes a finding as JSON and its figure as PNG, and returns the path of the JSON file."""
    setup.out.mkdir(parents=True, exist_ok=True)
    if setup.scale not in setup.claim.parts.get(finding.part, ()):
        raise ValueError(f"Claim {setup.claim.number} has no part {finding.part!r} at scale {setup.scale}.")
    path = setup.out / setup.claim.file_name(finding.part, setup.scale)
    origin = finding.origin or Origin(hardware(), str(git_commit()))
    record = {
        "claim": setup.claim.number,
        "name": setup.claim.name,
        "part": finding.part,
        "title": setup.claim.title,
        "statement": setup.claim.statement,
        "scale": setup.scale,
        "shortened": setup.shortened.strip(),
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "number": finding.number,
        "number_name": finding.number_name,
        "interval": finding.interval,
        "command": f"python experiments/{setup.claim.name}.py --scale {setup.scale}{setup.shortened}",
        "commit": git_commit(),
        "commit_of_runs": origin.commit,
        "hardware": origin.hardware,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds, 1),
        "details": finding.details,
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if finding.figure is not None:
        figures.save(finding.figure, path.with_suffix(".png"))
    return path


def hardware() -> str:
    """Returns the devices of this process."""
    import jax

    return format_hardware(len(jax.devices()), jax.devices()[0].device_kind)


def format_hardware(num_devices: int, kind: str) -> str:
    """Formats a number of devices of one kind. A CPU is one device with several cores."""
    if kind != "cpu":
        return f"{num_devices} x {kind}"
    cores = num_cores()
    return f"{cores} CPU {'core' if cores == 1 else 'cores'} ({platform.machine()})"


# --- The table of all claims ------------------------------------------------------------------------------------------
def claims_table(folder: pathlib.Path, claims: Sequence[Claim]) -> str:
    """Returns results/claims.md from the findings in a folder."""
    columns = (
        "Claim",
        "Scale",
        "Verdict",
        "Number (95 % interval)",
        "Finding",
        "Command",
        "Commit",
        "Hardware",
        "Date",
    )
    lines = [
        "# The paper's claims and their verdicts",
        "",
        "Written by `python experiments/claims.py` from the files in `results/claims/`. There is one row per claim,",
        "part and scale. A verdict is valid for its scale only. It is undecided if the interval contains both answers.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for claim in claims:
        for part, scale in ((part, scale) for part, scales in claim.parts.items() for scale in scales):
            path = folder / claim.file_name(part, scale)
            title = f"{claim.number}. {claim.title}{f': {part}' if part else ''}"
            if path.exists():
                cells = _table_cells(title, scale, json.loads(path.read_text("utf-8")))
            else:
                command = f"`python experiments/{claim.name}.py --scale {scale}`"
                cells = [title, scale, "not run", "", "", command, "", "", ""]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _table_cells(title: str, scale: str, record: Mapping[str, Any]) -> list[str]:
    number = "" if record["number"] is None else f"{record['number_name']} {record['number']:.3g}"
    if record["interval"] is not None:
        number += " ({:.3g} to {:.3g})".format(*record["interval"])
    shortened = record.get("shortened")
    return [
        title,
        f"{scale}, `{shortened}`" if shortened else scale,
        f"**{record['verdict']}**",
        number,
        describe(record),
        f"`{record['command']}`",
        _format_commits(record),
        f"{record['hardware']}, {record['seconds']:.0f} s",
        record["date"],
    ]


def _format_commits(record: Mapping[str, Any]) -> str:
    """Formats the commit of the experiment, and that of its runs if it is another one."""
    commit, of_runs = record.get("commit"), record.get("commit_of_runs")
    if commit is None:
        return "not recorded"
    return _shorten(commit) if of_runs in (None, commit) else f"{_shorten(commit)}, runs {_shorten(of_runs)}"


def _shorten(commits: str) -> str:
    """Shortens hashes of 40 digits to 10."""
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}", r"\1", commits)


def describe(record: Mapping[str, Any]) -> str:
    """Returns the sentence of a finding, with its network and the budgets left out if the sentence has not got them."""
    details = record["details"]
    sentences = [record["sentence"]]
    left_out = {name: budgets for name, budgets in details.get("left out", {}).items() if budgets}
    for name, budgets in left_out.items():
        sentences.append(f"Left out, because it takes too long: {name} at {' and '.join(map(str, budgets))}.")
    if "network" in details and details["network"] not in record["sentence"]:
        sentences.append(f"Network: {details['network']}.")
    return " ".join(sentences)


if __name__ == "__main__":
    sys.exit("The experiments share this file. Run one of them, or claims.py for the table.")
