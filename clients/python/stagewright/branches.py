"""Branches of forward on the values of tensors, taken as the user says they always go."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from unittest import mock

from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .errors import ExportError
from .places import place_here


@contextlib.contextmanager
def assumed_branches(assume: Mapping[str, bool]) -> Iterator[list[str]]:
    """While open, where tracing asks for the truth of a tensor, it gets what `assume` has for the line.

    assume: by a part of "file:line: code", the truth value of the tensor there, before any `not`.
    Yields what was assumed, for the graph's description; asserts are assumed to hold. Raises ExportError at the end for
    an entry that no branch asked for.
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
            if key is None and not re.search(r":\d+: assert\b", place):
                raise
            value = True if key is None else bool(assume[key])
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
