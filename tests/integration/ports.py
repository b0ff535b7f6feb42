"""Ports of loopback that nobody has, nor is given for a connection before they are listened on."""

import contextlib
import pathlib
import random
import socket

FIRST = 10_000


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to connections: a client that tries in vain may be given the very port that it asks
    for, is then connected to itself, and whom the port is for cannot have it."""
    given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(FIRST, max(given, 2 * FIRST))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)
