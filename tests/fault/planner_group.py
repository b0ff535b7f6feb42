"""Several planners over an etcd of one member, each of which reaches it by a way of its own that can be cut."""

import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile

from ports import free_ports
from processes import BIN, NOT_MEASURED, wait_for
from tcp_proxy import TcpProxy

LEASE = 2  # Seconds.


class PlannerGroup:
    def __init__(self, count: int = 3):
        self.directory = tempfile.TemporaryDirectory(prefix="stagewright_")
        self.path = pathlib.Path(self.directory.name)
        self.planners: dict[str, subprocess.Popen] = {}
        self.ways: dict[str, TcpProxy] = {}
        self.begun: dict[str, int] = {}  # Where in a planner's log its present life begins.
        self.workers: dict[str, subprocess.Popen] = {}
        client, peer, *listen = free_ports(2 + count)
        self.etcd = self._start_etcd(client, peer)
        for port in listen:
            address = f"127.0.0.1:{port}"
            self.ways[address] = TcpProxy(client)
            self.start(address)
        self.await_leader()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in [*self.workers.values(), *self.planners.values(), self.etcd]:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for way in self.ways.values():
            way.close()
        self.directory.cleanup()

    def _start_etcd(self, client: int, peer: int) -> subprocess.Popen:
        etcd = shutil.which("etcd")
        assert etcd, "etcd is not on PATH (Debian: etcd-server)"
        urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
        with open(self.path / "etcd.log", "w") as log:
            process = subprocess.Popen(
                [etcd, "--data-dir", self.path / "etcd", "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
                 "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
                 "--initial-cluster", f"default={urls[1]}"], stdout=log, stderr=log,
            )  # fmt: skip

        def answers():
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", client)) == 0

        wait_for(answers, "etcd")
        return process

    def start(self, address: str, prefix: list | tuple = ()) -> None:
        with open(self.log(address), "a") as log:
            self.begun[address] = log.tell()
            self.planners[address] = subprocess.Popen(
                [*prefix, BIN / "stagewright-planner", "--listen", address, "--metrics-listen", "", "--leader-lease", str(LEASE),
                 "--worker-timeout", "5", "--store", f"etcd://127.0.0.1:{self.ways[address].port}/group"], stderr=log,
            )  # fmt: skip

    def start_worker(self, name: str) -> None:
        planners = "ipv4:" + ",".join(self.planners)
        with open(self.path / f"{name}.log", "a") as log:
            command = [BIN / "stagewright-worker", "--planner", planners, "--name", name, *NOT_MEASURED]
            self.workers[name] = subprocess.Popen(command, stderr=log)

    def log(self, address: str) -> pathlib.Path:
        return self.path / f"planner-{address}.log"

    def role(self, address: str) -> str:
        """The last that the planner said of its role since it was started last."""
        said = re.findall(r"(not leading any more|leading|following the planner at \S+)", self.log(address).read_text()[self.begun[address] :])
        return said[-1] if said else ""

    def leader(self) -> str | None:
        leading = [a for a, process in self.planners.items() if process.poll() is None and self.role(a) == "leading"]
        return leading[0] if len(leading) == 1 else None

    def await_leader(self) -> str:
        """On a busy machine leases run out, and there may be none at the next look."""
        return wait_for(self.leader, "a leader")
