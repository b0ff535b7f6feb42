"""A proxy between workers and the planner that ends a worker's stream with a message of a kind, which is lost then."""

import collections
import threading
from concurrent import futures

import grpc
from stagewright._proto import worker_service_pb2 as worker_pb

METHOD = "/stagewright.v1.WorkerService/Connect"
ANY_SIZE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class CuttingProxy(grpc.GenericRpcHandler):
    def __init__(self, planner: str):
        self.channel = grpc.insecure_channel(planner, options=ANY_SIZE)
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=ANY_SIZE)
        self.server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.lock = threading.Lock()
        self.kinds: list[str] = []
        self.seen = collections.Counter()  # Messages of each kind, either way.
        self.server.start()

    def close(self) -> None:
        self.server.stop(grace=0).wait()
        self.channel.close()

    def cut(self, *kinds: str) -> None:
        """One after the other: the second is looked for when the first was cut."""
        with self.lock:
            self.kinds = list(kinds)

    def left(self) -> list[str]:
        with self.lock:
            return list(self.kinds)

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(self.connect) if details.method == METHOD else None

    def drops(self, message_class, message: bytes) -> bool:
        kind = message_class.FromString(message).WhichOneof("message")
        with self.lock:
            self.seen[kind] += 1
            found = bool(self.kinds) and self.kinds[0] == kind
            if found:
                self.kinds.pop(0)
        return found

    def connect(self, requests, context):
        calls = []

        def up():
            try:
                for message in requests:
                    if self.drops(worker_pb.ConnectRequest, message):
                        break
                    yield message
            except grpc.RpcError:
                pass  # The worker is gone.
            calls[0].cancel()

        calls.append(self.channel.stream_stream(METHOD)(up()))
        context.add_callback(calls[0].cancel)
        try:
            for message in calls[0]:
                if self.drops(worker_pb.ConnectResponse, message):
                    break
                yield message
        except grpc.RpcError:
            pass  # Of the planner, or cancelled.
        calls[0].cancel()
        context.abort(grpc.StatusCode.UNAVAILABLE, "the stream was cut")
