"""Judgement: episodes played to their end, and what they say.

`episodes` needs JAX. `statistics`, `runs`, `comparison`, `figures` and `report_html` don't: they judge and draw from
the files of finished runs, anywhere.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spo.evaluation.episodes import Episodes, run_episodes

__all__ = ["Episodes", "run_episodes"]


def __getattr__(name: str) -> Any:
    """Imports JAX when episodes are to be played: reading about them needs none of it."""
    if name in __all__:
        from spo.evaluation import episodes

        return getattr(episodes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
