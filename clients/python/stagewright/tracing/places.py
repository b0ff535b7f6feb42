"""Where in the user's code something happened."""

import contextlib
import inspect
import pathlib
import re
import traceback
import types
from unittest import mock

import torch
from torch import fx, nn

_OURS = (str(pathlib.Path(torch.__file__).parent), str(pathlib.Path(__file__).parent.parent), contextlib.__file__, "<")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*\n\s*(?P<code>[^\n]*)')


@contextlib.contextmanager
def exact_lines():
    """While open, nodes are traced with the user's innermost line, not only with lines of functions named forward."""

    def innermost(tracer: object, frames: traceback.StackSummary) -> traceback.StackSummary:
        return traceback.StackSummary.from_list([f for f in frames if not f.filename.startswith(_OURS)][-1:])

    with mock.patch.object(fx.proxy.TracerBase, "_filter_traceback_frames", innermost):
        yield


def line_of_error(error: BaseException) -> str:
    """` (file:line: code)` of the innermost frame that is neither PyTorch's nor ours; empty if there is none."""
    return _text(traceback.extract_tb(error.__traceback__))


def place_of_error(error: BaseException) -> str:
    """The same as `file:line: code`."""
    return line_of_error(error)[2:-1]


def place_here() -> str:
    """`file:line: code` of the user's code that is running; empty if none is."""
    return line_here()[2:-1]


def line_here() -> str:
    """The same for the code that is running."""
    return _text(traceback.extract_stack())


def is_users(frame: types.FrameType) -> bool:
    """Whether a frame runs code that is neither PyTorch's nor ours."""
    return not frame.f_code.co_filename.startswith(_OURS)


def module_here(model: nn.Module) -> str:
    """The path of the module of `model` whose code is running; empty if none is, or the model itself."""
    names = {id(module): name for name, module in model.named_modules()}
    frame = inspect.currentframe()
    while frame is not None:
        name = names.get(id(frame.f_locals.get("self")))
        if name is not None:
            return name
        frame = frame.f_back
    return ""


def line_of_node(node: fx.Node) -> str:
    """The same for the code that a node was traced from."""
    frames = [match.group("file", "line", "code") for match in _FRAME.finditer(node.meta.get("stack_trace") or "")]
    frames = [frame for frame in frames if not frame[0].startswith(_OURS)]
    return f" ({frames[-1][0]}:{frames[-1][1]}: {frames[-1][2].strip()})" if frames else ""


def describe(node: fx.Node) -> str:
    """A node as errors name it: its name, its operator, the user's line."""
    target = node.target if isinstance(node.target, (str, torch._ops.OpOverload)) else node.target.__name__
    return f"node '{node.name}' ({target}){line_of_node(node)}"


def _text(frames: traceback.StackSummary) -> str:
    users = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    return f" ({users[-1].filename}:{users[-1].lineno}: {users[-1].line})" if users else ""
