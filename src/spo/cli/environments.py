"""The commands about environments: `spo envs` and `spo download`."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg


def envs(*, filter: str = "", sizes: bool = False) -> None:
    """List the environments that are available here, for `spo train --task NAME`.

    Args:
        filter: List only names that contain this text, such as brax or cube.
        sizes: Show observations, actions and time limits of the environments of other libraries too. Each of them has
            to be built for that, which takes up to a second.
    """
    import rich
    from rich.markup import escape
    from rich.table import Column, Table

    from spo.environments import registry

    with _quiet():  # simulators print while they are imported
        missing = {family: reason for family, reason in registry.missing().items() if filter in f"{family}/"}
        names = [name for name in registry.names() if filter in name]
    if not names and not missing:
        raise ValueError(f"No environment has {filter!r} in its name: `spo envs` lists all of them.")

    table = Table(Column("environment", no_wrap=True), "observation", "actions", "time limit", box=None)
    with rich.get_console().status("") as status:
        for name in names:
            status.update(f"Building {name}")
            table.add_row(name, *(map(escape, _sizes(name)) if sizes or registry.is_built_in(name) else ()))
    if names:
        rich.print(table)
    for family, reason in missing.items():
        rich.print(escape(f"{family}/...: {reason}"))


def _sizes(name: str) -> tuple[str, str, str]:
    """Returns observation, actions and time limit of an environment as text."""
    import jax

    from spo.environments import registry
    from spo.types import DiscreteActions

    try:
        with _quiet():
            environment, time_limit = registry.describe(name)
    except Exception as error:  # one environment of another library that fails must not hide the others
        return f"can't be built here: {str(error).splitlines()[0]}", "", ""

    def size(path: Any, spec: jax.ShapeDtypeStruct) -> str:
        field = jax.tree_util.keystr(path, simple=True, separator=".")
        return " ".join(part for part in (field, "x".join(map(str, spec.shape))) if part) or "a number"

    leaves = jax.tree_util.tree_leaves_with_path(environment.observation_spec)
    actions = environment.action_spec
    if isinstance(actions, DiscreteActions):
        in_words = f"{actions.num_actions} discrete"
    else:
        in_words = f"{actions.size} in {actions.low:g} .. {actions.high:g}"
    return ", ".join(size(*leaf) for leaf in leaves), in_words, "" if time_limit is None else str(time_limit)


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
        folder: Folder for the data. None: ~/.cache/spo/boxoban.
        base_url: Address to download from. None: the public address of the data set.
    """
    from spo.environments import boxoban

    del dataset  # boxoban is the only one
    report = boxoban.download(splits, folder, boxoban.BASE_URL if base_url is None else base_url)
    if not report.complete:
        raise SystemExit(1)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses warnings and what other libraries print."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
