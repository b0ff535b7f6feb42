"""Clients of a planner: `Client` blocks, `AsyncClient` awaits; both have the calls of operations.py."""

import asyncio
import datetime
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc

from . import operations
from .errors import ServiceError, UnavailableError
from .jobs import Job, job_from_proto
from .logs import ASK_EVERY, LogLine, LogReader
from .operations import Call
from .proto import jobs_pb
from .rpc import OPTIONS, Stubs, as_error, resolve_address
from .security import Security, is_loopback

P = ParamSpec("P")
T = TypeVar("T")
# For so long a stream of a job's changes is opened again when it breaks: a planner that is started again is back by
# then, and its jobs run on meanwhile.
PATIENCE = 30.0
_PAUSE = 0.5


def _method(call: Callable, operation: Callable) -> Callable:
    """`call` with the name, the documentation and the parameters of `operation`."""
    method = functools.wraps(operation)(call)
    signature = inspect.signature(operation)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    returns = signature.return_annotation.__args__[-1]  # A generator's third argument.
    method.__signature__ = signature.replace(parameters=[me, *signature.parameters.values()], return_annotation=returns)
    return method


def _blocking(operation: Callable[P, Generator[Call, Any, T]]) -> Callable[Concatenate["Client", P], T]:
    def call(self: "Client", *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(operation(*args, **kwargs))

    return _method(call, operation)


def _awaiting(operation: Callable[P, Generator[Call, Any, T]]) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    async def call(self: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(operation(*args, **kwargs))

    return _method(call, operation)


class _Retry:
    """Whether a stream that broke is opened again, and from which version of the job on."""

    def __init__(self, name: str):
        self.request = jobs_pb.WatchJobRequest(name=name)
        self._known = False
        self._deadline = 0.0

    def seen(self, job: Job) -> Job:
        self.request.after_version = job.version
        self._known = True
        self._deadline = 0.0
        return job

    def check(self, error: ServiceError) -> None:
        """Returns if another try is worth it, otherwise raises `error`. What never said anything is not tried again."""
        if error.code == "OUT_OF_RANGE" and self.request.after_version > 0:
            self.request.after_version = 0  # The planner has an older state of the job, as that of a backup.
            return
        if not isinstance(error, UnavailableError) or not self._known:
            raise error
        self._deadline = self._deadline or time.monotonic() + PATIENCE
        if time.monotonic() > self._deadline:
            raise error


def _open(library: Any, address: str, security: Security) -> Any:
    """A channel of grpc or grpc.aio."""
    credentials = security.credentials(address)
    options = OPTIONS
    if credentials is None or is_loopback(address):
        # A proxy of the environment would read what is not encrypted, and is on another machine.
        options += (("grpc.enable_http_proxy", 0),)
    if credentials is None:
        return library.insecure_channel(address, options=options)
    return library.secure_channel(address, credentials, options=options)


class Client:
    """Calls that block. Errors are StagewrightErrors with the planner's own message.

    address: HOST:PORT; else $STAGEWRIGHT_PLANNER, else 127.0.0.1:7070. Nothing is connected before the first call.
    security: how the planner is spoken to; else as the environment says. A planner on another machine needs TLS.
    """

    plan = _blocking(operations.plan)
    submit = _blocking(operations.submit)
    jobs = _blocking(operations.jobs)
    job = _blocking(operations.job)
    cancel = _blocking(operations.cancel)
    workers = _blocking(operations.workers)
    checkpoints = _blocking(operations.checkpoints)
    history = _blocking(operations.history)

    def __init__(self, address: str | None = None, *, security: Security | None = None):
        self.address = resolve_address(address)
        security = (security or Security()).resolved()
        self._channel = _open(grpc, self.address, security)
        self._stubs = Stubs(self._channel, security)

    def watch(self, name: str) -> Iterator[Job]:
        """The job now and after every change, until it has ended. A planner that is started again meanwhile is waited
        for."""
        retry = _Retry(name)
        while True:
            stream = self._stubs.WatchJob(retry.request)
            try:
                for response in stream:
                    yield retry.seen(job_from_proto(response.job))
                return
            except grpc.RpcError as error:
                retry.check(as_error(error, self.address))
            finally:
                stream.cancel()
            time.sleep(_PAUSE)

    def logs(
        self,
        name: str,
        *,
        worker: str = "",
        since: datetime.datetime | datetime.timedelta | None = None,
        tail: int | None = None,
        follow: bool = False,
        timeout: float = 30.0,
    ) -> Iterator[LogLine]:
        """What planner and workers logged about a job, by time; with `follow` also what follows, until it has ended.

        Only what `worker` logged, what is not older than `since` (a time, or how long ago), the last `tail` lines. A
        planner that is started again meanwhile is waited for; `timeout` is that of each call. Warns of lines that are
        not kept.
        """
        reader = LogReader(name, worker, since, tail, follow)
        while True:
            try:
                response = self._stubs.ListJobLogs(reader.request, timeout=timeout)
            except grpc.RpcError as error:
                reader.check(as_error(error, self.address))
            else:
                yield from reader.take(response)
                if reader.done:
                    return
            time.sleep(ASK_EVERY)

    def wait(self, name: str) -> Job:
        """The job at its end, with its plan."""
        for _ in self.watch(name):
            pass
        return self.job(name)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def _run(self, operation: Generator[Call, Any, T]) -> T:
        try:
            call = next(operation)
            while True:
                try:
                    response = getattr(self._stubs, call.method)(call.request, timeout=call.timeout)
                except grpc.RpcError as error:
                    call = operation.throw(as_error(error, self.address))
                else:
                    call = operation.send(response)
        except StopIteration as end:
            return end.value


class AsyncClient:
    """The same for asyncio. To be made and used in one event loop."""

    plan = _awaiting(operations.plan)
    submit = _awaiting(operations.submit)
    jobs = _awaiting(operations.jobs)
    job = _awaiting(operations.job)
    cancel = _awaiting(operations.cancel)
    workers = _awaiting(operations.workers)
    checkpoints = _awaiting(operations.checkpoints)
    history = _awaiting(operations.history)

    def __init__(self, address: str | None = None, *, security: Security | None = None):
        self.address = resolve_address(address)
        security = (security or Security()).resolved()
        self._channel = _open(grpc.aio, self.address, security)
        self._stubs = Stubs(self._channel, security)

    async def watch(self, name: str) -> AsyncIterator[Job]:
        """As Client.watch."""
        retry = _Retry(name)
        while True:
            stream = self._stubs.WatchJob(retry.request)
            try:
                async for response in stream:
                    yield retry.seen(job_from_proto(response.job))
                return
            except grpc.RpcError as error:
                retry.check(as_error(error, self.address))
            finally:
                stream.cancel()
            await asyncio.sleep(_PAUSE)

    async def logs(
        self,
        name: str,
        *,
        worker: str = "",
        since: datetime.datetime | datetime.timedelta | None = None,
        tail: int | None = None,
        follow: bool = False,
        timeout: float = 30.0,
    ) -> AsyncIterator[LogLine]:
        """As Client.logs."""
        reader = LogReader(name, worker, since, tail, follow)
        while True:
            try:
                response = await self._stubs.ListJobLogs(reader.request, timeout=timeout)
            except grpc.RpcError as error:
                reader.check(as_error(error, self.address))
            else:
                for line in reader.take(response):
                    yield line
                if reader.done:
                    return
            await asyncio.sleep(ASK_EVERY)

    async def wait(self, name: str) -> Job:
        """As Client.wait."""
        async for _ in self.watch(name):
            pass
        return await self.job(name)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.address!r})"

    async def _run(self, operation: Generator[Call, Any, T]) -> T:
        try:
            call = next(operation)
            while True:
                try:
                    response = await getattr(self._stubs, call.method)(call.request, timeout=call.timeout)
                except grpc.RpcError as error:
                    call = operation.throw(as_error(error, self.address))
                else:
                    call = operation.send(response)
        except StopIteration as end:
            return end.value
