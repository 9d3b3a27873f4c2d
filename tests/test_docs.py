"""What the documents say is run: code blocks, the notebook, the names of make's targets and links between files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_blocks(markdown: str) -> list[str]:
    """The blocks, each moved down to its own line of the page, so that a traceback points into the document."""
    return ["\n" * markdown.count("\n", 0, match.start(1)) + match.group(1) for match in FENCE.finditer(markdown)]


def run_page(path: Path) -> None:
    """All blocks of a page share one namespace, as a reader would type them."""
    namespace = {"__name__": "__main__"}
    for block in python_blocks(path.read_text(encoding="utf-8")):
        exec(compile(block, path, "exec"), namespace)


@pytest.mark.parametrize("path", [path for path in PAGES if python_blocks(path.read_text("utf-8"))], ids=page_name)
def test_code_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_page(path)


def test_readme_and_guides_have_code():
    for name in ("README.md", "docs/one_page.md", "docs/search.md"):
        assert python_blocks((ROOT / name).read_text("utf-8")), f"{name} lost its code"


def test_a_broken_block_fails_at_its_line(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nx = 1\n```\n\nmore\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run_page(page)
    assert failure.traceback[-1].lineno + 1 == 10


def test_make_targets_that_documents_name_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for path in PAGES:
        code = re.findall(r"`make ([a-z-]+)|^(?: {4})?make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE)
        named = {first or second for first, second in code}
        assert named <= targets, f"{page_name(path)} names {named - targets}, which make doesn't know"


def test_links_between_files_lead_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)\)", path.read_text("utf-8")):
            if "://" in target:
                continue
            file = path.parent / target
            as_notebook = file.with_suffix(".py")  # pages of the site are made from notebooks
            assert file.exists() or as_notebook in NOTEBOOKS, f"{page_name(path)} links to {target}"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=page_name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebooks_run(path: Path, tmp_path: Path):
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    notebook = jupytext.read(path)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


def test_performance_tables_show_the_stored_figures():
    script = ROOT / "tools" / "performance_tables.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
