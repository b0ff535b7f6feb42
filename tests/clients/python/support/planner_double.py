"""A server that answers the planner's calls by script, on a real gRPC channel."""

import concurrent.futures
from collections.abc import Callable

import grpc
from google.protobuf.message_factory import GetMessageClass

from stagewright.proto import details_pb, event_pb, jobs_pb, planner_pb


class PlannerDouble:
    """`answers["GetJob"]` is called with the request and the context; its result is the response, or, of WatchJob, the
    responses. `heard` has the names of all calls."""

    def __init__(self, port: int = 0, **answers: Callable):
        self.answers = answers
        self.heard: list[str] = []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        for module in (jobs_pb, planner_pb):
            for service in module.DESCRIPTOR.services_by_name.values():
                handlers = {method.name: self._handler(method) for method in service.methods}
                self._server.add_generic_rpc_handlers(
                    [grpc.method_handlers_generic_handler(service.full_name, handlers)]
                )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def _handler(self, method):
        def unary(request, context):
            self.heard.append(method.name)
            return self.answers[method.name](request, context)

        def stream(request, context):
            self.heard.append(method.name)
            yield from self.answers[method.name](request, context)

        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        return make(
            stream if method.server_streaming else unary,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str, retry_after: float) -> None:
    """As the planner does: with details, which say when the call may succeed."""
    retry = details_pb.RetryInfo()
    retry.retry_delay.FromNanoseconds(round(retry_after * 1e9))
    status = details_pb.ErrorStatus(code=code.value[0], message=message)
    status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=retry.SerializeToString())
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def job(name: str = "jobs/1", state: str = "RUNNING", step: int = 0, version: int = 1) -> "jobs_pb.Job":
    made = jobs_pb.Job(name=name, state=getattr(event_pb, f"JOB_STATE_{state}"), version=version)
    made.metrics.step, made.metrics.total_steps, made.metrics.accuracy = step, 10, -1
    made.metrics.loss = 0.5
    return made
