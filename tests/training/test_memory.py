"""Tests of errors about memory: recognised on all devices, and a run can be finished with fewer episodes."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from spo.training import memory
from spo.training.experiment import EvaluationConfig
from spo.training.loop import train
from spo.training.trainer import Trainer
from training.comparing import Interrupter, last_state, records
from training.tiny_run import tiny_experiment

ON_CPU = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4000000000 bytes.")
ON_GPU = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4000000000 bytes.")
STATE = {"params": jax.ShapeDtypeStruct((4,), "float32"), "replay": jax.ShapeDtypeStruct((1000, 500), "float32")}


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (ON_CPU, "4.0 GB"),
        (ON_GPU, "4.0 GB"),
        (MemoryError("Unable to allocate 7.11 PiB for an array with shape (1, 2)"), "7.11 PiB"),
    ],
    ids=["cpu", "gpu", "numpy"],
)
def test_the_message_names_the_size_and_the_largest_array(error: Exception, size: str):
    with pytest.raises(memory.OutOfMemory) as caught, memory.explaining(lambda: STATE, "Lower it."):
        raise error
    assert str(caught.value) == (
        f"There is too little memory: {size} could not be allocated. The largest array of the training state is "
        "replay, float32[1000, 500], 2.0 MB. Lower it."
    )
    assert memory.describe(caught.value) == str(caught.value)
    assert "--num-envs" in memory.describe(error)


def test_the_error_of_numpy_on_this_machine_is_recognised():
    with pytest.raises(memory.OutOfMemory, match="could not be allocated"), memory.explaining(lambda: STATE):
        np.zeros(10**17)


def test_other_errors_pass_unchanged():
    with pytest.raises(ValueError, match="another"), memory.explaining(lambda: STATE):
        raise ValueError("another")


def test_a_run_without_memory_for_its_final_evaluation_is_finished_with_fewer_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    evaluate, folder = Trainer.evaluate, tmp_path / "run"

    def limited(self: Trainer, learner: Any, key: Any, num_episodes: int, **options: Any) -> Any:
        if num_episodes > 16:
            raise ON_CPU
        return evaluate(self, learner, key, num_episodes, **options)

    monkeypatch.setattr(Trainer, "evaluate", limited)
    with pytest.raises(
        memory.OutOfMemory, match=r"fewer episodes, `spo train --resume .* --evaluation.final-episodes 8"
    ):
        train(tiny_experiment(), folder, checkpoint_seconds=1e9)
    assert last_state(folder).progress.iteration == 12
    fewer = tiny_experiment(evaluation=EvaluationConfig(num_evaluations=3, episodes=16, final_episodes=16))
    display = Interrupter("none", 1)
    summary = train(fewer, folder, sinks=[display], resume=True)
    assert display.messages[0] == "From now on, evaluations differ: evaluation.final_episodes (32, now 16)."
    assert summary["final_return_episodes"] == records(folder)[-1]["metrics"]["episode/count"] == 16
    assert json.loads((folder / "config.json").read_text())["evaluation"]["final_episodes"] == 16
    starts = json.loads((folder / "environment.json").read_text())["starts"]
    assert [start["evaluation"]["final_episodes"] for start in starts] == [32, 16]


def test_a_full_disk_is_not_taken_for_too_little_memory():
    assert not memory.is_out_of_memory(OSError("The checkpoint can't be written: RESOURCE_EXHAUSTED: Error writing."))
    assert memory.is_out_of_memory(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
