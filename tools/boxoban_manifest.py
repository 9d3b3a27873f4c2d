"""Writes the manifest of the public Boxoban levels: number of levels and SHA-256 of every file.

    python tools/boxoban_manifest.py FOLDER [--output src/spo/environments/boxoban/manifest.json]

FOLDER is a copy of github.com/google-deepmind/boxoban-levels or a part of one. A file that is not in it gets the hash
`null`. `spo download` then checks only its format, and prints its hash.
"""

import argparse
import hashlib
import json
from pathlib import Path

from spo.environments.boxoban import parse_levels

SOURCE = "https://github.com/google-deepmind/boxoban-levels"

#: Folder and number of levels of each split. The public page gives 4000 for hard; the files hold 3332.
SPLITS = {
    "unfiltered-train": ("unfiltered/train", 900_000),
    "unfiltered-valid": ("unfiltered/valid", 100_000),
    "unfiltered-test": ("unfiltered/test", 1_000),
    "medium-train": ("medium/train", 450_000),
    "medium-valid": ("medium/valid", 50_000),
    "hard": ("hard", 3_332),
}
LEVELS_PER_FILE = 1000


def facts(path: Path, num_levels: int) -> dict[str, int | str | None]:
    """Number of levels and hash of one file."""
    if not path.is_file():
        return {"num_levels": num_levels, "sha256": None}
    text = path.read_bytes()
    found = len(parse_levels(text, str(path)))
    if found != num_levels:
        raise SystemExit(f"{path} holds {found} levels instead of {num_levels}: it is not a complete public file.")
    return {"num_levels": num_levels, "sha256": hashlib.sha256(text).hexdigest()}


def make_manifest(root: Path) -> dict[str, object]:
    return {
        "source": SOURCE,
        "splits": {
            split: {
                "folder": folder,
                "files": {
                    f"{index:03d}.txt": facts(
                        root / folder / f"{index:03d}.txt", min(LEVELS_PER_FILE, num_levels - index * LEVELS_PER_FILE)
                    )
                    for index in range(-(-num_levels // LEVELS_PER_FILE))
                },
            }
            for split, (folder, num_levels) in SPLITS.items()
        },
    }


def one_line_per_file(content: dict[str, object]) -> str:
    """Formats the manifest as indented JSON with one line per file."""
    indented = json.dumps(content, indent=1)
    return (
        indented.replace('{\n     "num_levels"', '{"num_levels"')
        .replace(',\n     "sha256"', ', "sha256"')
        .replace("\n    }", "}")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=Path("src/spo/environments/boxoban/manifest.json"))
    arguments = parser.parse_args()
    content = make_manifest(arguments.folder)
    text = one_line_per_file(content) + "\n"
    assert json.loads(text) == content
    arguments.output.write_text(text, encoding="utf-8")
    print(f"{arguments.output}: {text.count('num_levels')} files, {text.count('null')} of them without a hash.")


if __name__ == "__main__":
    main()
