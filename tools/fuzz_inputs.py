"""Random command lines and API calls with wrong values: python tools/fuzz_inputs.py --cases 1000 --seed 0.

A command must succeed or end with exit code 2 and one sentence. An API call must succeed or raise an error with a
sentence. Neither may leave a folder behind if it was refused. Training and evaluation are replaced by stubs, so that a
case takes a fraction of a second. Prints the totals and every violation, and exits with 1 if there is one.
"""

import argparse
import collections
import contextlib
import dataclasses
import io
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

SECONDS_PER_CASE = 60
BYTES_OF_MEMORY = 24 << 30
#: Texts that belong to a programming error: no sentence for a user contains them.
INTERNAL = re.compile(
    r"not supported between|has no attribute|unsupported operand|not subscriptable|has no len\(\)|not iterable|"
    r"cannot be interpreted|expected str, bytes|is not callable|invalid literal|could not convert string|"
    r"\[Errno|Traceback|cannot be converted|positional argument|unhashable|^'\w+'$|is not a valid JAX type"
)
TEXTS = (
    *(
        "",
        "-1",
        "0",
        "1",
        "2",
        "2.5",
        "1e18",
        "1e-400",
        "nan",
        "inf",
        "-inf",
        "abc",
        "True",
        "None",
        "null",
        "[]",
        "{}",
    ),
    *("9223372036854775807", "-9223372036854775808", "4294967296", "0x10", "1_000", "1,000", "½", "💥", "\x1b[31mred"),
    *("a\nb", "x" * 5000, "../..", ".", "/dev/null", "/nowhere/at/all", "-", "--", "'", '"', "%s", "{0}", "a\x00b"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 2.5, 1e18, float("nan"), float("inf"), 2**63, -(2**63), 10**400, "", "abc", "3"),
    *(
        [],
        {},
        (),
        [1],
        {"a": 1},
        (1, 2),
        set(),
        b"bytes",
        object(),
        int,
        len,
        Path("x"),
        types.SimpleNamespace(),
        1j,
        ...,
    ),
)


class Stopped(BaseException):
    """Ends a command where the work would begin. No handler of the package catches it."""


class Case(NamedTuple):
    """A random input."""

    words: str  # what was called, for people
    call: Callable[[], Any]
    is_command: bool


class Outcome(NamedTuple):
    """The end of a case."""

    kind: str  # "success", "refused" or "violation"
    text: str = ""


# --- Command lines ----------------------------------------------------------------------------------------------------


def make_command(rng: random.Random, folder: Path) -> list[str]:
    """Returns a random command line: a command with options, some of them with wrong names or values."""
    from spo.algorithms.registry import ALGORITHMS
    from spo.cli.commands import COMMANDS

    command = rng.choice([*COMMANDS, "train", "train", "evaluate", "render", "compare"])
    if rng.random() < 0.03:
        return [rng.choice(TEXTS), *rng.choices(TEXTS, k=2)]
    algorithm = rng.choice(list(ALGORITHMS))
    arguments = [command, *_positionals(rng, command, folder)]
    arguments += ["--algorithm", algorithm] if command == "train" and rng.random() < 0.8 else []
    options = _options_of(command, algorithm)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(options)
        name = rng.choice((*[name] * 9, name[:-1], name + "x", "--no-" + name[2:]))
        value = rng.choice(rng.choice((TEXTS, _GOOD_VALUES)))
        arguments += rng.choice(([name, value], [name, value], [f"{name}={value}"], [name]))
    if command == "train" and "--run" not in " ".join(arguments) and rng.random() < 0.5:
        arguments += ["--run", str(folder / "new")]
    return arguments


_GOOD_VALUES = (
    *("1", "2", "3", "4", "5", "8", "16", "100", "0.5", "0.9", "1.0", "1e-3", "spo", "ppo", "tiny/chain", "True"),
    *("best", "last", "solve_rate", "all_depths", "residual", "q_value", "bfloat16", "rollout", "new"),
)
_TASKS = (
    *("rubiks_cube", "tiny/chain", "tiny/lqr", "tiny/masked", "tiny/cliff", "boxoban/unfiltered", "gymnax/CartPole-v1"),
    *("tiny/", "tiny/none", "brax", "/", ":", "json:loads", "json:nothing", "no_such_module:f", "a:b:c", "object:x"),
    *("os:sep", "math:sqrt", "collections:OrderedDict", ":f", "json:", "  ", "tiny/chain/x"),
)


def _positionals(rng: random.Random, command: str, folder: Path) -> list[str]:
    runs = [str(folder / name) for name in ("run", "agent.npz", "damaged", "empty", "absent")] + ["", "x" * 300]
    if command in ("evaluate", "render", "runs"):
        return rng.choices(runs, k=rng.choice((0, 1, 1, 1, 1, 2)))
    if command == "compare":
        return rng.choices(runs, k=rng.choice((0, 1, 2, 3)))
    if command == "export":
        return [*rng.choices(runs, k=rng.choice((0, 1, 1))), *rng.choices((*TEXTS, str(folder / "out.npz")), k=1)]
    if command == "download":
        return rng.choices(("boxoban", "hard", "abc", ""), k=rng.choice((0, 1, 2)))
    if command == "train":
        from spo import presets

        start = rng.choices((*presets.PRESETS, "nothing", "paper/"), k=rng.choice((0, 0, 0, 1)))
        start = [] if any(name in start for name in ("paper/ant", "paper/humanoid", "paper/halfcheetah")) else start
        task = ["--task", rng.choice(_TASKS)] if rng.random() < 0.5 else []
        return start + task
    return []


def _options_of(command: str, algorithm: str) -> list[str]:
    """Returns the names of the options of a command, as they are written."""
    from spo.algorithms.registry import ALGORITHMS
    from spo.cli import options
    from spo.cli.commands import COMMANDS
    from spo.networks.config import NetworkConfig
    from spo.training.experiment import EvaluationConfig, Experiment

    if command in ("train", "evaluate"):
        config = ALGORITHMS[algorithm][0]
        kinds = {"": (config, Experiment, options.TrainOptions), "network.": (NetworkConfig,)}
        kinds["evaluation."] = (EvaluationConfig,)
        if command == "evaluate":
            kinds = {"": (options.EvaluateOptions, options.AnyBudget)}
        search = getattr(config(), "search", None)
        kinds["search."] = () if search is None else (type(search),)
        names = [
            f"{prefix}{field.name}" for prefix, group in kinds.items() for k in group for field in dataclasses.fields(k)
        ]
        names += ["task.size", "task.length", "task.eval_scrambles", "task.time_limit", "task.exit_reward", "help"]
    else:
        names = [*COMMANDS[command].__annotations__, "help"]
    return [f"--{name.replace('_', '-')}" for name in names]


# --- API calls --------------------------------------------------------------------------------------------------------


def make_call(rng: random.Random, folder: Path) -> tuple[str, Callable[[], Any]]:
    """Returns a random call of the API and its description."""
    import spo
    from spo.algorithms.registry import ALGORITHMS
    from spo.environments import registry
    from spo.networks.config import NetworkConfig
    from spo.training.experiment import EvaluationConfig, Experiment

    classes = [kind for kind, _ in ALGORITHMS.values()]
    searches = [type(config.search) for config in (kind() for kind in classes) if hasattr(config, "search")]
    kind = rng.choice(("config", "config", "experiment", "train", "train", "load", "make", "search", "policy"))
    if kind in ("config", "experiment"):
        chosen = (
            Experiment if kind == "experiment" else rng.choice([*classes, *searches, NetworkConfig, EvaluationConfig])
        )
        fields = {
            field.name: rng.choice(VALUES) for field in rng.choices(dataclasses.fields(chosen), k=rng.choice((1, 2)))
        }
        return f"{chosen.__name__}(**{fields!r})", lambda: chosen(**fields)
    if kind == "train":
        names = (
            "steps",
            "seed",
            "num_seeds",
            "algorithm",
            "config",
            "network",
            "evaluation",
            "run",
            "callback",
            "unknown",
        )
        names += (
            "on_evaluation",
            "resume",
            "progress",
            "num_devices",
            "logs_per_evaluation",
            "start_from",
            "task_options",
        )
        given = {name: rng.choice(VALUES) for name in rng.choices(names, k=rng.choice((0, 1, 2)))}
        environment = rng.choice(("tiny/chain", "tiny/chain", "tiny/lqr", *_TASKS, *VALUES))
        return f"spo.train({environment!r}, **{given!r})", lambda: spo.train(environment, **given)
    if kind == "load":
        given = {name: rng.choice(VALUES) for name in rng.choices(("which", "member", "env", "network"), k=1)}
        paths = [folder / name for name in ("run", "agent.npz", "damaged", "empty", "absent")]
        path = rng.choice((*paths, *paths, *VALUES, str(folder / "run")))
        return f"spo.load({path!r}, **{given!r})", lambda: spo.load(path, **given)
    if kind == "make":
        name, option = rng.choice((*_TASKS, *VALUES)), rng.choice(("size", "length", "time_limit", "eval_scrambles"))
        value = rng.choice(VALUES)
        return f"make({name!r}, {option}={value!r})", lambda: registry.make(name, **{option: value})
    return _make_search(rng, as_policy=kind == "policy")


def _make_search(rng: random.Random, as_policy: bool) -> tuple[str, Callable[[], Any]]:
    import jax
    import jax.numpy as jnp
    import mctx

    from spo import search

    def model(key: Any, state: Any, action: Any) -> search.ModelOutput:
        del key, action
        zero = jnp.float32(0)
        return search.ModelOutput(state, jnp.zeros(3), zero, zero, zero + 1, jnp.zeros((), bool))

    def recurrent(params: Any, key: Any, action: Any, embedding: Any) -> Any:
        del params, key, action
        zeros = jnp.zeros(2)
        named = {"reward": zeros, "discount": zeros + 1, "prior_logits": jnp.zeros((2, 3)), "value": zeros}
        return mctx.RecurrentFnOutput(**named), embedding

    root: Any = search.Root(jnp.zeros((2, 3)), jnp.zeros(2), jnp.zeros((2, 1)))
    given: dict[str, Any] = {"num_particles": 4, "horizon": 2, "temperature": 1.0}
    given |= {"resampling": search.Resampling(period=2)}
    names = (*given, "unroll", "readout", "proposal", "score_fn", "with_ancestry", "distribution")
    given |= {name: rng.choice(VALUES) for name in rng.choices(names, k=rng.choice((1, 2)))}
    key = rng.choice((jax.random.key(0), jax.random.key(0), *VALUES[:6]))
    if as_policy:
        root = types.SimpleNamespace(prior_logits=jnp.zeros((2, 3)), value=jnp.zeros(2), embedding=jnp.zeros((2, 1)))
    root = rng.choice((root, root, root, None, 3, {}))
    called = search.smc_policy if as_policy else search.search
    if as_policy:
        return f"smc_policy(**{given!r})", lambda: called({}, key, root, recurrent, **given)  # type: ignore[operator]
    return f"search(**{given!r}), root {type(root).__name__}", lambda: called(key, root, model, **given)  # type: ignore[operator]


# --- Running ----------------------------------------------------------------------------------------------------------


def run_case(case: Case) -> Outcome:
    """Runs a case and judges its end."""
    printed, errors = io.StringIO(), io.StringIO()
    signal.alarm(SECONDS_PER_CASE)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            case.call()
        return Outcome("success")
    except Stopped:
        return Outcome("success")
    except SystemExit as end:
        return _judge_exit(end.code, errors.getvalue()) if case.is_command else Outcome("violation", f"exit {end.code}")
    except TimeoutError as error:
        return Outcome("violation", f"no end after {error} s")
    except (ValueError, TypeError, OSError, ImportError) as error:
        if case.is_command:
            return Outcome("violation", traceback.format_exc())
        return _judge_sentence(str(error)) if str(error) else Outcome("violation", traceback.format_exc())
    except BaseException:
        return Outcome("violation", traceback.format_exc())
    finally:
        signal.alarm(0)


def _judge_exit(code: Any, errors: str) -> Outcome:
    if code in (0, None):
        return Outcome("success")
    lines = [line for line in errors.splitlines() if line.strip()]
    if code != 2 or not lines or not lines[-1].startswith("spo: "):
        return Outcome("violation", f"exit {code!r}: {errors[-2000:]}")
    return _judge_sentence(lines[-1].removeprefix("spo: "))


def _judge_sentence(text: str) -> Outcome:
    if INTERNAL.search(text) or " " not in text or "\x1b" in text:
        return Outcome("violation", f"no sentence: {text[:1000]}")
    return Outcome("refused", text)


def entries(folder: Path) -> set[str]:
    """Returns the files and folders below a folder, apart from the contents of runs."""
    return {str(path) for path in folder.rglob("*") if "checkpoints" not in path.parts}


@contextlib.contextmanager
def stubs(trace: bool = False) -> Iterator[None]:
    """Replaces training, evaluation, drawing and downloads by functions that stop at once.

    With `trace`, the program of a training interval is traced first, which finds sizes that do not fit together.
    """
    import jax

    from spo.cli import saved
    from spo.environments import boxoban, rendering
    from spo.training import evaluation, loop, processes

    def stop(*_: Any, **__: Any) -> Any:
        raise Stopped

    def trace_and_stop(trainer: Any, *_: Any, **__: Any) -> Any:
        if trace:
            jax.eval_shape(lambda state: trainer.run_fn(state, 1), trainer.abstract_state)
        raise Stopped

    replaced = (
        *((evaluation, "evaluate_in_parts"), (rendering, "rollout"), (boxoban, "download")),
        *((loop, "run"), (processes, "join"), (saved, "_seconds_per_step")),
    )
    originals = [getattr(module, name) for module, name in replaced]
    for module, name in replaced:
        setattr(module, name, trace_and_stop if module is loop else stop)
    try:
        yield
    finally:
        for (module, name), original in zip(replaced, originals, strict=True):
            setattr(module, name, original)


def prepare(folder: Path) -> None:
    """Trains a tiny run, and writes a damaged copy, an exported agent and an empty folder."""
    import shutil

    from spo.algorithms.spo import SPOConfig
    from spo.cli import main
    from spo.networks.config import NetworkConfig
    from spo.training import loop
    from spo.training.experiment import EvaluationConfig, Experiment

    experiment = Experiment(
        task="tiny/chain",
        steps=16,
        num_devices=1,
        config=SPOConfig(num_envs=2, rollout_length=4, sequence_length=4, batch_size=2, num_updates=1),
        network=NetworkConfig(width=8, depth=1),
        evaluation=EvaluationConfig(num_evaluations=1, episodes=2, final_episodes=2),
    )
    loop.train(experiment, folder / "run")
    main(["export", str(folder / "run"), str(folder / "agent.npz")])
    shutil.copytree(folder / "run", folder / "damaged")
    for name in ("config.json", "summary.json"):
        (folder / "damaged" / name).write_text("{")
    (folder / "empty").mkdir()


def make_case(rng: random.Random, folder: Path) -> Case:
    """Returns a random command line or a random call of the API."""
    if rng.random() < 0.5:
        from spo.cli import main

        arguments = make_command(rng, folder)
        return Case(f"spo {arguments!r}", lambda: main(arguments), is_command=True)
    return Case(*make_call(rng, folder), is_command=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to repeat one")
    parser.add_argument("--show", action="store_true", help="print every case with its outcome")
    parser.add_argument("--trace", action="store_true", help="trace the training program of every accepted run")
    options = parser.parse_args()

    def alarm(*_: Any) -> None:
        raise TimeoutError(SECONDS_PER_CASE)

    signal.signal(signal.SIGALRM, alarm)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES_OF_MEMORY, BYTES_OF_MEMORY))
    totals: collections.Counter[str] = collections.Counter()
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "a" / "b" / "c"
        folder.mkdir(parents=True)
        os.chdir(folder)
        prepare(folder)
        with stubs(options.trace):
            for number in range(options.first, options.first + options.cases):
                rng = random.Random(f"{options.seed}/{number}")
                totals[_run_numbered(number, rng, folder, options.show)] += 1
        os.chdir("/")
    print(f"{options.cases} inputs in {time.monotonic() - started_at:.0f} s, seed {options.seed}: {dict(totals)}")
    return 1 if any("violation" in kind for kind in totals) else 0


def _run_numbered(number: int, rng: random.Random, folder: Path, show: bool) -> str:
    """Runs one case, prints it if it is a violation, and returns its kind for the totals."""
    case = make_case(rng, folder)
    before = entries(folder)
    outcome = run_case(case)
    left = entries(folder) - before
    if outcome.kind == "refused" and left:
        outcome = Outcome("violation", f"left behind {sorted(left)[:3]} after: {outcome.text}")
    if show or outcome.kind == "violation":
        print(f"--- {number} {outcome.kind}: {case.words[:600]!s}\n{outcome.text}", flush=True)
    _remove(left)
    return f"{'command' if case.is_command else 'call'} {outcome.kind}"


def _remove(paths: set[str]) -> None:
    """Removes what a case has written, so that every case has the same start."""
    import shutil

    for path in sorted(paths, key=len, reverse=True):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)


if __name__ == "__main__":
    sys.exit(main())
