"""Tests of the page's scripts: their own tests in Node, and the page that is made of them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from inspection.fake_documents import HOSTILE, fake_document
from spo.inspection import html

SCRIPTS = Path(__file__).parent / "scripts"
PAGE = Path(html.__file__).parent / "page"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_scripts_pass_their_own_tests():
    files = sorted(map(str, SCRIPTS.glob("*.test.mjs")))
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_page_has_every_script_after_those_that_it_imports():
    assert {f"{name}.mjs" for name in html.SCRIPTS} == {path.name for path in PAGE.glob("*.mjs")}
    for place, name in enumerate(html.SCRIPTS):
        imported = re.findall(
            r'^import .* from "\./(\w+)\.mjs";$', (PAGE / f"{name}.mjs").read_text("utf-8"), re.MULTILINE
        )
        assert set(imported) <= set(html.SCRIPTS[:place]), name
    script = html.make_script()
    assert "import " not in re.sub(r"//.*|/\*.*?\*/", "", script, flags=re.DOTALL)
    assert not re.search(r"^export ", script, re.MULTILINE)


def test_the_page_is_one_file_that_loads_nothing():
    page = html.make_page(fake_document())
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in page
    assert "connect-src 'none'" in page
    assert "unsafe" not in page
    assert "connect-src 'self'" in html.make_page({**fake_document(), "live": {"starts": None}})


def test_text_of_a_run_stays_text():
    document = fake_document()
    page = html.make_page(document)
    assert HOSTILE not in page
    assert page.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data[1]) == document
    # A place of the template inside the data is not filled in.
    tricky = {**document, "run": {**document["run"], "name": "{script}{style}"}}
    assert html.make_page(tricky).count("function layoutGenealogy") == 1


def test_nan_is_refused_instead_of_written():
    with pytest.raises(ValueError, match="JSON"):
        html.make_page({**fake_document(), "seed": float("nan")})
