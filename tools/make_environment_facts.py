"""Writes src/spo/known_environments.json, the table of `spo envs`: python tools/make_environment_facts.py.

Run it when an environment is added or changed, or with another version of a library. Facts about libraries that
are not installed here are kept.
"""

import json

from spo.cli.environment_facts import compute_all, missing
from spo.known_environments import LIBRARIES, PATH


def main() -> None:
    made = compute_all()
    if PATH.exists():
        stored = json.loads(PATH.read_text("utf-8"))
        absent = missing()
        kept = {name: facts for name, facts in stored["environments"].items() if name.partition("/")[0] in absent}
        made["environments"] |= kept
        made["versions"] |= {name: version for name, version in stored["versions"].items() if name in absent}
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(facts)}" for name, facts in made["environments"].items())
    text = f'{{\n  "versions": {json.dumps(made["versions"])},\n  "environments": {{\n{rows}\n  }}\n}}\n'
    PATH.write_text(text, "utf-8")
    print(f"Wrote {len(made['environments'])} environments of {len(LIBRARIES) - len(missing())} libraries to {PATH}.")


if __name__ == "__main__":
    main()
