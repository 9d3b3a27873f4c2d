"""Writes rlax_numbers.json: MPO's E-step as rlax computes it.

    pip install rlax && python tests/oracles/make_rlax_numbers.py

rlax depends on nightly builds of other packages and is not part of the test environment. The JSON file names the
version that wrote it.
"""

import json
from importlib.metadata import version
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import rlax

OUTPUT = Path(__file__).with_name("rlax_numbers.json")


def main() -> None:
    rng = np.random.default_rng(0)
    epsilon = 0.1
    cases = []
    for temperature, scale, num_samples in ((1.0, 1.0, 8), (0.1, 1.0, 16), (0.05, 3.0, 16), (10.0, 2.0, 5)):
        q_values = np.float32(rng.normal(1.0, scale, num_samples))
        loss, weights, _ = rlax.mpo_compute_weights_and_temperature_loss(
            jnp.asarray(q_values),
            rlax.LagrangePenalty(alpha=jnp.float32(temperature), epsilon=jnp.float32(epsilon)),
            projection_operator=lambda x: x,
        )
        cases.append(
            {
                "temperature": temperature,
                "epsilon": epsilon,
                "q_values": [float(x) for x in q_values],
                "weights": [float(x) for x in weights],
                "temperature_loss": float(loss),
            }
        )
    content = {
        "function": "rlax.mpo_compute_weights_and_temperature_loss",
        "rlax": version("rlax"),
        "jax": version("jax"),
        "cases": cases,
    }
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
