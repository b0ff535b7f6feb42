"""The proxy of deploy/kubernetes/front before a planner: what it lets through, and floods that end there."""

import contextlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import pytest
from rapid_reset import attack, flood, held_open, request_headers
from service import ROOT, Planner, certificates, code_of, free_ports, memory_mib, slowness, tiny_job, tls, wait_for, within

import stagewright
from stagewright.proto import event_pb, jobs_pb

CONFIG = ROOT / "deploy" / "kubernetes" / "front" / "haproxy.cfg"
ELSEWHERE = "127.0.0.2"  # The attacker's address: limits are by address.
# How long the proxy waits for the planner to say that it lives. One that is as busy as this machine may not answer three times
# in a row, and all calls end: only tests of that are for the deployment's value.
SELDOM = "1m"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = certificates(tmp_path_factory.mktemp("certificates"), "host:front", "viewer:vera", "w0")
    shutil.copy(folder / "front.pem", folder / "front.crt")
    shutil.copy(folder / "front-key.pem", folder / "front.key")
    (folder / "tokens").write_text("token-of-sam-0123456789 submitter sam\n")
    (folder / "sam.token").write_text("token-of-sam-0123456789")
    return folder


class Front:
    """HAProxy with the configuration that deploy/ has, before a planner that asks for certificates and takes tokens."""

    def __init__(self, path, folder, inter=None, **changed):
        self.planner = Planner(path, *tls(folder, "planner"), "--token-file", folder / "tokens")
        self.address, self.health = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.log_file = path / "haproxy.log"
        self.sam = stagewright.Security(tls_ca=folder / "ca.pem", token_file=folder / "sam.token")
        self.tls = ssl.create_default_context(cafile=folder / "ca.pem")
        self.tls.set_alpn_protocols(["h2"])
        program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        assert program, "haproxy is not there (Debian: haproxy)"
        environment = {
            "FRONT_LISTEN": self.address, "FRONT_HEALTH": self.health, "FRONT_CERTIFICATE": str(folder / "front.crt"),
            "PLANNER_ADDRESS": self.planner.address, "PLANNER_NAME": "localhost", "PLANNER_CA": str(folder / "ca.pem"),
        }  # fmt: skip
        text = CONFIG.read_text()
        for setting, value in changed.items():
            text, found = re.subn(rf"^( *{setting.replace('_', ' ')}) .*$", rf"\1 {value}", text, flags=re.MULTILINE)
            assert found == 1, setting
        if inter:
            text, found = re.subn(r" inter \w+ ", f" inter {inter} ", text)
            assert found == 1
        (path / "haproxy.cfg").write_text(text)
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen([program, "-db", "-f", path / "haproxy.cfg"], env=environment, stdout=log, stderr=log)
        wait_for(self.healthy, "the proxy to find the planner")

    def healthy(self):
        assert self.process.poll() is None, self.log_file.read_text()
        try:
            return urllib.request.urlopen(f"http://{self.health}/health", timeout=5).status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def stubs(self, security=None):
        return self.planner.stubs(security or self.sam, self.address)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.planner.__exit__()


@pytest.fixture
def front(tmp_path, folder):
    front = Front(tmp_path, folder, inter=SELDOM)
    yield front
    front.close()


@pytest.fixture
def looking_front(tmp_path, folder):
    front = Front(tmp_path, folder)
    yield front
    front.close()


def test_tokens_and_streams_go_through(front, folder):
    assert front.stubs().SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.spec.owner == "sam"
    assert code_of(front.stubs().WatchJob, jobs_pb.WatchJobRequest(name="jobs/1"))[0] == "OK"
    code, message = code_of(front.stubs().GetJob, jobs_pb.GetJobRequest(name="jobs/7"))
    assert code == "NOT_FOUND"
    assert "jobs/7" in message
    # What the proxy's own certificate is good for: nothing.
    code, message = code_of(front.stubs(stagewright.Security(tls_ca=folder / "ca.pem")).ListJobs, jobs_pb.ListJobsRequest())
    assert code == "UNAUTHENTICATED"
    assert "a token" in message
    # A client's certificate ends at the proxy.
    vera = stagewright.Security(
        tls_ca=folder / "ca.pem", tls_cert=folder / "vera.pem", tls_key=folder / "vera-key.pem"
    )  # fmt: skip
    assert code_of(front.stubs(vera).ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAUTHENTICATED"


def test_the_proxy_offers_no_more_than_clients_need(front):
    credentials = grpc.ssl_channel_credentials(front.sam.tls_ca.read_bytes())
    with grpc.secure_channel(front.address, credentials) as channel:
        for path in ("/stagewright.v1.WorkerService/Connect", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/x",
                     "/grpc.health.v1.Health/Watch"):  # fmt: skip
            with pytest.raises(grpc.RpcError) as failure:
                channel.unary_unary(path)(b"", timeout=60, metadata=front.sam.metadata())
            assert failure.value.code() is grpc.StatusCode.PERMISSION_DENIED, (path, failure.value)
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60)


def test_one_address_does_not_take_all_places(front):
    name = front.stubs().SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.name
    token = dict(front.sam.metadata())
    headers = request_headers("/stagewright.v1.JobService/WatchJob", "https", **token)
    watch = jobs_pb.WatchJobRequest(name=name).SerializeToString()
    with contextlib.ExitStack() as stack:
        assert held_open(stack, front.address, 25, headers, watch, 50, ELSEWHERE, front.tls) == 16
        assert attack(front.address, 1, source=ELSEWHERE, tls=front.tls) == 0
        assert code_of(front.stubs().ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
    connections, streams, places = (
        int(re.search(pattern, CONFIG.read_text()).group(1))
        for pattern in (r"sc0_conn_cur gt (\d+)", r"max-concurrent-streams (\d+)", r"tcp-ut 15s maxconn (\d+)")
    )
    assert connections * streams <= places / 10


def test_silence_ends_a_connection_and_no_watch(tmp_path, folder):
    front = Front(tmp_path, folder, inter=SELDOM, timeout_client="2s")
    try:
        stubs = front.stubs()
        name = stubs.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.name
        watch = stubs.WatchJob(jobs_pb.WatchJobRequest(name=name), timeout=60)
        assert next(watch).job.name == name
        host, _, port = front.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as silent:
            start = time.monotonic()
            assert silent.recv(1) == b""
            assert time.monotonic() - start < 40  # Not the minute of the deployment.
        time.sleep(3)
        assert code_of(front.stubs().CancelJob, jobs_pb.CancelJobRequest(name=name))[0] == "OK"
        assert [answer.job.state for answer in watch][-1] == event_pb.JOB_STATE_CANCELLED
    finally:
        front.close()


def checks():
    """Seconds for an answer, how many in a row are missing until the planner is given up, seconds until it is asked again."""
    numbers = [int(re.search(rf" {word} (\d+)", CONFIG.read_text()).group(1)) for word in ("inter", "fall", "fastinter")]
    return tuple(numbers)


def test_a_planner_has_as_long_to_answer_as_is_said():
    inter, fall, fastinter = checks()
    assert inter * fall >= 15
    # One whose port is closed is found out in the next check, and two after it.
    assert inter + fastinter * (fall - 1) <= 7
    said = " ".join((ROOT / "docs" / "security.md").read_text().split())
    assert f"asks the planner's health service every {inter} seconds" in said
    assert f"left {fall} questions in a row without an answer for {inter} seconds each" in said


@pytest.fixture
def quick_front(tmp_path, folder):
    front = Front(tmp_path, folder, inter="1s")
    yield front
    front.close()


def test_watches_end_when_the_planner_hangs(quick_front):
    stubs = quick_front.stubs()
    name = stubs.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.name
    watch = stubs.WatchJob(jobs_pb.WatchJobRequest(name=name), timeout=60)
    next(watch)
    planner = quick_front.planner.process
    planner.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    try:
        with within(20), pytest.raises(grpc.RpcError) as failure:
            next(watch)
        assert failure.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        _, fall, _ = checks()
        assert time.monotonic() - start >= fall - 1  # The first check may have begun before.
        assert code_of(stubs.ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAVAILABLE"
    finally:
        planner.send_signal(signal.SIGCONT)
    wait_for(lambda: code_of(stubs.ListJobs, jobs_pb.ListJobsRequest())[0] == "OK", "the planner to be back")


def test_the_log_says_from_where_changes_came(front):
    stubs = front.stubs()
    assert code_of(stubs.ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
    assert code_of(stubs.SubmitJob, jobs_pb.SubmitJobRequest(spec=tiny_job()))[0] == "OK"
    wait_for(lambda: "/SubmitJob" in front.log_file.read_text(), "the line")
    (line,) = [line for line in front.log_file.read_text().splitlines() if "/stagewright.v1." in line]
    assert re.search(r"127\.0\.0\.1:\d+ .*JobService/SubmitJob", line), line
    assert "token-of-sam" not in front.log_file.read_text()


def test_it_says_when_the_planner_is_gone(looking_front):
    front = looking_front
    front.planner.process.terminate()
    front.planner.process.wait(60)
    wait_for(lambda: not front.healthy(), "the health check to fail")
    assert code_of(front.stubs().ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAVAILABLE"


def test_a_flood_of_resets_ends_at_the_proxy(front):
    """200,000 streams on ten connections: more than a planner by itself stands."""
    stubs = front.stubs()

    def answer(_):
        start = time.monotonic()
        assert code_of(stubs.ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
        return time.monotonic() - start

    answer(front.address)
    before, slow = memory_mib(front.planner.process.pid), slowness()
    _, longest = flood(front.address, connections=10, streams=20000, answer=answer, source=ELSEWHERE, tls=front.tls)
    assert longest < 5 * max(slow, slowness())
    assert memory_mib(front.planner.process.pid) < before + 150
    # Whoever floods is kept out for a while, and the others are not.
    assert attack(front.address, 20000, source=ELSEWHERE, tls=front.tls) == 0
    with within(5):
        answer(front.address)
