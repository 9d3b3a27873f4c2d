"""Kernels of one training iteration or one search, compiled for an NVIDIA H200 on a machine without a GPU.

    python benchmarks/kernels.py paper/rubiks_cube paper/ant --out results/benchmarks/h200_compiled/kernels.json
    python benchmarks/kernels.py paper/rubiks_cube --dtype bfloat16 --largest 12
    python benchmarks/kernels.py paper/ant --algorithm mpo --text mpo.txt     also writes the compiled program
    python benchmarks/kernels.py --search 1 1024 8                            one search and its floor
    python benchmarks/kernels.py paper/humanoid --full                        seconds of a compilation as users have it

Needs JAX with its CUDA plugin (`pip install 'spo-jax[all,cuda]'`), but no GPU. Nothing is run. Small kernels cost by
their number, so their number predicts the effect of a change.

A kernel in a loop counts once per step. Of a condition, the branch with more kernels counts. The notes of a row name
conditions, and loops whose number of steps depends on data: those count as one step. XLA chooses some kernels by
measured speed, which needs a GPU. The number on a GPU may therefore differ by a few.
"""

import argparse
import dataclasses
import math
import pathlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import _timing
import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spo import presets
from spo.algorithms.base import DEVICE_AXIS
from spo.training.trainer import Trainer, abstract_state, jit_init, jit_run

#: The facts about an H200 that XLA's compiler asks for, in the text format of its `GpuTargetConfigProto`.
H200 = """
gpu_device_info {
  name: "NVIDIA H200"
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability 9.0a"
  cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  device_memory_size: 151397597184 memory_bandwidth: 4800000000000 l2_cache_size: 52428800
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  device_address_bits: 64 ecc_enabled: true
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""
#: Options of the compiler that leave the kernels what they are, and optimise the code inside them less.
QUICK = {"xla_llvm_disable_expensive_passes": True, "xla_backend_optimization_level": 0}
#: Instructions that start no kernel.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier"}
FREE |= {"partition-id", "replica-id", "add-dependency", "get-dimension-size"}
#: Custom calls that start no kernel.
FREE_CALLS = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AllocateBuffer"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", metavar="preset", help="presets to compile one iteration of")
    parser.add_argument("--algorithm", default="spo", help="algorithm to compile")
    parser.add_argument("--dtype", default="float32", help="data type in which the network computes")
    parser.add_argument("--num-envs", type=int, help="number of environments, instead of the preset's")
    parser.add_argument("--num-seeds", type=int, default=1, help="independent runs in one program")
    parser.add_argument(
        "--search", type=int, nargs=3, metavar=("ROOTS", "PARTICLES", "HORIZON"), help="compile a search and its floor"
    )
    parser.add_argument("--full", action="store_true", help="optimise all code, which takes longer")
    parser.add_argument("--largest", type=int, default=0, help="list so many kernels of each loop, largest first")
    parser.add_argument("--text", type=pathlib.Path, help="write the compiled program to this file")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows to this JSON file")
    options = parser.parse_args()

    jax.config.update("jax_platforms", "cpu")  # the plugin compiles and runs nothing
    device = compile_only_device()
    rows: list[dict[str, Any]] = []
    for name, lower in programs(options, device):
        row, text = compile_program(name, lower, {} if options.full else QUICK)
        program = read_program(text)
        row |= count(program)
        show(row, program, options.largest)
        if options.text is not None:
            options.text.write_text(text)
        rows.append(row | _timing.provenance() | {"device": "compiled for NVIDIA H200, not timed"})
        _timing.write_rows(rows, options.out)


def compile_only_device() -> Any:
    """Returns an H200 for which programs can be compiled and not run."""
    try:
        return topologies.get_topology_desc("h200", "cuda", target_config=H200, topology="1x1x1").devices[0]
    except NotImplementedError as error:
        raise SystemExit("The CUDA plugin of JAX is missing: pip install 'spo-jax[all,cuda]'.") from error


# --- Programs ---------------------------------------------------------------------------------------------------------


def programs(options: argparse.Namespace, device: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the name of each program and the function that lowers it."""
    # The networks ask for the platform on which they will run.
    jax.default_backend = lambda: "gpu"  # type: ignore[assignment]
    mesh = Mesh(np.array([device]), (DEVICE_AXIS,))
    for preset in options.presets:
        yield (
            f"{options.algorithm} {preset} {options.dtype}",
            lambda preset=preset: lower_iteration(preset, options, mesh),
        )
    if options.search is not None:
        for kind in ("floor", "search"):
            yield f"{kind} {options.search} {options.dtype}", lambda kind=kind: lower_search(kind, options, mesh)


#: With a single iteration there would be no loop, and with it other copies.
ITERATIONS = 2


def lower_iteration(preset: str, options: argparse.Namespace, mesh: Mesh) -> Any:
    chosen = presets.get(preset, options.algorithm)
    sizes = {} if options.num_envs is None else {"num_envs": options.num_envs}
    chosen = dataclasses.replace(
        chosen,
        network=dataclasses.replace(chosen.network, dtype=options.dtype),
        config=dataclasses.replace(chosen.config, **sizes),
        num_seeds=options.num_seeds,
    )
    algorithm = Trainer(chosen).algorithm
    state = abstract_state(jit_init(algorithm, mesh, chosen.num_seeds), mesh)
    return jit_run(algorithm, mesh).lower(state, ITERATIONS)


def lower_search(kind: str, options: argparse.Namespace, mesh: Mesh) -> Any:
    from _search_programs import make_problem, paper_resampling, search_program

    from search import floor_program

    num_roots, num_particles, horizon = options.search
    environment, network, params, root = make_problem(options.dtype, 512, num_roots)
    if kind == "floor":
        program = floor_program(environment, network, num_particles, horizon, unroll=horizon)
    else:
        resampling = paper_resampling(horizon, last=True)
        program = search_program(environment, network, num_particles, horizon, resampling=resampling)
    sharding = NamedSharding(mesh, PartitionSpec())

    def abstract(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    return jax.jit(program).lower(*jax.tree.map(abstract, (params, root, jax.random.key(0))))


def compile_program(name: str, lower: Callable[[], Any], options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the seconds that a program took, and its text."""
    began = time.perf_counter(), time.process_time()
    lowered = lower()
    middle = time.perf_counter(), time.process_time()
    compiled = lowered.compile(compiler_options=options)
    end = time.perf_counter(), time.process_time()
    row = {
        "program": name,
        "fully_optimised": not options,
        "lowering_seconds": middle[0] - began[0],
        "lowering_processor_seconds": middle[1] - began[1],
        "compile_seconds": end[0] - middle[0],
        "compile_processor_seconds": end[1] - middle[1],
    }
    return row, compiled.as_text()


# --- Text of a compiled program ---------------------------------------------------------------------------------------


class Instruction(NamedTuple):
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    text: str  # the rest of its line

    @property
    def scope(self) -> str:
        found = re.search(r'op_name="([^"]*)"', self.text)
        return "" if found is None else found[1]


class Program(NamedTuple):
    computations: dict[str, list[Instruction]]
    entry: str


def read_program(text: str) -> Program:
    computations: dict[str, list[Instruction]] = {}
    entry, inside = "", ""
    for line in text.splitlines():
        if opened := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            inside = opened[2]
            computations[inside] = []
            entry = inside if opened[1] else entry
        elif assigned := re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)$", line):
            computations[inside].append(_read_instruction(assigned[1], assigned[2]))
    return Program(computations, entry)


def _read_instruction(name: str, text: str) -> Instruction:
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    opening = rest.index("(")
    closing = _closing(rest, opening)
    operands = tuple(re.findall(r"%([\w.\-]+)", rest[opening : closing + 1]))
    return Instruction(name, shape, rest[:opening], operands, rest[closing + 1 :])


def _closing(text: str, opening: int) -> int:
    """Returns the position of the bracket that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError(f"no closing bracket in {text[:80]!r}")


#: Bytes of one number; the types of keys and tokens have none.
_BYTES = {"pred": 1, "bf16": 2, "f16": 2} | {f"{kind}{bits}": bits // 8 for kind in "sufc" for bits in (8, 16, 32, 64)}


def num_bytes(shape: str) -> int:
    total = 0
    for kind, sizes in re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape):
        total += _BYTES.get(kind, 0) * math.prod(int(size) for size in sizes.split(",") if size)
    return total


# --- Counting ---------------------------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """A kernel, and the loops around it as pairs (scope of the loop, number of its steps)."""

    instruction: Instruction
    kind: str
    bytes: int  # of its inputs and outputs; of a slice, the whole array counts
    loops: tuple[tuple[str, int], ...]

    @property
    def runs(self) -> int:
        return math.prod(steps for _, steps in self.loops)


def kernels(program: Program, notes: list[str] | None = None) -> list[Kernel]:
    """Returns the kernels of a program, and adds a sentence about each that can't be counted to `notes`."""
    return _kernels_of(program, program.entry, (), [] if notes is None else notes)


def _kernels_of(
    program: Program, computation: str, loops: tuple[tuple[str, int], ...], notes: list[str]
) -> list[Kernel]:
    """Returns the kernels of a computation and of everything that it calls."""
    instructions = program.computations[computation]
    shapes = {one.name: one.shape for one in instructions}
    found: list[Kernel] = []
    for one in instructions:
        if one.opcode == "while":
            body, steps = _called(one, "body")[0], _steps(one, notes)
            found += _kernels_of(program, body, (*loops, (one.name, steps)), notes)
        elif one.opcode == "conditional":
            names = _called(one, "branch_computations|true_computation|false_computation")
            branches = [_kernels_of(program, name, loops, notes) for name in names]
            found += max(branches, key=len)
            notes.append(f"branch of {one.name}: {[len(branch) for branch in branches]} kernels")
        elif one.opcode in ("call", "async-start"):
            for name in _called(one, "to_apply|calls"):
                found += _kernels_of(program, name, loops, notes)
        elif kind := _kind(one, program):
            size = num_bytes(one.shape) + sum(num_bytes(shapes.get(name, "")) for name in one.operands)
            found.append(Kernel(one, kind, size, loops))
    return found


def _kind(one: Instruction, program: Program) -> str | None:
    if one.opcode in FREE or one.opcode.endswith(("-done", "-update")):
        return None
    if one.opcode == "custom-call":
        target = re.search(r'custom_call_target="([^"]*)"', one.text)
        name = "" if target is None else target[1]
        if name in FREE_CALLS:
            return None
        return "product" if "gemm" in name or "matmul" in name else "custom"
    if one.opcode.startswith("copy"):
        return "copy"
    if one.opcode.startswith("fusion"):
        inside = {part.opcode for name in _called(one, "calls") for part in program.computations[name]}
        return "product" if inside & {"dot", "convolution", "scaled-dot"} else "fusion"
    return one.opcode


def _called(one: Instruction, attribute: str) -> list[str]:
    found = re.findall(rf"(?:{attribute})=(?:\{{([^}}]*)\}}|%?([\w.\-]+))", one.text)
    return [name.strip().lstrip("%") for several, single in found for name in (several or single).split(",")]


def _steps(one: Instruction, notes: list[str]) -> int:
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', one.text)
    if known is None:
        notes.append(f"number of steps unknown: {one.name} ({one.scope})")
        return 1
    return int(known[1])


def count(program: Program) -> dict[str, Any]:
    """Returns the numbers of kernels: of the whole program, per kind, and per loop."""
    notes: list[str] = []
    found = kernels(program, notes=notes)
    loops = []
    for around in sorted({kernel.loops for kernel in found}, key=lambda loops: (len(loops), loops)):
        inside = [kernel for kernel in found if kernel.loops == around]
        loops.append(
            {
                "loops": [steps for _, steps in around],
                "runs": inside[0].runs,
                "kernels": len(inside),
                "kinds": dict(Counter(kernel.kind for kernel in inside).most_common()),
                "megabytes": sum(kernel.bytes for kernel in inside) / 1e6,
            }
        )
    return {
        "kernels": sum(kernel.runs for kernel in found),
        "kinds": dict(_weighted((kernel.kind, kernel.runs) for kernel in found).most_common()),
        "loops": loops,
        "notes": notes,
    }


def _weighted(pairs: Iterator[tuple[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for name, amount in pairs:
        total[name] += amount
    return total


def show(row: dict[str, Any], program: Program, num_largest: int) -> None:
    """Prints a row."""
    print(f"\n{row['program']}: {row['kernels']} kernels, {row['kinds']}")
    print(
        f"lowering {row['lowering_seconds']:.1f} s ({row['lowering_processor_seconds']:.1f} s of processors), "
        f"compilation {row['compile_seconds']:.1f} s ({row['compile_processor_seconds']:.1f} s)"
    )
    for loop in row["loops"]:
        steps = " x ".join(str(steps) for steps in loop["loops"]) or "once"
        print(f"  {steps:>10}: {loop['kernels']:4d} kernels, {loop['megabytes']:9.1f} MB, {loop['kinds']}")
    for note in row["notes"]:
        print(f"  {note}")
    if num_largest:
        found = kernels(program)
        for around in sorted({kernel.loops for kernel in found}, key=lambda loops: (len(loops), loops)):
            print("\n ", " x ".join(f"{name} {steps}" for name, steps in around) or "once")
            inside = [kernel for kernel in found if kernel.loops == around]
            for kernel in sorted(inside, key=lambda kernel: -kernel.bytes)[:num_largest]:
                one = kernel.instruction
                shape = re.sub(r"\{[^}]*\}", "", one.shape)[:60]
                print(f"    {kernel.bytes / 1e6:9.3f} MB {kernel.kind:8} {one.name:45} {shape:40} {one.scope[-90:]}")


if __name__ == "__main__":
    main()
