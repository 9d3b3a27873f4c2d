"""Readers of the files of a run folder: config.json, environment.json, metrics.jsonl and summary.json.

They read runs of any algorithm and any version. Earlier versions stored no checksums.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from spo import files

Record = dict[str, Any]

#: Entry of config.json, environment.json and summary.json with the SHA-256 of all other entries.
CHECKSUM = "sha256"
#: Entry of summary.json, and of the file about the last checkpoint, with the CRC-32 of metrics.jsonl.
METRICS_CHECKSUM = "metrics_crc32"
#: The file about the last checkpoint: its iteration, and length and checksum of metrics.jsonl at that time.
LATEST = Path("checkpoints", "latest.json")


def read_config(folder: Path) -> Record:
    """Reads config.json of a run of any version."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no run: it has no config.json. Name a folder that `spo train` wrote.")
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError:
        config = None
    if not isinstance(config, dict) or not {"spo_version", "task", "algorithm"} <= config.keys():
        raise ValueError(f"{path} is not the configuration of a run. Name a folder that `spo train` wrote.")
    return config


def with_checksum(content: Record) -> Record:
    """Returns the content of a file with its checksum, as config.json, environment.json and summary.json store it."""
    return {**content, CHECKSUM: _checksum(content)}


def check_config(folder: Path, config: Record) -> None:
    """Raises ValueError if a config.json was changed after it was written. Earlier versions wrote no checksum.

    Args:
      folder: the folder of the run, for the error.
      config: what `read_config` has returned for it.
    """
    if CHECKSUM in config and config[CHECKSUM] != _checksum(config):
        raise ValueError(
            f"{Path(folder) / 'config.json'} was changed after the run's start, or is damaged: restore the file, or "
            "start a new run."
        )


def _checksum(content: Record) -> str:
    """Returns the SHA-256 of all entries except the checksum."""
    entries = {name: value for name, value in content.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(_canonical(entries), sort_keys=True).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """Returns a value with lists for tuples and 300 for 300.0: equal settings have equal checksums."""
    if isinstance(value, dict):
        return {name: _canonical(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_starts(folder: Path) -> tuple[Record, ...]:
    """Reads versions, devices and commit of every start of a run. Empty if the folder has no environment.json.

    Earlier versions wrote no checksum.
    """
    path = Path(folder) / "environment.json"
    if not path.exists():
        return ()
    content = _read_json(path)
    if not _holds_starts(content):
        raise ValueError(f"{path} is damaged: restore the file, or delete it.")
    return tuple(content["starts"])


def _holds_starts(content: Any) -> bool:
    """Returns True for the content of a good environment.json."""
    if not isinstance(content, dict) or not {"starts"} <= content.keys() <= {"starts", CHECKSUM}:
        return False
    starts = content["starts"]
    are_records = isinstance(starts, list) and all(isinstance(start, dict) for start in starts)
    return are_records and content.get(CHECKSUM) in (None, _checksum(content))


def read_summary(folder: Path) -> Record | None:
    """Reads the results of a finished run. None if it is not finished."""
    path = Path(folder) / "summary.json"
    if not path.exists():
        return None
    summary = _read_json(path)
    if not isinstance(summary, dict) or summary.get(CHECKSUM) not in (None, _checksum(summary)):
        raise ValueError(f"{path} is damaged: delete it, and `spo train --resume {folder}` writes it again.")
    return {name: value for name, value in summary.items() if name not in (CHECKSUM, METRICS_CHECKSUM)}


def check_metrics(folder: Path) -> bool:
    """Raises ValueError if metrics.jsonl differs from its checksum. Returns False if there is none.

    The results of a finished run have the checksum of the whole file. Before that, the last checkpoint has that of all
    lines until then. Earlier versions stored none.
    """
    path, summary, latest = (Path(folder) / name for name in ("metrics.jsonl", "summary.json", LATEST))
    stored = _read_json(summary) if summary.exists() else None
    num_bytes = None
    if not isinstance(stored, dict) or METRICS_CHECKSUM not in stored:
        stored = _read_json(latest) if latest.exists() else None
        if not isinstance(stored, dict) or type(stored.get("metrics_bytes")) is not int:
            return False
        num_bytes = stored["metrics_bytes"]
    if (expected := stored.get(METRICS_CHECKSUM)) is None:
        return False
    if not path.exists() or files.crc32(path, num_bytes) != expected:
        raise ValueError(f"{path} was changed after the run wrote it, or is damaged: restore the file.")
    return True


def _read_json(path: Path) -> Any:
    """Returns the content of a JSON file, or None if it is damaged."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError:
        return None


def read_records(path: Path) -> list[Record]:
    """Reads the records of a metrics file. Skips an incomplete last line, which an interrupted run may leave."""
    # Split at line feeds alone: str.splitlines also splits at other marks, which damage can bring in.
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line.decode("utf-8"))
        except ValueError:
            if number < len(lines):
                raise ValueError(
                    f"Line {number} of {path} is not JSON: the file was changed, or it is not a metrics file."
                ) from None
            continue
        if not _is_record(record):
            raise ValueError(
                f"Line {number} of {path} is not a record: the file was changed, or it is not a metrics file."
            )
        records.append(record)
    return records


def _is_record(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and isinstance(record.get("kind"), str)
        and type(record.get("seed")) is int
        and isinstance(record.get("env_steps"), int | float)
        and isinstance(record.get("metrics"), dict)
        and all(isinstance(value, int | float) for value in record["metrics"].values())
    )
