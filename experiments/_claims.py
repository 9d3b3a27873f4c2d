"""What every experiment shares: scales, runs that are trained once, a finding in words, and the table of all claims.

An experiment is a file with a `CLAIM` and a function from a `Setup` to a `Finding`, and ends with `_claims.main`. What
it finds goes to results/claims/NAME.SCALE.json, beside its picture; results/claims.md is made from those files, and
nothing in it by hand. A finding belongs to the scale it was made at.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
import math
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from spo.reports import figures, statistics
from spo.reports.comparison import Comparison, Judgement, compare, judge, verdict
from spo.reports.runs import load_runs
from spo.reports.statistics import Verdict

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCALES = ("smoke", "cpu", "paper")
HELD = Literal["held", "not held", "undecided"]


class Claim(NamedTuple):
    """What the paper says, or what we say beyond it."""

    number: int
    name: str  # of the file and of its results
    title: str
    says: str


class Setup(NamedTuple):
    """How an experiment is run this time."""

    claim: Claim
    scale: str
    runs: pathlib.Path  # this claim's own folder for what is kept from one time to the next
    out: pathlib.Path  # folder of the findings
    steps: float | None = None  # of every training run, where that is not what the scale has
    num_seeds: int | None = None  # as well
    worlds: tuple[str, ...] = ()  # some of the scale's; empty: all of them
    against: tuple[str, ...] = ()  # some of the rivals; empty: all of them

    @property
    def shortened(self) -> str:
        """How training differs from what the scale has, in the words of the command line; empty if it does not."""
        text = "".join(
            f" --{name} {' '.join(chosen)}"
            for name, chosen in (("worlds", self.worlds), ("against", self.against))
            if chosen
        )
        text += "" if self.steps is None else f" --steps {self.steps:g}"
        return text + ("" if self.num_seeds is None else f" --num-seeds {self.num_seeds}")


class Finding(NamedTuple):
    """What came out, at this scale."""

    verdict: HELD
    sentence: str
    number: float | None = None  # what the verdict rests on, with its name and 95 % interval
    number_name: str = ""
    interval: tuple[float, float] | None = None
    details: Mapping[str, Any] = {}
    figure: Figure | None = None
    hardware: str | None = None  # that its runs were trained on; None: what this is


def main(
    claim: Claim, find: Callable[[Setup], Finding], worlds: Sequence[str] = (), rivals: Sequence[str] = ()
) -> None:
    """The command line of an experiment. Of one that names its worlds (of the paper's scale) and rivals, some may be
    chosen."""
    parser = argparse.ArgumentParser(description=f"Claim {claim.number}, {claim.title}. {claim.says}")
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="cpu",
        help="smoke: that it runs; cpu: ten to twenty minutes on two cores; paper: the paper's settings, for a GPU",
    )
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "claims", help="where training runs lie")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "claims", help="where findings go")
    parser.add_argument("--steps", type=float, help="environment steps of every training run, per seed, if others")
    parser.add_argument("--num-seeds", type=int, help="seeds of every training run, if others")
    if worlds:
        parser.add_argument("--worlds", nargs="+", choices=worlds, default=[], help="scale paper: these of them only")
    if rivals:
        parser.add_argument("--against", nargs="+", choices=rivals, default=[], help="these of the rivals only")
    options = parser.parse_args()
    chosen = tuple(getattr(options, "worlds", ()))
    against = tuple(getattr(options, "against", ()))
    if chosen and options.scale != "paper":
        parser.error("--worlds chooses among those of the scale paper: the smaller scales have one world each.")
    folder = options.runs / options.scale / claim.name
    setup = Setup(claim, options.scale, folder, options.out, options.steps, options.num_seeds, chosen, against)
    start = time.perf_counter()
    finding = find(setup)
    path = write(setup, finding, time.perf_counter() - start)
    print(f"\nClaim {claim.number} at scale {setup.scale}: {finding.verdict}. {finding.sentence}\nWritten to {path}.")


def write(setup: Setup, finding: Finding, seconds: float) -> pathlib.Path:
    setup.out.mkdir(parents=True, exist_ok=True)
    path = setup.out / f"{setup.claim.name}.{setup.scale}.json"
    record = {
        "claim": setup.claim.number,
        "name": setup.claim.name,
        "title": setup.claim.title,
        "says": setup.claim.says,
        "scale": setup.scale,
        "shortened": setup.shortened.strip(),
        **{name: value for name, value in finding._asdict().items() if name not in ("figure", "details", "hardware")},
        "command": f"python experiments/{setup.claim.name}.py --scale {setup.scale}{setup.shortened}",
        "hardware": finding.hardware or hardware(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds, 1),
        "details": finding.details,
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if finding.figure is not None:
        figures.save(finding.figure, path.with_suffix(""))
    return path


def hardware() -> str:
    import jax

    return _hardware(len(jax.devices()), jax.devices()[0].device_kind)


def _hardware(num_devices: int, kind: str) -> str:
    return f"{os.cpu_count()} CPU cores ({platform.machine()})" if kind == "cpu" else f"{num_devices} x {kind}"


# --- Training runs ----------------------------------------------------------------------------------------------------
def train_all(setup: Setup, experiments: Mapping[str, Any]) -> dict[str, pathlib.Path]:
    """Trains what is missing, goes on with what was interrupted, and returns the folders by name.

    The folder of a run is named after what it is, so that claims share the runs they have in common.
    """
    from spo.training import loop

    others = {"steps": setup.steps, "num_seeds": setup.num_seeds}
    others = {name: value for name, value in others.items() if value is not None}
    experiments = {name: dataclasses.replace(experiment, **others) for name, experiment in experiments.items()}
    folders = {name: setup.runs.parent / run_name(experiment) for name, experiment in experiments.items()}
    print(cost_sentence(setup, [e for name, e in experiments.items() if not finished(folders[name])]), flush=True)
    for name, experiment in experiments.items():
        if not finished(folders[name]):
            began = time.perf_counter()
            loop.train(experiment, folders[name], resume=(folders[name] / "config.json").exists())
            print(f"  {name}: {time.perf_counter() - began:.0f} s", flush=True)
    return folders


def run_name(experiment: Any) -> str:
    from spo.training.experiment import to_json

    digest = hashlib.sha256(json.dumps(to_json(experiment), sort_keys=True).encode()).hexdigest()
    return f"{experiment.task.replace('/', '-')}-{experiment.algorithm}-{digest[:8]}"


def finished(folder: pathlib.Path) -> bool:
    return (folder / "summary.json").exists()


def cost_sentence(setup: Setup, missing: Sequence[Any]) -> str:
    """What lies ahead, in hours where the speed of this device is known."""
    if not missing:
        return "All runs are there already."
    steps = sum(experiment.steps * experiment.num_seeds for experiment in missing)
    text = f"{len(missing)} runs to train, {steps:,.0f} environment steps"
    if setup.scale != "paper":
        return text
    seconds = [seconds_ahead(experiment) for experiment in missing]
    if any(s is None for s in seconds):
        return f"{text}; results/benchmarks has no speed of all of them on this device, so how long is not known"
    return (
        f"{text}: about {sum(s for s in seconds if s is not None) / 3600:.1f} hours at the speeds of results/benchmarks"
    )


def seconds_ahead(experiment: Any) -> float | None:
    import jax

    for path in (ROOT / "results" / "benchmarks").glob("*/training*.json"):
        for row in json.loads(path.read_text()):
            same = (row["algorithm"], row["task"]) == (experiment.algorithm, experiment.task)
            if same and row["device"] == jax.devices()[0].device_kind and row["num_seeds"] == 1:
                return experiment.steps * experiment.num_seeds / row["env_steps_per_second"]
    return None


def trained_on(folders: Iterable[pathlib.Path]) -> str:
    """The devices of the runs, which may have been trained elsewhere than where they are compared."""
    starts = [
        start for folder in folders for start in json.loads((folder / "environment.json").read_text("utf-8"))["starts"]
    ]
    return ", ".join(dict.fromkeys(_hardware(start["num_devices"], start["device"]) for start in starts))


def compare_runs(folders: Mapping[str, pathlib.Path], by: str | None = None) -> tuple[Comparison, Judgement]:
    """Groups are the values of the setting `by`, or, without it, the runs by their names."""
    names = {folder.resolve(): name for name, folder in folders.items()}
    comparison = compare(load_runs([str(folder) for folder in folders.values()]), by=by or "algorithm")
    if by is None:
        results = tuple(result._replace(group=names[result.run.folder.resolve()]) for result in comparison.results)
        comparison = comparison._replace(by="setting", groups=tuple(folders), results=results, notes=())
    return comparison, judge(comparison)


class Family(NamedTuple):
    """One setting, the champion, against each of its rivals.

    That the champion is better than all of them needs no correction: every comparison must agree. To find that some
    rival is better, and a claim not held, needs one, because chance has as many tries as there are rivals: Holm's, of
    one-sided p-values, so that it happens to at most 5 % of champions who are as good as their rivals. A rival that is
    better without it only leaves a claim undecided.
    """

    champion: str
    verdicts: dict[str, Verdict]  # the champion against each rival
    holm: dict[str, float]  # rival -> adjusted p-value of its being better

    @property
    def worse(self) -> list[str]:
        """Rivals that the champion is better than."""
        return [name for name, against in self.verdicts.items() if against.better == self.champion]

    @property
    def better(self) -> list[str]:
        """Rivals that are better than the champion, with Holm's correction."""
        return [name for name in self.better_uncorrected if self.holm[name] <= statistics.LEVEL]

    @property
    def better_uncorrected(self) -> list[str]:
        return [name for name, against in self.verdicts.items() if against.better == name]

    @property
    def better_in_words(self) -> str:
        doubtful = [name for name in self.better_uncorrected if name not in self.better]
        words = ", ".join(self.better) or "none"
        if doubtful:
            adjusted = (f"{name} ({statistics.p_in_words(self.holm[name])} with it)" for name in doubtful)
            words += f"; before Holm's correction for {len(self.verdicts)} rivals also {', '.join(adjusted)}"
        return words

    def record(self) -> dict[str, Any]:
        """As plain numbers, with null for what there is none of."""
        return {
            name: {
                "probability": [None if math.isnan(x) else x for x in against.probability],
                "p": against.p_value,
                "p_holm": self.holm[name],
                "better": against.better,
            }
            for name, against in self.verdicts.items()
        }


def against_each(comparison: Comparison, champion: str, rivals: Sequence[str]) -> Family:
    verdicts = {rival: verdict(comparison, champion, rival) for rival in rivals}
    # With as many seeds on both sides the test is symmetric: half of the two-sided p-value is that of the rival's side.
    # Where the champion is ahead, nothing speaks for the rival.
    p_values = [v.p_value / 2 if v.probability.value < 0.5 else 1.0 for v in verdicts.values()]
    adjusted = statistics.holm(p_values)
    return Family(champion, verdicts, dict(zip(verdicts, adjusted, strict=True)))


def better_than_each(
    setup: Setup,
    runs: Mapping[str, Any],
    champion: str,
    others: Sequence[str],
    by: str | None = None,
    beside: Sequence[str] = (),
) -> Finding:
    """Trains the runs and finds whether one group is better than each of the others: held if it is, not held if one of
    them is better than it, undecided otherwise. The number is that of the closest of them. What a claim says nothing
    about is compared, too, `beside` them."""
    folders = train_all(setup, runs)
    comparison, judgement = compare_runs(folders, by)
    family = against_each(comparison, champion, others)
    further = against_each(comparison, champion, beside)
    closest = min(family.verdicts.values(), key=lambda verdict: verdict.probability.value)
    held: HELD = "not held" if family.better else "held" if len(family.worse) == len(others) else "undecided"
    several = (
        f" That is the closest of {len(others)}. Better than {champion}: {family.better_in_words}."
        if len(others) > 1
        else ""
    )
    no_part = "".join(f" No part of the claim: {against.sentence}" for against in further.verdicts.values())
    return Finding(
        verdict=held,
        sentence=closest.sentence + several + no_part,
        number=closest.probability.value,
        number_name=f"P({champion} > {closest.names[1]})",
        interval=(closest.probability.low, closest.probability.high),
        details=estimates(judgement) | {"against": family.record() | further.record()},
        figure=figures.learning_curves(comparison, judgement),
        hardware=trained_on(folders.values()),
    )


def estimates(judgement: Judgement) -> dict[str, Any]:
    """Final scores and aggregates as plain numbers, for the record."""
    return {
        "final": {
            f"{group} on {task}": [value.value, value.low, value.high]
            for (group, task), value in judgement.finals.items()
        },
        "aggregates": {
            group: {name: [value.value, value.low, value.high] for name, value in metrics.items()}
            for group, metrics in judgement.aggregates.items()
        },
        "verdicts": [verdict.sentence for verdict in judgement.verdicts],
    }


def with_settings(experiment: Any, **settings: Any) -> Any:
    """The experiment with other settings; `search` takes a dictionary of the search's."""
    config = experiment.config
    if "search" in settings:
        config = dataclasses.replace(config, search=dataclasses.replace(config.search, **settings.pop("search")))
    of_config = {name: settings.pop(name) for name in list(settings) if hasattr(config, name)}
    return dataclasses.replace(experiment, config=dataclasses.replace(config, **of_config), **settings)


# --- The table of all claims ------------------------------------------------------------------------------------------
def claims_table(folder: pathlib.Path, claims: list[Claim]) -> str:
    """results/claims.md from the findings in a folder."""
    lines = [
        "# The paper's claims, and what was found",
        "",
        "Made by `python experiments/claims.py` from the files in `results/claims/`. One row per claim and scale: a",
        "verdict holds for the scale it was made at and says nothing about another. An interval that holds both",
        "answers is undecided.",
        "",
        "| Claim | Scale | Verdict | Number (95 % interval) | What was found | Command | Hardware | Date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for claim in claims:
        for scale in SCALES:
            path = folder / f"{claim.name}.{scale}.json"
            title = f"{claim.number}. {claim.title}"
            if not path.exists():
                command = f"python experiments/{claim.name}.py --scale {scale}"
                lines.append(f"| {title} | {scale} | not run | | | `{command}` | | |")
                continue
            record = json.loads(path.read_text("utf-8"))
            number = "" if record["number"] is None else f"{record['number_name']} {record['number']:.3g}"
            if record["interval"] is not None:
                number += " ({:.3g} to {:.3g})".format(*record["interval"])
            at = f"{scale}, `{record['shortened']}`" if record.get("shortened") else scale
            cells = [title, at, f"**{record['verdict']}**", number, what_was_found(record)]
            cells += [f"`{record['command']}`", f"{record['hardware']}, {record['seconds']:.0f} s", record["date"]]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def what_was_found(record: dict[str, Any]) -> str:
    """Its sentence, and what it was found with and without, where the sentence leaves that to the details."""
    details = record["details"]
    sentences = [record["sentence"]]
    left_out = {name: budgets for name, budgets in details.get("left out", {}).items() if budgets}
    for name, budgets in left_out.items():
        sentences.append(f"Left out, because it takes too long: {name} at {' and '.join(map(str, budgets))}.")
    if "network" in details and details["network"] not in record["sentence"]:
        sentences.append(f"Network: {details['network']}.")
    return " ".join(sentences)


if __name__ == "__main__":
    sys.exit("This is what the experiments share. Run one of them, or claims.py for the table.")
