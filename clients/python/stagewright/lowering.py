"""From a pure FX graph to the wire form (protos/stagewright/v1/graph.proto)."""

import operator

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from .checkpoint import tied_names
from .errors import ExportError
from .proto import pb
from .samples.loss_terms import Separated
from .samples.sample_kinds import (
    KEYED_DROPOUT,
    Found,
    Kind,
    Layout,
    ancestors,
    batch_total,
    live_nodes,
    roots,
    uses_batch_statistics,
)
from .tracing.capture import Captured, is_virtual, public_name
from .tracing.complex_numbers import refuse_complex_state
from .tracing.diagnosis import no_transforms
from .tracing.places import describe, line_of_node
from .tracing.rewrites import with_scalar_overload

aten = torch.ops.aten

DTYPES = {
    torch.float64: pb.DTYPE_FLOAT64,
    torch.float32: pb.DTYPE_FLOAT32,
    torch.float16: pb.DTYPE_FLOAT16,
    torch.bfloat16: pb.DTYPE_BFLOAT16,
    torch.int64: pb.DTYPE_INT64,
    torch.int32: pb.DTYPE_INT32,
    torch.int16: pb.DTYPE_INT16,
    torch.int8: pb.DTYPE_INT8,
    torch.uint8: pb.DTYPE_UINT8,
    torch.bool: pb.DTYPE_BOOL,
}
_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.preserve_format: "preserve_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}
_OMITTED_KEYWORDS = {"device", "layout", "pin_memory"}


def dtype_of(dtype: torch.dtype, where: str) -> int:
    if dtype not in DTYPES:
        raise ExportError(f"{where}: tensors of {dtype} are not supported")
    return DTYPES[dtype]


class Lowering:
    """One conversion of a captured graph.

    state: parameters and buffers by name; kept: the names that the module's state dict has.
    """

    def __init__(self, captured: Captured, separated: Separated, state: dict[str, torch.Tensor], kept: frozenset[str], name: str):
        self._captured = captured
        self._separated = separated
        self._batch = captured.batch
        self._fx_graph = captured.program.graph
        self.graph = pb.Graph(name=name, loss_reduction=separated.reduction)
        # The module's own, by name.
        self.tensors: dict[str, torch.Tensor] = {}
        self._arguments: dict[fx.Node, pb.Argument] = {}
        self._nodes = self.graph.nodes
        self._add_state(state, kept)
        self._bind_placeholders(state)

    # State and inputs.

    def _add_state(self, state: dict[str, torch.Tensor], kept: frozenset[str]) -> None:
        """One Parameter per tensor of the module, in the module's order; further names become aliases. Buffers that are
        not `kept` in checkpoints and that nothing changes are constants."""
        changed = {public_name(name) for name in self._captured.states}
        self._index_of: dict[int, int] = {}
        for name, tensor in state.items():
            if tensor.is_complex():
                if isinstance(tensor, torch.nn.Parameter) or name in kept:
                    raise refuse_complex_state(name, tensor)
            elif id(tensor) in self._index_of:
                self.graph.parameters[self._index_of[id(tensor)]].aliases.append(name)
            else:
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                self._add_parameter(name, tensor, is_parameter and tensor.requires_grad, not is_parameter)
                if is_parameter or name in kept or name in changed or is_virtual(tensor):
                    self.tensors[name] = tensor
                else:
                    self.graph.parameters[-1].data = _elements(tensor)

    def _add_parameter(self, name: str, tensor: torch.Tensor, trainable: bool, buffer: bool) -> None:
        self._index_of[id(tensor)] = len(self.graph.parameters)
        dtype = dtype_of(tensor.dtype, f"parameter '{name}'")
        self.graph.parameters.add(name=name, dtype=dtype, shape=list(tensor.shape), trainable=trainable, buffer=buffer)

    def _add_constant(self, target: str) -> int:
        """A tensor that forward makes from numbers: no module holds it, so the graph does."""
        name = target.removeprefix("model.")
        if any(parameter.name == name for parameter in self.graph.parameters):
            name = target
        tensor = self._captured.program.constants[target]
        if id(tensor) not in self._index_of:
            self._add_parameter(name, tensor, trainable=False, buffer=True)
            self.graph.parameters[-1].data = _elements(tensor)
        return self._index_of[id(tensor)]

    def _bind_placeholders(self, state: dict[str, torch.Tensor]) -> None:
        program = self._captured.program
        live = live_nodes(program.graph)
        names = iter(self._captured.input_names)
        for spec, node in zip(program.graph_signature.input_specs, program.graph.find_nodes(op="placeholder")):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                self._arguments[node] = pb.Argument(parameter=self._index_of[id(state[public_name(spec.target)])])
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                if node in live:
                    self._arguments[node] = pb.Argument(parameter=self._add_constant(spec.target))
            elif spec.kind is InputKind.USER_INPUT and isinstance(node.meta.get("val"), torch.Tensor):
                name, is_target = next(names)
                if node in live:
                    self._arguments[node] = pb.Argument(input=len(self.graph.inputs))
                    role = pb.Input.ROLE_TARGET if is_target else pb.Input.ROLE_FEATURE
                    meta = self._meta(node.meta["val"], Layout(0, 1), f"input '{name}'")
                    self.graph.inputs.add(name=name, role=role, meta=meta)
            elif spec.kind is not InputKind.USER_INPUT:
                raise ExportError(f"input '{node.name}': {spec.kind.name.lower()} inputs cannot be captured")

    # Nodes.

    def run(self) -> "pb.Graph":
        self._lower_totals()
        states, loss, prediction = roots(self._fx_graph)
        results = [node for node in (*states, loss, prediction) if node is not None]
        live = ancestors(results, through_totals=False)
        for node in self._fx_graph.nodes:
            if node in live and node.op == "call_function":
                self._lower(node)
        self._finish()
        return self.graph

    def _lower_totals(self) -> None:
        """What is summed over a mini-batch, and what that needs, in a list of its own."""
        marks = [node for node in self._fx_graph.nodes if node.target is batch_total]
        needed = ancestors([mark.args[0] for mark in marks])
        outside, self._arguments, self._nodes = self._arguments, dict(self._arguments), self.graph.totals.nodes
        for node in self._fx_graph.nodes:
            if node in needed and node.op == "call_function":
                self._lower(node)
        values = [self._reference(mark.args[0], f"the total '{mark.name}'") for mark in marks]
        self._arguments, self._nodes = outside, self.graph.nodes
        for mark, value in zip(marks, values):
            self._arguments[mark] = pb.Argument(total=len(self.graph.totals.values))
            self.graph.totals.values.append(value)

    def _finish(self) -> None:
        states, loss, prediction = roots(self._fx_graph)
        self.graph.loss.CopyFrom(self._reference(loss, "the loss"))
        if prediction is not None and self._arguments[prediction].HasField("value"):
            value = self._arguments[prediction].value
            sizes = [(size.scale, size.offset) for size in self._nodes[value.node].outputs[value.output].shape]
            if sizes and sizes[0] == (1, 0) and not any(scale for scale, _ in sizes[1:]):  # A row for each sample.
                self.graph.prediction.CopyFrom(value)
        indices = {parameter.name: index for index, parameter in enumerate(self.graph.parameters)}
        indices |= {alias: i for i, parameter in enumerate(self.graph.parameters) for alias in parameter.aliases}
        for name, node in zip(self._captured.states, states):
            index = indices[public_name(name)]
            self.graph.state_updates.add(parameter=index, value=self._new_state(node, self.graph.parameters[index]))
        used: set[int] = set()
        for node in self.graph.nodes:
            for argument in [*node.args, *(entry.value for entry in node.kwargs)]:
                _collect_parameters(argument, used)
        for index, parameter in enumerate(self.graph.parameters):
            parameter.trainable = parameter.trainable and index in used
        if self._batch.least > 1:
            self.graph.samples.least = self._batch.least
        if self._batch.most is not None:
            self.graph.samples.most = self._batch.most

    def _new_state(self, node: fx.Node, parameter: "pb.Parameter") -> "pb.ValueRef":
        """The value that a buffer takes, in its own type; a copy of what is no operator's result."""
        argument = self._arguments[node]
        if argument.HasField("value"):
            meta = self._nodes[argument.value.node].outputs[argument.value.output]
            if meta.dtype == parameter.dtype:
                return argument.value
        meta = pb.TensorMeta(dtype=parameter.dtype, shape=[pb.SymInt(offset=size) for size in parameter.shape])
        name = f"{node.name}_as_{parameter.name.replace('.', '_')}"
        cast = [argument, pb.Argument(dtype=parameter.dtype), pb.Argument(boolean=False), pb.Argument(boolean=True)]
        self._nodes.append(pb.Node(name=name, target="aten.to.dtype", args=cast, outputs=[meta]))
        return pb.ValueRef(node=len(self._nodes) - 1)

    def _reference(self, node: fx.Node, what: str) -> "pb.ValueRef":
        argument = self._arguments[node]
        if not argument.HasField("value"):
            raise ExportError(f"{what} is an input or a parameter, not the result of an operator")
        return argument.value

    def _lower(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        where = describe(node)
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return  # Written where it is used.
        if node.target is batch_total:
            return  # Among the totals.
        if node.target is operator.getitem:
            self._lower_getitem(node)
            return
        if isinstance(value, (float, torch.SymFloat, bool, torch.SymBool)):
            raise ExportError(
                f"{where}: a number computed from data or from the batch size cannot be captured; compute with tensors "
                "instead of their values, with sizes of a sample instead of the batch's, and leave means over samples to "
                "the loss"
            )
        if "functorch" in getattr(node.target, "__module__", ""):
            raise ExportError(no_transforms(line_of_node(node)))
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise ExportError(f"{where}: not an ATen operator, so the engine could not run it")
        same = self._same_as(node)
        if same is not None:
            self._arguments[node] = self._arguments[same]
            return
        self._emit(node, where)

    def _same_as(self, node: fx.Node) -> fx.Node | None:
        """The argument that `node` merely passes on: dropout that drops nothing, copies of constants."""
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if node.target in KEYED_DROPOUT and (node.args[2] is False or node.args[1] == 0):
            return source
        if node.target in (aten.lift_fresh_copy.default, aten.lift_fresh.default, aten.detach.default):
            argument = self._arguments.get(source)
            if argument is not None and argument.HasField("parameter"):
                return source if self.graph.parameters[argument.parameter].buffer else None
        return None

    def _lower_getitem(self, node: fx.Node) -> None:
        source, index = node.args
        argument = self._arguments[source]
        if not isinstance(index, int) or not argument.HasField("value"):
            raise ExportError(f"node '{node.name}': an element of '{source.name}' is not a tensor output")
        count = len(self._nodes[argument.value.node].outputs)
        self._arguments[node] = pb.Argument(value=pb.ValueRef(node=argument.value.node, output=index % count))

    def _emit(self, node: fx.Node, where: str) -> None:
        value = node.meta.get("val")
        outputs = [value] if isinstance(value, torch.Tensor) else value
        if (
            not isinstance(outputs, (list, tuple))
            or not outputs
            or not all(isinstance(v, torch.Tensor) for v in outputs)
        ):
            raise ExportError(f"{where}: its result is not a tensor or a list of tensors, so it cannot be captured")
        target, args, kwargs = _without_device(node)
        found = self._separated.kinds.get(node)
        kinds = found if isinstance(found, list) else [found] * len(outputs)
        result = pb.Node(
            name=node.name,
            target=str(target),
            args=[self._argument(arg, where) for arg in args],
            outputs=[self._meta(v, kind, where) for v, kind in zip(outputs, kinds)],
            module=module_path(node),
            batch_dependent=uses_batch_statistics(node) or node in self._separated.coupled,
        )
        for name, arg in sorted(kwargs.items()):
            result.kwargs.add(name=name, value=self._argument(arg, where))
        self._arguments[node] = pb.Argument(value=pb.ValueRef(node=len(self._nodes)))
        self._nodes.append(result)

    def _meta(self, tensor: torch.Tensor, kind: Found | None, where: str) -> "pb.TensorMeta":
        shape = [self._batch.to_proto(size, where) for size in tensor.shape]
        meta = pb.TensorMeta(dtype=dtype_of(tensor.dtype, where), shape=shape)
        batched = [dim for dim, size in enumerate(shape) if size.scale]
        if not batched:
            return meta
        if not isinstance(kind, Layout):
            meta.mixed = True
        elif kind != Layout(0, 1) or shape[0].scale != 1:
            meta.layout.dim, meta.layout.outer = kind.dim, kind.outer
        return meta

    def _argument(self, value: object, where: str) -> "pb.Argument":
        value = _number(value)
        if isinstance(value, fx.Node):
            return self._arguments[value]
        if value is None:
            return pb.Argument(none=True)
        if isinstance(value, bool):
            return pb.Argument(boolean=value)
        if isinstance(value, (int, torch.SymInt)):
            return pb.Argument(integer=self._batch.to_proto(value, where))
        if isinstance(value, float):
            return pb.Argument(real=value)
        if isinstance(value, str):
            return pb.Argument(text=value)
        if isinstance(value, torch.dtype):
            return pb.Argument(dtype=dtype_of(value, where))
        if isinstance(value, torch.memory_format):
            return pb.Argument(memory_format=_MEMORY_FORMATS[value])
        if isinstance(value, (list, tuple)):
            return pb.Argument(list=pb.ArgumentList(items=[self._argument(item, where) for item in value]))
        raise ExportError(f"{where}: an argument of type {type(value).__name__} cannot be written to a graph")


def _elements(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def wrapper_state(model: torch.nn.Module, loss: object) -> dict[str, torch.Tensor]:
    """Every parameter and buffer by public name; tied tensors appear under each of their names, the first one first."""
    state: dict[str, torch.Tensor] = {}
    modules = [("", model)] + ([("loss.", loss)] if isinstance(loss, torch.nn.Module) else [])
    for prefix, module in modules:
        tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
            module.named_buffers(remove_duplicate=False)
        )
        for names in tied_names(module):
            for name in names:
                if prefix + name in state:
                    raise ExportError(f"'{prefix + name}' names a tensor of the model and one of the loss")
                state[prefix + name] = tensors[name]
    return state


def module_path(node: fx.Node) -> str:
    """The nn.Module a node came from: the model's path, or `loss`."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path == "model" or path.startswith(("model.", "loss"))]
    if not paths:
        return "loss" if stack else ""
    return "" if paths[-1] == "model" else public_name(paths[-1]).split("@")[0]


def _without_device(node: fx.Node) -> tuple[torch._ops.OpOverload, tuple, dict]:
    """The call without device, layout and pinning; the default dtype of a factory operator is made explicit."""
    target, args = node.target, node.args
    kwargs = {name: value for name, value in node.kwargs.items() if name not in _OMITTED_KEYWORDS}
    if target is aten.to.device:
        target, args = aten.to.dtype, (args[0], *args[2:])
    names = {argument.name for argument in target._schema.arguments}
    reads_tensors = any(isinstance(n.meta.get("val"), torch.Tensor) for n in node.all_input_nodes)
    if {"device", "dtype"} <= names and not reads_tensors and kwargs.get("dtype") is None:
        kwargs["dtype"] = node.meta["val"].dtype
    return with_scalar_overload(target, tuple(map(_number, args))), args, kwargs


def _number(value: object) -> object:
    """An argument's number if it is one that the graph computes from the batch size, else the argument."""
    traced = value.meta.get("val") if isinstance(value, fx.Node) else None
    return traced if isinstance(traced, (int, torch.SymInt)) else value


def _collect_parameters(argument: "pb.Argument", found: set[int]) -> None:
    if argument.HasField("parameter"):
        found.add(argument.parameter)
    elif argument.HasField("list"):
        for item in argument.list.items:
            _collect_parameters(item, found)


def refuse_randomness(graph: fx.Graph) -> None:
    """ExportError for an operator that draws random numbers other than dropout, which is keyed by sample."""
    live = live_nodes(graph)
    for node in graph.nodes:
        if node in live and isinstance(node.target, torch._ops.OpOverload):
            _check_random(node, describe(node))


def _check_random(node: fx.Node, where: str) -> None:
    if node.target in KEYED_DROPOUT or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return
    given = dict(zip((a.name for a in node.target._schema.arguments), node.args)) | node.kwargs
    defaults = {a.name: a.default_value for a in node.target._schema.arguments if a.has_default_value()}
    for name in ("dropout_p", "dropout"):
        if name in defaults or name in given:
            if given.get(name, defaults.get(name)) == 0 or given.get("train") is False:
                return
            raise ExportError(
                f"{where}: dropout inside this operator depends on how the batch is cut; set its dropout to 0 "
                "and use nn.Dropout, which is keyed by sample"
            )
    if given.get("training", defaults.get("training")) is False:
        return
    raise ExportError(
        f"{where}: random numbers drawn in forward depend on how the batch is cut; use nn.Dropout, or pass them "
        "as an input of the model, and make layers in __init__"
    )
