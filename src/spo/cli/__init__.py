"""The command `spo`: one function per subcommand, whose arguments are the options and whose docstring is the help.

`train` and `evaluate` make their options from dataclasses, with the values of a preset or of a run as defaults (see
`spo.cli.options`), so they take the command line as it is.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from spo._version import __version__
from spo.cli.compare import compare
from spo.cli.saved import evaluate, export, render, runs
from spo.cli.training import train
from spo.cli.worlds import download, envs

DESCRIPTION = (
    "Planning by particles. `spo COMMAND --help` says more about a command; `spo --version` prints the version."
)
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "evaluate": evaluate,
    "render": render,
    "runs": runs,
    "compare": compare,
    "export": export,
    "envs": envs,
    "download": download,
}
_PARSE_THEMSELVES = ("train", "evaluate")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. What a person can set right is answered in a sentence and with exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(__version__)
        return
    try:
        import rich  # noqa: F401
        import tyro
    except ModuleNotFoundError as error:
        raise SystemExit(f'spo: the command line needs {error.name}: pip install "spo-jax[envs]" brings it.') from None
    try:
        if arguments and arguments[0] in _PARSE_THEMSELVES:
            COMMANDS[arguments[0]](*arguments[1:])
        else:
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="spo", description=DESCRIPTION, args=arguments or ["--help"]
            )
    except (ValueError, ImportError, OSError, NotImplementedError) as error:
        _give_up(_sentence(error))
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _give_up(
            "The device ran out of memory. Fewer of these need less: --num-seeds, --num-envs, --search.num-particles, "
            "--batch-size, --replay-size, --evaluation.final-episodes, --episodes."
        )


def _give_up(sentence: str) -> NoReturn:
    print(f"spo: {sentence}", file=sys.stderr)
    raise SystemExit(2) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and str(error).startswith("No module named"):
        return f'This command needs {error.name}, which is not installed: pip install "spo-jax[all]" brings it.'
    return str(error)
