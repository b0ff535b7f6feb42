"""Who may do what: tokens, roles, owners of jobs, names of workers, and the line that says what they did."""

import json
import threading

import grpc
import pytest
from service import Planner, code_of, refused, tiny_graph, tiny_job, wait_for

import stagewright
from stagewright._proto import job_logs_pb2, profile_pb2
from stagewright._proto import worker_service_pb2 as worker_pb
from stagewright.proto import jobs_pb, planner_pb

TOKENS = {
    "vera": "viewer", "sam": "submitter", "sally": "submitter", "olga": "operator", "w0": "worker", "*": "worker"
}  # fmt: skip


def token_of(user):
    return f"token-of-{user}-0123456789"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    lines = [f"{token_of(user)} {role} {user}\n" for user, role in TOKENS.items()]
    (folder / "tokens").write_text("".join(lines))
    for user in TOKENS:
        (folder / f"{user}.token").write_text(token_of(user) + "\n")
    (folder / "stranger.token").write_text("token-of-a-stranger\n")
    return folder


@pytest.fixture(scope="module")
def planner(tmp_path_factory, folder):
    with Planner(tmp_path_factory.mktemp("planner"), "--token-file", folder / "tokens", "--log-format", "json") as running:
        yield running


@pytest.fixture
def stubs(planner, folder):
    return lambda user: planner.stubs(stagewright.Security(token_file=folder / f"{user}.token"))


def audit(planner):
    lines = [json.loads(line) for line in planner.log().splitlines()]
    return [{"who": "", "what": "", **line} for line in lines if line["message"] == "audit"]


def services():
    for module in (jobs_pb, planner_pb, worker_pb):
        yield from module.DESCRIPTOR.services_by_name.values()


def test_every_call_needs_a_token(planner, stubs):
    with grpc.insecure_channel(planner.address) as channel:
        for service in services():
            for method in service.methods:
                call = channel.unary_unary(f"/{service.full_name}/{method.name}")
                for metadata in [(), (("authorization", "Bearer nonsense"),), (("authorization", token_of("olga")),)]:
                    with pytest.raises(grpc.RpcError) as failure:
                        call(b"", timeout=60, metadata=metadata)
                    assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED, (method.full_name, failure.value)
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(b"", timeout=60)


def test_the_command_line_says_what_is_missing(planner, folder):
    result = planner.cli("jobs")
    assert result.returncode == 1
    assert "a token is needed" in result.stderr
    assert "not known" in planner.cli("--token-file", folder / "stranger.token", "jobs").stderr
    assert planner.cli("--token-file", folder / "vera.token", "jobs").returncode == 0
    assert planner.cli("jobs", STAGEWRIGHT_TOKEN_FILE=str(folder / "vera.token")).returncode == 0
    result = planner.cli("--token-file", folder / "nowhere", "jobs")
    assert result.returncode == 1
    assert "--token-file" in result.stderr
    assert token_of("olga") not in planner.log()


def test_roles_end_where_they_end(stubs):
    listing, ending = jobs_pb.ListJobsRequest(), jobs_pb.CancelJobRequest(name="jobs/1000")
    assert code_of(stubs("vera").ListJobs, listing)[0] == "OK"
    assert code_of(stubs("vera").CancelJob, ending)[0] == "PERMISSION_DENIED"
    assert code_of(stubs("vera").Plan, planner_pb.PlanRequest())[0] == "PERMISSION_DENIED"
    assert code_of(stubs("sam").Plan, planner_pb.PlanRequest())[0] == "INVALID_ARGUMENT"
    assert code_of(stubs("sam").CancelJob, ending)[0] == "NOT_FOUND"
    assert code_of(stubs("w0").ListJobs, listing)[0] == "PERMISSION_DENIED"
    logs = job_logs_pb2.ListJobLogsRequest(name="jobs/1000")
    assert code_of(stubs("vera").ListJobLogs, logs)[0] == "NOT_FOUND"
    assert code_of(stubs("w0").ListJobLogs, logs)[0] == "PERMISSION_DENIED"
    code, message = code_of(stubs("vera").SubmitJob, jobs_pb.SubmitJobRequest())
    assert code == "PERMISSION_DENIED"
    assert '"vera" is a viewer' in message and "needs a submitter" in message


def test_jobs_have_owners(planner, stubs, folder):
    spec = tiny_job(display_name="sams", owner="olga", tenant="elsewhere")
    job = stubs("sam").SubmitJob(jobs_pb.SubmitJobRequest(spec=spec), timeout=60).job
    assert (job.spec.owner, job.spec.tenant) == ("sam", "")
    listed = {}
    for owner in ("sam", "olga"):
        shown = planner.cli("--token-file", folder / "vera.token", "jobs", "-o", "json", "--owner", owner)
        listed[owner] = [(found["name"], found["owner"]) for found in json.loads(shown.stdout)["jobs"]]
    assert (job.name, "sam") in listed["sam"] and not listed["olga"]
    for call, request in [("CancelJob", jobs_pb.CancelJobRequest), ("ReplanJob", jobs_pb.ReplanJobRequest)]:
        code, message = code_of(getattr(stubs("sally"), call), request(name=job.name))
        assert code == "PERMISSION_DENIED"
        assert f'{job.name} is that of "sam"' in message
    assert code_of(stubs("sam").CancelJob, jobs_pb.CancelJobRequest(name=job.name))[0] == "OK"
    job = stubs("sam").SubmitJob(jobs_pb.SubmitJobRequest(spec=spec), timeout=60).job
    assert code_of(stubs("olga").CancelJob, jobs_pb.CancelJobRequest(name=job.name))[0] == "OK"

    lines = [(line["who"], line["call"], line["what"], line["outcome"]) for line in audit(planner)]
    assert ("sam", "SubmitJob", job.name, "OK") in lines
    assert ("sally", "CancelJob", lines[lines.index(("sam", "SubmitJob", job.name, "OK"))][2], "OK") not in lines
    assert any(who == "sally" and call == "CancelJob" and outcome == "PERMISSION_DENIED" for who, call, _, outcome in lines)
    assert ("olga", "CancelJob", job.name, "OK") in lines


def profile(planner, user, **fields):
    """gRPC's code of a measurement that `user` asks for."""
    with grpc.insecure_channel(planner.address) as channel:
        call = channel.unary_unary("/stagewright.v1.ProfileService/ProfileGraph")
        request = profile_pb2.ProfileGraphRequest(**fields).SerializeToString()
        try:
            call(request, timeout=60, metadata=(("authorization", f"Bearer {token_of(user)}"),))
        except grpc.RpcError as error:
            return error.code().name
        return "OK"


def test_calls_that_are_too_long_are_in_the_audit_log_too(planner, stubs):
    long = "n" * 5000
    sam = stubs("sam")
    for call, request in [
        ("SubmitJob", jobs_pb.SubmitJobRequest(spec=tiny_job(display_name=long))),
        ("CancelJob", jobs_pb.CancelJobRequest(name=long)),
        ("DeleteJob", jobs_pb.DeleteJobRequest(name=long)),
        ("ReplanJob", jobs_pb.ReplanJobRequest(name=long)),
        ("ProfileGraph", None),
    ]:
        code = code_of(getattr(sam, call), request)[0] if request else profile(planner, "sam", device=long)
        assert code == "INVALID_ARGUMENT", call
        (line,) = [line for line in audit(planner) if line["call"] == call and line["outcome"] == "INVALID_ARGUMENT"]
        assert line["who"] == "sam"
        assert len(line["what"]) <= 256
        assert "at most" in line["why"]
    assert register(planner, "w" * 5000, "*") == "INVALID_ARGUMENT"
    assert any(line["call"] == "Connect" and line["outcome"] == "INVALID_ARGUMENT" for line in audit(planner))


def test_a_measurement_is_in_the_audit_log_with_its_outcome(planner):
    code = profile(planner, "sam", graph=tiny_graph(), device="nowhere/cpu0")
    assert code not in ("OK", "INVALID_ARGUMENT")
    assert ("ProfileGraph", "tiny", code) in [(line["call"], line["what"], line["outcome"]) for line in audit(planner)]


def test_every_refused_submit_is_in_the_audit_log(planner, stubs):
    """Also the one whose plan is none any more; but to ask whether one would be refused changes nothing."""
    basis = planner_pb.PlanBasis(mini_batch=4, devices=[{"name": "gone/cpu0", "kind": "cpu", "memory_bytes": 1}])
    for only, lines in [(True, 0), (False, 1)]:
        request = jobs_pb.SubmitJobRequest(spec=tiny_job(display_name="stale"), plan_basis=basis, validate_only=only)
        code, message = code_of(stubs("sam").SubmitJob, request)
        assert code == "ABORTED", message
        found = [line for line in audit(planner) if (line["call"], line["what"]) == ("SubmitJob", "stale")]
        assert [(line["who"], line["outcome"]) for line in found] == [("sam", "ABORTED")] * lines


def register(planner, name, user, seconds=60, meanwhile=None):
    """The end of a stream that registers as `name`: gRPC's code, or OK if it was welcome, and `meanwhile` was called with
    what the planner says next."""
    with grpc.insecure_channel(planner.address) as channel:
        connect = channel.stream_stream(
            "/stagewright.v1.WorkerService/Connect",
            request_serializer=worker_pb.ConnectRequest.SerializeToString,
            response_deserializer=worker_pb.ConnectResponse.FromString,
        )
        request = worker_pb.ConnectRequest(register={"worker": name, "version": stagewright.__version__, "software": "cpu 1"})
        request.register.devices.add(name="cpu0", kind=0, memory_bytes=1 << 30)
        request.register.kinds.add(name="cpu", flops_per_second=1e9, memory_bytes_per_second=1e9)
        left = threading.Event()

        def requests():
            yield request
            left.wait(seconds)

        stream = connect(requests(), timeout=seconds, metadata=(("authorization", f"Bearer {token_of(user)}"),))
        try:
            welcome = next(stream).HasField("registered")
            if meanwhile:
                meanwhile(stream)
            return "OK" if welcome else "?"
        except grpc.RpcError as error:
            return error.code().name
        finally:
            left.set()


def test_a_change_is_that_of_whoever_began_it(planner, folder):
    """The token is struck out while the call lasts."""
    text = (folder / "tokens").read_text()
    asked = threading.Thread(target=profile, args=(planner, "guest"), kwargs={"graph": tiny_graph(), "device": "w0/cpu0"})

    def measure(told):
        (folder / "tokens").write_text(text + f"{token_of('guest')} submitter guest\n")
        asked.start()
        assert any(message.HasField("profile_operators") for message in told)  # The call has come so far that the worker is asked.
        (folder / "tokens").write_text(text)
        assert asked.is_alive()

    before = len(audit(planner))
    assert register(planner, "w0", "w0", meanwhile=measure) == "OK"
    asked.join()
    (line,) = [line for line in audit(planner)[before:] if line["call"] == "ProfileGraph"]
    assert (line["who"], line["outcome"]) == ("guest", "UNAVAILABLE"), line


def test_a_worker_takes_no_other_name(planner):
    assert register(planner, "w1", "w0") == "PERMISSION_DENIED"
    assert register(planner, "w0", "sam") == "PERMISSION_DENIED"
    assert register(planner, "w0", "olga") == "PERMISSION_DENIED"
    assert register(planner, "w0", "w0") not in ("PERMISSION_DENIED", "UNAUTHENTICATED")
    refused = [line for line in audit(planner) if line["call"] == "Connect" and line["outcome"] == "PERMISSION_DENIED"]
    assert ("w0", "w1") in [(line["who"], line["what"]) for line in refused]


def test_a_real_worker_comes_in_with_its_token(planner, folder, stubs):
    planner.worker("w0", "--token-file", folder / "w0.token")
    planner.worker("w5", "--token-file", folder / "*.token")
    names = lambda: {w.name for w in stubs("vera").ListWorkers(jobs_pb.ListWorkersRequest(), timeout=60).workers}  # noqa: E731
    wait_for(lambda: names() >= {"w0", "w5"}, "both workers")
    log = planner.worker("w6", "--token-file", folder / "w0.token")
    wait_for(lambda: 'may not register as "w6"' in log.read_text(), "the refusal")


def test_a_token_that_is_struck_out_ends_with_the_next_call(planner, folder, stubs):
    text = (folder / "tokens").read_text()
    (folder / "guest.token").write_text(token_of("guest"))
    (folder / "tokens").write_text(text + f"{token_of('guest')} viewer guest\n")
    assert code_of(stubs("guest").ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
    (folder / "tokens").write_text(text)
    assert code_of(stubs("guest").ListJobs, jobs_pb.ListJobsRequest())[0] == "UNAUTHENTICATED"
    for bad in (text + "nonsense\n", "", "\r\n# tokens come here\n"):
        (folder / "tokens").write_text(bad)
        assert code_of(stubs("vera").ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
    assert "tokens: it has no tokens; what it said before stays valid" in planner.log()
    (folder / "tokens").write_text(text)


def test_files_of_tokens_are_read_as_editors_write_them(tmp_path):
    tokens, token, empty = tmp_path / "tokens", tmp_path / "token", tmp_path / "empty"
    empty.write_text("\ufeff \r\n\r\n")
    assert f"--token-file {empty}: it has no tokens" in refused("--listen", "127.0.0.1:0", "--token-file", empty)
    tokens.write_text(f"\ufeff{token_of('vera')} viewer vera\r\n\r\n")
    token.write_text(f"\ufeff\r\n{token_of('vera')}\r\n")
    with Planner(tmp_path, "--token-file", tokens) as planner:
        listed = planner.cli("--token-file", token, "jobs")
        assert listed.returncode == 0, listed.stderr
        assert code_of(planner.stubs(stagewright.Security(token_file=token)).ListJobs, jobs_pb.ListJobsRequest())[0] == "OK"
        without = planner.cli("--token-file", empty, "jobs")
        assert without.returncode == 1 and f"{empty}: it is empty" in without.stderr


def test_the_audit_log_is_a_file_where_one_is_named(tmp_path, folder):
    log = tmp_path / "audit.jsonl"
    with Planner(tmp_path, "--token-file", folder / "tokens", "--audit-log", log) as planner:
        sam = planner.stubs(stagewright.Security(token_file=folder / "sam.token"))
        name = sam.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.name
        (line,) = map(json.loads, log.read_text().splitlines())
        assert (line["who"], line["call"], line["what"], line["outcome"]) == ("sam", "SubmitJob", name, "OK")
        assert line["peer"].startswith("ipv4:127.0.0.1:")
        assert '"call"' not in planner.log()
