"""Writes results/claims.md from the findings in results/claims/, after running all experiments if --run is given.

python experiments/claims.py                the table
python experiments/claims.py --run smoke    all experiments, then the table
"""

import argparse
import importlib
import pathlib
import subprocess
import sys

from _claims import ROOT, SCALES, claims_table

HERE = pathlib.Path(__file__).parent
NAMES = (
    "discrete",
    "continuous",
    "training_scaling",
    "test_time_scaling",
    "temperatures",
    "kl_targets",
    "advantages",
    "kl_to_oracle",
    "elbo",
    "better_inference",
    "chance",
)
"""Experiments with a claim, in the order of their numbers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", choices=SCALES, help="run the experiments at this scale first")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="run these experiments only")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "results" / "claims", help="folder of findings")
    options = parser.parse_args()
    failed = []
    for name in options.only if options.run else []:
        command = [sys.executable, HERE / f"{name}.py", "--scale", options.run, "--out", options.folder]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    claims = [importlib.import_module(name).CLAIM for name in NAMES]
    path = options.folder.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(claims_table(options.folder, claims), encoding="utf-8")
    print(f"Wrote {path}.")
    if failed:
        sys.exit(f"These experiments failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
