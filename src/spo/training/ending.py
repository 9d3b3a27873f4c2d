"""The end of a run in a folder: the summary of a finished one, and the last checkpoint of one that is stopped."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from spo import files
from spo._version import __version__
from spo.reports.run_files import METRICS_CHECKSUM, read_config, read_records, with_checksum
from spo.reports.summary import summarise
from spo.training import processes, signals
from spo.training.checkpointer import Checkpointer
from spo.training.checkpoints import Saved
from spo.training.records import NonFiniteError
from spo.training.run_folder import RunFolder
from spo.training.run_state import Progress
from spo.training.sinks.base import Sink
from spo.training.trainer import Trainer


def write_summary(folder: RunFolder, trainer: Trainer, progress: Progress, saved: Saved | None) -> None:
    """Writes summary.json in process 0. All processes can read it on return."""
    if processes.is_first():
        summary = _summarise(folder, trainer, progress, saved)
        summary[METRICS_CHECKSUM] = files.crc32(folder.metrics_path)
        files.write_json(folder.summary_path, with_checksum(summary))
    processes.wait_for_all()


def _summarise(folder: RunFolder, trainer: Trainer, progress: Progress, saved: Saved | None) -> dict[str, Any]:
    experiment, algorithm, env_steps = trainer.experiment, trainer.algorithm, progress.env_steps
    return {
        "task": experiment.task,
        "algorithm": experiment.algorithm,
        "seed": experiment.seed,
        "num_seeds": experiment.num_seeds,
        "env_steps": env_steps,
        "model_steps": env_steps * algorithm.model_steps_per_env_step,
        "network_evaluations": env_steps * algorithm.network_evaluations_per_env_step,
        "iterations": progress.iteration,
        "best_env_steps_per_seed": [i * progress.env_steps_per_iteration for i in progress.best_iterations],
        **summarise(read_records(folder.metrics_path)),
        "wall_seconds": progress.wall_seconds,
        "compile_seconds": progress.compile_seconds,
        "training_seconds": progress.training_seconds,
        "env_steps_per_second": progress.env_steps_per_second,
        "time_to_first_update": progress.time_to_first_update,
        "checkpoint_bytes": None if saved is None else saved.num_bytes,
        "checkpoint_seconds": None if saved is None else saved.seconds,
        "device": jax.devices()[0].device_kind,
        "num_devices": progress.num_devices,
        "start_from": read_config(folder.path)["start_from"],
        "spo_version": __version__,
    }


@contextlib.contextmanager
def saving_on_failure(
    folder: RunFolder | None, checkpointer: Checkpointer, sink: Sink, listener: signals.Listener
) -> Iterator[None]:
    """Saves the latest complete state if training stops early, and names the command that continues the run."""
    if folder is None:
        yield
        return
    together = " --distributed" if jax.process_count() > 1 else ""
    resume = f"continue with `{folder.resume_command}{together}`."
    try:
        yield
    except (KeyboardInterrupt, signals.Terminated) as error:
        with listener.postponed():
            if listener.may_stop:  # all processes have the same latest state
                checkpointer.save_latest()
                processes.end_together(error)
            sink.message(f"{signals.describe(error)}: {resume}")
        raise
    except NonFiniteError as error:
        if checkpointer.latest is None:
            raise NonFiniteError(
                f"{error} This is before the first update: check the environment and its rewards."
            ) from None
        checkpointer.save_latest()
        change = (
            "when the environment is mended"
            if error.from_environment
            else "with other settings, such as a smaller learning rate"
        )
        raise NonFiniteError(
            f"{error} Training has stopped, and the state before that is saved. To continue from it {change}: "
            f"`spo export {folder.path} FILE --which last`, then `spo train --from FILE`."
        ) from None
    except Exception as error:  # too little memory, a full disk, or an error in a callback or a sink
        if jax.process_count() == 1:
            with contextlib.suppress(OSError):
                checkpointer.save_latest()
        if isinstance(error, OSError):
            place = f": {error.filename}" if error.filename else ""
            reason = f"{error.strerror}{place}." if error.strerror else str(error)
            raise OSError(f"{reason} When that is fixed, {resume}") from error
        raise
