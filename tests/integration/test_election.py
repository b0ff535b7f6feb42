"""Several planners over one etcd: one leads, the others pass calls on, and one of them follows it when it dies."""

import json
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
from ports import free_ports
from processes import BIN, ENDED, MODELS, NOT_MEASURED, PATIENCE, Processes, wait_for

LEASE = 3


class Planners(Processes):
    """Two planners over an etcd of one member; workers and the command line know both addresses."""

    def __init__(self):
        self.planners = {}
        self.logs = {}
        super().__init__()

    def start_planner(self):
        etcd = shutil.which("etcd")
        assert etcd, "etcd is not on PATH (Debian: etcd-server)"
        client, peer, *listen = free_ports(4)
        urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
        log = open(self.path / "etcd.log", "w")  # noqa: SIM115
        self.etcd = subprocess.Popen(
            [etcd, "--data-dir", self.path / "etcd", "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
             "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
             "--initial-cluster", f"default={urls[1]}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        self.store = f"etcd://127.0.0.1:{client}/test"
        wait_for(lambda: answers(client), "etcd")
        self.address = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in listen)
        for port in listen:
            self.start_one(f"127.0.0.1:{port}")

    def start_one(self, address):
        log = self.logs[address] = self.path / f"planner-{address}.log"
        with open(log, "a") as err:
            self.planners[address] = subprocess.Popen(
                [BIN / "stagewright-planner", "--listen", address, "--metrics-listen", "", "--store", self.store,
                 "--leader-lease", str(LEASE), "--worker-timeout", "5"],
                stderr=err,
            )  # fmt: skip
        wait_for(lambda: "listening on" in log.read_text(), "the planner")

    def role(self, address):
        """The last that the planner said of its role."""
        said = re.findall(r"(not leading any more|leading|following the planner at \S+)", self.logs[address].read_text())
        return said[-1] if said else ""

    def leader(self):
        def one():
            return [a for a, p in self.planners.items() if p.poll() is None and self.role(a) == "leading"]

        wait_for(lambda: len(one()) == 1, "one leader")
        return one()[0]

    def other(self, address):
        return next(a for a in self.planners if a != address)

    def at(self, address, *arguments):
        command = [BIN / "stagewright", "--planner-address", address, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    def patient_json(self, *arguments):
        """Over a change of leaders."""
        answers = []

        def answered():
            result = self.cli(*arguments, "-o", "json")
            answers.append(result)
            return result.returncode == 0

        wait_for(answered, f"an answer to {arguments}")
        return json.loads(answers[-1].stdout)

    def job(self, name):
        return next(job for job in self.patient_json("jobs")["jobs"] if job["name"] == name)

    def close(self):
        for process in [*self.workers.values(), *self.planners.values(), self.etcd]:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.directory.cleanup()


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def system():
    planners = Planners()
    try:
        yield planners
    finally:
        planners.close()


def start_workers(system, count):
    for i in range(count):
        system.start_worker(f"w{i}")
    wait_for(lambda: len(system.patient_json("workers")["workers"]) == count, "the workers")


def test_any_planner_answers(system):
    leader = system.leader()
    follower = system.other(leader)
    wait_for(lambda: system.role(follower) == f"following the planner at {leader}", "the other to follow")
    for i in range(2):
        system.workers[f"w{i}"] = subprocess.Popen(
            [BIN / "stagewright-worker", "--planner", follower, "--name", f"w{i}", *NOT_MEASURED],
            stderr=subprocess.DEVNULL,
        )
    wait_for(lambda: len(system.patient_json("workers")["workers"]) == 2, "the workers")
    watched = system.at(follower, *system.submit_flags("chain_f32", devices=2, stages=2), "--watch", "-o", "json")
    assert watched.returncode == 0, watched.stderr
    for address in (leader, follower):
        jobs = json.loads(system.at(address, "jobs", "-o", "json").stdout)["jobs"]
        assert [(job["name"], job["state"]) for job in jobs] == [("jobs/1", "succeeded")]
    found = json.loads(system.at(follower, "doctor", "-o", "json").stdout)["findings"]
    state = next(finding for finding in found if finding["what"] == "state")
    assert state["verdict"] == "good" and state["seen"].startswith("etcd://"), state
    planned = system.at(follower, "plan", MODELS / "chain_f32.swg", "--cluster", "cpu:2", "--mini-batch", 16)
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_another_planner_takes_over(system, how):
    start_workers(system, 2)
    done = system.submit("chain_f32", devices=2, steps=5, out=system.path / "out-1")
    wait_for(lambda: system.job(done)["state"] in ENDED, "the first job")
    running = system.submit("chain_f32", devices=2, stages=2, steps=2000, out=system.path / "out-2")
    wait_for(lambda: system.job(running)["step"] >= 5, "steps")
    waiting = system.submit("chain_f32", devices=2, steps=5, out=system.path / "out-3")
    leader = system.leader()
    follower = system.other(leader)
    system.planners[leader].send_signal(how)
    killed = time.monotonic()
    wait_for(lambda: system.role(follower) == "leading", "the other planner to lead")
    print(f"{how.name}: another led after {time.monotonic() - killed:.1f} s")
    system.planners[leader].wait()
    wait_for(lambda: system.job(waiting)["state"] in ENDED, "the last job")
    jobs = {job["name"]: job["state"] for job in system.patient_json("jobs")["jobs"]}
    assert jobs == {done: "succeeded", running: "succeeded", waiting: "succeeded"}
    assert system.job(running)["restarts"] == 0
    system.start_one(leader)
    following = f"following the planner at {follower}"
    wait_for(lambda: system.role(leader) == following, "the first planner to follow")


def test_a_leader_that_was_stopped_writes_nothing_when_it_wakes_up(system):
    start_workers(system, 2)
    running = system.submit("chain_f32", devices=2, stages=2, steps=2000, out=system.path / "out-1")
    wait_for(lambda: system.job(running)["step"] >= 5, "steps")
    old = system.leader()
    new = system.other(old)
    system.planners[old].send_signal(signal.SIGSTOP)
    wait_for(lambda: system.role(new) == "leading", "the other planner to lead")
    system.address = new  # The old one takes connections that it does not answer.
    wait_for(lambda: len(system.patient_json("jobs")["jobs"]) == 1, "the new leader")
    queued = subprocess.Popen([BIN / "stagewright", "--planner-address", old, "cancel", running],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    time.sleep(1)
    system.planners[old].send_signal(signal.SIGCONT)
    queued.communicate(timeout=60)
    wait_for(lambda: system.role(old) == f"following the planner at {new}", "the old leader to follow")
    second = json.loads(system.at(old, *system.submit_flags("chain_f32", steps=5, out=system.path / "out-2"), "-o", "json").stdout)
    assert second["name"] == "jobs/2"
    names = [job["name"] for job in system.patient_json("jobs")["jobs"]]
    assert names == ["jobs/2", "jobs/1"]
    log = system.logs[old].read_text()
    assert "not leading any more" in log
