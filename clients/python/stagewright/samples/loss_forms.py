"""A loss in any of the forms people have one, as `loss(output, target)`."""

import copy
import inspect
from collections.abc import Callable

from torch import nn

from ..errors import ExportError
from ..tracing.outputs import returned_loss

# The example target of a loss that reads none: no tensor.
NO_TARGET = ()


def takes_target(loss: Callable | None, targets: object | None) -> bool:
    """False for a loss of the output alone, or the model's own. Raises ExportError for one that fits neither."""
    if loss is not None and not callable(loss):
        raise ExportError(f"the loss is a {type(loss).__name__}, not a function of output and target")
    least, most = (0, 1) if loss is None else _argument_counts(loss)
    if least > 2 or most < 1:
        raise ExportError(f"the loss {_name(loss)} is called as loss(output, target) or loss(output); it fits neither")
    if most == 1 and targets is not None:
        whose = "the model computes its loss itself" if loss is None else "the loss takes the output alone"
        raise ExportError(f"{whose}, so targets= has no reader; leave it out, or pass a loss of output and target")
    return most > 1 and (least > 1 or targets is not None)


def with_two_arguments(loss: Callable | None, reads_target: bool) -> Callable:
    """`loss` as a function of output and target, whichever of them it reads; a module stays one."""
    if loss is None:
        return _model_loss
    if reads_target:
        return loss
    if isinstance(loss, nn.Module):
        return _module_of_output(loss)
    return lambda output, target: loss(output)


def _model_loss(output: object, target: object) -> object:
    return returned_loss(output)


def _module_of_output(loss: nn.Module) -> nn.Module:
    """The same module, with the same parameters, but a forward that is also given a target."""

    class OfOutput(type(loss)):
        def forward(self, output: object, target: object) -> object:
            return super().forward(output)

    OfOutput.__name__ = type(loss).__name__
    shell = copy.copy(loss)
    shell.__class__ = OfOutput
    return shell


def _argument_counts(loss: Callable) -> tuple[int, int]:
    """The fewest and the most positional arguments that `loss` takes; (2, 2) where no signature says so."""
    try:
        parameters = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters.values()
    except (TypeError, ValueError):
        return 2, 2
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return 2, 2
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional), len(positional)


def _name(loss: Callable) -> str:
    return repr(getattr(loss, "__name__", type(loss).__name__))
