"""What can go wrong, one class per cause a caller may want to tell apart."""


class StagewrightError(Exception):
    """Base of every error of this package. The message names what is wrong and where."""


class ExportError(StagewrightError):
    """The model, its loss or its example inputs cannot be captured."""


class GraphFileError(StagewrightError):
    """A graph file is missing, truncated or corrupt."""


class CheckpointError(StagewrightError):
    """A checkpoint does not fit the model."""


class DatasetError(StagewrightError):
    """The arrays given do not form a data set."""


class PlanFileError(StagewrightError):
    """A file of a plan cannot be read, or is of another graph."""


class FrameworkError(StagewrightError):
    """Another framework has no way to say what a plan does."""
