"""Groups of runs: by one setting, or by the algorithm and the settings in which its runs differ."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spo.reports.run_files import CHECKSUM, Record
from spo.reports.runs import Run, find_setting, flatten

AUTO = "auto"
#: Entries of config.json in which repetitions of one experiment may differ, and those that are no settings.
_FREE = {"seed", "num_seeds", "num_devices", "steps", "logs_per_evaluation", "spo_version", "specs", CHECKSUM}
#: Settings that decide what is learned, in the order in which they are named. Others concern evaluations.
_LEARNING = ("config.", "network.", "start_from", "skip_nonfinite_updates", "task_options.")
#: Most settings in the name of a group, if they are enough to tell groups apart.
_NAMED = 3


class Groups(NamedTuple):
    """Name of the group of each run, and all names in order."""

    by: str
    """Heading of the groups: the setting in which they differ, or "settings" for several."""
    of_runs: tuple[str, ...]
    """Name of the group of each run."""
    names: tuple[str, ...]
    """Names of all groups, sorted by their settings."""


def group_by_setting(runs: Sequence[Run], by: str) -> Groups:
    """Sorts runs into groups with the same value of one setting."""
    values = [_plain(find_setting(_with_start_file(run.config), by)) for run in runs]
    texts = list(map(json.dumps, values))
    names = {text: _value_name(by, value) for text, value in zip(texts, values, strict=True)}
    ordered = dict.fromkeys(names[json.dumps(value)] for value in sorted(values, key=_sort_key))
    return Groups(by, tuple(names[text] for text in texts), tuple(ordered))


def group_by_settings(runs: Sequence[Run], tasks: Sequence[str]) -> Groups:
    """Sorts runs into groups of one algorithm and equal settings of learning. Seeds of equal settings are one group.

    Only those settings count in which runs of one algorithm on one task differ: an algorithm may have other settings on
    another task. If the groups then have no task in common, the groups are the algorithms.

    Args:
        runs: the runs.
        tasks: name of the task of each run.
    """
    simple = group_by_setting(runs, "algorithm")
    different: dict[str, list[str]] = {}
    for algorithm, task in dict.fromkeys(zip(simple.of_runs, tasks, strict=True)):
        same = [r for r, a, t in zip(runs, simple.of_runs, tasks, strict=True) if (a, t) == (algorithm, task)]
        found = different.setdefault(algorithm, [])
        found += [name for name in differing_settings(same) if is_learning(name) and name not in found]
    settings = [
        tuple((name, _settings(run.config).get(name)) for name in sorted(different[algorithm], key=_order))
        for run, algorithm in zip(runs, simple.of_runs, strict=True)
    ]
    names = _settings_names(list(zip(simple.of_runs, settings, strict=True)))
    ordered = sorted(set(zip(simple.of_runs, settings, names, strict=True)), key=_settings_order)
    groups = Groups("settings", tuple(names), tuple(name for _, _, name in ordered))
    if len(groups.names) == len(simple.names) or not _share_a_task(groups, tasks):
        return simple
    return groups


def differing_settings(runs: Sequence[Run], by: str = "") -> list[str]:
    """Returns the settings in which runs differ, those of learning first. `by` and records are left out.

    A setting that only some of the runs store does not count: a version that lacks it used its default.
    """
    settings = [_settings(run.config) for run in runs]
    values: dict[str, set[str]] = {}
    for name, value in itertools.chain.from_iterable(each.items() for each in settings):
        values.setdefault(name, set()).add(value)
    excluded = (by, f"config.{by}")
    return sorted((name for name, found in values.items() if len(found) > 1 and name not in excluded), key=_order)


def is_learning(name: str) -> bool:
    """Returns True for a setting that decides what is learned, and False for one of evaluations."""
    return name.startswith(_LEARNING)


def short_name(name: str) -> str:
    """Returns the name of a setting as `--by` takes it."""
    return name.removeprefix("config.")


def _settings(config: Record) -> dict[str, str]:
    """Returns the settings that repetitions of one experiment share, as JSON text."""
    kept = {name: value for name, value in _with_start_file(config).items() if name not in _FREE}
    return {name: json.dumps(_plain(value)) for name, value in flatten(kept).items()}


def _with_start_file(config: Record) -> Record:
    """Returns the configuration with the name of the file that the run started from, without records about it."""
    start = config.get("start_from")
    return {**config, "start_from": start.get("file")} if isinstance(start, Mapping) else config


def _plain(value: Any) -> Any:
    """Returns 300 for 300.0: equal settings have equal texts."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _settings_names(keys: Sequence[tuple[str, tuple[tuple[str, str | None], ...]]]) -> list[str]:
    """Returns a name for each algorithm with its settings, with as many of them as tell the groups apart."""

    def name(algorithm: str, settings: tuple[tuple[str, str | None], ...], count: int | None) -> str:
        words = [_setting_words(*setting) for setting in settings[:count]]
        return ", ".join([algorithm, *words])

    for count in (_NAMED, None):
        names = [name(algorithm, settings, count) for algorithm, settings in keys]
        if len(set(names)) == len(set(keys)):
            break
    return names


def _setting_words(name: str, value: str | None) -> str:
    text = "not stored" if value is None else json.loads(value)
    # "search.gamma" and "gamma" are two settings, so the name keeps all but the algorithm's part.
    return f"{short_name(name)} {text}"


def _share_a_task(groups: Groups, tasks: Sequence[str]) -> bool:
    """Returns True if all groups were run on one task at least."""
    per_group = [
        {task for name, task in zip(groups.of_runs, tasks, strict=True) if name == group} for group in groups.names
    ]
    return bool(set.intersection(*per_group))


def _value_name(by: str, value: Any) -> str:
    return value if isinstance(value, str) else f"{by.rsplit('.', 1)[-1]} {value}"


def _sort_key(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, value if number else 0.0, str(value))


def _settings_order(group: tuple[str, tuple[tuple[str, str | None], ...], str]) -> Any:
    algorithm, settings, _ = group
    return algorithm, [_sort_key(None if value is None else json.loads(value)) for _, value in settings]


def _order(name: str) -> tuple[int, str]:
    """Returns the place of a setting in a list: those of learning first."""
    return next((index for index, prefix in enumerate(_LEARNING) if name.startswith(prefix)), len(_LEARNING)), name


def mixing_notes(name: str, runs: Sequence[Run], by: str) -> Iterator[str]:
    """Yields a note about the settings in which the runs of one group differ."""
    different = differing_settings(runs, by)
    if not different:
        return
    listed = ", ".join(map(short_name, different))
    if is_learning(different[0]):
        yield f"{name} combines runs that differ in {listed}: --by {short_name(different[0])} separates them."
    else:
        yield f"{name} combines runs that differ in {listed}, which concerns evaluations only."


__all__ = [
    "AUTO",
    "Groups",
    "differing_settings",
    "group_by_setting",
    "group_by_settings",
    "is_learning",
    "mixing_notes",
    "short_name",
]
