"""Runs the command `spo`: `python -m spo`."""

from spo.cli import main

main()
