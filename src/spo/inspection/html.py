"""The page as one HTML file: style, scripts and data are inside, and nothing is loaded from a network."""

import base64
import functools
import hashlib
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

#: The scripts, each after those that it imports.
SCRIPTS = (
    "dom",
    "words",
    "genealogy",
    "tree",
    "colours",
    "circles_view",
    "curves_view",
    "policy_view",
    "pictures_view",
    "details_view",
    "guide",
    "live",
    "search_view",
    "app",
)
IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|const|class)", re.MULTILINE)


def make_page(document: dict[str, Any]) -> str:
    """Returns the page with a document of `spo.inspection.protocol`. Only a live page may reach its server."""
    style, script = read_asset("style.css"), make_script()
    server = "'self'" if "live" in document else "'none'"
    policy = [
        "default-src 'none'",
        "img-src data:",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        f"connect-src {server}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    parts = {
        "policy": "; ".join(policy),
        "style": style,
        "document": to_script_data(document),
        "script": script,
    }
    # One pass, so that nothing inside a part is taken for a place.
    return re.sub(r"\{(policy|style|document|script)\}", lambda place: parts[place[1]], read_asset("index.html"))


def write_page(path: Path, document: dict[str, Any]) -> None:
    """Writes the page to a file."""
    path.write_text(make_page(document), "utf-8")


@functools.cache
def make_script() -> str:
    """Returns all scripts as one module. Imports are left out: the names are in the same scope."""
    texts = [read_asset(f"{name}.mjs") for name in SCRIPTS]
    return "".join(EXPORT.sub("", IMPORT.sub("", text)) for text in texts) + "start();\n"


def to_script_data(document: dict[str, Any]) -> str:
    """Returns JSON that can stand inside a script element: no text of a run can end the element or start another."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))  # ASCII only
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def read_asset(name: str) -> str:
    """Returns the text of a file in the folder `page`."""
    return (resources.files("spo.inspection") / "page" / name).read_text("utf-8")


def _digest(text: str) -> str:
    """Returns the name of an inline script or style in a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


__all__ = ["make_page", "make_script", "read_asset", "to_script_data", "write_page"]
