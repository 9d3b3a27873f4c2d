"""Kills a tiny run at random moments, and damages run folders at random, to find what is lost or silently wrong.

    python tools/fuzz_runs.py --kills 200 --corruptions 500 [--seed 0]
    python tools/fuzz_runs.py --only 21-122

A killed run is resumed until it ends. It must end with the same bits as a run that was never interrupted, and none of
its checkpoints may be damaged. After damage to a folder, resuming, loading, exporting and listing must each give the
same learner, an earlier one with a sentence, or an error of one sentence: never another learner, never another error.

Prints totals. Exits with 1 if anything else happened. `--only` repeats one damaged folder by the name of its case.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from spo.algorithms.planning import SearchConfig
from spo.algorithms.spo import SPOConfig
from spo.networks.config import NetworkConfig
from spo.reports.overview import Overview, list_overviews, read_overview
from spo.reports.run_files import LATEST, read_summary
from spo.reports.runs import Run, load_run, load_runs
from spo.training import checkpoints, loop, named_arrays, saved_learners
from spo.training.experiment import EvaluationConfig, Experiment, from_json, to_json
from spo.training.saved_learners import export_learner, load_learner_and_origin
from spo.training.sinks.base import Sink
from spo.training.trainer import Trainer

EXPERIMENT = Experiment(
    task="tiny/chain",
    steps=8 * 4 * 12,  # 12 iterations
    num_seeds=2,
    num_devices=1,
    logs_per_evaluation=2,
    config=SPOConfig(
        num_envs=8,
        rollout_length=4,
        num_updates=1,
        batch_size=4,
        sequence_length=2,
        replay_size=8 * 16,
        search=SearchConfig(num_particles=4, horizon=2, unroll=1),
    ),
    network=NetworkConfig(width=64, depth=2),
    evaluation=EvaluationConfig(num_evaluations=3, episodes=8, final_episodes=8),
)
NUM_ITERATIONS = 12
#: Words of the messages that announce an earlier state.
FALL_BACK = ("is damaged", "starts again from its beginning", "has no checksums")


class Violation(Exception):
    """Something was lost, silently wrong, or failed with more than a sentence."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="number of SIGKILLs")
    parser.add_argument("--corruptions", type=int, default=0, help="number of damaged folders")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--only", metavar="CASE", type=parse_case, help="repeat this damaged folder, such as 21-122")
    chosen = parser.parse_args()
    # A forked process is used only before JAX has started any thread in this one.
    warnings.filterwarnings("ignore", message=".*os.fork\\(\\).*")
    failures = 0
    with tempfile.TemporaryDirectory(prefix="fuzz_runs_") as folder:
        if chosen.kills:
            failures += fuzz_kills(Path(folder) / "kills", chosen.kills, random.Random(chosen.seed))
        cases = [chosen.only] if chosen.only else [f"{chosen.seed}-{number}" for number in range(chosen.corruptions)]
        if cases:
            failures += in_child(lambda: fuzz_corruptions(Path(folder) / "base", cases))
    print("No violation." if not failures else "There are violations.")
    raise SystemExit(1 if failures else 0)


def parse_case(text: str) -> str:
    if not re.fullmatch(r"\d+-\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no case: write SEED-NUMBER, such as 21-122")
    return text


def in_child(work: Callable[[], int]) -> int:
    """Returns the result of a function in a forked process, as its exit code."""
    process = start_child(work)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def start_child(work: Callable[[], int]) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# --- Kills ------------------------------------------------------------------------------------------------------------


class Messages(Sink):
    """Collects the messages of a run."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def train(folder: Path) -> int:
    """Trains or resumes the run in a folder. Returns 3 if a checkpoint was damaged."""
    messages, resume = Messages(), (folder / "config.json").exists()
    loop.train(EXPERIMENT, folder, sinks=[messages], resume=resume, checkpoint_seconds=0.0)
    damaged = [text for text in messages.texts if "is damaged" in text]
    for text in damaged:
        print(text)
    return 3 if damaged else 0


def fuzz_kills(root: Path, num_kills: int, moments: random.Random) -> int:
    """Kills runs at random moments. Returns the number of violations."""
    root.mkdir(parents=True)
    whole = root / "whole"
    if in_child(lambda: train(whole)) != 0:  # compiles
        print("The run that is not interrupted has failed.")
        return 1
    shutil.rmtree(whole)
    started = time.perf_counter()
    in_child(lambda: train(whole))
    seconds = time.perf_counter() - started
    kills, runs, kills_of_run, failures = 0, 0, 0, 0
    folder = root / "run0"
    while kills < num_kills or kills_of_run:
        process = start_child(functools.partial(train, folder))
        if kills < num_kills:
            time.sleep(moments.uniform(0.0, 0.9) * seconds)
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            kills, kills_of_run = kills + 1, kills_of_run + 1
            continue
        code = os.waitstatus_to_exitcode(status) or in_child(functools.partial(compare, whole, folder))
        runs += 1
        if code:
            failures += 1
            print(f"VIOLATION: {folder.name}, killed {kills_of_run} times, ended with {code}")
        kills_of_run = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder = root / f"run{runs}"
    left = [path.name for path in root.iterdir() if path.name.startswith(".")]
    print(f"{kills} kills in {runs} runs of {seconds:.1f} s: {failures} violations; abandoned drafts: {len(left)}")
    return failures


def compare(whole: Path, folder: Path) -> int:
    """Returns 0 if two runs have the same records, results and bits. Only times may differ."""

    def records(path: Path) -> list[dict[str, Any]]:
        lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
        return [{name: value for name, value in line.items() if name != "time"} for line in lines]

    def results(path: Path) -> dict[str, Any]:
        summary = read_summary(path) or {}
        times = ("time_to_first_update", "env_steps_per_second", "checkpoint_bytes")
        return {k: v for k, v in summary.items() if k not in times and not k.endswith("_seconds")}

    states = [last_state(path) for path in (whole, folder)]
    same = {
        "records": records(whole) == records(folder),
        "results": results(whole) == results(folder),
        "bits": states[0] == states[1],
    }
    for name, equal in same.items():
        if not equal:
            print(f"The {name} differ.")
    return 0 if all(same.values()) else 4


def last_state(folder: Path) -> tuple[int, bytes]:
    state = checkpoints.restore(folder / "checkpoints", Trainer(EXPERIMENT).abstract_state, 1, print)
    assert state is not None
    return state.progress.iteration, bits((state.train_state, state.best_learner))


def bits(tree: Any) -> bytes:
    """Returns all arrays of a tree as bytes, with their names."""
    return b"".join(name.encode() + np.asarray(leaf).tobytes() for name, leaf in named_arrays.flatten(tree).items())


# --- Damage -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Base:
    """A good run folder and what can be loaded from it, by iteration."""

    folder: Path
    run: Run
    newest: int
    states: dict[int, bytes]
    learners: dict[tuple[str, int], bytes]
    first_learner: bytes


class Reached(Exception):
    """The resumed run has reached its training with a state, or an evaluation with a learner."""

    def __init__(self, state: Any):
        super().__init__()
        self.state = state


def fuzz_corruptions(root: Path, cases: Sequence[str]) -> int:
    """Damages one copy of a run folder for each case. Returns 1 if there is a violation, as an exit code."""
    root.mkdir(parents=True)
    bases = make_base(root / "interrupted", stop=True), make_base(root / "finished", stop=False)
    export_learner(bases[0].folder, root / "learner.npz", "last")
    outcomes: collections.Counter[str] = collections.Counter()
    violations = 0
    started = time.perf_counter()
    with shared_trainers(), stopped_trainers():
        for number, case in enumerate(cases, start=1):
            chance = random.Random(case)
            base = chance.choices(bases, (0.8, 0.2))[0]
            trial = root / "trials" / "run"
            shutil.copytree(base.folder, trial)
            shutil.copyfile(root / "learner.npz", trial.parent / "learner.npz")
            damages = [damage(chance, trial) for _ in range(chance.choice([1, 1, 1, 2, 4]))]
            for name, operation in OPERATIONS.items():
                known = bases[0] if name == "exported file" else base
                try:
                    outcomes[f"{name}: {check(operation, known, trial)}"] += 1
                except Violation as error:
                    violations += 1
                    print(f"VIOLATION: case {case}, {name} after {'; '.join(damages)}: {error}", flush=True)
            shutil.rmtree(trial.parent)
            if number % 100 == 0:
                print(f"{number} damaged folders, {violations} violations", flush=True)
    seconds = time.perf_counter() - started
    print(f"{len(cases)} damaged folders in {seconds:.0f} s: {violations} violations")
    for name, count in sorted(outcomes.items()):
        print(f"  {name:40} {count}")
    return 1 if violations else 0


class Stop(Sink):
    """Ends a run in its last interval, as an error does: two checkpoints before it are kept."""

    def log(self, records: Any) -> None:
        if records[0]["kind"] == "train" and records[0]["env_steps"] >= EXPERIMENT.steps:
            raise Reached(None)


def make_base(folder: Path, stop: bool) -> Base:
    """Trains the run to its end, or into its last interval, and keeps all that it saves."""
    states: dict[int, bytes] = {}
    learners: dict[tuple[str, int], bytes] = {}
    first: list[bytes] = []
    save, evaluate = checkpoints.save, Trainer.evaluate

    def save_and_keep(path: Path, state: Any) -> Any:
        iteration = state.progress.iteration
        states[iteration] = bits(state.train_state)
        learners["last", iteration] = bits(state.train_state.learner)
        learners["best", iteration] = bits(state.best_learner)
        return save(path, state)

    def evaluate_and_keep(self: Trainer, learner: Any, *arguments: Any, **options: Any) -> Any:
        first.append(bits(learner))
        return evaluate(self, learner, *arguments, **options)

    keeping = patched(checkpoints, "save", save_and_keep), patched(Trainer, "evaluate", evaluate_and_keep)
    with keeping[0], keeping[1], contextlib.suppress(Reached):
        loop.train(EXPERIMENT, folder, sinks=[Stop()] if stop else [], checkpoint_seconds=0.0)
    newest = checkpoints.iterations(folder / "checkpoints")[-1]
    assert (newest == max(states) == NUM_ITERATIONS) != stop
    assert learners["best", newest] != first[0]  # else the first and the final evaluation can't be told apart
    return Base(folder, load_run(folder), newest, states, learners, first[0])


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def shared_trainers() -> Iterator[None]:
    """Makes the trainer of each experiment once: making one takes a second."""

    @functools.cache
    def from_text(text: str) -> Trainer:
        return Trainer(from_json(json.loads(text)))

    def make(experiment: Experiment, task: Any = None, **_: Any) -> Trainer:
        del task
        return from_text(json.dumps(to_json(experiment)))

    with patched(loop, "Trainer", make), patched(saved_learners, "Trainer", make):
        yield


@contextlib.contextmanager
def stopped_trainers() -> Iterator[None]:
    """Ends a run where it would train or evaluate, with the state that it has."""

    def run(_: Trainer, state: Any) -> Any:
        raise Reached(state)

    def evaluate(_: Trainer, learner: Any, *__: Any, **___: Any) -> Any:
        raise Reached(learner)

    with patched(Trainer, "run", run), patched(Trainer, "evaluate", evaluate):
        yield


# --- Kinds of damage --------------------------------------------------------------------------------------------------


def damage(chance: random.Random, folder: Path) -> str:
    """Damages one file or folder, and returns what was done. Array files of checkpoints are chosen most often."""
    paths = sorted(folder.parent.rglob("*"))  # in any file system, a case is the same
    files = [path for path in paths if path.is_file() and path.name != "run.lock"]
    arrays = [path for path in files if "checkpoints" in path.parts]
    settings = [
        path for path in files if path.suffix in (".json", ".jsonl", ".npz") and "checkpoints" not in path.parts
    ]
    if chance.random() < 0.05:
        target = chance.choice([path for path in paths if path.is_dir() and path != folder])
        shutil.rmtree(target)
        return f"removed {target.relative_to(folder)}"
    if arrays and chance.random() < 0.4:  # by size: the format has no checksums of its own for large arrays
        (path,) = chance.choices(arrays, [path.stat().st_size for path in arrays])
    else:
        path = chance.choice(arrays if arrays and chance.random() < 0.4 else settings or files)
    kind = chance.choice(list(KINDS))
    path.write_bytes(KINDS[kind](chance, path.read_bytes())) if kind != "deleted" else path.unlink()
    return f"{kind} {path.relative_to(folder.parent)}"


def flip(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content or b"\0")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def zero(chance: random.Random, content: bytes) -> bytes:
    start = chance.randrange(max(1, len(content)))
    length = min(chance.choice([16, 512, 4096]), len(content) - start)
    return content[:start] + bytes(length) + content[start + length :]


def truncate(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def garbage(chance: random.Random, content: bytes) -> bytes:
    del content
    texts = [b"", b"{}", b"[]", b"null", b"3\n", b'{"a": 1}\n', b"\xff\xfe", b"NaN", chance.randbytes(300)]
    return chance.choice(texts)


def shuffle(chance: random.Random, content: bytes) -> bytes:
    """Repeats, removes or moves a part, as a file system can do with blocks."""
    at, length = chance.randrange(len(content) + 1), chance.choice([1, 16, 64])
    part = content[at : at + length]
    return chance.choice([content[:at] + part + content[at:], content[:at] + content[at + length :], content + part])


KINDS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flipped a bit of": flip,
    "zeroed a page of": zero,
    "truncated": truncate,
    "wrote garbage to": garbage,
    "shuffled": shuffle,
    "deleted": lambda _, content: content,
}


# --- Operations -------------------------------------------------------------------------------------------------------


def check(operation: Callable[[Base, Path, list[str]], str], base: Base, trial: Path) -> str:
    """Returns the outcome of an operation on a damaged folder: same, fall-back or refused."""
    messages: list[str] = []
    try:
        outcome = operation(base, trial, messages)
    except (ValueError, OSError) as error:
        sentence = str(error)
        if not sentence or "\n" in sentence.strip() or str(trial.parent) not in sentence:
            raise Violation(f"this is no sentence about a file: {type(error).__name__}: {sentence!r}") from error
        return "refused"
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"{type(error).__name__}: {error}\n{traceback.format_exc()}") from error
    if outcome == "fall-back" and not any(words in text for text in messages for words in FALL_BACK):
        raise Violation(f"an earlier state without a sentence; messages: {messages}")
    return outcome


def resume(base: Base, trial: Path, messages: list[str]) -> str:
    """Resumes the run up to its training."""
    sink = Messages()
    sink.texts = messages
    try:
        loop.train(EXPERIMENT, trial, sinks=[sink], resume=True, checkpoint_seconds=1e9)
    except Reached as reached:
        return judge_reached(base, bits(reached.state))
    return "finished"


def judge_reached(base: Base, found: bytes) -> str:
    """Returns "same" for the newest state, and "fall-back" for an earlier one or a start from the beginning.

    A run that is trained to its end and has no summary reaches its final evaluation, with the best learner.
    """
    is_trained = base.newest == NUM_ITERATIONS
    if found == base.states[base.newest] or (is_trained and found == base.learners["best", base.newest]):
        return "same"
    if found in (*base.states.values(), base.first_learner):
        return "fall-back"
    raise Violation("another learner")


def load(base: Base, trial: Path, messages: list[str]) -> str:
    outcomes = []
    for which in ("best", "last"):
        learner, origin = load_learner_and_origin(trial, which, message=messages.append)
        outcomes.append(compare_learner(base, learner, origin, which))
    return "fall-back" if "fall-back" in outcomes else "same"


def export(base: Base, trial: Path, messages: list[str]) -> str:
    target = trial.parent / "exported.npz"
    export_learner(trial, target, "last", message=messages.append)
    learner, origin = load_learner_and_origin(target, "last")
    return compare_learner(base, learner, origin, "last")


def load_file(base: Base, trial: Path, messages: list[str]) -> str:
    del messages
    learner, origin = load_learner_and_origin(trial.parent / "learner.npz")
    return compare_learner(base, learner, origin, "last")


def compare_learner(base: Base, learner: Any, origin: Any, which: str) -> str:
    if origin.experiment != EXPERIMENT:
        raise Violation("another experiment")
    found = bits(learner)
    same = [i for (kind, i), known in base.learners.items() if kind == which and known == found]
    if not same:
        raise Violation("another learner")
    if which == "last" and origin.iterations[0] not in same:
        raise Violation(f"iterations {origin.iterations} of a learner of {same}")
    return "same" if base.newest in same else "fall-back"


def list_all(base: Base, trial: Path, messages: list[str]) -> str:
    """Lists and loads the damaged run beside a good one, which must be there in any case."""
    roots = [trial.parent, base.folder]
    with contextlib.suppress(FileNotFoundError):
        check_overviews(base, list_overviews(roots[0]))
    found = {run.folder: run for run in load_runs(roots, messages.append)}
    if base.folder not in found:
        raise Violation("the good run is missing")
    if trial not in found:
        return "listed as damaged"
    check_results(base, found[trial])
    return "same"


def check_overviews(base: Base, overviews: list[Overview]) -> None:
    known = read_overview(base.folder)
    for overview in overviews:
        if overview.state == "finished" and overview.result != known.result:
            raise Violation(f"another result in the list of runs: {overview.result}")


def check_results(base: Base, run: Run) -> None:
    """Raises Violation if settings, results or records differ from those of the good run.

    Records have a checksum in the results of a finished run, and in the file about the last checkpoint. Without both,
    a changed digit can't be noticed here; a resumed run notices it by its checkpoint.
    """
    if run.config != base.run.config:
        raise Violation("other settings")
    if run.summary not in (base.run.summary, None):
        raise Violation("other results")
    if run.starts not in (base.run.starts, ()):
        raise Violation("other versions or devices")
    latest = (base.folder / LATEST).read_bytes()
    num_bytes = json.loads(latest)["metrics_bytes"]
    content = (base.folder / "metrics.jsonl").read_bytes()
    if run.summary is None:
        has_checksum = (run.folder / LATEST).exists() and (run.folder / LATEST).read_bytes() == latest
        content = content[:num_bytes] if has_checksum else b""
    num_records = content.count(b"\n")
    if run.records[:num_records] != base.run.records[:num_records]:
        raise Violation("other records")


OPERATIONS: dict[str, Callable[[Base, Path, list[str]], str]] = {
    "list": list_all,
    "load": load,
    "export": export,
    "exported file": load_file,
    "resume": resume,
}


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a killed process need not compile again
    main()
