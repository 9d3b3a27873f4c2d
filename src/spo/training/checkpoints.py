"""What survives: checkpoints of a whole run, and exported learners.

Both are arrays with names and some JSON. Reading them runs nothing that was stored.
"""

import contextlib
import json
import logging
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from spo._version import __version__
from spo.algorithms.base import TrainState
from spo.training import processes
from spo.types import PRNGKey

#: Checkpoints kept. The one before the last is there in case the last is damaged.
NUM_KEPT = 2
EXPORT_FORMAT = "spo learner 1"


class Progress(NamedTuple):
    """Where a run stands, in numbers."""

    iteration: int
    env_steps_per_iteration: int
    best_scores: tuple[float, ...]  # per seed: mean return of its best evaluation
    best_iterations: tuple[int, ...]  # per seed: when that was
    metrics_bytes: int  # of metrics.jsonl; what lies behind was written later and will be written again
    num_devices: int
    wall_seconds: float
    compile_seconds: float
    training_seconds: float
    time_to_first_update: float | None


class Checkpoint(NamedTuple):
    """A run between two intervals: all it needs to go on, and the best it has found."""

    state: TrainState
    best_learner: Any
    progress: Progress


class Saved(NamedTuple):
    path: Path
    num_bytes: int
    seconds: float


# --- Checkpoints of a run ---------------------------------------------------------------------------------------------
def save(folder: Path, checkpoint: Checkpoint) -> Saved:
    """Writes a checkpoint named after its iteration, then drops the oldest.

    It is written under another name and renamed once it is whole, so what has the right name is whole. If it can't be
    written, an OSError says so and earlier checkpoints are as they were.
    """
    start = time.perf_counter()
    folder = folder.absolute()
    target = folder / str(checkpoint.progress.iteration)
    _remove_leftovers(folder)
    try:
        with _quiet_orbax():
            ocp.Checkpointer(ocp.CompositeCheckpointHandler()).save(
                target,
                args=ocp.args.Composite(
                    learner=ocp.args.StandardSave(_named_arrays(checkpoint.state.learner)),
                    worker=ocp.args.StandardSave(_named_arrays(checkpoint.state.worker)),
                    best_learner=ocp.args.StandardSave(_named_arrays(checkpoint.best_learner)),
                    progress=ocp.args.JsonSave(checkpoint.progress._asdict()),
                ),
            )
    except Exception as error:  # a full disk comes as OSError, ValueError or RuntimeError, by who noticed it first
        _remove_leftovers(folder)
        kept = iterations(folder)
        intact = f"The checkpoint of iteration {kept[-1]} is intact." if kept else "There is no earlier one."
        raise OSError(f"The checkpoint {target} can't be written: {_reason(error)}. {intact}") from error
    if processes.is_first():
        for iteration in iterations(folder)[:-NUM_KEPT]:
            _remove(folder / str(iteration))
    num_bytes = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return Saved(target, num_bytes, time.perf_counter() - start)


def iterations(folder: Path) -> list[int]:
    """The iterations of the checkpoints there are, in order. Half-written ones have other names."""
    if not folder.exists():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())


def restore(folder: Path, abstract: TrainState, num_devices: int, say: Callable[[str], None]) -> Checkpoint | None:
    """The last checkpoint, or the one before if that is damaged; None where there is none yet.

    Those that are damaged are left aside once another could be read. If none can, nothing is touched.
    """
    folder = folder.absolute()
    found = iterations(folder)
    damaged: dict[int, str] = {}
    for iteration in reversed(found):
        try:
            progress = _restore_progress(folder / str(iteration))
            if progress.num_devices != num_devices:
                break
            checkpoint = Checkpoint(
                state=TrainState(
                    learner=_restore_item(folder / str(iteration), "learner", abstract.learner),
                    worker=_restore_item(folder / str(iteration), "worker", abstract.worker),
                ),
                best_learner=_restore_item(folder / str(iteration), "best_learner", abstract.learner),
                progress=progress,
            )
        except Exception as error:  # whatever Orbax and its stores raise at bytes that were not theirs
            if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
                raise  # the checkpoint can't help it
            if jax.process_count() > 1:  # the others may have read it: they can't all fall back without asking
                raise ValueError(
                    f"The checkpoint {folder / str(iteration)} is damaged ({_reason(error)}): move it away, and the "
                    "run is resumed from the one before."
                ) from error
            damaged[iteration] = _reason(error)
            continue
        for spoiled, reason in damaged.items():
            say(f"The checkpoint of iteration {spoiled} is damaged ({reason}) and left aside.")
            aside = folder / f"{spoiled}.damaged"
            shutil.rmtree(aside, ignore_errors=True)
            (folder / str(spoiled)).rename(aside)
        return checkpoint
    else:
        if found:
            reasons = "; ".join(f"iteration {iteration}: {reason}" for iteration, reason in damaged.items())
            raise ValueError(f"No checkpoint in {folder} can be read ({reasons}): start a new run in another folder.")
        return None
    raise ValueError(
        f"The run uses {progress.num_devices} devices and here are {num_devices}: each has its own share of the "
        "replay, so resume it on as many; or export its learner and begin a new run from it (`spo train --from FILE`)."
    )


def restore_learner(folder: Path, abstract: Any, which: Literal["best", "last"]) -> Any:
    """The learner of the last checkpoint, without the replay."""
    found = iterations(folder)
    if not found:
        raise ValueError(f"There is no checkpoint in {folder} yet.")
    item = "best_learner" if which == "best" else "learner"
    return _restore_item(folder.absolute() / str(found[-1]), item, abstract)


def abstract_state(init: Callable[[PRNGKey], TrainState], shardings: TrainState) -> TrainState:
    """Shapes, types and places of a training state, without making one."""
    abstract = jax.eval_shape(init, jax.random.key(0))

    def place(sharding: Any, tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)

    return TrainState(place(shardings.learner, abstract.learner), place(shardings.worker, abstract.worker))


# --- Exported learners ------------------------------------------------------------------------------------------------
def export(folder: Path, target: Path, which: Literal["best", "last"] = "best") -> None:
    """Writes what a run has learned, without its replay, to one small file from which another run can begin."""
    from spo.training import run_folder  # which stands on this module

    run = run_folder.RunFolder.open(folder)
    _, learner = run_folder.load_learner(folder, which)
    progress = _restore_progress(run.checkpoints_path / str(iterations(run.checkpoints_path)[-1]))
    iteration = list(progress.best_iterations) if which == "best" else [progress.iteration] * len(progress.best_scores)
    header = {
        "format": EXPORT_FORMAT,
        "spo_version": __version__,
        "which": which,
        "iteration": iteration,
        "env_steps": [i * progress.env_steps_per_iteration for i in iteration],
        "experiment": run_folder.to_json(run.experiment),
    }
    write_learner(target, learner, header)


def write_learner(target: Path, learner: Any, header: dict[str, Any]) -> None:
    arrays = {name: np.asarray(array) for name, array in _named_arrays(learner).items()}
    draft = target.with_name(f"{target.name}.draft")
    target.parent.mkdir(parents=True, exist_ok=True)
    with draft.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
    draft.replace(target)


def read_header(source: Path) -> dict[str, Any]:
    """What an exported learner says about itself."""
    with _open_export(source) as file:
        return json.loads(str(file["header"]))


def read_learner(source: Path, abstract: Any) -> Any:
    """An exported learner, as arrays like `abstract`, whose leaves are [seed, ...]. Others are refused."""
    wanted = jax.eval_shape(_named_arrays, abstract)
    with _open_export(source) as file:
        given = {name: file[name] for name in file.files if name != "header"}
    missing, unknown = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing or unknown:
        raise ValueError(
            f"{source} holds a learner of another kind: it lacks {missing[:3] or 'nothing'} and has "
            f"{unknown[:3] or 'nothing'} besides. Use the algorithm and the network it was trained with."
        )
    for name, array in given.items():
        if array.shape != wanted[name].shape or array.dtype != wanted[name].dtype:
            raise ValueError(
                f"{source} does not fit this experiment: {name} is {array.dtype}{list(array.shape)} (seed first) and "
                f"should be {wanted[name].dtype}{list(wanted[name].shape)}. Use the task, the network and the number "
                "of seeds it was trained with."
            )
    places = {name: leaf.sharding for name, leaf in _named_leaves(abstract).items()}
    arrays = {
        name: jax.make_array_from_callback(array.shape, places[name], array.__getitem__)
        for name, array in given.items()
    }
    return _from_named_arrays(abstract, arrays)


@contextlib.contextmanager
def _open_export(source: Path) -> Iterator[Any]:
    if not Path(source).is_file():
        raise ValueError(f"There is no file {source}.")
    with Path(source).open("rb") as opened:  # by us: NumPy leaves open what is no archive
        try:
            file = np.load(opened, allow_pickle=False)
            is_export = "header" in file.files and json.loads(str(file["header"])).get("format") == EXPORT_FORMAT
        except (ValueError, OSError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{source} is no exported learner, or not all of one: `spo export` writes it.") from error
        if not is_export:
            raise ValueError(f"{source} is no exported learner: `spo export` writes them.")
        try:
            yield file
        except (EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{source} is damaged: export the learner again.") from error


# --- Trees as named arrays --------------------------------------------------------------------------------------------
def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw_keys(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)


def _named_leaves(tree: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _named_arrays(tree: Any) -> dict[str, Any]:
    """name -> array. Names don't depend on the classes of optimisers and networks, which a reader may not have.

    Arrays without elements are left out: Orbax refuses them (simulators have some), and there is nothing to remember.
    """
    return {name: leaf for name, leaf in _named_leaves(_raw_keys(tree)).items() if leaf.size > 0}


def _from_named_arrays(abstract: Any, arrays: dict[str, Any]) -> Any:
    def leaf(name: str, like: jax.ShapeDtypeStruct) -> Any:
        if _is_key(like):
            return processes.place_keys(arrays[name], like.sharding)
        return arrays[name] if like.size > 0 else jnp.zeros(like.shape, like.dtype, device=like.sharding)

    leaves = [leaf(name, like) for name, like in _named_leaves(abstract).items()]
    return jax.tree.unflatten(jax.tree.structure(abstract), leaves)


def _restore_item(path: Path, item: str, abstract: Any) -> Any:
    """One part of a checkpoint, each leaf where `abstract` says."""
    places = {name: leaf.sharding for name, leaf in _named_leaves(abstract).items()}
    wanted = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=places[name])
        for name, leaf in jax.eval_shape(_named_arrays, abstract).items()
    }
    with _quiet_orbax():
        arguments = ocp.args.Composite(**{item: ocp.args.StandardRestore(wanted)})
        arrays = ocp.Checkpointer(ocp.CompositeCheckpointHandler()).restore(path, args=arguments)[item]
    return _from_named_arrays(abstract, arrays)


def _restore_progress(path: Path) -> Progress:
    with _quiet_orbax():
        arguments = ocp.args.Composite(progress=ocp.args.JsonRestore())
        data = ocp.Checkpointer(ocp.CompositeCheckpointHandler()).restore(path, args=arguments).progress
    tuples = {name: tuple(data[name]) for name in ("best_scores", "best_iterations")}
    return Progress(**{**data, **tuples})


# --- Housekeeping -----------------------------------------------------------------------------------------------------
def _remove_leftovers(folder: Path) -> None:
    """Drops what was being written, or removed, when an earlier process ended."""
    if processes.is_first() and folder.exists():
        for path in folder.iterdir():
            if path.name.endswith((".orbax-checkpoint-tmp", ".removed")):
                shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    # Renamed first: half of a checkpoint must not bear the name of a whole one.
    removed = path.with_name(f"{path.name}.removed")
    os.replace(path, removed)
    shutil.rmtree(removed, ignore_errors=True)


def _reason(error: BaseException) -> str:
    """The system's own words if it has some ("No space left on device"), else the first line of the error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    words, of_system, _ = first_line.partition(" [os_error_code")
    return words.rsplit(": ", 1)[-1] if of_system else words


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Orbax logs every error with its threads' stacks before it raises it; we say it in one sentence."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
