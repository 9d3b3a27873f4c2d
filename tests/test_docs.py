"""Tests of the documents: code blocks run, commands and names exist, links work, figures are the stored ones."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
#: A block that takes too long, or needs what a test has not, stands below a comment that readers of the page don't see.
FENCE = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced code block."""

    language: str
    code: str
    line: int  # first line of the code in its page, counted from 0
    runs: bool


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[Block]:
    page = path.read_text("utf-8")
    found = [Block(m[2], m[3], page.count("\n", 0, m.start(3)), runs=not m[1]) for m in FENCE.finditer(page)]
    return [block for block in found if block.language == language]


def pages_with(language: str) -> list[Path]:
    return [path for path in PAGES if any(block.runs for block in blocks(path, language))]


# --- Code ------------------------------------------------------------------------------------------------------------
def run_page(path: Path) -> None:
    """Runs the Python blocks of a page in one namespace. Line numbers in a traceback are those of the page."""
    namespace = {"__name__": "__main__"}
    for block in blocks(path, "python"):
        if block.runs:
            exec(compile("\n" * block.line + block.code, path, "exec"), namespace)


def write_files(path: Path, folder: Path) -> None:
    """Writes the files of a page: the Python blocks whose first line is a comment with a file name."""
    for block in blocks(path, "python"):
        if named := re.match(r"# (\w+\.py)\n", block.code):
            (folder / named[1]).write_text(block.code)


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of a user, whose modules can be imported, and are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def trains(path: Path) -> bool:
    return any("spo.train(" in block.code for block in blocks(path, "python") if block.runs)


@pytest.mark.parametrize(
    "path",
    [
        # The page of the search compiles a dozen of them.
        pytest.param(
            path,
            marks=pytest.mark.program if trains(path) or page_name(path) == "docs/search.md" else [],
            id=page_name(path),
        )
        for path in pages_with("python")
    ],
)
def test_python_blocks_run(path: Path, user_folder: Path):
    write_files(path, user_folder)
    run_page(path)


@pytest.mark.program
@pytest.mark.parametrize("path", pages_with("bash"), ids=page_name)
def test_shell_blocks_run(path: Path, tmp_path: Path):
    write_files(path, tmp_path)
    script = "set -e\n" + "".join(block.code for block in blocks(path, "bash") if block.runs)
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=os.environ | {"PATH": commands}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_code_has_a_language_and_no_indented_block_hides_a_command():
    for path in PAGES:
        page = path.read_text("utf-8")
        assert not blocks(path, ""), f"{page_name(path)} has a block without a language"
        assert not re.search(r"^ {4}(spo|make|python|pip) ", page, re.MULTILINE), f"{page_name(path)}: use ```bash"


def test_guides_have_code():
    for name in ("README.md", "docs/architecture.md", "docs/own_environment.md", "docs/search.md"):
        assert any(block.runs for block in blocks(ROOT / name, "python")), f"{name} has no code that runs"


def test_a_broken_block_fails_at_its_line(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nx = 1\n```\n\nmore\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run_page(page)
    assert failure.traceback[-1].lineno + 1 == 10


def test_a_marked_block_is_not_run(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: takes long -->\n```python\nraise SystemExit\n```\n")
    run_page(page)


@pytest.mark.program
@pytest.mark.parametrize("path", NOTEBOOKS, ids=page_name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebooks_run(path: Path, tmp_path: Path):
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    notebook = jupytext.read(path)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


# --- Commands --------------------------------------------------------------------------------------------------------
def commands(program: str) -> list[tuple[str, list[str]]]:
    """Returns the page and the arguments of every command in a shell block that starts with `program`."""
    shells = [(page_name(path), block.code) for path in PAGES for block in blocks(path, "bash")]
    lines = [(page, line) for page, code in shells for line in code.replace("\\\n", " ").splitlines()]
    return [(page, shlex.split(line, comments=True)[1:]) for page, line in lines if line.startswith(f"{program} ")]


def test_training_commands_have_options_that_exist(user_folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Each `spo train` is parsed and its experiment is made, but not run."""
    for path in PAGES:
        write_files(path, user_folder)
    (user_folder / "my_module.py").write_text("from corridor import make_env\n\n\ndef cnn(*specs): ...\n")
    training = pytest.importorskip("spo.cli.training")
    made = []
    monkeypatch.setattr(training, "run", lambda experiment, *_, **__: made.append(experiment))
    typed = [(page, arguments) for page, arguments in commands("spo") if arguments[0] == "train"]
    need_a_run = {"--resume", "--like"}
    typed = [(page, arguments) for page, arguments in typed if not need_a_run.intersection(arguments)]
    (user_folder / "mine.toml").write_text("[config]\nlearning_rate = 1e-4\n")
    without_package = 0
    for page, arguments in typed:
        try:
            training.train(*arguments[1:])
        except ModuleNotFoundError:  # settings are chosen by the environment, whose library may not be installed
            without_package += 1
        except (SystemExit, ValueError) as error:
            pytest.fail(f"{page}: spo {shlex.join(arguments)} is refused: {error}")
    assert len(made) == len(typed) - without_package > 10


def test_subcommands_exist():
    subcommands = pytest.importorskip("spo.cli.commands").COMMANDS
    for page, arguments in commands("spo"):
        assert arguments[0] in subcommands, f"{page}: spo {arguments[0]}"


def test_programs_exist():
    for page, arguments in commands("python"):
        if arguments[0].endswith(".py"):
            assert (ROOT / arguments[0]).exists(), f"{page}: python {arguments[0]}"


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for path in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE))
        assert named <= targets, f"{page_name(path)} names {named - targets}, which the Makefile does not have"


# --- Names and links -------------------------------------------------------------------------------------------------
def resolves(name: str) -> bool:
    """Returns True for the dotted name of a module, or of something in a module."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            fields = getattr(value, "__dataclass_fields__", {})
            if not hasattr(value, part) and part not in fields:
                return False
            value = getattr(value, part, None)
        return True
    return False


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=page_name)
def test_names_in_the_text_exist(path: Path):
    names = re.findall(r"`(spo(?:\.\w+)+)(?:\([^`]*\))?`", path.read_text("utf-8"))
    missing = sorted({name for name in names if not resolves(name)})
    assert not missing, f"{page_name(path)} names {', '.join(missing)}"


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_files_in_the_text_exist(path: Path):
    text = path.read_text("utf-8")
    files = re.findall(r"`((?:docs|results|tests|tools|experiments|benchmarks|examples|spo)/[\w./-]+)`", text)
    missing = [file for file in files if not ((ROOT / file).exists() or (ROOT / "src" / file).exists())]
    assert not missing, f"{page_name(path)} names {', '.join(missing)}"


def test_links_between_files_work():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8")):
            if "://" in target:
                continue
            file = path.parent / target
            as_notebook = file.with_suffix(".py")  # pages of the site are made from notebooks
            assert file.exists() or as_notebook in NOTEBOOKS, f"{page_name(path)} links to {target}"


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        assert f": {path.relative_to(ROOT / 'docs').as_posix()}\n" in navigation, page_name(path)


# --- Size and figures ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "limit"), [("README.md", 120), ("docs/performance.md", 150), ("results/README.md", 20)], ids=str
)
def test_pages_stay_short(name: str, limit: int):
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= limit


def test_tables_show_the_stored_figures():
    script = ROOT / "tools" / "performance_tables.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_readme_quotes_the_summary_of_the_tuned_run():
    folder = ROOT / "results" / "runs" / "h200" / "spo_rubiks_cube_tuned"
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    low, high = summary["final_solve_rate_interval"]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"solves {summary['final_solve_rate']:.1%}".replace("%", " %") in readme
    assert f"of {summary['final_solve_rate_episodes']:,} cubes" in readme
    assert f"interval {100 * low:.1f} to {100 * high:.1f} %" in readme
    assert f"training took {summary['training_seconds']:.0f} s" in readme


def test_the_page_of_spo_shows_the_stored_searches_at_low_temperatures():
    rows = json.loads((ROOT / "results" / "trials" / "cold_search.json").read_text("utf-8"))["rows"]
    page = (ROOT / "docs" / "algorithms" / "spo.md").read_text("utf-8")
    for plain, discounted in zip(rows[::2], rows[1::2], strict=True):
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {plain['temperature']:.2g} "))
        cells = [f"{row['solved']:.1%}".replace("%", " %") for row in (plain, discounted)]
        assert cells == [cell.split(" (")[0] for cell in line.strip("| ").split(" | ")[1::2]]


def test_the_page_of_spo_shows_the_stored_long_training():
    rows = json.loads((ROOT / "results" / "trials" / "long_training.json").read_text("utf-8"))["rows"]
    page = (ROOT / "docs" / "algorithms" / "spo.md").read_text("utf-8")
    for name, row in rows.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        shares = (min(row["minimum_per_seed"]), *row["mean"].values())
        lowest, mean, low, high = (f"{share:.1%}".replace("%", " %") for share in shares)
        losses = row["last_value_loss_per_seed"]
        assert line.strip("| ").split(" | ")[1:] == [
            f"{row['evaluations_below_97']} of {row['evaluations']}",
            lowest,
            f"{mean} ({low} to {high})",
            f"{sum(losses) / len(losses):.2g}",
        ]
    pictures = [ROOT / folder / "long_training.png" for folder in ("docs/images", "results/trials")]
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


# --- API -------------------------------------------------------------------------------------------------------------
def test_every_field_in_the_api_has_a_meaning():
    """Each field of a class on an API page has a docstring or a comment, or its class describes it by name."""
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(ROOT / "tools" / "mkdocs_field_comments.py"))
    package = griffe.load("spo", search_paths=[str(ROOT / "src")], extensions=extensions)
    missing = []
    for path in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^::: spo\.([\w.]+)", path.read_text("utf-8"), re.MULTILINE):
            shown = package[name].final_target if package[name].is_alias else package[name]
            members = [member for member in shown.members.values() if not member.is_alias and member.is_class]
            for kind in [shown] if shown.is_class else members:
                missing += fields_without_meaning(kind)
    assert not missing, f"no description: {', '.join(sorted(missing))}"


def fields_without_meaning(kind) -> list[str]:
    decorators = [str(decorator.value) for decorator in kind.decorators]
    holds_data = any("NamedTuple" in str(base) for base in kind.bases) or any("dataclass" in d for d in decorators)
    if kind.name.startswith("_") or not holds_data:
        return []
    described = kind.docstring.value if kind.docstring else ""
    members = [m for m in kind.all_members.values() if not m.is_alias or m.inherited]
    fields = [member for member in members if member.is_attribute and "property" not in member.labels]
    return [
        field.path
        for field in fields
        if field.docstring is None
        and not field.name.startswith("_")
        and not re.search(rf"`{field.name}\b|^ +{field.name}: ", described, re.MULTILINE)
    ]
