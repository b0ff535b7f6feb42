"""What to say when a model cannot be traced."""

import contextlib
import inspect
import re
from collections.abc import Iterator
from unittest import mock

import sympy
import torch
from torch import nn
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from ..errors import ExportError
from .places import line_here, line_of_error, place_of_error


@contextlib.contextmanager
def fixed_sizes() -> Iterator[list[str]]:
    """While open, notes the lines of the user's code at which a symbolic size becomes a number."""
    lines: list[str] = []
    replace, guard_int, guard_float = ShapeEnv._set_replacement, SymNode.guard_int, SymNode.guard_float

    def note(becomes_a_number: bool) -> None:
        if becomes_a_number and line_here():
            lines.append(line_here())

    def noted_replacement(env: ShapeEnv, symbol: sympy.Symbol, value: sympy.Basic, *rest: object) -> None:
        note(value.is_number)
        replace(env, symbol, value, *rest)

    def noted_int(node: SymNode, *place: object) -> int:
        note(bool(node.expr.free_symbols))
        return guard_int(node, *place)

    def noted_float(node: SymNode, *place: object) -> float:
        note(bool(node.expr.free_symbols))
        return guard_float(node, *place)

    with (
        mock.patch.object(ShapeEnv, "_set_replacement", noted_replacement),
        mock.patch.object(SymNode, "guard_int", noted_int),
        mock.patch.object(SymNode, "guard_float", noted_float),
    ):
        yield lines


def explain(error: Exception, fixed: list[str] | None = None, escapes: dict[str, str] | None = None) -> str:
    """One sentence on what the tracer stumbled over, with the line of the user's code and what to do.

    fixed: the lines that fixed a size. escapes: those at which values went past the tracer, by how.
    """
    text = str(error).strip()
    line = line_of_error(error)
    if "fake tensor in the exported program constant" in text:
        return _escaped(escapes or {})
    if any(phrase in text for phrase in _TRANSFORMS):
        return no_transforms(line)
    if "unhashable type: non-nested SymInt" in text:
        return (
            f"forward looks up the batch size in a dictionary, a set or a cache{line}; micro-batches have fewer samples: "
            "look up sizes of a sample instead"
        )
    if "specialized it to be a constant" in text or "Constraints violated" in text:
        line = line or (fixed[0] if fixed else "")
        return (
            f"the model fixes or restricts the batch size{line}: it uses it as a Python number, as len(x) and a loop over "
            "the samples do, cuts the batch in parts, or compares samples with each other. Take it as x.shape[0], which "
            "may be any number. Micro-batches have fewer samples: compute what is to be the same in all "
            "of them from sizes of a sample, and leave means over samples to the loss"
        )
    if "data-dependent" in text:
        place = place_of_error(error).split(": ")[0].rsplit("/", 1)[-1] or "FILE:LINE"
        return (
            f"the model's course, or a shape in it, depends on the values of a tensor{line}; write a branch as "
            "torch.where(condition, a, b) and a selection as a product with a mask, or, where it always goes one way, "
            f'pass assume={{"{place}": True}} (or False), the truth of the tensor there'
        )
    if any(phrase in text for phrase in ("Device Propagation", "two different devices", "on the same device")):
        return (
            f"forward puts tensors on a device of its own choice{line}; the plan decides about devices, so leave moves "
            "out and make new tensors with device=x.device"
        )
    if "sparse" in text.lower():
        return f"forward computes with a sparse tensor{line}, which cannot be captured; keep a dense one (.to_dense())"
    text = text.split("\n\n")[0]
    if re.fullmatch(r"aten\.\w+\.\w+", text):
        return (
            f"the operator {text}, for tensors as forward gives it{line}, cannot be captured (as those of sparse and "
            "quantized tensors); compute with others, on dense tensors"
        )
    return re.sub(r"\bs\d+\b", "batch", text) + line


# What errors of functorch's own tensors say.
_TRANSFORMS = ("functorch tensor", "'Tensor' object has no attribute 'constant'")


def no_transforms(line: str) -> str:
    return (
        f"transforms of torch.func (grad, vmap, jvp, jacrev) cannot be captured{line}; write what they compute with "
        "operators on whole batches"
    )


def _escaped(escapes: dict[str, str]) -> str:
    """Values of the graph came back to it by a way that the tracer does not follow."""
    if "torch.autograd.grad" in escapes:
        return (
            f"forward asks for gradients with torch.autograd.grad{escapes['torch.autograd.grad']}, as gradient penalties, "
            "physics-informed networks and forces from energies do; that cannot be captured. Write the derivative with "
            "operators, or leave the penalty out"
        )
    if ".data" in escapes:
        return (
            f"forward works on the .data of a tensor{escapes['.data']}, which cannot be captured; only the optimizer may "
            "change a parameter, and other values are computed as new tensors, from x.detach() where no gradient is to pass"
        )
    return (
        "values of the graph come back to it by a way that the tracer does not follow, such as gradients that forward asks "
        "for, .data, or tensors kept in Python; compute with operators on the tensors themselves"
    )


def reading_of(model: nn.Module, args: tuple) -> str:
    """How several positional inputs were read, for errors that may come from their order."""
    if len(args) < 2:
        return ""
    names = list(inspect.signature(model.forward).parameters)[: len(args)]
    return f"; the inputs were read as {', '.join(map(repr, names))}; pass a dictionary to name them"


def refuse_what_fails_by_itself(wrapper: nn.Module, example: tuple) -> None:
    """Raises ExportError if the model, or the loss, fails on the example without being traced.

    wrapper: the model with its loss, `model` being the former. State that forward changes is put back. What has no
    data is not run.
    """
    if any(tensor.is_meta or not tensor.device.type == "cpu" for tensor in _state(wrapper)):
        return
    if any(type(tensor) not in (torch.Tensor, nn.Parameter) for tensor in _state(wrapper)):
        return
    model = wrapper.model
    before = [(buffer, buffer.clone()) for buffer in wrapper.buffers()]
    finished = []
    hook = model.register_forward_hook(lambda *_: finished.append(True))
    try:
        with torch.random.fork_rng(devices=[]):  # With gradients, which forward may ask for.
            wrapper(*pytree.tree_map_only(torch.Tensor, torch.clone, example))
    except ExportError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}{line_of_error(error)}"
        if finished:
            raise ExportError(f"the loss itself fails on the model's output: {reason}") from error
        raise ExportError(
            f"{type(model).__name__} itself fails on the example inputs: {reason}{reading_of(model, example[0])}"
        ) from error
    finally:
        hook.remove()
        with torch.no_grad():
            for buffer, value in before:
                buffer.resize_(value.shape).copy_(value)  # Forward may have given it another size.


def _state(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]
