"""What the steps of a job were like."""

import dataclasses
from collections.abc import Iterator, Sequence

from .proto import jobs_pb


@dataclasses.dataclass(frozen=True)
class Step:
    """One training step. `seconds` is wall time; a `skipped` step left its update out."""

    step: int
    loss: float
    learning_rate: float
    seconds: float
    skipped: bool


@dataclasses.dataclass(frozen=True, repr=False)
class History(Sequence):
    """Steps, ascending. The planner keeps every step of a job up to 4096; then step 1 and every `stride`-th after it,
    and always the last."""

    steps: tuple[Step, ...]
    stride: int = 1

    @staticmethod
    def from_proto(response: "jobs_pb.ListJobStepsResponse") -> "History":
        steps = (Step(s.step, s.loss, s.learning_rate, s.step_ns / 1e9, s.skipped) for s in response.steps)
        return History(tuple(steps), max(1, response.stride))

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int | slice) -> "Step | History":
        return History(self.steps[index], self.stride) if isinstance(index, slice) else self.steps[index]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def losses(self) -> list[float]:
        return [step.loss for step in self.steps]

    def as_dict(self) -> dict[str, list]:
        """A list per figure: "step", "loss", "learning_rate", "seconds", "skipped"."""
        return {field.name: [getattr(s, field.name) for s in self.steps] for field in dataclasses.fields(Step)}

    def __repr__(self) -> str:
        if not self.steps:
            return "History: no steps"
        first, last = self.steps[0], self.steps[-1]
        every = f", every {self.stride}{'nd' if self.stride == 2 else 'th'} kept" if self.stride > 1 else ""
        return f"History: steps {first.step} to {last.step}{every}, loss {first.loss:.4g} -> {last.loss:.4g}"
