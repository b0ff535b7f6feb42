"""Operators of other libraries than PyTorch's, written out in PyTorch's own: the engine has no others.

An operator with a composite kernel, and one whose implementation is Python, is traced on the shapes of the node that
calls it, and the result takes the node's place. A backward of the operator's own must be the derivative of its forward,
which is tried on numbers. What is computed from the values of a tensor cannot be traced; for some such operators there
is a rewrite here.
"""

from collections.abc import Callable, Sequence

import torch
from torch import fx
from torch._library.custom_ops import OPDEFS
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx

from ..errors import ExportError
from .ctc import ctc_as_pytorch
from .gradients import with_gradient
from .places import describe
from .rewrites import add_call, erase_dead

aten = torch.ops.aten

# Sizes of dimensions that depend on the batch, where an operator is tried on numbers.
_TRIAL_SAMPLES = 3
_ALIGNMENT = 16


def inline_custom_operators(program: ExportedProgram) -> None:
    """Replaces every call of an operator that is not ATen's by calls of operators that are."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise ExportError(
                f"{describe(node)}: control flow inside the graph cannot be run; compute both sides and choose with "
                "torch.where(condition, a, b)"
            )
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace in ("aten", "prim", "prims"):
            continue
        implementation = _implementation(node)
        if implementation is not None and node.target.name() not in _REWRITES:
            _inline(program, node, implementation)


def rewrite_known_operators(graph: fx.Graph) -> None:
    """Replaces operators for which a rewrite is known. The graph is not to be run on shapes any more: PyTorch's rules
    for the shapes of what takes their place are narrower than its kernels."""
    rewritten = False
    for node in list(graph.nodes):
        rewrite = _REWRITES.get(node.target.name()) if isinstance(node.target, torch._ops.OpOverload) else None
        if rewrite is not None:
            with graph.inserting_before(node):
                node.replace_all_uses_with(rewrite(graph, node))
            graph.erase_node(node)
            rewritten = True
    if rewritten:
        erase_dead(graph)


def _implementation(node: fx.Node) -> Callable | None:
    """A function of PyTorch's operators that computes what the node does; None if it is not known."""
    operator = node.target
    if _is_composite(operator):
        return operator
    definition = OPDEFS.get(operator.name().removesuffix(".default"))
    return None if definition is None else definition._init_fn


def _inline(program: ExportedProgram, node: fx.Node, implementation: Callable) -> None:
    graph, inputs = program.graph_module.graph, node.all_input_nodes

    def written_out(*values: object) -> object:
        return _called(implementation, node, values)

    composite = _is_composite(node.target)  # It has to be traced where it is taken apart, behind automatic gradients.
    try:
        trace = make_fx(written_out, tracing_mode="symbolic", pre_dispatch=not composite)
        traced = trace(*(n.meta["val"] for n in inputs))
    except Exception as error:
        reason = "it depends on the values of a tensor" if "data-dependent" in str(error) else str(error).split("\n")[0]
        raise ExportError(
            f"{describe(node)}: the implementation of this operator cannot be traced: {reason}; "
            "replace it by PyTorch's own operators"
        ) from error
    if not composite:
        _check_gradients(node, written_out, with_gradient(program, node))
    results = _copy_in(graph, node, traced.graph, inputs)
    if isinstance(node.meta.get("val"), torch.Tensor):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def _copy_in(graph: fx.Graph, node: fx.Node, body: fx.Graph, inputs: list[fx.Node]) -> object:
    """Copies the nodes of `body` before `node`; returns its results."""
    environment = dict(zip((n for n in body.nodes if n.op == "placeholder"), inputs))
    with graph.inserting_before(node):
        for inner in body.nodes:
            if inner.op == "get_attr":
                raise ExportError(f"{describe(node)}: the implementation of this operator holds a tensor of its own")
            if inner.op not in ("placeholder", "output"):
                copied = graph.node_copy(inner, lambda n: environment[n])
                for key in ("nn_module_stack", "stack_trace"):
                    if key in node.meta:
                        copied.meta[key] = node.meta[key]
                environment[inner] = copied
    return fx.map_arg(body.output_node().args[0], lambda n: environment[n])


def _is_composite(operator: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")


def _called(function: Callable, node: fx.Node, values: Sequence[object]) -> object:
    """`function` of the node's arguments, with `values` in place of its input nodes."""
    value_of = dict(zip(node.all_input_nodes, values))
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: value_of[n])
    return function(*args, **kwargs)


def _check_gradients(node: fx.Node, written_out: Callable, dependent: set[fx.Node]) -> None:
    """Raises ExportError unless the operator has the gradients of what is written out in its place."""
    dependent = dependent.intersection(node.all_input_nodes)
    if not dependent:
        return
    trial = [_trial_value(n.meta["val"], n in dependent) for n in node.all_input_nodes]
    differentiable = [t for t in trial if isinstance(t, torch.Tensor) and t.requires_grad]
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            own = _gradients(_called(node.target, node, trial), differentiable)
        except (RuntimeError, NotImplementedError) as error:
            raise ExportError(
                f"{describe(node)}: the operator has no derivative, but gradients reach it "
                f"({str(error).splitlines()[0]}); register one, or detach its inputs"
            ) from error
        torch.manual_seed(0)
        derived = _gradients(written_out(*trial), differentiable)
    for mine, theirs in zip(own, derived):
        if not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4):
            raise ExportError(
                f"{describe(node)}: the operator has its own backward, which differs from the derivative of its "
                "forward and cannot be captured; write it with PyTorch's own operators"
            )


def _gradients(results: object, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of a weighted sum of the results; zeros where none is reached."""
    tensors = [t for t in (results if isinstance(results, (tuple, list)) else [results]) if t.is_floating_point()]
    total = sum((t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)).sum() for t in tensors)
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return [torch.zeros_like(t) for t in inputs]
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros_like(t) if gradient is None else gradient for t, gradient in zip(inputs, found)]


def _trial_value(value: object, requires_grad: bool) -> object:
    """Numbers of the kind and shape of a traced value."""
    if isinstance(value, torch.SymInt):
        return _TRIAL_SAMPLES
    if not isinstance(value, torch.Tensor):
        return value
    shape = [size if isinstance(size, int) else _trial_size(size) for size in value.shape]
    generator = torch.Generator().manual_seed(1)
    if value.dtype.is_floating_point:
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64).to(value.dtype)
        return numbers.requires_grad_(requires_grad)
    return torch.randint(0, 2, shape, generator=generator).to(value.dtype)


def _trial_size(size: torch.SymInt) -> int:
    expression = size.node.expr
    return int(expression.subs({symbol: _TRIAL_SAMPLES for symbol in expression.free_symbols}))


def _grouped_product(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Rows sorted by group, times the matrix of their group; `offs` are the ends of the groups.

    PyTorch's own operator takes 16- and 32-bit floats in rows of multiples of 16 bytes. For others the matrix of its
    group is gathered for every row; rows behind the last group are zero.
    """
    rows, weight, ends = _bound(node, ("input", "weight", "offs"))
    width = weight.meta["val"].shape
    if rows.meta["val"].dtype in (torch.float32, torch.bfloat16, torch.float16):
        if all(size * rows.meta["val"].element_size() % _ALIGNMENT == 0 for size in width[1:]):
            result = graph.call_function(aten._grouped_mm.default, (rows, weight, ends))
            result.meta = dict(node.meta)
            return result

    def emit(operator: torch._ops.OpOverload, *args: object, **kwargs: object) -> fx.Node:
        return add_call(graph, node, operator, args, kwargs)

    ones = emit(aten.ones_like.default, emit(aten.select.int, rows, 1, 0), dtype=ends.meta["val"].dtype)
    number = emit(aten.cumsum.default, ones, 0, dtype=ends.meta["val"].dtype)  # From 1.
    group = emit(aten.searchsorted.Tensor, ends, number)
    chosen = emit(aten.index_select.default, weight, 0, emit(aten.clamp.default, group, None, width[0] - 1))
    product = emit(aten.squeeze.dim, emit(aten.bmm.default, emit(aten.unsqueeze.default, rows, 1), chosen), 1)
    behind = emit(aten.ge.Scalar, group, width[0])
    # Groups end with the rows, and which of them a row is in only chooses its matrix.
    group.meta["known"] = behind.meta["known"] = True
    return emit(aten.masked_fill.Scalar, product, emit(aten.unsqueeze.default, behind, 1), 0.0)


def _bound(node: fx.Node, names: tuple[str, ...]) -> list[fx.Node]:
    """Arguments by their place in the schema, however they are named there."""
    given = list(node.args) + [
        node.kwargs[argument.name]
        for argument in node.target._schema.arguments[len(node.args) :]
        if argument.name in node.kwargs
    ]
    if len(given) != len(names):
        raise ExportError(f"{describe(node)}: {len(given)} arguments instead of {', '.join(names)}")
    return given


_REWRITES = {"transformers::grouped_mm_fallback": _grouped_product, "stagewright::ctc_loss": ctc_as_pytorch}
