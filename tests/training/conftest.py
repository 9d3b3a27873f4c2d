"""Compiling is nearly all that these tests cost: it is done once, and shared with the processes they start."""

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from spo.training import experiment, loop
from training.tiny_run import tiny_experiment


@pytest.fixture(scope="session", autouse=True)
def shared_compilation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = str(tmp_path_factory.mktemp("compiled"))
    earlier = jax.config.jax_compilation_cache_dir
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", folder)
    os.environ["SPO_CACHE"] = folder

    @functools.cache
    def build(written: str) -> experiment.Built:
        return experiment.build(experiment.from_json(json.loads(written)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "build", lambda e: build(json.dumps(experiment.to_json(e))))
        yield
    del os.environ["SPO_CACHE"]
    jax.config.update("jax_compilation_cache_dir", earlier)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    loop.train(tiny_experiment(), folder, checkpoint_seconds=0.0)
    return folder
