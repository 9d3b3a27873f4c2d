"""Sokoban on the public levels."""

from pathlib import Path

from spo.environments.boxoban.splits import load_split
from spo.environments.sokoban import sokoban
from spo.types import Task


def boxoban(
    train: str = "unfiltered-train",
    evaluation: str = "hard",
    *,
    folder: Path | str | None = None,
    allow_partial: bool = False,
    time_limit: int = 120,
    time_limit_is_termination: bool = False,
) -> Task:
    """Sokoban on the public Boxoban levels. `spo download boxoban SPLIT ...` fetches them.

    Args:
        train: Split of the levels to train on, such as unfiltered-train or medium-train.
        evaluation: Split of the levels to evaluate on, such as hard.
        folder: Folder of the downloaded levels. None: the folder that `spo download boxoban` uses.
        allow_partial: Accept a split of which only some files are downloaded.
        time_limit: Longest episode, in moves.
        time_limit_is_termination: Treat the end of the time limit as a failure (a terminal state), as Jumanji does.
            Otherwise the episode is only cut off there, and the critic may assume that it would have continued.
    """
    return sokoban(
        load_split(train, folder, allow_partial=allow_partial),
        evaluation_levels=load_split(evaluation, folder, allow_partial=allow_partial),
        time_limit=time_limit,
        time_limit_is_termination=time_limit_is_termination,
    )
