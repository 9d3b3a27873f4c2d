"""Functions by name: `module:function`, as the command line and stored runs write it.

The module is searched on the Python path with the current folder in front. Importing runs the module's own code, as
`import` does, and nothing else. A function without such a name, such as a lambda, is called `object:NAME`.
"""

import ast
import contextlib
import difflib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spo.checks import suggest_names
from spo.quoting import place_of

OBJECT = "object:"


def is_import_name(name: str) -> bool:
    """Returns True for `module:function`."""
    return ":" in name and not is_object_name(name)


def is_object_name(name: str) -> bool:
    """Returns True for `object:NAME`, which can't be imported."""
    return name.startswith(OBJECT)


def import_function(name: str, returns: str) -> Callable[..., Any]:
    """Imports `module:function`. Raises ValueError with a sentence if that is not possible.

    Args:
      name: the module and the function in it, such as "my_package.my_module:make_env".
      returns: description of the function's result, such as "an environment", for messages.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute or ":" in attribute:
        raise ValueError(f"{name!r} does not have the form module:function, such as my_package.my_module:make_env.")
    if module_name.endswith(".py") or "/" in module_name:
        remedy = "leave out .py" if module_name.endswith(".py") else "name the module as `import` does"
        raise ValueError(f"{name}: {remedy}, as in {_module_of(module_name) or Path(module_name).stem}:{attribute}.")
    found = _import_module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            place = getattr(found, "__file__", None) or module_name
            names = [public for public in vars(found) if callable(getattr(found, public)) and public[0] != "_"]
            hint = suggest_names(part, names) if names else "It has no function at all."
            raise ValueError(f"{name}: {place} has no {part!r}. {hint}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(
            f"{name} is of type {type(found).__name__} and can't be called: name a function that returns {returns}."
        )
    return found


def suggest_import_name(name: str) -> str | None:
    """Returns a question with `module:function` if `name` is a Python file of the current folder, else None.

    The name may be a path, a module or `module.function`. The file is read, and not imported.
    """
    module = _module_of(name)
    outer, _, attribute = module.rpartition(".")
    if not os.path.isfile(_file_of(module)):  # unlike `Path.is_file`, False for a name that is too long
        module = outer
    path = _file_of(module)
    if not os.path.isfile(path):
        return None
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        functions = []
    else:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]

    def order(node: ast.FunctionDef) -> tuple[bool, int, bool]:
        # A function that makes an environment can be called without arguments. Others in the file are usually helpers.
        num_required = len(node.args.args) - len(node.args.defaults)
        return node.name != attribute, num_required, not node.name.startswith("make")

    functions.sort(key=order)
    suggested = f"{module}:{functions[0].name if functions else 'FUNCTION'}"
    return f"Did you mean {suggested!r}, of {path}?"


def _module_of(name: str) -> str:
    """Returns the name of a module as `import` has it: without .py, and with dots between folders.

    A path outside of the current folder has no such name, and gives an empty text.
    """
    path = Path(name.removesuffix(".py"))
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return "" if path.is_absolute() or ".." in path.parts else ".".join(path.parts)


def _file_of(module: str) -> Path:
    """Returns the path of a module's file in the current folder."""
    return Path(f"{module.replace('.', '/')}.py")


def _suggest_module(name: str) -> str:
    """Returns a sentence with the Python file of the current folder whose name is closest, or an empty text."""
    close = difflib.get_close_matches(name, [path.stem for path in Path().glob("*.py")], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def name_of(function: Any) -> str:
    """Returns `module:function` if this name leads back to the function, else `object:NAME`."""
    module, attribute = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if attribute is None:
        return f"{OBJECT}{type(function).__name__}"
    found: Any = sys.modules.get(module or "")
    for part in attribute.split("."):
        found = getattr(found, part, None)
    # A program's own file is called __main__ only while it runs.
    importable = found is function and module != "__main__"
    return f"{module}:{attribute}" if importable else f"{OBJECT}{attribute.rpartition('.')[2]}"


@contextlib.contextmanager
def current_folder_first() -> Iterator[None]:
    """Puts the current folder in front of the Python path, for the time of an import."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may be newer than the last look at its folder
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the module may have changed the path
            sys.path.remove(folder)


def calling_from_current_folder(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with the current folder in front of the Python path while it runs, for its own imports."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with current_folder_first():
            return function(*args, **kwargs)

    return call


def _import_module(name: str) -> Any:
    try:
        with current_folder_first():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"Importing {name} failed: {error}{place_of(error)}.") from error
        raise ValueError(
            f"There is no module {name!r}, neither in the current folder, {os.getcwd()}, nor elsewhere on the Python "
            f"path: start in the folder that holds it, or install its package.{_suggest_module(name)}"
        ) from None
    except Exception as error:
        raise ValueError(f"Importing {name} failed: {type(error).__name__}: {error}{place_of(error)}") from error


__all__ = [
    "OBJECT",
    "calling_from_current_folder",
    "current_folder_first",
    "import_function",
    "is_import_name",
    "is_object_name",
    "name_of",
    "suggest_import_name",
]
