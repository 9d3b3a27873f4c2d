"""Write the manifest of the public Boxoban levels: every file's number of levels and, where it is at hand, its SHA-256.

    python tools/boxoban_manifest.py FOLDER [--output src/spo/environments/boxoban_manifest.json]

FOLDER is a copy of github.com/google-deepmind/boxoban-levels or a part of one. A file that isn't in it gets `null` for
a hash: then `spo download` checks its format only, says so, and prints the hash it got.
"""

import argparse
import hashlib
import json
from pathlib import Path

from spo.environments.boxoban import parse_levels

SOURCE = "https://github.com/google-deepmind/boxoban-levels"

#: Folder and number of levels of each split, 1000 to a file. The public page says 4000 for hard; the files hold 3332.
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
    if not path.is_file():
        return {"num_levels": num_levels, "sha256": None}
    text = path.read_bytes()
    found = len(parse_levels(text, str(path)))
    if found != num_levels:
        raise SystemExit(f"{path} holds {found} levels, and should hold {num_levels}: it is no complete public file.")
    return {"num_levels": num_levels, "sha256": hashlib.sha256(text).hexdigest()}


def manifest(root: Path) -> dict[str, object]:
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
    """JSON indented down to the files, each of which gets one line."""
    indented = json.dumps(content, indent=1)
    return (
        indented.replace('{\n     "num_levels"', '{"num_levels"')
        .replace(',\n     "sha256"', ', "sha256"')
        .replace("\n    }", "}")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=Path("src/spo/environments/boxoban_manifest.json"))
    arguments = parser.parse_args()
    content = manifest(arguments.folder)
    text = one_line_per_file(content) + "\n"
    assert json.loads(text) == content
    arguments.output.write_text(text, encoding="utf-8")
    print(f"{arguments.output}: {text.count('num_levels')} files, {text.count('null')} of them without a hash.")


if __name__ == "__main__":
    main()
