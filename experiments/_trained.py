"""Trained networks for the experiments that only search: read from a file that `spo export` wrote, or trained here.

A file NAME.npz is read from the folder of the claim, or from the folder above it, which all claims of a scale share. So
runs/claims/paper/cube.npz is used by every claim about the cube.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from _claims import Setup
from _runs import train_all
from _tasks import cube, small_cube

from spo import losses, presets
from spo.algorithms.base import Setting
from spo.algorithms.spo import Learner, SPOConfig
from spo.networks import ActorCritic, make_network
from spo.networks.config import NetworkConfig
from spo.training import exports
from spo.training.agents import select_seed
from spo.training.experiment import EvaluationConfig, Experiment
from spo.training.saved_learners import load_learner
from spo.training.trainer import Trainer


class Trained(NamedTuple):
    """Parameters that one seed of SPO learned, with their task and network."""

    setting: Setting
    network: ActorCritic
    learner: Learner
    temperature: float
    """Temperature of the search."""
    config: SPOConfig
    words: str
    """Description for the finding: task, network and training."""


def cube_experiment(scale: str) -> Experiment:
    """Returns one run on the cube: the paper's, one that two cores learn in two minutes, or a tiny one."""
    if scale == "paper":
        return presets.get("paper/rubiks_cube")
    if scale == "smoke":
        return dataclasses.replace(cube("smoke"), num_seeds=1)
    return dataclasses.replace(
        small_cube(),
        steps=1.5e5,
        network=NetworkConfig(width=128),
        evaluation=EvaluationConfig(num_evaluations=5, final_episodes=256),
    )


def trained_run(setup: Setup, name: str, experiment: Experiment) -> tuple[Experiment, Trained]:
    """Reads the exported learner NAME.npz, or trains the experiment if there is none. Uses the first seed.

    Returns:
        The experiment of the learner, and the learner with its task and network.
    """
    for folder in (setup.runs, setup.runs.parent):
        if (folder / f"{name}.npz").exists():
            file = folder / f"{name}.npz"
            header = exports.read_header(file)
            found, learners = load_learner(file, header["which"])
            words = f"{file.name} of {header['env_steps'][0]:,.0f} steps"
            break
    else:
        run = train_all(setup, {name: experiment})[name]
        found, learners = load_learner(run, "best")
        words = f"trained for {found.steps:,.0f} steps"
    task = f"{found.task} {found.task_options}" if found.task_options else found.task
    words = f"spo on {task}, network {_describe(found.network)}, {words}"
    setting = Trainer(found).setting
    train = setting.task.train
    network = make_network(train.observation_spec, train.action_spec, setting.architecture)
    learner = select_seed(learners, 0)
    temperature = float(losses.positive_from_raw(learner.duals.raw_temperature))
    return found, Trained(setting, network, learner, temperature, found.config, words)


def compile_all(programs: Mapping[Any, tuple[Callable[..., Any], tuple[Any, ...]]]) -> dict[Any, Callable[..., Any]]:
    """Compiles functions for their arguments in parallel on all cores: there are many, and each runs briefly."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = {
            name: pool.submit(lambda function, given: jax.jit(function).lower(*given).compile(), function, given)
            for name, (function, given) in programs.items()
        }
        return {name: future.result() for name, future in compiled.items()}


def _describe(network: NetworkConfig) -> str:
    return " ".join(f"{name} {value}" for name, value in dataclasses.asdict(network).items() if value) or "the paper's"
