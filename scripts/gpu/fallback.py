"""Where the packed programs do not start (another C library, say), builds what trains, and its tests, from source.

The planner, the worker and job_bench speak protobuf and gRPC, which such a machine lacks: what takes them stays open.
"""

import os
import shutil
import time

from machine import Machine, run
from parts import SUITES
from report import Finding, failed, judge

TARGETS = (*SUITES, "engine_bench")


def programs_start(machine: Machine) -> bool:
    """The one with most libraries lists its tests."""
    program = machine.program("executor_accelerator_test_gpu")
    return run([program, "--gtest_list_tests"], 60, machine.environment()).ok


def configure(machine: Machine) -> list:
    """The command that makes the build folder; what LibTorch and the toolkit do not bring was packed."""
    return [
        "cmake", "-S", machine.root, "-B", machine.work / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DSTAGEWRIGHT_SERVICES=OFF", "-DSTAGEWRIGHT_WITH_CUDA=ON", "-DSTAGEWRIGHT_WITH_UCX=OFF",
        "-DSTAGEWRIGHT_WERROR=OFF",  # Of a compiler that nobody has tried.
        f"-DSTAGEWRIGHT_TORCH_DIR={machine.torch}", f"-DCMAKE_PREFIX_PATH={machine.bundle / 'dev' / 'usr'}",
    ]  # fmt: skip


def build(machine: Machine, seconds: float) -> list[Finding]:
    """Puts what it built where the packed programs were."""
    deadline = time.monotonic() + seconds
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)}
    made = run(configure(machine), 60, environment)
    if made.ok:
        command = ["cmake", "--build", machine.work / "build", "--target", *TARGETS]
        made = run(command, deadline - time.monotonic(), environment)
    claim = "the sources build here"
    if not made.ok:
        return [failed(claim, made.tail(20))]
    for name in TARGETS:
        folder = "tests" if name in SUITES else "bin"
        shutil.copy2(machine.work / "build" / folder / name, machine.program(name))
    return [judge(claim, programs_start(machine), f"{made.seconds:.0f} s")]
