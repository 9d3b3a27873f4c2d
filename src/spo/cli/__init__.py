"""The command `spo`, with one function for each subcommand.

The arguments of a function are its options, and its docstring is their help. The options of `train` and `evaluate`
depend on a preset or a run, so these two parse their arguments themselves, with the classes in `spo.cli.options`.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from spo._version import __version__
from spo.cli.compare import compare
from spo.cli.environments import download, envs
from spo.cli.saved import evaluate, export, render, runs
from spo.cli.training import train

DESCRIPTION = (
    "Train and evaluate agents that plan with particles (SPO), and the baselines of the paper. `spo COMMAND --help` "
    "lists the options of a command. `spo --version` prints the version."
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
    """Runs the command line. An error that the user can correct is printed as one sentence, with exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(__version__)
        return
    try:
        import rich  # noqa: F401
        import tyro
    except ModuleNotFoundError as error:
        raise SystemExit(f'spo: The command line needs {error.name}: pip install "spo-jax[envs]".') from None
    try:
        if arguments and arguments[0] in _PARSE_THEMSELVES:
            COMMANDS[arguments[0]](*arguments[1:])
        else:
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="spo", description=DESCRIPTION, args=arguments or ["--help"]
            )
    except (ValueError, ImportError, OSError, NotImplementedError) as error:
        _exit(_sentence(error))
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _exit(
            "The device ran out of memory. Lower one of these: --num-seeds, --num-envs, --search.num-particles, "
            "--batch-size, --replay-size, --evaluation.final-episodes, --episodes."
        )


def _exit(sentence: str) -> NoReturn:
    print(f"spo: {sentence}", file=sys.stderr)
    raise SystemExit(2) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and str(error).startswith("No module named"):
        return f'This command needs {error.name}, which is not installed: pip install "spo-jax[all]".'
    return str(error)
