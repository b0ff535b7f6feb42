"""Random and mutated messages of every RPC of a real planner: it answers, and neither dies nor says INTERNAL.

    python tests/fuzz/rpc_fuzz.py SECONDS [SEED]        (with the environment of scripts/fuzz.sh)

Messages are made from their descriptors, or are changed copies of messages that the planner accepts; both draw numbers
from the edges of their types and names from those that there are, so that they come past the first check.
"""

import collections
import pathlib
import random
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message
from service import Planner, memory_mib, tiny_graph, tiny_job

from stagewright._proto import job_logs_pb2, links_pb2, profile_pb2
from stagewright._proto import worker_service_pb2 as worker_pb
from stagewright.proto import jobs_pb, planner_pb

MODULES = (jobs_pb, planner_pb, profile_pb2, links_pb2, worker_pb)
TIMEOUT = 3.0  # Also bounds what a search takes.
MOST_MIB = 1024
CONNECTED = "w1"
BAD = ("INTERNAL", "UNKNOWN", "DATA_LOSS")
TEXTS = ("", "jobs/1", "jobs/2", "jobs/999999999999999999999", "w0", CONNECTED, "w0/cpu0", "cpu0", "graphpipe", "auto", "exact", "cpu:2",
         "summit:1", "aten.mul.Tensor", "aten.mean.default", "*", "0", "\u00e4" * 40, "x" * 300, "../..", "{}", "[[[")  # fmt: skip
INTEGERS = (0, 1, 2, 3, 4, 16, 63, 64, 1000, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1)
FLOATS = (0.0, 1.0, 0.1, 1e-300, 1e300, 1e9, float("inf"), float("nan"))


class Maker:
    def __init__(self, seed: int):
        self.chance = random.Random(seed)

    def value(self, field):
        kind = field.cpp_type
        if kind == field.CPPTYPE_STRING:
            text = self.chance.choice(TEXTS)
            return text.encode() if field.type == field.TYPE_BYTES else text
        if kind == field.CPPTYPE_BOOL:
            return self.chance.random() < 0.5
        if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            number = self.chance.choice(FLOATS)
            return number if self.chance.random() < 0.8 else -number
        if kind == field.CPPTYPE_ENUM:
            return self.chance.choice(field.enum_type.values).number if self.chance.random() < 0.9 else 0
        bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
        signed = kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
        number = self.chance.choice(INTEGERS) % 2 ** (bits - signed)
        return -number if signed and self.chance.random() < 0.2 else number

    def set_field(self, message: Message, field, depth: int) -> None:
        """To something else."""
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return
        if field.label == field.LABEL_REPEATED:
            values = getattr(message, field.name)
            if values and self.chance.random() < 0.3:
                del values[self.chance.randrange(len(values))]
            elif field.message_type is not None:
                self.fill(values.add(), depth - 1)
            else:
                values.append(self.value(field))
        elif field.message_type is not None:
            self.fill(getattr(message, field.name), depth - 1)
        else:
            setattr(message, field.name, self.value(field))

    def fill(self, message: Message, depth: int) -> None:
        message.SetInParent()
        if depth < 0:
            return
        for field in message.DESCRIPTOR.fields:
            if self.chance.random() < 0.5:
                self.set_field(message, field, depth)

    def change(self, message: Message) -> None:
        """One field of it, or of a message in it."""
        fields = message.DESCRIPTOR.fields
        if not fields:
            return
        field = self.chance.choice(fields)
        inner = [value for found, value in message.ListFields() if found.message_type is not None and found.label != 3]
        inner += [
            self.chance.choice(value) for found, value in message.ListFields()
            if found.label == 3 and found.message_type is not None and not found.message_type.GetOptions().map_entry
        ]  # fmt: skip
        if inner and self.chance.random() < 0.8:
            self.change(self.chance.choice(inner))
        elif self.chance.random() < 0.2:
            message.ClearField(field.name)
        else:
            self.set_field(message, field, 3)


def registration(name: str) -> worker_pb.ConnectRequest:
    register = worker_pb.ConnectRequest()
    register.register.worker = name
    register.register.kinds.add(name="k", flops_per_second=1e12, memory_bytes_per_second=1e11)
    register.register.devices.add(name="cpu0", memory_bytes=1 << 30)
    return register


def examples(stubs) -> dict[str, list[Message]]:
    """By type of request, what a planner accepts."""
    problem = planner_pb.PlanningProblem(graph=tiny_graph(), cluster_preset="cpu:2", mini_batch=4)
    plan = planner_pb.PlanRequest(problem=problem, planner="graphpipe")
    strategy = stubs.Plan(plan, timeout=30).best.strategy
    judged = (planner_pb.ValidateRequest, planner_pb.SimulateRequest, planner_pb.ExplainRequest)
    named = (jobs_pb.GetJobRequest, jobs_pb.CancelJobRequest, jobs_pb.DeleteJobRequest, jobs_pb.WatchJobRequest,
             jobs_pb.ReplanJobRequest, jobs_pb.GetJobTraceRequest, jobs_pb.ListJobStepsRequest,
             job_logs_pb2.ListJobLogsRequest)  # fmt: skip
    found = [
        plan, planner_pb.PlanStreamRequest(plan=plan), registration("w0"),
        *(kind(problem=problem, strategy=strategy) for kind in judged),
        *(kind(name=f"jobs/{i}") for kind in named for i in range(1, 40)),
        jobs_pb.SetWorkerAvailabilityRequest(name=CONNECTED, availability=2),
        *(jobs_pb.SubmitJobRequest(spec=tiny_job()) for _ in range(50)),
        jobs_pb.SubmitJobRequest(spec=tiny_job(), validate_only=True),
    ]  # fmt: skip
    by_type = collections.defaultdict(list)
    for message in found:
        by_type[message.DESCRIPTOR.full_name].append(message)
    return by_type


class Fuzzer:
    def __init__(self, planner: Planner, seed: int):
        self.planner = planner
        self.maker = Maker(seed)
        self.channel = grpc.insecure_channel(planner.address, options=[("grpc.enable_retries", 0)])
        stubs = planner.stubs()
        self.examples = examples(stubs)
        stubs.SubmitJob(jobs_pb.SubmitJobRequest(spec=tiny_job(num_devices=64)), timeout=10)
        self.over = threading.Event()
        connect = self.channel.stream_stream("/stagewright.v1.WorkerService/Connect",
                                             request_serializer=lambda message: message.SerializeToString())  # fmt: skip
        self.worker = connect(self.said_by_worker())
        next(self.worker)
        self.methods = [
            (service.full_name, method) for module in MODULES
            for service in module.DESCRIPTOR.services_by_name.values() for method in service.methods
        ]  # fmt: skip
        self.codes: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        self.findings: list[str] = []

    def said_by_worker(self):
        """Of one that is there all the while."""
        yield registration(CONNECTED)
        while not self.over.wait(1):
            heartbeat = worker_pb.ConnectRequest()
            heartbeat.heartbeat.SetInParent()
            yield heartbeat

    def message(self, descriptor) -> Message:
        known = self.examples.get(descriptor.full_name, [])
        if known and self.maker.chance.random() < 0.8:
            made = message_factory.GetMessageClass(descriptor)()
            made.CopyFrom(self.maker.chance.choice(known))
            for _ in range(self.maker.chance.choice((0, 1, 1, 2, 4))):
                self.maker.change(made)
            return made
        made = message_factory.GetMessageClass(descriptor)()
        self.maker.fill(made, 4)
        return made

    def messages_of_worker(self, descriptor) -> list[Message]:
        """Whoever registers is listened to."""
        first = message_factory.GetMessageClass(descriptor)()
        first.CopyFrom(self.examples[descriptor.full_name][0])
        return [first, *(self.message(descriptor) for _ in range(self.maker.chance.randrange(8)))]

    def once(self, service: str, method) -> str:
        """The code of a call of it."""
        kinds = {(False, False): self.channel.unary_unary, (False, True): self.channel.unary_stream,
                 (True, True): self.channel.stream_stream}  # fmt: skip
        call = kinds[method.client_streaming, method.server_streaming](
            f"/{service}/{method.name}", request_serializer=lambda message: message.SerializeToString()
        )
        streams = method.client_streaming
        request = self.messages_of_worker(method.input_type) if streams else self.message(method.input_type)
        try:
            answer = call(iter(request) if streams else request, timeout=TIMEOUT)
            if method.server_streaming:
                for _ in zip(range(3), answer, strict=False):
                    pass
                answer.cancel()
            return "OK"
        except grpc.RpcError as error:
            code = error.code().name
            if code in BAD:
                self.findings.append(f"{method.name}: {code} {error.details()}: {str(request)[:2000]}")
            return code
        finally:
            if self.planner.process.poll() is not None:
                self.findings.append(f"{method.name}: the planner died: {str(request)[:4000]}\n{self.planner.log()[-2000:]}")

    def run(self, goes_on) -> None:
        """All methods in turn, until `goes_on` says no or the planner has died."""
        rounds = 0
        while self.planner.process.poll() is None and goes_on(rounds):
            for service, method in self.methods:
                if self.planner.process.poll() is None:
                    self.codes[method.name][self.once(service, method)] += 1
            rounds += 1
        memory = memory_mib(self.planner.process.pid) if self.planner.process.poll() is None else 0
        if memory > MOST_MIB:
            self.findings.append(f"the planner took {memory:.0f} MiB")
        self.over.set()
        self.channel.close()


def main() -> None:
    seconds, seed = (int(text) for text in (sys.argv[1:] + ["60", "1"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="stagewright_") as folder, Planner(pathlib.Path(folder)) as planner:
        fuzzer = Fuzzer(planner, seed)
        end = time.monotonic() + seconds
        fuzzer.run(lambda _: time.monotonic() < end)
    for name, codes in sorted(fuzzer.codes.items()):
        print(f"{name}: {dict(codes)}")
    print(f"{sum(sum(codes.values()) for codes in fuzzer.codes.values())} calls, {len(fuzzer.findings)} findings")
    if fuzzer.findings:
        raise SystemExit("\n\n".join(fuzzer.findings))


if __name__ == "__main__":
    main()
