"""Where a proof runs: what was unpacked, which LibTorch, which device; and commands with a limit of time."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

# Several ranks on one GPU: NCCL must allow it, kernels that wait for each other must be resident together and be loaded
# before they run, and streams must not wait for each other in a hardware queue that they share.
RANKS_ON_ONE_GPU = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_MAX_CTAS": "4",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_DEBUG": "WARN",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    "CUDA_MODULE_LOADING": "EAGER",
}


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is None if its time was over."""

    code: int | None
    output: str
    errors: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.code == 0

    def tail(self, lines: int = 6) -> str:
        """Its last words, for people."""
        ended = "its time was over" if self.code is None else f"exit status {self.code}"
        words = [*self.output.strip().splitlines(), *self.errors.strip().splitlines()]
        return "\n".join([*words[-lines:], ended])


def run(command: list, seconds: float, environment: dict[str, str], **options) -> Ended:
    """Ends the command's whole process group after so many seconds, or when this process is interrupted."""
    start = time.monotonic()
    process = subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True, **options,
    )  # fmt: skip
    code: int | None = None
    try:
        output, errors = process.communicate(timeout=max(seconds, 0.1))
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Ended(code, output, errors, time.monotonic() - start)


@dataclasses.dataclass(frozen=True)
class Machine:
    root: pathlib.Path  # The repository.
    bundle: pathlib.Path  # What prepare.py packed, unpacked.
    work: pathlib.Path  # For files of gigabytes.
    torch: pathlib.Path  # The folder of the Python package.
    dry: bool  # Without a GPU, small models on the CPU.

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda:0"

    @property
    def sizes(self) -> str:
        return "tiny" if self.dry else "medium"

    def program(self, name: str) -> pathlib.Path:
        return self.bundle / "bin" / name

    def library_folders(self) -> list[pathlib.Path]:
        """Of what the programs are linked with, ours first. LibTorch and what comes with it has folders of its own."""
        wheels = sorted((self.torch.parent / "nvidia").glob("*/lib"))
        toolkit = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
        return [self.bundle / "lib", self.torch / "lib", *wheels, toolkit]

    def environment(self, first: list[pathlib.Path] | None = None, **changes: str) -> dict[str, str]:
        """This process's, with the libraries; `first`: folders before all others."""
        folders = [*(first or []), *self.library_folders()]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders)), **changes}

    def of_nccl(self) -> dict[str, str]:
        """The environment of suites whose ranks share the GPU, with the NCCL that was packed."""
        return self.environment([self.bundle / "nccl"], **RANKS_ON_ONE_GPU)

    def python(self, script: str, *arguments) -> list:
        return [sys.executable, self.root / script, *arguments]
