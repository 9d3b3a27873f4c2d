"""Commands about worlds: which there are, and their data."""

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any, Literal


def envs(*, filter: str = "", sizes: bool = False) -> None:
    """List the environments that can be made here, with the sizes of ours.

    Args:
        filter: only those with this text in their name, such as brax or cube.
        sizes: show observations, actions and time limits of other libraries' environments too. They have to be built
            for it, which takes up to a second each.
    """
    import rich
    from rich.markup import escape
    from rich.table import Column, Table

    from spo.environments import registry

    with _quiet():  # simulators talk while they are imported
        absent = {family: why for family, why in registry.missing().items() if filter in f"{family}/"}
        names = [name for name in registry.names() if filter in name]
    if not names and not absent:
        raise ValueError(f"No environment has {filter!r} in its name: `spo envs` lists all of them.")

    table = Table(Column("environment", no_wrap=True), "observation", "actions", "time limit", box=None)
    with rich.get_console().status("") as status:
        for name in names:
            status.update(f"Looking at {name}")
            table.add_row(name, *(map(escape, _sizes(name)) if sizes or registry.is_ours(name) else ()))
    if names:
        rich.print(table)
    for family, why in absent.items():
        rich.print(escape(f"{family}/...: {why}"))


def _sizes(name: str) -> tuple[str, str, str]:
    import jax

    from spo.environments import registry
    from spo.types import DiscreteActions

    try:
        with _quiet():
            environment, time_limit = registry.describe(name)
    except Exception as error:  # another library's trouble with one world is no reason to hide the others
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
    splits: tuple[str, ...],
    /,
    *,
    folder: Path | None = None,
    base_url: str | None = None,
) -> None:
    """Fetch public data. Run it again to go on after an interruption.

    Args:
        dataset: what to fetch.
        splits: which parts of it, such as hard and unfiltered-train.
        folder: where to keep it, instead of ~/.cache/spo/boxoban.
        base_url: where to fetch it from, instead of its public home.
    """
    from spo.environments import boxoban

    del dataset  # there is one so far
    report = boxoban.download(splits, folder, boxoban.BASE_URL if base_url is None else base_url)
    if not report.complete:
        raise SystemExit(1)


@contextlib.contextmanager
def _quiet() -> Any:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
