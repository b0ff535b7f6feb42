"""What the measurements of a planner under load share: a planner, what it uses, and times of calls."""

import os
import pathlib
import sys
import tempfile
import time

import grpc
from service import Planner, tiny_graph, tiny_job, wait_for  # noqa: F401 - for those who measure.

from stagewright._proto import worker_service_pb2 as worker_pb

CONNECT = "/stagewright.v1.WorkerService/Connect"
TICKS = os.sysconf("SC_CLK_TCK")


class LoadedPlanner:
    """A planner in a folder of its own, which serves metrics as planners do."""

    def __init__(self, *flags: object):
        self.directory = tempfile.TemporaryDirectory(prefix="stagewright_")
        self.path = pathlib.Path(self.directory.name)
        self.planner = Planner(self.path, *flags, metrics="127.0.0.1:0")
        self.pid = self.planner.process.pid
        self.address = self.planner.address

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.planner.__exit__()
        self.directory.cleanup()

    def cpu_seconds(self) -> float:
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def lost_workers(self) -> int:
        return self.planner.log().count("worker_lost")


def percentile(taken: list[float], part: float) -> float:
    return sorted(taken)[min(len(taken) - 1, int(len(taken) * part))]


def timed(call, request) -> float:
    """Milliseconds of a call."""
    begin = time.perf_counter()
    call(request, timeout=60)
    return (time.perf_counter() - begin) * 1e3


def arguments(*defaults: int) -> list[int]:
    given = [int(text) for text in sys.argv[1:]]
    return [*given, *defaults[len(given) :]]


def registration(name: str) -> worker_pb.ConnectRequest:
    request = worker_pb.ConnectRequest()
    request.register.worker = name
    request.register.version = "load"
    request.register.kinds.add(name="k", flops_per_second=1e12, memory_bytes_per_second=1e11)
    request.register.devices.add(name="cpu0", memory_bytes=1 << 30)
    return request


def heartbeat() -> worker_pb.ConnectRequest:
    request = worker_pb.ConnectRequest()
    request.heartbeat.SetInParent()
    return request


def own_channel(address: str) -> grpc.Channel:
    """With a connection of its own."""
    return grpc.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)))
