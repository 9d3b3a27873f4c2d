"""Judgement: episodes played to their end, and what they say."""

from spo.evaluation.episodes import Episodes, run_episodes

__all__ = ["Episodes", "run_episodes"]
