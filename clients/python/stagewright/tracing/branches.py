"""Branches of forward on the values of tensors, taken as the user says they always go, or past an error.

A branch in which code does nothing but raise is a check, like an assert: it is assumed not to be taken. So are those of
PyTorch's own functions, which no user can write otherwise.
"""

import ast
import contextlib
import functools
import pathlib
import re
import sys
import types
from collections.abc import Iterator, Mapping
from unittest import mock

import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..errors import ExportError
from .places import place_here

_TORCH = str(pathlib.Path(torch.__file__).parent) + "/"
# Where PyTorch's own functions are written as models are.
_FUNCTIONS = (_TORCH + "nn/functional.py", _TORCH + "nn/modules/", _TORCH + "distributions/")


@contextlib.contextmanager
def assumed_branches(assume: Mapping[str, bool]) -> Iterator[list[str]]:
    """While open, where tracing asks for the truth of a tensor, it gets what `assume` has for the line.

    assume: by a part of "file:line: code", the truth value of the tensor there, before any `not`.
    Yields what was assumed, for the graph's description; asserts are assumed to hold, and branches that only raise not to
    be taken. Raises ExportError at the end for an entry that no branch asked for.
    """
    notes: list[str] = []
    asked: set[str] = set()
    original = SymNode.guard_bool

    def guard_bool(node: SymNode, file: str, line: int) -> bool:
        try:
            return original(node, file, line)
        except GuardOnDataDependentSymNode:
            place = place_here()
            key = next((key for key in assume if re.search(re.escape(key) + r"(?!\d)", place)), None)
            if key is not None:
                value = bool(assume[key])
            elif re.search(r":\d+: assert\b", place):
                value = True
            else:
                value, place = _past_an_error()
                if value is None:
                    raise
            asked.add(key)
            note = f"{place.split(': ')[0].rsplit('/', 1)[-1]} is {value}"
            if note not in notes:
                notes.append(note)
            return value

    with mock.patch.object(SymNode, "guard_bool", guard_bool):
        yield notes
    unused = [key for key in assume if key not in asked]
    if unused:
        raise ExportError(f"assume= names '{unused[0]}', where forward does not branch on the values of a tensor")


def _past_an_error() -> tuple[bool | None, str]:
    """The truth of the tensor now asked for with which its code does not raise, and where it is; None if it is asked for
    anything else than a check."""
    frame = _asking_frame()
    if frame is None:
        return None, ""
    test = _check_at(frame.f_code.co_filename, frame.f_lineno)
    wanted = {None} if test is None else _truths(test, False)
    return (wanted.pop() if len(wanted) == 1 else None), f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _asking_frame() -> types.FrameType | None:
    """The running code of a model, or of one of PyTorch's functions."""
    frame, ours = sys._getframe(), str(pathlib.Path(__file__).parent.parent) + "/"
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_FUNCTIONS) or not name.startswith((_TORCH, ours, "<")):
            return frame
        frame = frame.f_back
    return None


@functools.lru_cache
def _checks(file: str) -> list[ast.expr]:
    """The tests of all branches of a file in which it only raises."""
    try:
        tree = ast.parse(pathlib.Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    return [node.test for node in ast.walk(tree) if isinstance(node, ast.If) and _only_raises(node.body)]


def _only_raises(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise) and all(isinstance(s, (ast.Assign, ast.Expr)) for s in body[:-1])


def _check_at(file: str, line: int) -> ast.expr | None:
    found = [test for test in _checks(file) if test.lineno <= line <= (test.end_lineno or test.lineno)]
    return found[0] if len(found) == 1 else None


def _truths(test: ast.expr, wanted: bool) -> set[bool]:
    """What the parts of a test that may be asked for must be, so that the whole is as wanted."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _truths(test.operand, not wanted)
    if isinstance(test, ast.BoolOp):
        return set().union(*(_truths(value, wanted) for value in test.values))
    return {wanted}
