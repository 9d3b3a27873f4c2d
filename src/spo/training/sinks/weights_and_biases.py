"""Records for Weights & Biases: `spo train --wandb PROJECT`, with the extra `wandb` installed.

The name of the run folder identifies the run there, so a resumed run continues the same charts. The service is a copy:
metrics.jsonl has everything, and training continues if the service can't be reached.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from spo.installation import install_hint
from spo.training.experiment import to_json
from spo.training.records import Record
from spo.training.sinks.base import RunInfo, Sink


class WeightsAndBiases(Sink):
    """Sends each record to a project of Weights & Biases."""

    def __init__(self, project: str):
        try:
            import wandb
        except ImportError:
            raise ValueError(f"--wandb needs the library wandb: {install_hint('wandb')}.") from None
        self._wandb = wandb
        self._project = project
        self._run: Any = None

    def start(self, info: RunInfo) -> None:
        identity = {}
        if info.folder is not None:
            path = info.folder.resolve()
            identity = {"name": path.name, "id": hashlib.sha256(str(path).encode()).hexdigest()[:16]}
        self._run = self._wandb.init(project=self._project, resume="allow", config=to_json(info.experiment), **identity)

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            numbers = record["metrics"] | {f"time/{name}": value for name, value in record["time"].items()}
            named = {f"{record['kind']}/seed_{record['seed']}/{name}": value for name, value in numbers.items()}
            self._run.log(named | {"env_steps": record["env_steps"]})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
