"""Every benchmark runs at small sizes, and its rows name sizes, hardware, versions, commit and command."""

import argparse
import dataclasses
import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spo import presets

ROOT = Path(__file__).resolve().parents[1]
PROVENANCE = {"device", "processor", "jax", "python", "commit", "date", "time", "command"}


@pytest.mark.parametrize(
    ("script", "arguments", "columns"),
    [
        pytest.param(
            "search.py",
            ["--tiny", "--repeats", "2", "--dtypes", "float32"],
            {"batch", "num_particles", "horizon", "dtype", "search_ms", "floor_ms", "over_floor", "over_mctx"},
            marks=pytest.mark.program,
        ),
        (
            "environments.py",
            ["--tiny", "--repeats", "2", "--only", "rubiks_cube"],
            {"environment", "implementation", "batch", "microseconds_per_step", "steps_per_second", "ratio_to_peer"},
        ),
        pytest.param(
            "training.py",
            ["--tiny", "--algorithms", "ppo", "--tasks", "paper/rubiks_cube", "--intervals", "2", "--iterations", "2"],
            {"algorithm", "task", "settings", "num_seeds", "num_envs", "env_steps_per_second", "spread"},
            marks=pytest.mark.program,
        ),
        pytest.param(
            "phases.py",
            ["default", "--envs", "16"],
            {"phase", "milliseconds", "kernels", "seconds_per_iteration"},
            marks=pytest.mark.program,
        ),
        pytest.param(
            "first_update.py",
            ["--tiny"],
            {
                "preset",
                "num_envs",
                "seconds_with_an_empty_cache",
                "seconds_with_a_full_cache",
                "parts_with_an_empty_cache",
                "parts_with_a_full_cache",
            },
            marks=pytest.mark.program,
        ),
        pytest.param(
            "physics.py",
            ["--tiny", "--environments", "ant"],
            {"environment", "implementation", "batch"},
            marks=pytest.mark.program,
        ),
        pytest.param(
            "live_page.py",
            ["--tiny", "--repeats", "2"],
            {"agent", "num_particles", "horizon", "milliseconds", "milliseconds_95", "compile_seconds", "load_before"},
            marks=pytest.mark.program,
        ),
        (
            "q_values.py",
            ["--tiny", "--repeats", "2"],
            {"num_states", "num_actions", "kernel_ms", "xla_ms", "kernel_error", "xla_error", "speed_ratio"},
        ),
        pytest.param(
            "replayed_updates.py",
            ["--tiny", "--repeats", "2"],
            {"algorithm", "update_ms", "update_floor_ms", "step_ms", "step_floor_ms", "iteration_over_floor"},
            marks=pytest.mark.program,
        ),
        pytest.param(
            "scaling.py",
            ["--tiny", "--repeats", "2"],
            {"sweep", "size", "milliseconds", "temporary_megabytes"},
            marks=pytest.mark.program,
        ),
    ],
)
def test_runs_at_a_tiny_size(script, arguments, columns, tmp_path):
    out = tmp_path / "rows.json"
    command = [sys.executable, ROOT / "benchmarks" / script, "--out", out, *arguments]
    printed = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert printed.strip()
    rows = json.loads(out.read_text())
    assert rows
    for row in rows:
        assert columns | PROVENANCE <= set(row)
        times = [value for name, value in row.items() if isinstance(value, float) and "second" in name]
        assert all(value > 0 for value in times)


@pytest.fixture
def benchmark(monkeypatch):
    """Function that loads a script of benchmarks/ by name, from its file: the tests have a `training` too."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")

    def load(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_every_script_can_be_imported():
    names = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))
    script = f"import importlib; [importlib.import_module(name) for name in {names}]"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT / "benchmarks", check=True)


def small_set_rows():
    """Hand-made rows of every benchmark of the small set. No two ratios are equal."""
    size = {"batch": 32, "num_particles": 16, "horizon": 4}
    return {
        "search": [
            size | {"floor_ms": 2.0, "search_ms": 3.0, "search_with_mid_resample_ms": 6.0, "mctx_gumbel_ms": 30}
        ],
        "environments": [
            {"environment": "cube", "implementation": name, "batch": 256, "microseconds_per_step": time}
            for name, time in (("ours", 10.0), ("jumanji", 40.0))
        ],
        "physics": [
            {"environment": environment, "implementation": name, "batch": 64, "microseconds_per_step": time}
            for environment, brax in (("ant", 50.0), ("humanoid", 80.0))
            for name, time in (("brax", brax), ("kernel 64x1", 99.0), ("xla", 20.0))
        ],
        "training": [{"algorithm": n, "processor_seconds_per_env_step": s} for n, s in (("spo", 0.7), ("ppo", 0.1))],
        "scaling": [
            {"sweep": "roots", "size": size, "milliseconds": time, "temporary_megabytes": memory}
            for size, time, memory in ((16, 1.0, 8.0), (64, 3.5, 9.0))
        ],
    }


def test_a_larger_ratio_is_slower(benchmark):
    assert benchmark("compare").ratios(small_set_rows()) == pytest.approx(
        {
            "search 32 x 16 x 4 / its floor": 1.5,
            "search 32 x 16 x 4 with a resample / without": 2.0,
            "search 32 x 16 x 4 / mctx Gumbel": 0.1,
            "cube x 256, ours / jumanji": 0.25,
            "fused physics of ant x 64, XLA / brax": 0.4,
            "fused physics of humanoid x 64, XLA / brax": 0.25,
            "training step of SPO / of PPO": 7.0,
            "time of a search, 64 / 16 roots": 3.5,
            "memory of a search, 64 / 16 roots": 1.125,
        }
    )


def test_slower_faster_new_and_missing_ratios_are_named(benchmark):
    committed = {"slow": 1.0, "fast": 1.0, "same": 1.0, "gone": 1.0}
    lines = benchmark("compare").compare(committed, {"slow": 1.6, "fast": 0.6, "same": 1.4, "added": 9.0}, 1.5)
    assert {line.name: line.verdict for line in lines} == {
        "slow": "slower",
        "fast": "faster",
        "same": "same",
        "gone": "missing",
        "added": "new",
    }


def test_strict_fails_on_a_slower_ratio_only(benchmark, tmp_path, monkeypatch, capsys):
    compare = benchmark("compare")
    monkeypatch.setattr(compare, "COMMITTED", tmp_path / "cpu" / "ratios.json")
    rows = small_set_rows()
    where = {"device": "CPU, 2 cores", "processor": "P", "jax": "0", "python": "3", "commit": "c", "date": "today"}

    def run(**options):
        for name, measured in rows.items():
            (tmp_path / f"{name}.json").write_text(json.dumps([row | where for row in measured]))
        compare.main(compare.Options(rows=tmp_path, **options))

    run(update=True, note="by hand")
    stored = json.loads(compare.COMMITTED.read_text())
    assert where.items() <= stored.items()
    assert stored["note"] == "by hand"
    run(strict=True)
    rows["search"][0]["search_ms"] = 6.0
    run()
    assert "slower" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(strict=True)


def test_committed_ratios_are_those_of_the_small_set(benchmark):
    compare = benchmark("compare")
    stored = json.loads(compare.COMMITTED.read_text())
    assert {"device", "processor", "jax", "date", "command", "note"} <= set(stored)
    assert all(ratio > 0 for ratio in stored["ratios"].values())
    for part in ("its floor", "mctx", "jumanji", "brax", "SPO", "particles", "horizon", "roots"):
        assert any(part in name for name in stored["ratios"]), part


def test_settings_are_called_the_papers_only_if_they_are(benchmark):
    settings = benchmark("training").settings
    assert settings("paper/rubiks_cube", "spo", 768, tiny=False) == "paper"
    assert settings("paper/rubiks_cube", "spo", 64, tiny=False) == "paper, 64 envs"
    assert settings("default", "spo", 128, tiny=False) == "default"
    assert settings("paper/ant", "spo", 1024, tiny=True) == "tiny"


def test_num_envs_changes_nothing_else(benchmark):
    training = benchmark("training")
    options = argparse.Namespace(num_envs=64, num_seeds=1, dtype="float32", option=[], tiny=False)
    paper = presets.get("paper/rubiks_cube")
    small = training.experiment("paper/rubiks_cube", "spo", options)
    assert small == dataclasses.replace(paper, config=dataclasses.replace(paper.config, num_envs=64))


def test_references_are_of_settings_that_exist(benchmark):
    for _, algorithm, preset, num_envs in benchmark("training").REFERENCE:
        assert num_envs in (64, presets.get(preset, algorithm).config.num_envs)


def tiny_update_options(task: str) -> argparse.Namespace:
    return argparse.Namespace(task=task, dtype="float32", tiny=True)


@pytest.mark.parametrize(("algorithm", "averaged"), [("mpo", ["actor", "q"]), ("smc_ent", ["q"])])
def test_the_floor_of_updates_reads_its_batch_and_averages_as_the_algorithm(benchmark, algorithm, averaged):
    """XLA computes the first operations on constants when it compiles, and those on one batch before the loop."""
    updates = benchmark("replayed_updates")
    floor = updates.floor_of_updates(updates.experiment(algorithm, tiny_update_options("paper/ant")))
    program = floor.func.as_text()
    constants = re.findall(r"f32\[([\d,]+)\]\S* constant\(", program)
    assert all(math.prod(map(int, shape.split(","))) < 100 for shape in constants)
    loop, _, before_the_loop = program.partition("\nENTRY ")
    assert "concatenate" in loop
    assert "concatenate" not in before_the_loop
    learner, _ = floor()
    assert sorted(learner.target_params) == averaged


def test_updates_with_discrete_actions_are_not_timed(benchmark):
    with pytest.raises(SystemExit, match="rubiks_cube has discrete actions"):
        benchmark("replayed_updates").experiment("mpo", tiny_update_options("paper/rubiks_cube"))


def test_time_that_several_threads_share_is_counted_once(benchmark):
    covered = benchmark("phases").covered
    assert covered([(0.0, 4.0), (1.0, 2.0), (3.0, 5.0), (7.0, 8.0)]) == 6.0
    assert covered([]) == 0.0


def test_the_phases_are_the_scopes_of_the_source(benchmark):
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert set(benchmark("phases").SCOPES) == set(re.findall(r'named_scope\("(\w+)"\)', source))


def test_phases_share_out_the_time_of_the_operations(benchmark):
    events = [("matmul", 0.0, 2.0), ("matmul", 2.0, 3.0), ("copy", 3.5, 4.0), ("gather", 4.0, 5.5)]
    rows = benchmark("phases").phases(events, {"matmul": "network", "copy": "network", "gather": "resample"}, 6.0, 1)
    assert [(row["phase"], row["milliseconds"], row["kernels"]) for row in rows] == [
        ("network", 3500.0, 3),
        ("resample", 1500.0, 1),
        ("(idle)", 1000.0, 0),
    ]
    assert rows[0]["heaviest"] == {"matmul": 3000.0}


#: A compiled program: a loop of 5 steps with a fused kernel and a product, whose body has a loop of 3 steps; a copy
#: before it, and a condition of which one branch has two kernels.
PROGRAM = """
%sum (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %add.1 = f32[8]{0} add(%a, %a)
}

%product (a.2: f32[8,8]) -> f32[8,8] {
  %a.2 = f32[8,8]{1,0} parameter(0)
  ROOT %dot.1 = f32[8,8]{1,0} dot(%a.2, %a.2)
}

%inner (state.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.1 = (s32[], f32[8]{0}) parameter(0)
  %x.1 = f32[8]{0} get-tuple-element(%state.1), index=1
  %step.1 = s32[] get-tuple-element(%state.1), index=0
  %fusion.1 = f32[8]{0} fusion(%x.1, %x.1), kind=kLoop, calls=%sum
  ROOT %tuple.1 = (s32[], f32[8]{0}) tuple(%step.1, %fusion.1)
}

%outer (state.2: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.2 = (s32[], f32[8]{0}) parameter(0)
  %matrix = f32[8,8]{1,0} constant({...})
  %gemm = f32[8,8]{1,0} fusion(%matrix), kind=kCustom, calls=%product, metadata={op_name="run(f)/update/dot"}
  %cublas = (f32[8,8]{1,0}, s8[64]{0}) custom-call(%gemm, %gemm), custom_call_target="__cublas$gemm"
  ROOT %while.1 = (s32[], f32[8]{0}) while(%state.2), condition=%more, body=%inner, \
backend_config={"known_trip_count":{"n":"3"}}
}

%more (state.3: (s32[], f32[8])) -> pred[] {
  %state.3 = (s32[], f32[8]{0}) parameter(0)
  ROOT %true = pred[] constant(true)
}

%once (x.4: f32[8]) -> f32[8] {
  %x.4 = f32[8]{0} parameter(0)
  ROOT %fusion.4 = f32[8]{0} fusion(%x.4, %x.4), kind=kLoop, calls=%sum
}

%twice (x.5: f32[8]) -> f32[8] {
  %x.5 = f32[8]{0} parameter(0)
  %fusion.5 = f32[8]{0} fusion(%x.5, %x.5), kind=kLoop, calls=%sum
  ROOT %fusion.6 = f32[8]{0} fusion(%fusion.5, %x.5), kind=kLoop, calls=%sum
}

ENTRY %main (x.6: f32[8], which: pred[]) -> f32[8] {
  %x.6 = f32[8]{0} parameter(0)
  %which = pred[] parameter(1)
  %zero = s32[] constant(0)
  %copy.1 = f32[8]{0} copy(%x.6)
  %start = (s32[], /*index=1*/f32[8]{0}) tuple(%zero, %copy.1)
  %while.2 = (s32[], f32[8]{0}) while(%start), condition=%more, body=%outer, \
backend_config={"known_trip_count":{"n":"5"}}
  %x.7 = f32[8]{0} get-tuple-element(%while.2), index=1
  ROOT %conditional = f32[8]{0} conditional(%which, %x.7, %x.7), branch_computations={%once, %twice}
}
"""


def test_kernels_in_loops_count_once_per_step(benchmark):
    kernels = benchmark("kernels")
    counted = kernels.count(kernels.read_program(PROGRAM))
    assert counted["kernels"] == 1 + 2 + 5 * (2 + 3)
    assert counted["kinds"] == {"fusion": 2 + 5 * 3, "product": 5 * 2, "copy": 1}
    assert [(loop["loops"], loop["kernels"]) for loop in counted["loops"]] == [([], 3), ([5], 2), ([5, 3], 1)]
    assert len(counted["notes"]) == 1
    assert "conditional" in counted["notes"][0]
    copy, gemm, _, inner, *_ = kernels.kernels(kernels.read_program(PROGRAM))
    assert (copy.bytes, gemm.bytes, inner.bytes) == (2 * 32, 2 * 256, 3 * 32)
    assert (gemm.runs, inner.runs) == (5, 15)
    assert gemm.instruction.scope == "run(f)/update/dot"


def test_a_loop_of_unknown_length_is_noted(benchmark):
    kernels = benchmark("kernels")
    text = PROGRAM.replace('{"known_trip_count":{"n":"3"}}', "{}")
    counted = kernels.count(kernels.read_program(text))
    assert counted["kernels"] == 1 + 2 + 5 * (2 + 1)
    assert any("while.1" in note for note in counted["notes"])
