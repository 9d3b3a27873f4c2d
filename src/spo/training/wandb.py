"""Weights & Biases beside the files: `spo train --wandb PROJECT`, with the extra `wandb` installed.

A run there is found again by the name of its folder, so a resumed run goes on in the same charts. What counts is in
metrics.jsonl: if the service can't be reached, training goes on.
"""

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spo.training.experiment import Experiment
    from spo.training.loop import Reporter
    from spo.training.run_folder import RunFolder


class WandbReporter:
    """Tells another reporter everything, and Weights & Biases the records."""

    def __init__(self, project: str, inner: "Reporter"):
        try:
            import wandb
        except ImportError:
            raise ValueError("--wandb needs the library of that name: pip install 'spo-jax[wandb]'.") from None
        self._wandb = wandb
        self._project = project
        self._inner = inner
        self._run: Any = None

    def start(self, experiment: "Experiment", folder: "RunFolder", total_env_steps: int, resumed_at: int) -> None:
        from spo.training.experiment import to_json

        path = folder.path.resolve()
        self._run = self._wandb.init(
            project=self._project,
            name=path.name,
            id=hashlib.sha256(str(path).encode()).hexdigest()[:16],
            resume="allow",
            config=to_json(experiment),
        )
        self._inner.start(experiment, folder, total_env_steps, resumed_at)

    def log(self, record: dict[str, Any]) -> None:
        numbers = record["metrics"] | {f"time/{name}": value for name, value in record["time"].items()}
        named = {f"{record['kind']}/seed_{record['seed']}/{name}": value for name, value in numbers.items()}
        self._run.log(named | {"env_steps": record["env_steps"]})
        self._inner.log(record)

    def message(self, text: str) -> None:
        self._inner.message(text)

    def stop(self) -> None:
        if self._run is not None:
            self._run.finish()
        self._inner.stop()
