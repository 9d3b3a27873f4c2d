"""An overview of many runs, for `spo runs`: a line per run, from its small files and the end of metrics.jsonl.

All of metrics.jsonl is compared with its checksum, which is quick; only its end is parsed.
"""

import dataclasses
import datetime
import json
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spo.reports.formatting import HEADLINES, format_metric
from spo.reports.run_files import (
    Record,
    check_config,
    check_metrics,
    read_config,
    read_records,
    read_starts,
    read_summary,
)
from spo.reports.run_finding import runs_below
from spo.reports.runs import headline, latest_per_seed

#: Bytes at the end of metrics.jsonl that are read first. Each further part is as long as all before it.
_CHUNK = 1 << 13


@dataclasses.dataclass(frozen=True)
class Overview:
    """A run in a list of runs. The fields of a damaged run are empty where they can't be read."""

    folder: Path
    """Folder of the run."""
    started: float
    """Time of the first start, in seconds since 1970."""
    task: str = ""
    algorithm: str = ""
    num_seeds: int = 1
    env_steps: int = 0
    """Environment steps of one seed so far."""
    metric: str = ""
    """Name of the metric that scores the run; empty before the first evaluation."""
    result: float = float("nan")
    """Mean of the metric over seeds: of the final evaluation, or of the latest one."""
    untrained: bool = False
    """True if the result is that of the network before training, because no later evaluation was better."""
    state: str = ""
    """ "finished", the share of the steps that are done, or "damaged"."""
    damage: str = ""
    """A sentence about the file that can't be read."""

    @property
    def result_text(self) -> str:
        if not self.metric:
            return ""
        words = f"{HEADLINES[self.metric]} {format_metric(self.metric, self.result)}"
        return f"{words} (untrained)" if self.untrained else words


def list_overviews(root: Path) -> list[Overview]:
    """Returns an overview of every run under `root`, oldest first. A run that can't be read is listed as damaged."""
    found = map(read_overview, runs_below(Path(root)))
    return sorted(found, key=lambda overview: (overview.started, str(overview.folder)))


def read_overview(folder: Path) -> Overview:
    """Returns the overview of the run in a folder, which has a config.json."""
    started = (folder / "config.json").stat().st_mtime
    try:
        config = read_config(folder)
    except (ValueError, OSError) as error:
        return _damaged(Overview(folder, started), error)
    known = Overview(folder, started, str(config["task"]), str(config["algorithm"]))
    try:
        return _read(known, config)
    # Any damaged file, with any content: one run must not keep the others from the list.
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        return _damaged(known, error)


def _read(known: Overview, config: Record) -> Overview:
    check_config(known.folder, config)
    started, starts = known.started, read_starts(known.folder)
    if starts and "time" in starts[0]:  # config.json is younger than the run in a copy
        started = datetime.datetime.strptime(starts[0]["time"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    summary, has_checksum = read_summary(known.folder), check_metrics(known.folder)
    values: dict[str, Any] = {"started": started, "num_seeds": int(config["num_seeds"])}
    if summary is not None:
        if not has_checksum:  # an earlier version: the results are made from all lines
            read_records(known.folder / "metrics.jsonl")
        metric = "episode/solved" if "final_solve_rate" in summary else "episode/return"
        values |= {
            "env_steps": int(summary["env_steps"]),
            "metric": metric,
            "result": float(summary["final_solve_rate" if metric == "episode/solved" else "final_return"]),
            # A run that starts from a learner begins with trained parameters.
            "untrained": not config.get("start_from") and not any(summary.get("best_env_steps_per_seed", [1])),
            "state": "finished",
        }
        return dataclasses.replace(known, **values)
    records = read_last_records(known.folder / "metrics.jsonl")
    evaluations = latest_per_seed(records, "evaluation")
    if evaluations:
        metric = headline(evaluations)
        scores = [record["metrics"][metric] for record in evaluations]
        values |= {"metric": metric, "result": statistics.fmean(scores)}
    env_steps = int(records[-1]["env_steps"]) if records else 0
    share = min(1.0, env_steps / config["steps"])
    return dataclasses.replace(known, **values, env_steps=env_steps, state=f"at {share:.0%}")


def read_last_records(path: Path) -> list[Record]:
    """Reads the end of a metrics file: enough lines to contain the last evaluation, or all of them.

    Skips an incomplete last line, which an interrupted run may leave.
    """
    if not path.exists():
        return []
    text = b""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - max(_CHUNK, len(text)))
            file.seek(start)
            text = file.read(position - start) + text
            position = start
            lines = text.splitlines(keepends=True)[bool(position) :]  # the first line begins before the chunk
            # Evaluations of all seeds follow each other. One that begins inside this part is complete.
            kinds = ["evaluation" if b'"kind": "evaluation"' in line else "other" for line in lines]
            if "evaluation" in kinds and "other" in kinds[: kinds.index("evaluation")]:
                break
        lines = text.splitlines(keepends=True)[bool(position) :]
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise ValueError(f"A line of {path} is not JSON: the file was changed or damaged.") from None
    return records


def _damaged(known: Overview, error: Exception) -> Overview:
    reason = str(error) if isinstance(error, ValueError | OSError) else f"A file lacks what a run has ({error!r})."
    return dataclasses.replace(known, state="damaged", damage=reason)


# --- Choice and order -------------------------------------------------------------------------------------------------


def select(
    overviews: Iterable[Overview], *, task: str = "", algorithm: str = "", since: float = float("-inf")
) -> list[Overview]:
    """Returns the runs whose task contains a text, with this algorithm, started at this time or later."""
    return [
        overview
        for overview in overviews
        if task in overview.task and algorithm in ("", overview.algorithm) and overview.started >= since
    ]


def sort(overviews: Iterable[Overview], key: str) -> list[Overview]:
    """Returns the runs in the order of a column of `spo runs`: the best result first, everything else ascending."""

    def value(overview: Overview) -> Any:
        if key == "result":  # a share of solved episodes is not compared with a return; runs without a result are last
            known = overview.metric != "" and overview.result == overview.result
            return (not known, overview.metric, -overview.result if known else 0.0)
        names = {"run": "folder", "steps": "env_steps"}
        return getattr(overview, names.get(key, key))

    return sorted(overviews, key=lambda overview: (value(overview), overview.started))


def parse_since(text: str, now: datetime.datetime) -> float:
    """Returns the time that a text names: a date (2026-11-01), a date and time (2026-11-01 12:30), or days (7d)."""
    try:
        if text.endswith("d") and text[:-1].isdecimal():
            return (now - datetime.timedelta(days=int(text[:-1]))).timestamp()
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no date: write 2026-11-01, 2026-11-01T12:30, or 7d for the last seven days."
        ) from None
