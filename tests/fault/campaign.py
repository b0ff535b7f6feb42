"""What a long campaign of faults says before its end: a line now and then, and its verdict when it is interrupted."""

import signal
import sys
import time
from collections.abc import Callable, Iterator

EVERY = 20  # Faults to a line.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    pass


class Campaign:
    """As a context it counts faults: `for i in campaign` is each of `count`. SIGINT or SIGTERM ends the context and is noted,
    so that the verdict on what was done can follow; another one ends the program. `known`: figures so far, by name."""

    def __init__(self, count: int, known: Callable[[], dict]):
        self.count = count
        self.known = known
        self.done = 0
        self.interrupted = False
        self.begun = time.monotonic()
        self.handlers: dict = {}

    def __enter__(self) -> "Campaign":
        self.handlers = {number: signal.signal(number, self._interrupt) for number in SIGNALS}
        return self

    def __exit__(self, kind: type | None, *unused: object) -> bool:
        self._restore()
        return kind is Interrupted

    def __iter__(self) -> Iterator[int]:
        for i in range(self.count):
            yield i
            self.done += 1
            if self.done % EVERY == 0:
                self.tell()

    def tell(self) -> None:
        figures = ", ".join(f"{name} {value}" for name, value in self.known().items())
        seconds = time.monotonic() - self.begun
        print(f"{self.done} of {self.count} faults in {seconds:.0f} s: {figures}", file=sys.stderr, flush=True)

    def end(self, wrong: list[str]) -> None:
        """Ends the program with what is wrong, and with how far it came, if there is anything of that."""
        cut_short = [f"interrupted after {self.done} of {self.count} faults"] if self.interrupted else []
        if cut_short or wrong:
            raise SystemExit("\n" + "\n".join(cut_short + wrong))

    def _interrupt(self, number: int, frame: object) -> None:
        self.interrupted = True
        self._restore()
        self.tell()
        raise Interrupted(signal.Signals(number).name)

    def _restore(self) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.handlers = {}
