"""Sinks: receivers of the records and messages of a run.

One module each: `base` (the interface), `json_lines`, `tensorboard`, `display` (the terminal), `weights_and_biases`.
"""
