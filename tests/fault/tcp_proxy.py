"""A proxy of bytes that can be cut: then what is sent through it arrives nowhere, as on a network that is broken."""

import contextlib
import socket
import threading


class TcpProxy:
    def __init__(self, port: int):
        """Passes on to `port` of loopback what comes in at its own."""
        self.target = port
        self.cut_off = False
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.cut_off = True

    def heal(self) -> None:
        """What was under way is lost: connections of before end."""
        self.cut_off = False
        self._end_all()

    def close(self) -> None:
        self.listener.close()
        self._end_all()

    def _end_all(self) -> None:
        with self.lock:
            ended, self.open = self.open, set()
        for one in ended:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self.listener.accept()
                outside = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                continue  # Whom it is for is not there just now.
            with self.lock:
                self.open |= {inside, outside}
            for ends in ((inside, outside), (outside, inside)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.cut_off:
                    sink.sendall(data)
        if not self.cut_off:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
