"""The subcommands of `spo`: one function each.

The arguments of a function are its options, and its docstring is their help. The options of `train`, `sweep`,
`evaluate` and `inspect` depend on a preset or a run, so these parse their arguments themselves, with the classes in
`spo.cli.options` and `spo.cli.sweep`.
"""

from collections.abc import Callable

from spo.cli.compare import compare
from spo.cli.configuration import config
from spo.cli.environments import download, envs
from spo.cli.inspect import inspect
from spo.cli.saved import evaluate, export, render, runs
from spo.cli.sweep import sweep
from spo.cli.training import train

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "sweep": sweep,
    "config": config,
    "evaluate": evaluate,
    "render": render,
    "inspect": inspect,
    "runs": runs,
    "compare": compare,
    "export": export,
    "envs": envs,
    "download": download,
}
PARSE_THEMSELVES = ("train", "sweep", "evaluate", "inspect")
