"""A planner as a real process, with the flags that a test gives it, and what calls it."""

import contextlib
import itertools
import os
import pathlib
import re
import subprocess
import sys
import time

import grpc

import stagewright
from stagewright.proto import jobs_pb, pb, planner_pb

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "integration"))
from ports import free_ports  # noqa: E402, F401 - for those who need one that is not the planner's.
from slowness import slowness, within  # noqa: E402, F401 - for those who time what it does.

BIN = pathlib.Path(os.environ["STAGEWRIGHT_BIN"])
# Seconds. What is waited for may take long on a busy machine; only what hangs has to end before CTest ends the suite.
PATIENCE = 100.0


class Planner:
    """On a free port of loopback unless told otherwise; its log is a file, which nobody has to read."""

    def __init__(self, folder: pathlib.Path, *flags: object, listen: str = "127.0.0.1:0", store: str = "", metrics: str = ""):
        self.log_file = folder / "planner.log"
        self.processes: list[subprocess.Popen] = []
        self.clients: list[stagewright.Client] = []
        self.folder = folder
        kept = ["--store", store] if store else ["--state", folder / "state.db"]
        state = ["--metrics-listen", metrics, *kept]
        self.process = self._start(self.log_file, "stagewright-planner", "--listen", listen, *state, *flags)
        found = wait_for(lambda: re.search(r"listening on ([\w.:\[\]-]+)", self.log()) or self.process.poll(), "the planner")
        assert not isinstance(found, int), self.log()
        self.address = found.group(1)

    def __enter__(self) -> "Planner":
        return self

    def __exit__(self, *unused: object) -> None:
        for client in self.clients:
            client.close()
        for process in reversed(self.processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def log(self) -> str:
        return self.log_file.read_text()

    def cli(self, *arguments: object, address: str = "", **environment: str) -> subprocess.CompletedProcess:
        command = [BIN / "stagewright", "--planner-address", address or self.address, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})

    def worker(self, name: str, *flags: object, planner: str = "") -> pathlib.Path:
        """Starts one, of this planner unless told otherwise; its log."""
        log = self.folder / f"{name}-{len(self.processes)}.log"
        self._start(log, "stagewright-worker", "--planner", planner or self.address, "--name", name, *flags)
        return log

    def stubs(self, security: stagewright.Security | None = None, address: str = "") -> stagewright.rpc.Stubs:
        self.clients.append(stagewright.Client(address or self.address, security=security))
        return self.clients[-1]._stubs

    def _start(self, log: pathlib.Path, program: str, *flags: object) -> subprocess.Popen:
        with log.open("w") as out:
            process = subprocess.Popen([BIN / program, *map(str, flags)], stdout=out, stderr=out)
        self.processes.append(process)
        return process


def refused(*flags: object) -> str:
    """The line with which a planner ends that does not start."""
    kept = [] if "--store" in flags else ["--state", ":memory:"]
    command = [BIN / "stagewright-planner", "--metrics-listen", "", *kept, *map(str, flags)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def wait_for(condition, what: str):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.05)
    return found


def certificates(folder: pathlib.Path, *names: str) -> pathlib.Path:
    subprocess.run([ROOT / "scripts" / "dev-certs.sh", folder, *names], check=True, capture_output=True)
    return folder


def tls(folder: pathlib.Path, name: str) -> list[object]:
    """Flags for who is called `name` in the folder."""
    return ["--tls-ca", folder / "ca.pem", "--tls-cert", folder / f"{name}.pem", "--tls-key", folder / f"{name}-key.pem"]


def code_of(call, request: object) -> tuple[str, str]:
    """gRPC's code and message of a call; of a stream, that of its end or OK with its first message."""
    try:
        answer = call(request, timeout=PATIENCE)
        if isinstance(answer, grpc.Call):
            next(iter(answer))
            answer.cancel()
    except grpc.RpcError as error:
        return error.code().name, error.details()
    except StopIteration:
        pass
    return "OK", ""


def memory_mib(pid: int) -> float:
    """The most that a process has held so far."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def tiny_graph(target: str = "aten.mul.Tensor", **more: object) -> pb.Graph:
    """loss = mean(x * w), where `target` takes the place of the product."""
    graph = pb.Graph(name="tiny")
    row = pb.TensorMeta(dtype=pb.DTYPE_FLOAT32, shape=[{"scale": 1}, {"offset": 4}])
    graph.inputs.add(name="x", meta=row)
    graph.parameters.add(name="w", dtype=pb.DTYPE_FLOAT32, shape=[4], trainable=True)
    node = graph.nodes.add(name="product", target=target, outputs=[row], **more)
    node.args.add(input=0)
    node.args.add(parameter=0)
    mean = graph.nodes.add(name="loss", target="aten.mean.default")
    mean.args.add(value={"node": 0})
    mean.outputs.add(dtype=pb.DTYPE_FLOAT32)
    graph.loss.node = 1
    return graph


# Two unfinished jobs may not write to one path.
NUMBERS = itertools.count()


def tiny_job(**fields: object) -> jobs_pb.JobSpec:
    """Waits for devices for as long as no worker comes."""
    paths = {"weights_path": "/nowhere/w", "data_path": "/nowhere/d", "output_path": f"/nowhere/o{next(NUMBERS)}"}
    optimizer = {"kind": planner_pb.OPTIMIZER_SGD, "learning_rate": 0.1}
    return jobs_pb.JobSpec(
        **{"graph": tiny_graph(), "mini_batch": 4, "steps": 1, "optimizer": optimizer, **paths, **fields}
    )
