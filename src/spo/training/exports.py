"""Exported learners: one small file with the learned parameters of a run, from which another run can start.

The file is a NumPy archive of named arrays and a JSON header. Reading it executes nothing that is stored in it.
"""

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from spo import files
from spo.training import named_arrays

EXPORT_FORMAT = "spo learner 1"


def write_learner(target: Path, learner: Any, header: dict[str, Any]) -> None:
    """Writes a learner. The file appears under its name only when it is complete. Its folder must exist."""
    files.check_target(target)
    arrays = {name: np.asarray(array) for name, array in named_arrays.flatten(learner).items()}
    header = {"format": EXPORT_FORMAT, **header}
    header |= {"sha256": _checksum(header, arrays)}
    with files.replacing(target) as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]


def read_header(source: Path) -> dict[str, Any]:
    """Reads the origin of an exported learner: experiment, version, best or last parameters, iterations and steps."""
    with _open_export(source) as file:
        return json.loads(str(file["header"]))


def read_learner(source: Path, abstract: Any) -> Any:
    """Reads an exported learner as arrays like `abstract`, whose leaves are [seed, ...].

    Raises ValueError for a learner of another algorithm, network, task or number of seeds.
    """
    expected = named_arrays.flatten_abstract(abstract)
    with _open_export(source) as file:
        given = {name: file[name] for name in file.files if name != "header"}
        header = json.loads(str(file["header"]))
        # Earlier versions wrote no checksum.
        if "sha256" in header and header["sha256"] != _checksum(header, given):
            raise ValueError(f"{source} is damaged: export the learner again.")
    missing, unknown = sorted(expected.keys() - given.keys()), sorted(given.keys() - expected.keys())
    if missing or unknown:
        raise ValueError(
            f"{source} holds a learner of another kind: it lacks {missing[:3] or 'nothing'} and has "
            f"{unknown[:3] or 'nothing'} besides. {_describe_origin(header)}"
        )
    for name, array in given.items():
        if array.shape != expected[name].shape or array.dtype != expected[name].dtype:
            raise ValueError(
                f"{source} does not fit this experiment: {name} is {array.dtype}{list(array.shape)} (seed first) and "
                f"should be {expected[name].dtype}{list(expected[name].shape)}. {_describe_origin(header)}"
            )
    arrays = {
        name: jax.make_array_from_callback(array.shape, expected[name].sharding, array.__getitem__)
        for name, array in given.items()
    }
    return named_arrays.unflatten(abstract, arrays)


def _describe_origin(header: dict[str, Any]) -> str:
    """Returns a sentence with the settings under which an exported learner can be used."""
    advice = "Use the task, the algorithm, the network and the number of seeds it was trained with"
    try:
        experiment = header["experiment"]
        facts = f"{experiment['algorithm']} on {experiment['task']}, {experiment['num_seeds']} seed(s)"
    except (KeyError, TypeError):  # an incomplete header
        return f"{advice}."
    return f"{advice}: {facts}."


def _checksum(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Returns the SHA-256 of the arrays and of the header's other entries."""
    entries = {name: value for name, value in header.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(entries, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _open_export(source: Path) -> Iterator[Any]:
    if not Path(source).is_file():
        raise ValueError(f"There is no file {source}.")
    # Opened here, because NumPy does not close a file that turns out to be no archive.
    with Path(source).open("rb") as opened:
        try:
            file = np.load(opened, allow_pickle=False)
            is_export = "header" in file.files and json.loads(str(file["header"])).get("format") == EXPORT_FORMAT
        except (ValueError, OSError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{source} is no exported learner, or not all of one: `spo export` writes it.") from error
        if not is_export:
            raise ValueError(f"{source} is no exported learner: `spo export` writes them.")
        try:
            yield file
        except (EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{source} is damaged: export the learner again.") from error
