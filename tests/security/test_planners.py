"""Several planners that speak TLS with etcd and each other: whom the leader believes, and what it takes of others."""

import json
import re
import shutil
import socket
import subprocess

import grpc
import pytest
from service import Planner, certificates, code_of, free_ports, refused, tiny_job, tls, wait_for

import stagewright
from stagewright.proto import jobs_pb

OLGAS_TOKEN = "token-of-olga-0123456789"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    names = ["w0", "host:etcd", "submitter:alice", "viewer:vera"]
    folder = certificates(tmp_path_factory.mktemp("certificates"), *names)
    (folder / "tokens").write_text(f"{OLGAS_TOKEN} operator olga\n")
    (folder / "olga.token").write_text(OLGAS_TOKEN)
    return folder


@pytest.fixture(scope="module")
def etcd(tmp_path_factory, folder):
    """Of one member, which asks for certificates; its HOST:PORT."""
    path = tmp_path_factory.mktemp("etcd")
    client, peer = free_ports(2)
    urls = [f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"]
    with (path / "log").open("w") as log:
        process = subprocess.Popen(
            [shutil.which("etcd"), "--data-dir", path / "data", "--listen-client-urls", urls[0],
             "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
             "--initial-cluster", f"default={urls[1]}", "--client-cert-auth", "--trusted-ca-file", folder / "ca.pem",
             "--cert-file", folder / "etcd.pem", "--key-file", folder / "etcd-key.pem"],
            stdout=log, stderr=log,
        )  # fmt: skip
    wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", client)) == 0, "etcd")
    yield f"127.0.0.1:{client}"
    process.kill()
    process.wait()


def etcd_flags(folder):
    return ["--etcd-ca", folder / "ca.pem", "--etcd-cert", folder / "planner.pem", "--etcd-key", folder / "planner-key.pem"]


class Pair:
    """A leader and a follower."""

    def __init__(self, path, folder, store):
        flags = [*tls(folder, "planner"), *etcd_flags(folder), "--token-file", folder / "tokens", "--leader-lease", "2",
                 "--worker-listen", "127.0.0.1:0"]  # fmt: skip
        self.planners = []
        for name in ("leader", "follower"):
            (path / name).mkdir()
            own = ["--audit-log", path / name / "audit.jsonl"]
            self.planners.append(Planner(path / name, *flags, *own, store=store))
            wait_for(lambda: "leading" in self.planners[0].log(), "the leader")
        self.leader, self.follower = self.planners
        wait_for(lambda: f"following the planner at {self.leader.address}" in self.follower.log(), "the follower")

    def audit(self):
        return [json.loads(line) for line in (self.leader.folder / "audit.jsonl").read_text().splitlines()]

    def close(self):
        for planner in self.planners:
            planner.__exit__()


@pytest.fixture(scope="module")
def pair(tmp_path_factory, folder, etcd):
    pair = Pair(tmp_path_factory.mktemp("planners"), folder, f"etcd://{etcd}/pair")
    yield pair
    pair.close()


def security(folder, name, token=None):
    return stagewright.Security(
        tls_ca=folder / "ca.pem", tls_cert=folder / f"{name}.pem", tls_key=folder / f"{name}-key.pem", token_file=token
    )


def test_who_calls_a_follower_is_who_the_leader_hears_of(pair, folder):
    assert "clients show certificates, tokens; TLS to other planners, TLS to etcd" in pair.follower.log()
    alice = pair.follower.stubs(security(folder, "alice"))
    job = alice.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job
    assert job.spec.owner == "alice"
    ending = jobs_pb.CancelJobRequest(name=job.name)
    code, message = code_of(pair.follower.stubs(security(folder, "vera")).CancelJob, ending)
    assert code == "PERMISSION_DENIED"
    assert '"vera" is a viewer' in message
    # A token counts before a certificate, here, too.
    as_olga = pair.follower.stubs(security(folder, "vera", folder / "olga.token"))
    assert code_of(as_olga.CancelJob, ending)[0] == "OK"
    lines = pair.audit()
    for who, call, outcome in [("alice", "SubmitJob", "OK"), ("olga", "CancelJob", "OK"),
                               ("vera", "/stagewright.v1.JobService/CancelJob", "PERMISSION_DENIED")]:  # fmt: skip
        found = [line for line in lines if (line["who"], line["call"], line["outcome"]) == (who, call, outcome)]
        assert found, (who, lines)
        assert found[0]["peer"].startswith("ipv4:127.0.0.1:")


@pytest.mark.parametrize("name", ["vera", "w0"])
def test_nobody_but_a_planner_says_for_whom_it_calls(pair, folder, name):
    files = [(folder / file).read_bytes() for file in ("ca.pem", f"{name}-key.pem", f"{name}.pem")]
    claim = [("stagewright-caller-uri-bin", b"stagewright://operator/olga")]
    for planner in pair.planners:
        with grpc.secure_channel(planner.address, grpc.ssl_channel_credentials(*files)) as channel:
            call = channel.unary_unary("/stagewright.v1.JobService/CancelJob")
            with pytest.raises(grpc.RpcError) as failure:
                call(jobs_pb.CancelJobRequest(name="jobs/1").SerializeToString(), timeout=60, metadata=claim)
            assert failure.value.code() is grpc.StatusCode.PERMISSION_DENIED, failure.value


def test_strangers_reach_no_planner(pair):
    for planner in pair.planners:
        assert code_of(planner.stubs().ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAVAILABLE"


def test_long_tokens_come_to_the_leader(pair, folder, tmp_path):
    (tmp_path / "long").write_text("x" * 8190)
    code, message = code_of(pair.follower.stubs(security(folder, "vera", tmp_path / "long")).ListJobs, jobs_pb.ListJobsRequest())
    assert (code, message) == ("UNAUTHENTICATED", "the token is not known")


def worker_address(planner):
    return re.search(r"workers on (\S+?),?\s", planner.log()).group(1)


def test_workers_come_in_at_their_port_of_any_planner(pair, folder):
    lost = pair.follower.worker("w0", *tls(folder, "w0"))
    wait_for(lambda: "--worker-listen" in lost.read_text(), "the worker to be told where to go")
    pair.follower.worker("w0", *tls(folder, "w0"), planner=worker_address(pair.follower))
    alice = pair.leader.stubs(security(folder, "alice"))
    workers = lambda: [w.name for w in alice.ListWorkers(jobs_pb.ListWorkersRequest(), timeout=60).workers]  # noqa: E731
    wait_for(lambda: workers() == ["w0"], "the worker")


def test_another_leads_when_the_leader_is_gone(tmp_path, folder, etcd):
    pair = Pair(tmp_path, folder, f"etcd://{etcd}/another")
    try:
        pair.leader.process.kill()
        wait_for(lambda: re.search(r"leading\n", pair.follower.log()), "the follower to lead")
        alice = pair.follower.stubs(security(folder, "alice"))
        wait_for(lambda: code_of(alice.ListJobs, jobs_pb.ListJobsRequest())[0] == "OK", "an answer")
    finally:
        pair.close()


def test_with_tokens_only_planners_know_each_other_all_the_same(tmp_path, folder, etcd):
    """Callers show no certificates; planners show theirs to nobody who asks, and check that of the leader."""
    flags = ["--tls-cert", folder / "planner.pem", "--tls-key", folder / "planner-key.pem", *etcd_flags(folder),
             "--token-file", folder / "tokens", "--peer-ca"]  # fmt: skip
    other = certificates(tmp_path / "other")
    olga = stagewright.Security(tls_ca=folder / "ca.pem", token_file=folder / "olga.token")
    store = f"etcd://{etcd}/tokens"
    for name in ("leader", "follower", "stranger"):
        (tmp_path / name).mkdir()
    with Planner(tmp_path / "leader", *flags, folder / "ca.pem", store=store) as leader:
        wait_for(lambda: "leading" in leader.log(), "the leader")
        with Planner(tmp_path / "follower", *flags, folder / "ca.pem", store=store) as follower:
            assert code_of(follower.stubs(olga).ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
            nobody = follower.stubs(stagewright.Security(tls_ca=folder / "ca.pem"))
            assert code_of(nobody.ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAUTHENTICATED"
        # One that knows other authorities gives no token to this leader.
        with Planner(tmp_path / "stranger", *flags, other / "ca.pem", store=store) as stranger:
            assert code_of(stranger.stubs(olga).ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAVAILABLE"


def test_what_planners_could_not_believe_is_refused(folder, tmp_path, etcd):
    nameless = certificates(tmp_path, "host:nameless")
    store = ["--listen", "127.0.0.1:0", "--store", f"etcd://{etcd}/refused"]
    server_only = ["--tls-cert", folder / "planner.pem", "--tls-key", folder / "planner-key.pem"]
    cases = [
        ([*etcd_flags(folder), *tls(nameless, "nameless")], "it needs the URI stagewright://planner/NAME"),
        ([*etcd_flags(folder), *server_only], "planners need --tls-ca, or --peer-ca"),
        ([*etcd_flags(folder), "--peer-ca", folder / "ca.pem"], "--peer-ca needs --tls-cert"),
        ([*etcd_flags(folder), *server_only, "--peer-ca", "/nowhere"], "--peer-ca /nowhere"),
        ([*etcd_flags(folder), *tls(folder, "planner"), "--peer-ca", folder / "ca.pem"], "--peer-ca with --tls-ca"),
        (["--etcd-ca", "/nowhere"], "--etcd-ca /nowhere"),
        (["--etcd-cert", folder / "planner.pem"], "--etcd-cert needs --etcd-key"),
        ([*etcd_flags(folder), "--token-file", folder / "tokens", "--advertise", "p.example.org:7070"],
         "tokens with --advertise p.example.org:7070: they would travel in the clear"),
    ]  # fmt: skip
    for flags, message in cases:
        assert message in refused(*store, *flags), flags
    elsewhere = refused("--listen", "127.0.0.1:0", "--store", "etcd://e.example.org:2379")
    assert "etcd://e.example.org:2379: it is on another machine: give --etcd-ca" in elsewhere


def test_planners_whose_files_have_gone_bad_lead_with_what_they_read_last(tmp_path, folder, etcd):
    """A deployment damages the files that all planners share, and another one mends them."""
    shared = shutil.copytree(folder, tmp_path / "shared")
    flags = [*tls(shared, "planner"), *etcd_flags(shared), "--token-file", shared / "tokens", "--leader-lease", "2"]
    planners = []
    for name in ("leader", "follower"):
        (tmp_path / name).mkdir()
        planners.append(Planner(tmp_path / name, *flags, store=f"etcd://{etcd}/bad-files"))
        wait_for(lambda: "leading" in planners[0].log(), "the leader")
    leader, follower = planners
    olga = security(folder, "client", folder / "olga.token")
    code = lambda: code_of(follower.stubs(olga).ListJobs, jobs_pb.ListJobsRequest())[0]  # noqa: E731
    try:
        for file in ("ca.pem", "planner.pem", "planner-key.pem", "tokens"):
            (shared / file).write_text("nonsense\n")
        for file in ("shared/ca.pem", "shared/tokens"):
            wait_for(lambda file=file: re.search(rf"{file}.* stays valid", follower.log()), f"a word on {file}")
        leader.__exit__()
        wait_for(lambda: re.search(r"leading\n", follower.log()), "the follower to lead")
        wait_for(lambda: code() == "OK", "an answer")
        for file in ("ca.pem", "planner.pem", "planner-key.pem"):
            shutil.copy(folder / file, shared)
        (shared / "tokens").write_text("another-token-0123456789 operator otto\n")
        wait_for(lambda: code() == "UNAUTHENTICATED", "the new tokens")
    finally:
        for planner in planners:
            planner.__exit__()
