"""The benchmarks run, at sizes for a CPU, and their rows say what is compared and where."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROVENANCE = {"device", "jax", "date", "command"}


@pytest.mark.parametrize(
    ("script", "arguments", "columns"),
    [
        (
            "search.py",
            ["--tiny", "--repeats", "2", "--dtypes", "float32"],
            {"batch", "num_particles", "horizon", "dtype", "search_ms", "floor_ms", "over_floor", "over_mctx"},
        ),
        (
            "environments.py",
            ["--tiny", "--repeats", "2", "--only", "rubiks_cube"],
            {"environment", "implementation", "batch", "microseconds_per_step", "steps_per_second", "ratio_to_peer"},
        ),
        (
            "training.py",
            ["--tiny", "--algorithms", "ppo", "--tasks", "paper/rubiks_cube", "--intervals", "2", "--iterations", "2"],
            {"algorithm", "task", "settings", "num_seeds", "num_envs", "env_steps_per_second", "spread", "commit"},
        ),
        pytest.param(
            "profile.py",
            ["default", "--envs", "16"],
            {"phase", "milliseconds", "kernels", "seconds_per_iteration"},
            marks=pytest.mark.slow,
        ),
        pytest.param("physics.py", ["--tiny"], {"implementation", "batch"}, marks=pytest.mark.slow),
        pytest.param(
            "scaling.py",
            ["--tiny", "--repeats", "2"],
            {"sweep", "size", "milliseconds", "temporary_megabytes"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_runs_at_a_tiny_size(script, arguments, columns, tmp_path):
    out = tmp_path / "rows.json"
    command = [sys.executable, ROOT / "benchmarks" / script, "--out", out, *arguments]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    rows = json.loads(out.read_text())
    assert rows
    for row in rows:
        assert columns | PROVENANCE <= set(row)
        times = [value for name, value in row.items() if isinstance(value, float) and "second" in name]
        assert all(value > 0 for value in times)
