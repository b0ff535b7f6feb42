"""The planner's services as callables, made of the descriptors of their messages, and its errors as exceptions."""

import json
import os

from collections.abc import Callable

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from . import errors
from .security import Security
from .proto import details_pb, jobs_pb, planner_pb

DEFAULT_ADDRESS = "127.0.0.1:7070"
_MODULES = (planner_pb, jobs_pb)
# Every call may be repeated: SubmitJob carries a request_id, the others change nothing that is not so already.
_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "stagewright.v1.PlannerService"}, {"service": "stagewright.v1.JobService"}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.service_config", json.dumps(_RETRIES)),
)


def resolve_address(address: str | None) -> str:
    """The address given, or that of the environment, or the default, as the command line has it."""
    return address or os.environ.get("STAGEWRIGHT_PLANNER") or DEFAULT_ADDRESS


class Stubs:
    """`stubs.GetJob(request, timeout=...)`, for every method of the services, on a channel of grpc or grpc.aio."""

    def __init__(self, channel: object, security: Security):
        for module in _MODULES:
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
                    call = kind(
                        f"/{service.full_name}/{method.name}",
                        request_serializer=GetMessageClass(method.input_type).SerializeToString,
                        response_deserializer=GetMessageClass(method.output_type).FromString,
                    )
                    setattr(self, method.name, _with_token(call, security))


def _with_token(call: Callable, security: Security) -> Callable:
    """Read anew for each call: tokens change while clients live."""

    def started(request: object, **options: object) -> object:
        return call(request, metadata=security.metadata(), **options)

    return call if security.token_file is None else started


_CLASSES = {
    grpc.StatusCode.UNAVAILABLE: errors.UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineError,
    grpc.StatusCode.NOT_FOUND: errors.NotFoundError,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidError,
    grpc.StatusCode.UNAUTHENTICATED: errors.RefusedError,
    grpc.StatusCode.PERMISSION_DENIED: errors.RefusedError,
}


def as_error(error: grpc.RpcError, address: str) -> errors.ServiceError:
    """The exception for a failed call: one line, the planner's own where it answered, as the command line has it."""
    code = error.code()
    detail = (error.details() or code.name).strip().splitlines()[0]
    told = _told(error)
    # A planner that is unavailable says when it may not be: what else is, gRPC says of a planner that it did not reach.
    if code == grpc.StatusCode.UNAVAILABLE and told is None:
        reason = detail.rsplit(": ", 1)[-1]
        return errors.UnreachableError(f"no planner answers at {address} ({reason}); is it started?", code.name)
    if code == grpc.StatusCode.UNIMPLEMENTED:
        detail = f"the planner at {address} is older than this client: {detail}"
    retry_after = _retry_after(told)
    if retry_after is not None:
        detail += f" (retry in {retry_after:g} s)"
    raised = _CLASSES.get(code, errors.ServiceError)(detail, code.name)
    raised.retry_after = retry_after
    return raised


def _told(error: grpc.RpcError) -> "details_pb.ErrorStatus | None":
    """The details that came with it, of which google.rpc says what they are."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return details_pb.ErrorStatus.FromString(value)
            except DecodeError:
                return details_pb.ErrorStatus()
    return None


def _retry_after(told: "details_pb.ErrorStatus | None") -> float | None:
    """In seconds."""
    for detail in told.details if told is not None else ():
        if detail.type_url.endswith("/google.rpc.RetryInfo"):
            return details_pb.RetryInfo.FromString(detail.value).retry_delay.ToTimedelta().total_seconds()
    return None
