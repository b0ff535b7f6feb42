"""What planner and workers logged about a job."""

import dataclasses
import datetime
import time
import warnings
from collections.abc import Mapping

from .errors import ServiceError
from .jobs import ENDED
from .proto import event_pb, logs_pb

# For so long a planner that has answered before is asked again.
PATIENCE = 30.0
# Workers tell no more often what they logged.
ASK_EVERY = 1.0
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_AGAIN = {"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"}


@dataclasses.dataclass(frozen=True)
class LogLine:
    """A line of a program's log. `time` is by the clock of the program, in UTC; `worker` is empty for the planner."""

    time: datetime.datetime
    level: str  # "debug", "info", "warning", "error"
    message: str
    fields: Mapping[str, str]  # Its keys but job and generation.
    worker: str
    generation: int  # Attempt of the job that it is about.

    def __str__(self) -> str:
        fields = "".join(f" {key}={value}" for key, value in self.fields.items())
        worker = f" worker={self.worker}" if self.worker and "worker" not in self.fields else ""
        return f"{self.time.isoformat(timespec='milliseconds')} {self.level} {self.message}{worker}{fields}"


def _line(proto: "logs_pb.JobLogLine") -> LogLine:
    level = logs_pb.LogLevel.Name(proto.level or logs_pb.LOG_LEVEL_INFO)
    return LogLine(
        time=_EPOCH + datetime.timedelta(microseconds=proto.time_ns // 1000),
        level=level.removeprefix("LOG_LEVEL_").lower(),
        message=proto.message,
        fields={field.key: field.value for field in proto.fields},
        worker=proto.worker,
        generation=proto.generation,
    )


class LogReader:
    """What is asked next, what of the answer is shown, and whether that was all."""

    def __init__(
        self,
        name: str,
        worker: str,
        since: datetime.datetime | datetime.timedelta | None,
        tail: int | None,
        follow: bool,
    ):
        if tail is not None and tail < 0:
            raise ValueError(f"tail: {tail} is negative")
        if isinstance(since, datetime.timedelta):
            since = datetime.datetime.now(datetime.timezone.utc) - since
        self.request = logs_pb.ListJobLogsRequest(name=name)
        self.done = False
        self._worker, self._tail, self._follow = worker, tail, follow
        # A time without a zone is a local one.
        self._since_ns = None if since is None else round(since.timestamp() * 1e6) * 1000
        self._ended = False
        self._answered: float | None = None

    def take(self, response: "logs_pb.ListJobLogsResponse") -> list[LogLine]:
        self._answered = time.monotonic()
        shown = []
        for line in response.lines:
            self.request.after_position = max(self.request.after_position, line.position)
            wanted = not self._worker or line.worker == self._worker
            if wanted and (self._since_ns is None or line.time_ns >= self._since_ns):
                shown.append(_line(line))
        if self._tail is not None:
            shown = shown[max(0, len(shown) - self._tail) :]
            self._tail = None  # All that follow.
        # Workers may have more to say just when the job ends.
        self.done = not self._follow or self._ended
        self._ended = event_pb.JobState.Name(response.state).removeprefix("JOB_STATE_").lower() in ENDED
        if self.done and response.dropped > 0:
            warnings.warn(f"{self.request.name}: {response.dropped} lines of its log are not kept", stacklevel=3)
        return shown

    def check(self, error: ServiceError) -> None:
        """Returns if another try is worth it, otherwise raises `error`. What never answered is not tried again."""
        if error.code not in _AGAIN or self._answered is None or time.monotonic() > self._answered + PATIENCE:
            raise error
