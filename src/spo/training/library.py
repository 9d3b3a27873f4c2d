"""Training as a function call, `spo.train(env, steps=1e5)`, and agents of saved runs, `spo.load(path)`."""

import contextlib
import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, get_type_hints

import jax

from spo import environments
from spo.algorithms.base import Algorithm
from spo.algorithms.registry import name_algorithm
from spo.checks import NonNegativeFloat, check_value
from spo.environments.own import call_maker, to_task
from spo.importing import OBJECT, is_import_name, name_of
from spo.networks.config import NetworkConfig, network_config
from spo.networks.own import NetworkFunction, give_network
from spo.reports.run_files import read_records, read_summary
from spo.training import loop
from spo.training.agents import Agent, Evaluator, Learners, make_agent, select_seed
from spo.training.arguments import change_settings, check_arguments, refuse_unknown, split_single_settings
from spo.training.compilation_cache import enable_compilation_cache
from spo.training.defaults import choose_experiment, describe_choice
from spo.training.evaluation import evaluate_both_kinds
from spo.training.experiment import EvaluationConfig, Experiment, ScalingConfig
from spo.training.records import Record
from spo.training.run_folder import RunFolder, finds_run
from spo.training.saved_learners import load_experiment, load_learner_and_origin, make_origin
from spo.training.sinks.base import Sink, SinkGroup
from spo.training.tasks import prepare_task
from spo.training.trainer import Trainer
from spo.types import Environment, Task

FEW_EVALUATIONS = EvaluationConfig(num_evaluations=10, final_episodes=128)

#: An environment, a task, a name, or a function that returns an environment or a task.
EnvironmentLike = Task | Environment | str | Callable[..., Task | Environment]


class Settings(TypedDict, total=False):
    """Settings of `train` that most calls leave out."""

    evaluation: EvaluationConfig | dict[str, Any]  # number and length of the evaluations
    num_devices: int | None  # devices that share the work; None, the default: all, as `spo train`
    task_options: dict[str, Any]  # options of an environment that is given by name
    logs_per_evaluation: int  # records of training metrics from one evaluation to the next
    scaling: ScalingConfig | dict[str, Any]  # of observations and rewards; off by default if `config` is an object
    skip_nonfinite_updates: bool  # skip updates that are not finite, instead of stopping at the first
    start_from: str | Path | None  # file of a saved agent, whose parameters are the first ones; needs `run`
    deterministic: bool  # the same bits in every run on a GPU too, by slower operations
    checkpoint_seconds: NonNegativeFloat | None  # least time between two checkpoints; None: see docs/training.md


def train(
    env: EnvironmentLike,
    steps: float | None = None,
    *,
    run: str | Path | None = None,
    resume: bool | Literal["auto"] = False,
    seed: int = 0,
    num_seeds: int = 1,
    algorithm: str | Callable[..., Algorithm] | None = None,
    config: Any = None,
    network: NetworkConfig | NetworkFunction | str | dict[str, Any] | None = None,
    callback: loop.Callback | None = None,
    on_evaluation: Callable[[dict[str, float]], None] | None = None,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Agent:
    """Trains on an environment and returns the agent with the parameters of the best evaluation.

    It is the training of `spo train`, in the same loop: the same settings give the same bits. Compiled programs are
    stored, so a second call starts faster.

    The summary of the agent has the learning curve (`evaluations`), means over episodes before training (`initial`) and
    with the best parameters (`final`, and `final_policy_only` without search), with the last ones (`final_last`),
    `env_steps` and `wall_seconds`. They are means over the seeds. With `run`, the summary has the entries of
    summary.json as well.

    Args:
      env: an environment for training, evaluation and planning; or a task; or a function that returns one of them; or a
        name, from `spo envs` or `module:function`.
      steps: number of environment steps. The run can be slightly longer: it ends with a whole interval. None: 100,000
        with `config` as an object; else chosen like the other settings.
      run: folder for settings, metrics, TensorBoard and checkpoints, as `spo train --run` writes it. None: in memory.
      resume: continue the run in the folder `run` from its last checkpoint, with the same settings as before. "auto":
        continue it if there is one, else start it; the same program can then be started again after any interruption.
      seed: random seed.
      num_seeds: number of independent seeds to train side by side. The agent returned is that of the first one;
        `spo.load(path, member=1)` returns the second.
      algorithm: name of the algorithm; or your own, a function `(setting, config: MyConfig) -> Algorithm`, see
        `spo.algorithms.base`; or its name, `module:function`. None: "spo", or that of the run to continue.
      config: its hyperparameters. None: all settings that are not given are chosen for the task, see
        `spo.training.defaults`. A dictionary changes single ones, as options of the command line do:
        `{"learning_rate": 3e-3, "search": {"num_particles": 32}}`. An object, such as `SPOConfig(...)`, has all of
        them: then nothing is chosen for the task.
      network: kind and sizes of the network, or a dictionary with some of them; or your own, a function from
        `(observation_spec, action_spec)` to a Flax module, see `spo.networks.own`; or its name, `module:function`.
        None: the paper's if `config` is an object; else chosen.
      callback: called after each interval with its metrics and a handle, whose `stop()` ends training.
      on_evaluation: receives the means of every evaluation during training; for example `print`.
      progress: show the progress on the terminal.
      **settings: see `Settings`.
    """
    started_at = time.perf_counter()
    check_arguments(run, resume, progress, callback=callback, on_evaluation=on_evaluation)
    refuse_unknown(settings, _argument_names(), algorithm)
    further, start_from, of_loop = _split(settings)
    resume, start_from = _find_start(run, resume, start_from)
    name, task = _name_and_task(env)
    if task is not None and settings.get("task_options"):
        raise ValueError(
            f"task_options are those of an environment that is given by name, and {name} is an object: make it with "
            "these options."
        )
    whole, single = split_single_settings({"config": config, "network": network, **further})
    config, network, own_network = whole.pop("config", None), *_to_network(whole.pop("network", None))
    given: dict[str, Any] = {"seed": seed, "num_seeds": num_seeds, **whole}
    if network is not None:
        given["network"] = network
    starts_from_learner = settings.get("start_from") is not None
    # A continued run has the network of the file from which it started, which may be gone.
    source = run if resume and starts_from_learner else start_from
    if source is not None:
        saved = load_experiment(Path(source))  # its parameters fit no other network and no other scaling
        given = {"network": saved.network, "scaling": saved.scaling, **given}
    algorithm = None if algorithm is None else name_algorithm(algorithm)
    if resume and run is not None and config is None:
        experiment = _resumed_experiment(run, name, steps, algorithm, given)
    else:
        experiment = _make_experiment(name, algorithm or "spo", steps, task, config, given)
    experiment = change_settings(experiment, single)
    curve = _Curve(on_evaluation)
    sinks = [curve, *_display(progress, describe_choice if config is None else _describe_defaults)]
    callbacks = [] if callback is None else [callback]
    with give_network(own_network):
        if run is not None:
            options: dict[str, Any] = {"task": task, "resume": resume, "start_from": start_from, **of_loop}
            with _short_interruption(run):
                loop.train(experiment, Path(run), sinks=sinks, callbacks=callbacks, **options)
            return load(run, env=task, network=own_network)
        experiment, task = prepare_task(experiment, task, message=SinkGroup(sinks).message)
        enable_compilation_cache()
        trainer = Trainer(experiment, task, deterministic=settings.get("deterministic", False))
        state = loop.run(trainer, sinks=sinks, callbacks=callbacks, started_at=started_at)
    summary = summarise_curve(curve.records) | {"wall_seconds": state.progress.wall_seconds}
    learners = Learners(state.best_learner, make_origin(experiment, "best", state.progress))
    learner = select_seed(state.best_learner, 0)
    evaluator = _make_evaluator(experiment, trainer.task, learner, own_network)
    return make_agent(trainer.algorithm, learner, summary, learners, trainer.task.evaluation, evaluator)


def load(
    run: str | Path,
    *,
    env: EnvironmentLike | None = None,
    network: NetworkFunction | None = None,
    algorithm: Callable[..., Algorithm] | None = None,
    which: Literal["best", "last"] | None = None,
    member: int = 0,
) -> Agent:
    """Returns the agent of a saved run.

    The run of an own environment `module:function` imports this module. The run of an environment that was given as an
    object needs the object again.

    Args:
      run: a folder that `spo train` or `spo.train` wrote, or a file that `spo export` or `Agent.save` wrote.
      env: the environment that was given to `spo.train` as an object.
      network: the own network that was given to `spo.train`, if its function can't be imported.
      algorithm: the own algorithm that was given to `spo.train`, if its function can't be imported.
      which: the parameters of the best evaluation, or the last ones. None: those of the file, or the best of a folder.
      member: number of the seed, from 0, in a run with several seeds.
    """
    check_value("run", run, Path)
    check_value("member", member, int)
    path = Path(run)
    if algorithm is not None:
        name_algorithm(algorithm)
    task = None if env is None else _given_task(env, load_experiment(path).task_options)
    with give_network(network):
        learner, origin = load_learner_and_origin(path, which, task)
        trainer = Trainer(dataclasses.replace(origin.experiment, num_devices=1), task)
    learners = Learners(learner, origin)
    learner = select_seed(learner, member)
    evaluator = _make_evaluator(origin.experiment, trainer.task, learner, network)
    return make_agent(trainer.algorithm, learner, _read_summary(path), learners, trainer.task.evaluation, evaluator)


# --- Arguments --------------------------------------------------------------------------------------------------------


def _argument_names() -> list[str]:
    """Returns the names of all arguments of `train`."""
    return [*(name for name in inspect.signature(train).parameters if name != "settings"), *Settings.__annotations__]


def _to_network(network: Any) -> tuple[NetworkConfig | None, NetworkFunction | None]:
    """Returns the configuration of a network, and its function if it is the user's own and has no name to import."""
    return (None, None) if network is None else network_config(network)


def _split(settings: Settings) -> tuple[dict[str, Any], Path | None, dict[str, Any]]:
    """Splits settings into those of the experiment, the file to start from, and the rest, which `loop.train` takes."""
    kinds = get_type_hints(Settings, include_extras=True)
    for name, value in settings.items():
        check_value(name, value, kinds[name])
    of_loop = {name: value for name, value in settings.items() if name in ("deterministic", "checkpoint_seconds")}
    of_experiment = {name: value for name, value in settings.items() if name not in (*of_loop, "start_from")}
    start_from = settings.get("start_from")
    return of_experiment, None if start_from is None else Path(start_from), of_loop


def _make_experiment(
    name: str, algorithm: str, steps: float | None, task: Task | None, config: Any, given: dict[str, Any]
) -> Experiment:
    """Returns the experiment of a call. Without a configuration, what is not given is chosen for the task."""
    if config is None:
        chosen = choose_experiment(
            name,
            algorithm,
            steps,
            task_options=given.get("task_options"),
            environment=None if task is None else task.train,
        )
        return dataclasses.replace(chosen, **given)
    usual: dict[str, Any] = {"evaluation": FEW_EVALUATIONS}
    return Experiment(
        task=name, algorithm=algorithm, steps=1e5 if steps is None else steps, config=config, **{**usual, **given}
    )


def _resumed_experiment(
    run: str | Path, name: str, steps: float | None, algorithm: str | None, given: dict[str, Any]
) -> Experiment:
    """Returns the settings of the run to continue, with those that are given. Another version may choose others."""
    stored = RunFolder.open(Path(run)).experiment
    if algorithm not in (None, stored.algorithm):
        raise ValueError(f"{run} was trained with the algorithm {stored.algorithm}: leave algorithm out.")
    given = {"task": name, "steps": stored.steps if steps is None else steps, **given}
    return dataclasses.replace(stored, **given)


def _find_start(
    run: str | Path | None, resume: bool | Literal["auto"], start_from: Path | None
) -> tuple[bool, Path | None]:
    """Returns True if a run is continued, and the file from which a new one starts."""
    if run is None:
        if resume or start_from is not None:
            raise ValueError("resume and start_from need the folder of the run: add run=FOLDER.")
        return False, None
    exists = finds_run(Path(run))
    if resume == "auto":
        return exists, None if exists else start_from
    if resume and not exists:
        raise ValueError(
            f"{run} holds no run to continue: leave resume out, or write resume='auto' to start one there."
        )
    if exists and not resume:
        raise ValueError(
            f"{run} holds a run already: continue it with resume=True (or resume='auto', which also starts a run that "
            "does not exist yet), or choose another folder."
        )
    return resume, start_from


@contextlib.contextmanager
def _short_interruption(run: str | Path) -> Iterator[None]:
    """Ends the report of a Ctrl-C with the way to continue, and leaves the frames inside of the training out of it."""
    try:
        yield
    except KeyboardInterrupt:
        if not RunFolder(Path(run)).config_path.exists():
            raise
        raise KeyboardInterrupt(
            f"the run is saved in {run}: continue it with the same call and resume=True (or resume='auto')."
        ) from None


def _name_and_task(env: EnvironmentLike) -> tuple[str, Task | None]:
    """Returns the name that the run stores, and the environments if this name can't make them."""
    if isinstance(env, str):
        return env, None
    if callable(env) and not isinstance(env, Environment | Task):
        name = name_of(env)
        return (name, None) if is_import_name(name) else (name, call_maker(env, name))
    task = to_task(env, "Can't train on")
    return f"{OBJECT}{task.train.name or 'environment'}", task


def _given_task(env: EnvironmentLike, task_options: dict[str, Any]) -> Task:
    """Returns the environments that were given to `load`. A name or a function gets the options of the run."""
    name, task = _name_and_task(env)
    return environments.make(name, **task_options) if task is None else task


def _make_evaluator(experiment: Experiment, task: Task, learner: Any, own_network: NetworkFunction | None) -> Evaluator:
    """Returns the function behind `Agent.evaluate`, for the learner of one seed."""
    experiment = dataclasses.replace(experiment, num_seeds=1, num_devices=1)

    def evaluate(
        episodes: int, use_search: bool | None, greedy: bool | None, seed: int, config: dict[str, Any]
    ) -> dict[str, Any]:
        usual = experiment.evaluation
        with give_network(own_network):
            trainer = Trainer(change_settings(experiment, {"config": config}), task)
            return evaluate_both_kinds(
                trainer,
                jax.tree.map(lambda leaf: leaf[None], learner),
                seed,
                episodes,
                use_search=usual.use_search if use_search is None else use_search,
                greedy=usual.greedy if greedy is None else greedy,
            )

    return evaluate


def _display(progress: bool, introduce: Callable[[Experiment], str]) -> list[Sink]:
    if not progress:
        return []
    from spo.training.sinks.display import make_display

    return [make_display(introduce)]


def _describe_defaults(_: Experiment) -> str:
    """Returns the sentence about a run whose hyperparameters were given as an object."""
    return (
        "The settings that were not given have their defaults, as config is an object: nothing is chosen for this "
        "task. A dictionary, config={...}, changes single settings of those that are chosen."
    )


# --- Results ----------------------------------------------------------------------------------------------------------


class _Curve(Sink):
    """Collects the evaluations of a run."""

    def __init__(self, on_evaluation: Callable[[dict[str, float]], None] | None):
        self._on_evaluation = on_evaluation
        self.records: list[Record] = []

    def log(self, records: Sequence[Record]) -> None:
        self.records += [record for record in records if record["kind"] != "train"]
        first = records[0]
        if self._on_evaluation is not None and first["kind"] == "evaluation" and first["iteration"] > 0:
            self._on_evaluation(_point(records))


def summarise_curve(records: Sequence[Record]) -> dict[str, Any]:
    """Returns the learning curve of a run, and the results at its start and at its end, as means over seeds."""
    evaluations: dict[int, list[Record]] = {}
    for record in records:
        if record["kind"] == "evaluation":
            evaluations.setdefault(record["iteration"], []).append(record)
    final = [record for record in records if record["kind"] == "final"]
    curve = [_point(evaluations[iteration]) for iteration in sorted(evaluations) if iteration > 0]
    last = final or [record for record in records if record["kind"] == "evaluation"][-1:]
    return {
        "env_steps": last[0]["env_steps"] if last else 0,
        "initial": _means(evaluations.get(0, []), "episode"),
        "final": _means(final, "episode"),
        "final_policy_only": _means(final, "policy_only"),
        "final_last": _means(final, "last"),
        "evaluations": curve,
    }


def _read_summary(path: Path) -> dict[str, Any]:
    """Returns the results of a run folder as `train` returns them. A file has none."""
    folder = RunFolder(path)
    if not folder.metrics_path.exists():
        return {}
    return (read_summary(path) or {}) | summarise_curve(read_records(folder.metrics_path))


def _point(records: Sequence[Record]) -> dict[str, float]:
    return {"env_steps": records[0]["env_steps"], **_means(records, "episode")}


def _means(records: Sequence[Record], prefix: str) -> dict[str, float]:
    """Returns the metrics "prefix/..." as means over the records, without the prefix."""
    values: dict[str, list[float]] = {}
    for record in records:
        for name, value in record["metrics"].items():
            if name.startswith(f"{prefix}/"):
                values.setdefault(name.removeprefix(f"{prefix}/"), []).append(value)
    return {name: sum(each) / len(each) for name, each in values.items()}


__all__ = ["Agent", "EnvironmentLike", "Settings", "load", "make_agent", "summarise_curve", "train"]
