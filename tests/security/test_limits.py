"""What is too long, too much or not text: refused at the door, named, and nothing is lost."""

import signal
import threading
import time

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.internal import encoder
from rapid_reset import answer_seconds, flood
from service import PATIENCE, ROOT, Planner, code_of, memory_mib, tiny_job, wait_for, within

from stagewright._proto import links_pb2, profile_pb2
from stagewright._proto import worker_service_pb2 as worker_pb
from stagewright.graph_file import load_graph
from stagewright.proto import jobs_pb, planner_pb

MODULES = (jobs_pb, planner_pb, profile_pb2, links_pb2)


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    with Planner(tmp_path_factory.mktemp("planner")) as running:
        yield running
        assert running.process.poll() is None


def text_fields(message, depth=0):
    """A copy of `message` and a setter for each text in it, those of messages within it too."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None:
            if field.type == field.TYPE_STRING and field.label != field.LABEL_REPEATED:
                yield lambda m, text, field=field: setattr(m, field.name, text)
        elif field.label != field.LABEL_REPEATED and depth < 2 and not field.message_type.GetOptions().map_entry:
            for inner in text_fields(message_factory.GetMessageClass(field.message_type)(), depth + 1):
                yield lambda m, text, inner=inner, field=field: inner(getattr(m, field.name), text)


def calls():
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield service.full_name, method


@pytest.mark.parametrize("text", ["x" * (17 << 20), "\x1b[2J", "line\x00end"], ids=["long", "escape", "nul"])
def test_every_text_of_every_call_is_looked_at(planner, text):
    looked_at = 0
    with grpc.insecure_channel(planner.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        for service, method in calls():
            request_class = message_factory.GetMessageClass(method.input_type)
            kind = channel.unary_stream if method.server_streaming else channel.unary_unary
            call = kind(f"/{service}/{method.name}", request_serializer=request_class.SerializeToString)
            for set_text in text_fields(request_class()):
                request = request_class()
                set_text(request, text)
                code, message = code_of(call, request)
                assert code == "INVALID_ARGUMENT", (method.full_name, request.ListFields()[0][0].name)
                assert "bytes, at most" in message or "control characters" in message, message
                looked_at += 1
    assert looked_at > 20


def test_the_limits_are_where_the_documents_say(planner):
    submit = planner.stubs().SubmitJob
    cases = [({"display_name": "n" * 256}, "OK"), ({"display_name": "n" * 257}, "INVALID_ARGUMENT"),
             ({"output_path": "/" + "p" * 4095}, "OK"), ({"output_path": "/" + "p" * 4096}, "INVALID_ARGUMENT")]  # fmt: skip
    for fields, code in cases:
        assert code_of(submit, jobs_pb.SubmitJobRequest(spec=tiny_job(**fields)))[0] == code
    assert code_of(submit, jobs_pb.SubmitJobRequest(spec=tiny_job(), request_id="i" * 129))[0] == "INVALID_ARGUMENT"


def test_job_names_are_written_in_one_way_only(planner):
    stubs = planner.stubs()
    name = stubs.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=60).job.name
    number = name.removeprefix("jobs/")
    assert code_of(stubs.GetJob, jobs_pb.GetJobRequest(name=name))[0] == "OK"
    for other in [f"jobs/0{number}", f"jobs/+{number}", f"jobs/ {number}", f"jobs/{number} ", f" {name}", number]:
        assert code_of(stubs.GetJob, jobs_pb.GetJobRequest(name=other))[0] == "NOT_FOUND", other


def test_a_worker_without_a_name_of_its_own_is_refused(planner):
    def register(name):
        request = worker_pb.ConnectRequest(register={"worker": name})
        with grpc.insecure_channel(planner.address) as channel:
            connect = channel.stream_stream(
                "/stagewright.v1.WorkerService/Connect", request_serializer=worker_pb.ConnectRequest.SerializeToString
            )
            with pytest.raises(grpc.RpcError) as failure:
                next(connect(iter([request]), timeout=60))
            return failure.value.code().name, failure.value.details()

    assert register("\x1b[31mred") == ("INVALID_ARGUMENT", "register.worker: it has control characters")
    assert register("w" * 200)[0] == "INVALID_ARGUMENT"


def test_messages_have_a_largest_size(planner):
    code, message = code_of(planner.stubs().SubmitJob, jobs_pb.SubmitJobRequest(request_id="x" * (65 << 20)))
    assert code == "RESOURCE_EXHAUSTED"
    assert str(64 << 20) in message


# Messages of two bytes each, which are a hundred in memory: nodes of the graph of SubmitJob, and what GetJob does not have.
EMPTY_PARTS = {"SubmitJob": bytes([0x12, 0]), "GetJob": bytes([0x52, 0])}


def with_empty_parts(method, count):
    parts = EMPTY_PARTS[method] * count
    if method == "GetJob":
        return parts
    graph = jobs_pb.JobSpec.DESCRIPTOR.fields_by_name["graph"].number
    spec = jobs_pb.SubmitJobRequest.DESCRIPTOR.fields_by_name["spec"].number
    for field in (graph, spec):
        parts = bytes([field << 3 | 2]) + encoder._VarintBytes(len(parts)) + parts
    return parts


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize("method", sorted(EMPTY_PARTS))
def test_a_message_of_empty_parts_takes_no_gigabytes(tmp_path, method, compression):
    with Planner(tmp_path) as planner, grpc.insecure_channel(
        planner.address, options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        call = channel.unary_unary(f"/stagewright.v1.JobService/{method}")
        with pytest.raises(grpc.RpcError) as failure:
            call(with_empty_parts(method, 31 << 20), timeout=PATIENCE, compression=compression)
        if compression is grpc.Compression.Gzip:
            assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
        else:
            assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "more than 1024 MiB of memory" in failure.value.details()
        assert memory_mib(planner.process.pid) < 400
        # What is small enough is looked at as ever.
        with pytest.raises(grpc.RpcError) as failure:
            call(with_empty_parts(method, 10), timeout=PATIENCE)
        assert failure.value.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED


def padded(message, count):
    """With so many fields that it does not have: 3 bytes each, and about 72 in memory."""
    return message.SerializeToString() + b"\xc2\x3e\x00" * count


def endless(seed):
    """A question that takes minutes, another one for each seed."""
    graph = load_graph(ROOT / "examples" / "graphs" / "mmt.swg")
    problem = {"graph": graph, "cluster_preset": "summit:256", "mini_batch": 16384, "optimizer": planner_pb.OPTIMIZER_ADAM}
    return planner_pb.PlanRequest(problem=problem, options={"effort": 100, "seed": seed})


def test_large_requests_at_once_take_bounded_memory_and_leave_room_for_small_ones(tmp_path):
    """20 of 24 MiB, of which 112 MiB at once are taken: the planner would queue 18 of them."""
    with Planner(tmp_path, "--max-message-mib", 4) as planner, grpc.insecure_channel(planner.address) as channel:
        plan = channel.unary_unary("/stagewright.v1.PlannerService/Plan")
        calls = [plan.future(padded(endless(seed), 350_000), timeout=PATIENCE) for seed in range(1, 21)]
        refused = wait_for(lambda: (done := [call for call in calls if call.done()])[15:] and done, "16 refusals")
        for call in refused:
            assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "as many large requests as it has memory for" in call.details()
            assert b"google.rpc.RetryInfo" in dict(call.trailing_metadata())["grpc-status-details-bin"]
        assert len(refused) == 16
        job = planner.stubs().SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job()), timeout=PATIENCE).job.name
        assert code_of(planner.stubs().GetJob, jobs_pb.GetJobRequest(name=job))[0] == "OK"
        assert memory_mib(planner.process.pid) < 450
        # What the calls held is free when they have ended.
        for call in calls:
            call.cancel()
        large = padded(jobs_pb.SubmitJobRequest(validate_only=True, spec=tiny_job()), 350_000)
        submit = channel.unary_unary("/stagewright.v1.JobService/SubmitJob")
        wait_for(lambda: code_of(submit, large)[0] == "OK", "room")


def test_messages_of_many_workers_take_bounded_memory(tmp_path):
    """24 of 24 MiB: what a stream has said is not held until it says the next thing."""

    def says(name, count, all_there):
        register = worker_pb.ConnectRequest(register={"worker": name})
        register.register.kinds.add(name="cpu", flops_per_second=1e12, memory_bytes_per_second=1e11)
        register.register.devices.add(name="cpu0", memory_bytes=1 << 30)
        yield register.SerializeToString()
        all_there.wait(PATIENCE)
        yield padded(worker_pb.ConnectRequest(heartbeat={}), count)
        time.sleep(3)  # Others say theirs meanwhile.
        yield register.SerializeToString()

    flags = ["--max-message-mib", 4, "--worker-timeout", 60]
    with Planner(tmp_path, *flags) as planner, grpc.insecure_channel(planner.address) as channel:
        connect = channel.stream_stream("/stagewright.v1.WorkerService/Connect")
        all_there = threading.Barrier(24)
        streams = [connect(says(f"w{i}", 350_000, all_there), timeout=PATIENCE) for i in range(24)]
        ends = [end_of(stream) for stream in streams]
        # Beside others one may find no room; it would register again.
        assert {code for code, _ in ends} <= {"FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"}, ends
        assert "FAILED_PRECONDITION" in {code for code, _ in ends}
        assert memory_mib(planner.process.pid) < 450
        code, message = end_of(connect(says("large", 1_200_000, threading.Barrier(1)), timeout=PATIENCE))
        assert (code, "more than 64 MiB of memory" in message) == ("RESOURCE_EXHAUSTED", True)


def end_of(stream):
    with pytest.raises(grpc.RpcError) as failure:
        for _ in stream:
            pass
    return failure.value.code().name, failure.value.details()


def test_the_command_line_steers_no_terminal(planner):
    planner.stubs().SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job(display_name="kept")), timeout=60)
    result = planner.cli("jobs")
    assert "kept" in result.stdout
    # An argument of one's own comes back in the error.
    result = planner.cli("jobs", "show", "jobs/\x1b[2J")
    assert result.returncode == 1
    assert "\x1b" not in result.stderr + result.stdout


def test_streams_that_are_reset_at_once_end_no_planner(tmp_path):
    """A short form: 2,000 on each of two connections. Others are answered, and memory comes to an end."""
    with Planner(tmp_path) as planner:
        flood(planner.address, connections=2, streams=2000)
        with within(20):
            answer_seconds(planner.address)
        assert memory_mib(planner.process.pid) < 600
        assert planner.process.poll() is None


def test_a_planner_that_is_flooded_still_ends_when_it_is_told_to(tmp_path):
    with Planner(tmp_path) as planner:
        flood(planner.address, connections=1, streams=500)
        planner.process.send_signal(signal.SIGTERM)
        with within(30):
            assert planner.process.wait(PATIENCE) == 0
