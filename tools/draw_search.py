"""Draws a small search with `spo.search.draw_ancestry`: the picture in the documentation.

python tools/draw_search.py docs/images/search.svg [seed]
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib as mpl

from spo.search import ModelOutput, Resampling, Root, SearchOutput, draw_ancestry, search

NUM_PARTICLES, HORIZON, RESAMPLE_PERIOD, TEMPERATURE = 10, 6, 2, 1.0
NUM_ACTIONS, NUM_STATES = 4, 64


def search_random_environment(seed: int) -> SearchOutput:
    """Searches an environment of random rewards and transitions."""
    rewards = jax.random.normal(jax.random.key(seed), (NUM_STATES, NUM_ACTIONS))
    transitions = jax.random.randint(jax.random.key(seed + 1), (NUM_STATES, NUM_ACTIONS), 0, NUM_STATES)

    def model_fn(_key, state, action) -> ModelOutput:
        return ModelOutput(
            state=transitions[state, action],
            prior=jnp.zeros(NUM_ACTIONS),
            value=jnp.zeros(()),
            reward=rewards[state, action],
            discount=jnp.ones(()),
            ended=jnp.zeros((), bool),
        )

    return search(
        jax.random.key(seed + 2),
        Root(prior=jnp.zeros((1, NUM_ACTIONS)), value=jnp.zeros(1), state=jnp.zeros(1, jnp.int32)),
        model_fn,
        num_particles=NUM_PARTICLES,
        horizon=HORIZON,
        temperature=TEMPERATURE,
        resampling=Resampling(RESAMPLE_PERIOD),
        with_ancestry=True,
    )


def main(path: pathlib.Path, seed: int = 5) -> None:
    reproducible = {"Date": None} if path.suffix == ".svg" else None
    with mpl.rc_context({"svg.hashsalt": "spo", "svg.fonttype": "none"}):  # equal pictures are equal files
        draw_ancestry(search_random_environment(seed)).savefig(path, metadata=reproducible, dpi=110)
    print(f"Wrote {path}.")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("Name the file to write: python tools/draw_search.py docs/images/search.svg")
    main(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
