"""The commands about environments: `spo envs` and `spo download`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg


def envs(text: Annotated[str, arg(metavar="[TEXT]")] = "", /) -> None:
    """List the environments that are available here, for `spo train --task NAME`.

    Args:
        text: List only names that contain this text, such as brax or cube.
    """
    from spo.cli import environment_facts
    from spo.cli.tables import print_table

    facts = {name: row for name, row in environment_facts.list_facts().items() if text in name}
    missing = {name: reason for name, reason in environment_facts.missing().items() if text in f"{name}/"}
    if not facts and not missing:
        raise ValueError(f"No environment has {text!r} in its name: `spo envs` lists all of them.")
    if facts:
        hidden = "hidden from the observation"
        header = ("environment", "observation", "actions", "time limit", "score", hidden, "physics")
        print_table(header, [(name, *row) for name, row in facts.items()], cut=("observation", "score", hidden))
    for name, reason in missing.items():
        print(f"{name}/...: {reason}", file=sys.stderr)


def download(
    dataset: Literal["boxoban"],
    splits: Annotated[tuple[str, ...], arg(metavar="SPLIT ...")],
    /,
    *,
    folder: Path | None = None,
    base_url: str | None = None,
) -> None:
    """Download the public levels of an environment. Run it again to continue after an interruption.

    Args:
        dataset: Data set to download.
        splits: Parts of the data set, such as hard and unfiltered-train.
        folder: Folder for the data. None: boxoban in $SPO_DATA, or in ~/.cache/spo.
        base_url: Address to download from. None: the public address of the data set.
    """
    from spo.environments import boxoban

    del dataset  # boxoban is the only one
    report = boxoban.download(splits, folder, boxoban.BASE_URL if base_url is None else base_url)
    if not report.complete:
        raise SystemExit(1)
