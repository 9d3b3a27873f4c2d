"""Tests of functions by name: what is imported, and the sentence for what can't be."""

import functools
import re
import sys
from pathlib import Path

import pytest

from spo import environments
from spo.importing import import_function, is_import_name, name_of, suggest_import_name


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the current folder, which is not on the path."""
    path = tmp_path / "module_of_a_user.py"
    path.write_text("VALUE = 3\n\n\nclass Maker:\n    def make(): return 5\n\n\ndef make_env(): return 4\n")
    monkeypatch.chdir(tmp_path)
    yield path
    sys.modules.pop(path.stem, None)


def test_a_module_in_the_current_folder_is_found_and_the_path_is_as_before(module: Path):
    before = list(sys.path)
    assert import_function("module_of_a_user:make_env", "a number")() == 4
    assert import_function("module_of_a_user:Maker.make", "a number")() == 5
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:make", "There is no module 'no_such_module', neither in the current folder"),
        ("module_of_a_user.part:make", "There is no module 'module_of_a_user.part'"),
        ("module_of_a_user:make_evn", "has no 'make_evn'. Did you mean 'make_env'"),
        ("module_of_a_user:VALUE", "is of type int and can't be called: name a function that returns a number"),
        ("module_of_a_user:", "does not have the form module:function"),
        ("a:b:c", "does not have the form module:function"),
        ("module_of_a_user.py:make_env", "leave out .py, as in module_of_a_user:make_env"),
        ("module_of_user:make_env", "install its package. Did you mean 'module_of_a_user'?"),
    ],
)
def test_a_name_that_leads_nowhere_gets_a_sentence(module: Path, name: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        import_function(name, "a number")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import no_such_library", "Importing module_of_a_user failed: No module named 'no_such_library'"),
        ("1 / 0", "Importing module_of_a_user failed: ZeroDivisionError: division by zero"),
        ("def make(:", "Importing module_of_a_user failed: SyntaxError"),
    ],
)
def test_an_error_inside_the_module_is_named(module: Path, code: str, sentence: str):
    module.write_text(code)
    with pytest.raises(ValueError, match=sentence):
        import_function("module_of_a_user:make", "a number")


def test_an_error_inside_the_module_is_named_with_its_line(module: Path):
    for code, error in (
        ("import no_such_library", "No module named 'no_such_library' (in module_of_a_user.py, line 3)."),
        ("[][0]", "IndexError: list index out of range (in module_of_a_user.py, line 3)"),
    ):
        module.write_text(f"\n\n{code}")
        with pytest.raises(ValueError, match=re.escape(f"Importing module_of_a_user failed: {error}")):
            import_function("module_of_a_user:make", "a number")


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("./module_of_a_user.py", "make_env"),
        ("./module_of_a_user", "make_env"),
        ("{folder}/module_of_a_user.py", "make_env"),
        ("module_of_a_user.other", "other"),
        ("module_of_a_user.unknown", "make_env"),
    ],
)
def test_a_path_and_a_dot_before_the_function_get_a_suggestion(module: Path, name: str, suggested: str):
    module.write_text("def make_env(): return 4\ndef other(x): return 5\n")
    question = f"Did you mean 'module_of_a_user:{suggested}', of module_of_a_user.py?"
    assert suggest_import_name(name.format(folder=module.parent)) == question


def test_other_paths_get_no_suggestion(module: Path):
    for name in (
        "",
        ".",
        "/",
        "./",
        "no.such",
        "..",
        "...",
        "x" * 5000,
        "/module_of_a_user.py",
        "../elsewhere/module_of_a_user.py",
    ):
        assert suggest_import_name(name) is None, name
    with pytest.raises(ValueError, match=r"name the module as `import` does, as in module_of_a_user:make_env\.$"):
        import_function("./module_of_a_user:make_env", "a number")


@pytest.mark.parametrize("name", ["module_of_a_user", "module_of_a_user.py"])
@pytest.mark.parametrize(
    ("code", "suggested"),
    [
        ("def _hidden(): pass\ndef help(x): pass\ndef size(): pass\ndef make_it(x=1): pass", "make_it"),
        ("VALUE = 3", "FUNCTION"),
        ("def make(:", "FUNCTION"),
    ],
)
def test_a_file_of_the_current_folder_gets_a_suggestion_without_an_import(module: Path, name, code, suggested):
    module.write_text(f"raise SystemExit\n{code}\n")
    question = f"Did you mean 'module_of_a_user:{suggested}', of module_of_a_user.py?"
    assert suggest_import_name(name) == question
    with pytest.raises(ValueError, match=re.escape(f"There is no environment {name!r}. {question}")):
        environments.make(name)
    assert suggest_import_name("tiny_chain") is None


def test_the_name_of_a_function_leads_back_to_it():
    assert import_function(name_of(functools.wraps), "a function") is functools.wraps
    assert name_of(lambda: 3) == "object:<lambda>"
    assert name_of(functools.partial(print)) == "object:partial"
    assert is_import_name("a.b:c")
    assert not is_import_name("object:c")
    assert not is_import_name("tiny/chain")
