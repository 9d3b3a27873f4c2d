"""Milliseconds from a request of the live page to its whole answer, as `spo inspect RUN --serve` gives it.

    python benchmarks/live_page.py RUN --out results/benchmarks/cpu/inspect.json
    python benchmarks/live_page.py --tiny                                                     smoke test

The request goes through the server: HTTP, the search, the conversion to JSON, and the client's reading of it. The time
is by the clock, after the compilation. It does not contain the drawing in the browser. RUN is a saved run, such as one
of the preset `default`. `--preset paper/ant` measures an untrained agent of a preset as well. The rows have the load of
the machine before the measurement: on a busy one, the times are too long.
"""

import argparse
import dataclasses
import http.client
import json
import os
import pathlib
import re
import statistics
import threading
import time
from typing import Any

import _timing
import jax

from spo import presets
from spo.algorithms.planning import SearchConfig
from spo.inspection.episode import Origin
from spo.inspection.server import Server
from spo.inspection.session import Session
from spo.inspection.subject import Subject
from spo.networks.config import NetworkConfig
from spo.training.agents import select_seed
from spo.training.saved_learners import load_learner
from spo.training.trainer import Trainer

BUDGETS = ((16, 4), (64, 8), (256, 8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=pathlib.Path, metavar="RUN", help="saved runs")
    parser.add_argument("--preset", action="append", default=[], help="a preset, whose agent is not trained")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--tiny", action="store_true", help="an untrained agent with a small network")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()
    subjects = [load_subject(run) for run in options.runs] + [untrained_subject(name) for name in options.preset]
    if options.tiny:
        subjects.append(untrained_subject("default", NetworkConfig(width=8, depth=1)))
    rows: list[dict[str, Any]] = []
    for subject, name in subjects:
        for num_particles, horizon in BUDGETS[:1] if options.tiny else BUDGETS:
            row = measure(subject, name, num_particles, horizon, options.repeats)
            rows.append({**row, **_timing.provenance()})
            _timing.write_rows(rows, options.out)
            print(
                f"{name}, {num_particles} x {horizon}: {row['milliseconds']:.0f} ms, 95 % within "
                f"{row['milliseconds_95']:.0f} ms, {row['compile_seconds']:.1f} s of compilation",
                flush=True,
            )


def load_subject(run: pathlib.Path) -> tuple[Subject, str]:
    experiment, learner = load_learner(run)
    return Subject(experiment, select_seed(learner, 0)), f"{experiment.task}, trained"


def untrained_subject(preset: str, network: NetworkConfig | None = None) -> tuple[Subject, str]:
    """Returns an agent before training. Its learner needs no replay, so the sizes of training are small."""
    experiment = presets.get(preset)
    sizes = {"num_envs": 2, "rollout_length": 2, "sequence_length": 2, "batch_size": 2, "replay_size": 8}
    # Unrolled physics takes minutes to compile and the result is the same.
    search: SearchConfig = dataclasses.replace(experiment.config.search, unroll=1)
    experiment = dataclasses.replace(
        experiment,
        num_devices=1,
        network=network or experiment.network,
        config=dataclasses.replace(experiment.config, **sizes, search=search),
    )
    learner = Trainer(experiment).init(jax.random.key(0)).learner
    return Subject(experiment, select_seed(learner, 0)), f"{experiment.task}, untrained"


def measure(subject: Subject, name: str, num_particles: int, horizon: int, repeats: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    server = Server(lambda: Session(subject, Origin(name, "best", 0)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        session, opening_seconds = open_page(server)
        request = {"index": 0, "settings": {"num_particles": num_particles, "horizon": horizon}}
        answers = [post(server, session, request | {"seed": seed}) for seed in range(repeats + 3)]
    finally:
        server.shutdown()
        server.server_close()
    first, timed = answers[0], answers[3:]
    milliseconds = sorted(1000 * seconds for _, seconds, _ in timed)
    decisions = [answer["steps"][0]["decision"] for answer, _, _ in timed]
    return {
        "agent": name,
        "num_particles": num_particles,
        "horizon": horizon,
        "milliseconds": statistics.median(milliseconds),
        "milliseconds_95": milliseconds[int(0.95 * (len(milliseconds) - 1))],
        "search_milliseconds": 1000 * statistics.median(decision["seconds"] for decision in decisions),
        # A page opens with a search in the run's own settings, which compiles them.
        "compile_seconds": max(opening_seconds, first[0]["steps"][0]["decision"]["compile_seconds"]),
        "kilobytes": statistics.median(size for _, _, size in timed) / 1000,
        "repeats": repeats,
        "load_before": load,
    }


def open_page(server: Server) -> tuple[str, float]:
    """Returns the session of a new page, and the seconds for which its first search was compiled."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", f"/?token={server.token}")
    content = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r'id="document">(.*?)</script>', content, re.DOTALL)
    assert found is not None
    document = json.loads(found[1])
    return document["live"]["session"], document["steps"][-1]["decision"]["compile_seconds"]


def post(server: Server, session: str, request: dict[str, Any]) -> tuple[dict[str, Any], float, int]:
    """Returns the answer to a search, the seconds that it took, and its size in bytes."""
    headers = {"Content-Type": "application/json", "X-Spo-Token": server.token, "X-Spo-Session": session}
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/api/search", json.dumps(request), headers)
    content = connection.getresponse().read()
    answer = json.loads(content)
    seconds = time.perf_counter() - start
    connection.close()
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer, seconds, len(content)


if __name__ == "__main__":
    main()
