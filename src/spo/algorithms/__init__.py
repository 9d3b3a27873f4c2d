"""The algorithms. Each file reads top-down: configuration, state, step, acting and learning."""
