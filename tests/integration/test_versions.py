"""Workers of different versions: the planner takes those of one, the others wait and say why."""

import concurrent.futures
import contextlib
import gzip
import os
import pathlib
import queue
import subprocess
import threading
import time

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from processes import PATIENCE, Processes, wait_for
from safetensors.torch import load_file

METHOD = "/stagewright.v1.WorkerService/Connect"
RELEASED = pathlib.Path(__file__).parents[1] / "lint" / "released_wire.binpb.gz"


@contextlib.contextmanager
def other_version(system, version, name="other"):
    """A worker of that version, connected until the end of the block."""
    command = [os.environ["STAGEWRIGHT_OTHER_VERSION_WORKER"], system.address, name, version]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process = subprocess.Popen(command, text=True, **pipes)
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()
        process.stderr.close()


def released_message(name):
    """The class of a message as programs of the last release have it: they know no newer field."""
    files = descriptor_pb2.FileDescriptorSet.FromString(gzip.decompress(RELEASED.read_bytes()))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"stagewright.v1.{name}"))


class ReleasedWorker:
    """A worker of the last release with one device, as far as its messages go."""

    def __init__(self, address, version):
        self.message = released_message("ConnectRequest")
        self.answers, self.sent = [], queue.SimpleQueue()
        self.channel = grpc.insecure_channel(address)
        connect = self.channel.stream_stream(
            METHOD,
            request_serializer=self.message.SerializeToString,
            response_deserializer=released_message("ConnectResponse").FromString,
        )
        register = self.message()
        register.register.worker, register.register.version = "released", version
        register.register.kinds.add(name="cpu", flops_per_second=1e9, memory_bytes_per_second=1e9)
        register.register.devices.add(name="cpu0", memory_bytes=1 << 30)
        self.send(register)
        self.stream = connect(iter(self.sent.get, None))
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def send(self, message):
        self.sent.put(message)

    def read(self):
        with contextlib.suppress(grpc.RpcError):
            for answer in self.stream:
                self.answers.append(answer)

    def await_told(self, kind):
        """The first message of that kind."""

        def told():
            return [answer for answer in self.answers if answer.WhichOneof("message") == kind]

        wait_for(told, kind)
        return getattr(told()[0], kind)

    def close(self):
        self.sent.put(None)
        self.stream.cancel()
        self.reader.join(10)
        self.channel.close()


class ReleasedPlanner:
    """A planner of the last release, as far as its messages go: all that workers say and are told passes through here
    without any field or message that it does not know."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.said, self.told = released_message("ConnectRequest"), released_message("ConnectResponse")
        options = dict(request_serializer=self.said.SerializeToString, response_deserializer=self.known(self.told))
        self.connect = self.channel.stream_stream(METHOD, **options)
        options = dict(request_deserializer=self.known(self.said), response_serializer=self.told.SerializeToString)
        handler = grpc.stream_stream_rpc_method_handler(self.relay, **options)
        service, method = METHOD.strip("/").split("/")
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.kinds = set()
        self.server.start()

    @staticmethod
    def known(message):
        def parse(data):
            parsed = message.FromString(data)
            parsed.DiscardUnknownFields()
            return parsed

        return parse

    def relay(self, requests, context):
        answers = self.connect(requests)
        context.add_callback(answers.cancel)
        try:
            for answer in answers:
                self.kinds.add(answer.WhichOneof("message"))
                yield answer
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())

    def close(self):
        self.server.stop(1).wait(10)
        self.channel.close()


def cpu_seconds(process) -> float:
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def system():
    with Processes(workers=0, planner_flags=("--worker-timeout", "300")) as running:
        yield running


def test_a_worker_of_another_version_is_refused_and_the_job_goes_on(system):
    system.start_worker("w0")
    system.await_workers(1)
    job = system.submit("chain_f32", devices=1, steps=1_000_000)
    system.await_step(job, 5)
    with other_version(system, "0.0.1-other") as refused:
        assert refused.wait(PATIENCE) == 1
        message = refused.stderr.read().strip()
    assert 'worker "other" is of version "0.0.1-other", but the connected worker "w0" is of version "' in message
    assert "\n" not in message
    system.await_step(job, system.job(job)["step"] + 50)
    assert system.cli("cancel", job).returncode == 0
    assert len(system.json("workers")["workers"]) == 1


def test_a_refused_worker_says_why_once_waits_and_joins_when_it_may(system):
    with other_version(system, "0.0.1-other") as other:
        assert other.stdout.readline() == "registered\n", other.stderr.read()
        worker = system.start_worker("w0")
        wait_for(lambda: "version" in system.log("w0"), "the reason")
        before = cpu_seconds(worker)
        time.sleep(8)  # Several attempts.
        assert cpu_seconds(worker) - before < 0.4
        assert worker.poll() is None
        lines = system.log("w0").splitlines()
        assert len(lines) == 1, lines
        for part in ('"w0" is of version', 'worker "other" is of version "0.0.1-other"', "all workers must be of one"):
            assert part in lines[0], lines
        assert [entry["name"] for entry in system.json("workers")["workers"]] == ["other"]
    # The other one has left.
    wait_for(lambda: [entry["name"] for entry in system.json("workers")["workers"]] == ["w0"], "the worker")
    assert system.train("chain_f32", devices=1, steps=2)["state"] == "succeeded"
    assert system.stop(worker) == 0


def test_a_worker_of_the_last_release_is_told_what_to_do_and_is_understood(system):
    worker = ReleasedWorker(system.address, "0.1.0")
    try:
        system.await_workers(1)
        assert worker.await_told("registered").heartbeat_interval_ns > 0
        out = system.path / "told"
        job = system.submit("chain_f32", devices=1, steps=3, out=out)
        prepare = worker.await_told("prepare")
        assert (prepare.job, list(prepare.device_names), prepare.spec.steps) == (job, ["cpu0"], 3)
        assert prepare.spec.output_path == str(out) and prepare.spec.graph.nodes and prepare.program.devices
        refusal = worker.message()
        refusal.failed.job, refusal.failed.generation = prepare.job, prepare.generation
        refusal.failed.code, refusal.failed.message = grpc.StatusCode.INVALID_ARGUMENT.value[0], "too new for me"
        worker.send(refusal)
        ended = system.await_end(job)
        assert (ended["state"], "too new for me" in ended["message"]) == ("failed", True), ended["message"]
        worker.await_told("abort")
    finally:
        worker.close()


def test_workers_train_for_a_planner_of_the_last_release(system):
    """Newer workers do without all that it cannot tell them."""
    planner = ReleasedPlanner(system.address)
    trained = {}
    try:
        for name, address in (("direct", None), ("released", planner.address)):
            system.worker_address = address
            for worker in ("w0", "w1"):
                system.start_worker(worker)
            system.await_workers(2)
            job = system.train("chain_f64", devices=2, stages=2, out=system.path / name)
            assert job["state"] == "succeeded", job["message"]
            trained[name] = load_file(job["checkpoint"])
            for worker in ("w0", "w1"):
                assert system.stop(system.workers.pop(worker)) == 0
            system.await_workers(0)
    finally:
        planner.close()
    assert {"registered", "prepare", "start", "merge"} <= planner.kinds - {None}
    assert trained["released"].keys() == trained["direct"].keys()
    assert all(tensor.equal(trained["direct"][name]) for name, tensor in trained["released"].items())
