"""MkDocs hook that turns notebooks, which are stored as Python files, into pages."""

import jupytext
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for script in [file for file in files if file.src_uri.startswith("notebooks/") and file.src_uri.endswith(".py")]:
        files.remove(script)
        notebook = jupytext.reads(script.content_string, fmt="py:percent")
        page = script.src_uri.removesuffix(".py") + ".md"
        files.append(File.generated(config, page, content=_without_header(jupytext.writes(notebook, fmt="md"))))
    return files


def _without_header(markdown: str) -> str:
    """Removes the settings that Jupytext writes between two lines of dashes at the top."""
    return markdown.split("\n---\n", 1)[1] if markdown.startswith("---\n") else markdown
