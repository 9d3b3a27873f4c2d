"""Fails on long functions, long parameter lists and docstrings that begin with a clause that has no head.

    python tools/check_style.py             # src/ for functions, all Python folders for docstrings
    python tools/check_style.py PATH ...    # every rule on these files or folders

A function body has at most 60 lines, its docstring not counted. A parameter list has at most 13 names, `self` and `cls`
not counted. A docstring begins with a verb or a noun, never with "What", "Where", "How" or the like.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST_BODY = 60
MOST_PARAMETERS = 13
HEADLESS = re.compile(r"(?:What|Where|How|Whether|Who|Which|Whose|Why)\b")
#: Folders whose functions are checked, and folders whose docstrings are checked as well.
FUNCTIONS = ("src",)
DOCSTRINGS = ("src", "benchmarks", "examples", "experiments", "tests", "tools")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef | ast.Module


def body_lines(function: Function) -> int:
    """Returns the number of lines from the first statement after the docstring to the end of the function."""
    statements = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return function.end_lineno - statements[0].lineno + 1 if statements else 0


def num_parameters(function: Function) -> int:
    """Returns the number of parameters that a caller may pass, `*args` and `**kwargs` included."""
    listed = function.args
    names = [argument.arg for argument in (*listed.posonlyargs, *listed.args, *listed.kwonlyargs)]
    if names and names[0] in ("self", "cls"):
        names = names[1:]
    return len(names) + (listed.vararg is not None) + (listed.kwarg is not None)


def check_functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the fault of every function that is too long or has too many parameters."""
    for node in ast.walk(tree):
        if not isinstance(node, Function):
            continue
        if (lines := body_lines(node)) > LONGEST_BODY:
            yield node.lineno, f"{node.name} has a body of {lines} lines, more than {LONGEST_BODY}: split it"
        if (count := num_parameters(node)) > MOST_PARAMETERS:
            yield node.lineno, f"{node.name} has {count} parameters, more than {MOST_PARAMETERS}: group them in a type"


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every docstring, those of fields and module constants included."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)) is not None:
            yield node.body[0].lineno, text
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        for before, after in zip(node.body, node.body[1:], strict=False):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                value = after.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield after.lineno, value.value


def check_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the fault of every docstring whose first word is a question word."""
    for line, text in docstrings(tree):
        if found := HEADLESS.match(text.strip()):
            yield line, f'the docstring begins with "{found.group()}": begin with a verb or a noun'


def python_files(paths: Sequence[Path]) -> list[Path]:
    """Returns the Python files among the paths and below them, in a fixed order."""
    return sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))})


def faults(functions: Sequence[Path], docstrings: Sequence[Path]) -> list[str]:
    """Returns one line per fault, as "file:line: fault"."""
    found = []
    with_functions = set(python_files(functions))
    for path in sorted({*with_functions, *python_files(docstrings)}):
        tree = ast.parse(path.read_text("utf-8"))
        in_file = list(check_docstrings(tree)) + (list(check_functions(tree)) if path in with_functions else [])
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        found += [f"{name}:{line}: {fault}" for line, fault in sorted(in_file)]
    return found


def main(arguments: Sequence[str]) -> int:
    paths = [Path(argument).resolve() for argument in arguments]
    found = faults(paths or [ROOT / name for name in FUNCTIONS], paths or [ROOT / name for name in DOCSTRINGS])
    print("\n".join(found) or "No function is too long and every docstring has a head.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
