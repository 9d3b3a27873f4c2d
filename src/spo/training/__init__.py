"""The loop, written once for every algorithm: steps, evaluations, metrics, checkpoints. Seeds and devices live here."""
