"""What can go wrong, one class per cause a caller may want to tell apart."""


class StagewrightError(Exception):
    """Base of every error of this package. The message names what is wrong and where."""


class ExportError(StagewrightError):
    """The model, its loss or its example inputs cannot be captured."""


class GraphFileError(StagewrightError):
    """A graph file is missing, truncated or corrupt."""


class PlanFileError(StagewrightError):
    """A plan file is missing or holds no plan."""


class CheckpointError(StagewrightError):
    """A checkpoint does not fit the model."""


class DatasetError(StagewrightError):
    """The arrays given do not form a data set."""


class VerificationError(StagewrightError):
    """A plan does not compute what a single device does."""


class OptimizerError(StagewrightError):
    """The optimizer, or a setting of it, is not one that workers have."""


class ServiceError(StagewrightError):
    """The planner refused a call or failed; the message is its own. `code` is gRPC's, by name; `retry_after` says after
    how many seconds the call may succeed, where the planner says so."""

    retry_after: float | None = None

    def __init__(self, message: str, code: str = "UNKNOWN"):
        super().__init__(message)
        self.code = code


class UnavailableError(ServiceError):
    """The planner cannot do that for the moment: it is shutting down, does not lead, or cannot write its state."""


class UnreachableError(UnavailableError):
    """No planner answers at the address."""


class DeadlineError(ServiceError):
    """The call took longer than its timeout."""


class NotFoundError(ServiceError):
    """There is no job, or no planner algorithm, of that name."""


class InvalidError(ServiceError):
    """A field of the request is wrong; the message names it."""


class RefusedError(ServiceError):
    """The caller may not do that, or does not say who it is, or the call would leave this machine in the clear."""

    def __init__(self, message: str, code: str = "UNAUTHENTICATED"):
        super().__init__(message, code)


class NoPlanError(StagewrightError):
    """Planning ended without a plan. `termination` is "infeasible" or "limit"."""

    def __init__(self, message: str, termination: str):
        super().__init__(message)
        self.termination = termination


class JobError(StagewrightError):
    """A job failed or was cancelled. `job` is its last state."""

    def __init__(self, message: str, job: object):
        super().__init__(message)
        self.job = job


class FrameworkError(StagewrightError):
    """Another framework has no way to say what a plan does."""
