"""tools/check_style.py finds what it is meant to find, and passes what is allowed."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def style() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_style", ROOT / "tools" / "check_style.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function(num_lines: int = 1, parameters: str = "", docstring: str = "") -> str:
    documented = f'    """{docstring}\n\n    {"More. " * 9}\n    """\n' if docstring else ""
    return f"def f({parameters}):\n{documented}" + "    x = 1\n" * num_lines


@pytest.mark.parametrize("docstring", ["", "Returns nothing."])
def test_a_body_has_at_most_60_lines_without_its_docstring(style: ModuleType, docstring: str):
    assert not list(style.check_functions(ast.parse(function(60, docstring=docstring))))
    [(line, fault)] = style.check_functions(ast.parse(function(61, docstring=docstring)))
    assert line == 1
    assert "61 lines" in fault


def test_the_lines_of_an_inner_function_count(style: ModuleType):
    inner = "".join(f"    {line}\n" for line in function(60).splitlines())
    [(_, fault)] = style.check_functions(ast.parse("def outer():\n" + inner))
    assert "outer has a body of 61 lines" in fault


def test_methods_and_coroutines_are_functions(style: ModuleType):
    long = "    async " + function(61).replace("\n", "\n    ").rstrip(" ")
    [(line, _)] = style.check_functions(ast.parse("class C:\n" + long))
    assert line == 2


@pytest.mark.parametrize("allowed", ["{}", "self, {}", "cls, {}"], ids=["function", "method", "class method"])
def test_a_parameter_list_has_at_most_13_names(style: ModuleType, allowed: str):
    names = ", ".join(f"a{i}" for i in range(11))
    assert not list(style.check_functions(ast.parse(function(parameters=allowed.format(f"{names}, *b, **c")))))
    for fourteen in (f"a, {names}, *b, **c", f"a, /, {names}, *, b, c"):
        [(_, fault)] = style.check_functions(ast.parse(function(parameters=allowed.format(fourteen))))
        assert "14 parameters" in fault


@pytest.mark.parametrize("word", ["What", "Where", "How", "Whether", "Who", "Which"])
@pytest.mark.parametrize(
    "source",
    [
        '"""{} it is."""',
        'class C:\n    """{} it is."""',
        'class C:\n    x: int = 0\n    """{} it is."""',
        'def f():\n    """\n    {} it is."""',
        'X = 1\n"""{} it is."""',
    ],
    ids=["module", "class", "field", "function", "constant"],
)
def test_a_docstring_never_begins_with_a_question_word(style: ModuleType, source: str, word: str):
    [(_, fault)] = style.check_docstrings(ast.parse(source.format(word)))
    assert word in fault
    assert not list(style.check_docstrings(ast.parse(source.format("Howling, what"))))


def test_the_program_fails_with_the_place_of_the_fault(
    style: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "bad.py"
    path.write_text(function(61), "utf-8")
    assert style.main([str(tmp_path)]) == 1
    assert f"{path}:1: f has a body" in capsys.readouterr().out
    path.write_text(function(60), "utf-8")
    assert style.main([str(path)]) == 0
