"""The command `spo`. `spo.cli.commands` lists its subcommands."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from spo._version import __version__
from spo.checks import print_message, shorten
from spo.installation import install_hint

DESCRIPTION = (
    "Train and evaluate agents that plan with particles (SPO), and the baselines of the paper. `spo COMMAND --help` "
    "lists the options of a command. `spo --version` prints the version."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line. An error that the user can correct is printed as one sentence, with exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(__version__)
        return
    try:
        import rich  # noqa: F401
        import tyro

        from spo.cli.commands import COMMANDS, PARSE_THEMSELVES
        from spo.cli.parsing import parse
        from spo.training import run_log
    except ModuleNotFoundError as error:
        raise SystemExit(f"spo: The command line needs {error.name}: {install_hint('all')}.") from None
    try:
        with run_log.collecting():  # warnings of other libraries: a run stores them, other commands drop them
            if arguments and arguments[0] in PARSE_THEMSELVES:
                COMMANDS[arguments[0]](*arguments[1:])
            else:
                commands = {name: _deferred(command) for name, command in COMMANDS.items()}
                parse(
                    f"spo {arguments[0]}" if arguments and arguments[0] in COMMANDS else "spo",
                    lambda: tyro.extras.subcommand_cli_from_dict(
                        commands, prog="spo", description=DESCRIPTION, args=arguments or ["--help"]
                    ),
                )()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: `spo runs | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more when it ends
        raise SystemExit(141) from None  # the code of a shell for a closed pipe
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # the code of a shell for Ctrl-C
    except Exception as error:
        from spo.training import memory

        if memory.is_out_of_memory(error):
            _exit(memory.describe(error))
        if not isinstance(error, (ValueError, ImportError, OSError, NotImplementedError)):
            raise
        _exit(_sentence(error))


def _deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Returns a function with the options of a command that returns the call instead of making it.

    Errors of the command are then apart from those of the parser.
    """

    @functools.wraps(command)
    def defer(*arguments: Any, **options: Any) -> Callable[[], None]:
        return functools.partial(command, *arguments, **options)

    return defer


def _exit(sentence: str) -> NoReturn:
    print_message(" ".join(sentence.split()))
    raise SystemExit(2) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and str(error).startswith("No module named"):
        return f"This command needs {error.name}, which is not installed: {install_hint('all')}."
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.strerror}{f': {shorten(error.filename)}' if error.filename else ''}."
    return str(error)
