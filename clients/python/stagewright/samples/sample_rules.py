"""Where the samples of each value lie, by following the batch dimension through operators.

For models that cannot be run here (they have no data, or are larger than memory). What no rule speaks of is mixed: it is
never cut. Where a model can be run, trial.py decides; on those the rules must say the same or less.
"""

import operator

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ..tracing.capture import Captured
from .pieces import scales_by_frequency
from .sample_kinds import Found, Kind, Kinds, Layout, batch_total, live_nodes

aten = torch.ops.aten

# Reorder or rename elements without a sum: the result holds them in the operand's order, read row by row.
_RESHAPES = {"view", "reshape", "flatten", "unflatten", "_unsafe_view", "view_as", "reshape_as"}
# The batch dimension goes where its size goes; `dim` arguments name other dimensions, or the result has no place for it.
_DIMENSION_WISE = {
    "permute", "transpose", "t", "movedim", "unsqueeze", "squeeze", "expand", "expand_as", "clone", "contiguous",
    "detach", "alias", "to", "_to_copy", "type_as", "softmax", "_softmax", "log_softmax", "layer_norm", "native_layer_norm", "rms_norm",
    "group_norm", "instance_norm", "sum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "argmax", "argmin", "cumsum",
    "cumprod", "topk", "sort", "norm", "linalg_vector_norm", "std", "var", "var_mean", "any", "all", "select", "unbind", "split",
    "split_with_sizes", "chunk", "narrow", "flip", "roll", "cat", "stack", "gather", "scatter", "scatter_add", "index_select", "pad",
    "constant_pad_nd", "linear", "dropout", "feature_dropout", "alpha_dropout", "conv1d", "conv2d", "conv3d",
    "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "max_pool1d", "max_pool2d", "max_pool3d",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "embedding", "scaled_dot_product_attention", "upsample_nearest2d", "upsample_bilinear2d",
    "upsample_nearest1d", "pixel_shuffle", "pixel_unshuffle", "unfold", "repeat", "repeat_interleave", "tile", "batch_norm", "one_hot", "tril",
    "triu", "glu", "cosine_similarity", "lstm", "gru", "rnn_tanh", "rnn_relu", "normalize", "masked_fill", "diff", "logcumsumexp",
    "celu", "hardswish", "mish", "softplus", "log_sigmoid_forward", "rsub", "floor_divide", "prelu", "hardtanh", "relu6", "threshold", "rot90", "broadcast_to", "numpy_T", "mT", "addcmul",
}  # fmt: skip
# Hold the same elements in another shape or type.
_COPIES = {"unsqueeze", "squeeze", "expand", "permute", "transpose", "clone", "contiguous", "detach", "alias", "to", "_to_copy"}
_PRODUCTS = {"matmul", "bmm", "mm", "baddbmm", "addmm"}
_FACTORIES = {"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}  # fmt: skip
_ELEMENT_LOSSES = {
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "kl_div", "poisson_nll_loss", "soft_margin_loss",
}  # fmt: skip
_LINEAR_OF_SCALARS = {"neg", "mul", "div", "clone", "detach", "alias", "to", "view", "reshape", "squeeze", "_to_copy"}


def kinds_by_rules(captured: Captured) -> Kinds:
    return _Rules(captured).run()


class _Rules:
    def __init__(self, captured: Captured):
        self._batch = captured.batch
        self._graph = captured.program.graph_module.graph
        self._inputs = set()
        specs = captured.program.graph_signature.input_specs
        for spec, node in zip(specs, self._graph.find_nodes(op="placeholder")):
            if spec.kind is InputKind.USER_INPUT:
                self._inputs.add(node)
        self._kinds: Kinds = {}
        # Of values that number the samples of the batch, 0 to samples - 1: the dimension along which they do. Their place
        # for each sample holds none of it, so their kind is mixed.
        self._numbers: dict[fx.Node, int] = {}

    def run(self) -> Kinds:
        live = live_nodes(self._graph)
        for node in self._graph.nodes:
            if node in live:
                self._kinds[node] = self._find(node)
        return self._kinds

    def _find(self, node: fx.Node) -> Found | None:
        traced = node.meta.get("val")
        if node.op == "placeholder":
            return Layout(0, 1) if node in self._inputs and isinstance(traced, torch.Tensor) else Kind.CONSTANT
        if node.target is batch_total:
            return Kind.CONSTANT
        if node.target is operator.getitem:
            found = self._kinds.get(node.args[0])
            return found[node.args[1]] if isinstance(found, list) else found
        if scales_by_frequency(node):
            return [Kind.MIXED] * len(traced) if isinstance(traced, (list, tuple)) else Kind.MIXED
        if isinstance(traced, torch.Tensor):
            return self._result(node, traced)
        if isinstance(traced, (list, tuple)) and all(isinstance(item, torch.Tensor) for item in traced):
            return [self._result(node, item, position) for position, item in enumerate(traced)]
        return None

    def _result(self, node: fx.Node, traced: torch.Tensor, position: int = 0) -> Layout | Kind:
        name = node.target._schema.name.removeprefix("aten::") if hasattr(node.target, "_schema") else ""
        place = self._batch_place(traced)
        sources = [source for source in node.all_input_nodes if self._kinds.get(source) is not None]
        kinds = [self._kinds[source] for source in sources]
        if place is not None and place[1:] == (1,) and self._is_number_of_sample(node, name, traced, place):
            self._numbers[node] = place[0]
            return Kind.MIXED
        if name == "index" and self._reads_own_rows(node) and place is not None and place[1:] == (1,):
            return Layout(place[0], 1)
        if place is None or any(kind is Kind.MIXED for kind in kinds):
            return Kind.MIXED
        if all(kind is Kind.CONSTANT for kind in kinds):
            return self._of_constants(node, name, place)
        if place == ():
            return self._batchless(node, name, kinds)
        if any(isinstance(kind, Kind) and kind is not Kind.CONSTANT for kind in kinds):
            return Kind.MIXED
        operands = [(source, kind) for source, kind in zip(sources, kinds) if isinstance(kind, Layout)]
        if name in _RESHAPES:
            return self._reshaped(operands[0], traced, place)
        if name in ("slice", "split", "chunk", "split_with_sizes", "narrow") and self._cuts_batch(operands[0], traced):
            return self._part_of_batch(node, name, operands[0][1], place, position)
        if name == "cat" and self._axis(node, 1, traced.dim()) == place[0]:
            return self._joined(operands, place, len(node.args[0]))
        if name == "einsum":
            return self._einsum(node, place)
        if name == "ctc_loss":  # Scores have the samples in their second dimension, all else in its first.
            lie = all(kind == Layout(1 if source is node.args[0] else 0, 1) for source, kind in operands)
            return Layout(0, 1) if lie else Kind.MIXED
        if name in _PRODUCTS:
            return self._product(operands, place, traced)
        known = name in _DIMENSION_WISE or name == "slice" or self._is_pointwise(node)
        if known or name in _FACTORIES or name in ("where", "index", "masked_fill", "stack"):
            return self._kept(node, name, operands, traced, place)
        return Kind.MIXED

    def _batch_place(self, traced: torch.Tensor) -> tuple | None:
        """(dimension, scale) of the one that depends on the batch, () if none does, None if that is not so simple."""
        sizes = [self._batch.affine_or_none(size) for size in traced.shape]
        if None in sizes:
            return None
        batched = [(dim, scale, offset) for dim, (scale, offset) in enumerate(sizes) if scale]
        if not batched:
            return ()
        if len(batched) > 1 or batched[0][2]:
            return None
        return batched[0][:2]

    def _of_constants(self, node: fx.Node, name: str, place: tuple) -> Layout | Kind:
        """What reads no sample can depend on their number."""
        sized = any(isinstance(source.meta.get("val"), (int, torch.SymInt)) for source in node.all_input_nodes)
        if place == ():
            if not sized:
                return Kind.CONSTANT
            return Kind.SUM if name == "full" and node.args[0] == [] else Kind.MIXED
        return Layout(place[0], 1) if name in _FACTORIES or name.startswith("expand") or name == "repeat" else Kind.MIXED

    def _is_number_of_sample(self, node: fx.Node, name: str, traced: torch.Tensor, place: tuple) -> bool:
        if name == "arange":
            numbers = [argument for argument in node.args if not isinstance(argument, (torch.dtype, torch.device))]
            return len(numbers) == 1 or numbers[0] == 0 and numbers[2:] in ([], [1])
        source = node.args[0] if node.args else None
        if source not in self._numbers or len([s for s in node.all_input_nodes if s in self._kinds and self._kinds[s]]) != 1:
            return False
        operand = (source, Layout(self._numbers[source], 1))
        if name in _RESHAPES:
            return self._reshaped(operand, traced, place) == Layout(place[0], 1)
        return name in _COPIES and self._kept(node, name, [operand], traced, place) == Layout(place[0], 1)

    def _reads_own_rows(self, node: fx.Node) -> bool:
        """`values[numbers, ...]`, where `numbers` are those of the samples: each sample reads what is its own."""
        values, indices = node.args[0], node.args[1]
        layout = self._kinds.get(values)
        if not isinstance(layout, Layout) or layout.outer != 1 or layout.dim >= len(indices):
            return False
        rows = indices[layout.dim]
        if rows not in self._numbers:
            return False
        from_end = rows.meta["val"].dim() - self._numbers[rows]
        for index in indices:
            kind = self._kinds.get(index)
            if index is None or index is rows or kind is Kind.CONSTANT:
                continue
            if not isinstance(kind, Layout) or kind.outer != 1 or index.meta["val"].dim() - kind.dim != from_end:
                return False
        return True

    def _batchless(self, node: fx.Node, name: str, kinds: list) -> Kind:
        places = [kind for kind in kinds if isinstance(kind, Layout)]
        scalars = {kind for kind in kinds if kind in (Kind.SUM, Kind.MEAN)}
        if places and not scalars:
            if name in _ELEMENT_LOSSES:
                reduction = next((a for a in node.args[2:] if isinstance(a, int) and not isinstance(a, bool)), 1)
                return {1: Kind.MEAN, 2: Kind.SUM}.get(reduction, Kind.MIXED)
            if name == "ctc_loss":
                return {1: Kind.MEAN, 2: Kind.SUM}.get(node.args[5], Kind.MIXED)
            if name in ("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"):
                floating = node.args[1].meta["val"].is_floating_point()
                reduction = node.args[3] if len(node.args) > 3 else 1
                return Kind.SUM if reduction == 2 else Kind.MEAN if floating else Kind.MIXED
            return {"sum": Kind.SUM, "mean": Kind.MEAN}.get(name, Kind.MIXED)
        if len(scalars) != 1 or places:
            return Kind.MIXED
        kind = scalars.pop()
        if name in ("add", "sub"):
            both = len([k for k in kinds if k is kind]) == len(kinds)
            return kind if both or kind is Kind.MEAN else Kind.MIXED
        if name == "div" and isinstance(node.args[1], fx.Node) and self._kinds.get(node.args[1]) is kind:
            return Kind.MIXED
        if name == "mul" and len([k for k in kinds if k is kind]) > 1:
            return Kind.MIXED
        return kind if name in _LINEAR_OF_SCALARS else Kind.MIXED

    def _reshaped(self, operand: tuple[fx.Node, Layout], traced: torch.Tensor, place: tuple) -> Layout | Kind:
        """Row-major order is kept: what stands before a sample in memory does so afterwards."""
        source, layout = operand
        before = self._constant(source.meta["val"].shape[: layout.dim])
        after = self._constant(traced.shape[: place[0]])
        if before is None or after is None or after == 0:
            return Kind.MIXED
        outer, rest = divmod(before * layout.outer, after)
        return Layout(place[0], outer) if rest == 0 and outer >= 1 and place[1] % outer == 0 else Kind.MIXED

    @staticmethod
    def _constant(sizes: torch.Size) -> int | None:
        product = 1
        for size in sizes:
            if not isinstance(size, int):
                return None
            product *= size
        return product

    def _cuts_batch(self, operand: tuple[fx.Node, Layout], traced: torch.Tensor) -> bool:
        source, layout = operand
        whole = self._batch.affine_or_none(source.meta["val"].shape[layout.dim])
        sizes = [self._batch.affine_or_none(size) for size in traced.shape]
        return traced.dim() == source.meta["val"].dim() and sizes[layout.dim] != whole

    def _part_of_batch(self, node: fx.Node, name: str, layout: Layout, place: tuple, position: int) -> Layout | Kind:
        """Whole repetitions of the batch, as `both[:batch]` of `[2 * batch]`."""
        if place[0] != layout.dim:
            return Kind.MIXED
        if name == "slice":
            start = node.args[2] if len(node.args) > 2 and node.args[2] is not None else 0
            step = node.args[4] if len(node.args) > 4 else 1
            start = start.meta["val"] if isinstance(start, fx.Node) else start
            affine = self._batch.affine_or_none(start)
            if step != 1 or affine is None or affine[1]:
                return Kind.MIXED
        whole = self._batch.affine_or_none(node.args[0].meta["val"].shape[layout.dim])[0]
        inner = whole // layout.outer
        return Layout(place[0], place[1] // inner) if place[1] % inner == 0 else Kind.MIXED

    def _joined(self, operands: list, place: tuple, count: int) -> Layout | Kind:
        """Batches behind each other, as `torch.cat([a, b])`."""
        outer = 0
        for source, layout in operands:
            scale = self._batch.affine_or_none(source.meta["val"].shape[layout.dim])[0]
            if layout.dim != place[0] or scale != layout.outer:
                return Kind.MIXED
            outer += layout.outer
        return Layout(place[0], outer) if len(operands) == count and outer == place[1] else Kind.MIXED

    def _einsum(self, node: fx.Node, place: tuple) -> Layout | Kind:
        equation, tensors = node.args[:2]
        if not isinstance(equation, str) or "->" not in equation or "." in equation:
            return Kind.MIXED
        terms, result = equation.replace(" ", "").split("->")
        letters, outers = set(), set()
        for term, tensor in zip(terms.split(","), tensors):
            kind = self._kinds[tensor]
            if isinstance(kind, Layout):
                letters.add(term[kind.dim])
                outers.add(kind.outer)
        if len(letters) != 1 or len(outers) != 1 or result[place[0]] not in letters:
            return Kind.MIXED
        return Layout(place[0], outers.pop())

    def _product(self, operands: list, place: tuple, traced: torch.Tensor) -> Layout | Kind:
        """The batch must not be the dimension that is summed over: then it is in the result, at the same distance from
        the end, or (of a first operand's rows) last but one."""
        layouts = set()
        for source, layout in operands:
            from_end = source.meta["val"].dim() - layout.dim
            if from_end != traced.dim() - place[0]:
                return Kind.MIXED
            layouts.add(layout.outer)
        summed = len(operands) > 1 and traced.dim() - place[0] <= 2
        return Layout(place[0], layouts.pop()) if len(layouts) == 1 and not summed else Kind.MIXED

    def _axis(self, node: fx.Node, position: int, dims: int) -> int:
        axis = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
        return axis % dims if isinstance(axis, int) and dims else 0

    def _kept(self, node: fx.Node, name: str, operands: list, traced: torch.Tensor, place: tuple) -> Layout | Kind:
        """The batch dimension is kept as it is: same factor, and not one that the operator works along."""
        found = set()
        for source, layout in operands:
            scale = self._batch.affine_or_none(source.meta["val"].shape[layout.dim])
            if scale is None or scale[0] != place[1] or self._works_along(node, name, source, layout):
                return Kind.MIXED
            found.add(layout.outer)
            if self._is_pointwise(node) and source.meta["val"].dim() - layout.dim != traced.dim() - place[0]:
                return Kind.MIXED
        return Layout(place[0], found.pop()) if len(found) == 1 else Kind.MIXED

    @staticmethod
    def _is_pointwise(node: fx.Node) -> bool:
        # Python's bitwise operators have overloads of their own, which carry no tag.
        if node.target in (aten.__and__.Tensor, aten.__or__.Tensor, aten.__xor__.Tensor):
            return True
        return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags

    @staticmethod
    def _works_along(node: fx.Node, name: str, source: fx.Node, layout: Layout) -> bool:
        """A `dim` argument names the batch dimension, or the operator has none and works along all."""
        dims = source.meta["val"].dim()
        if name in ("index", "index_select", "one_hot", "repeat_interleave", "repeat", "tile", "roll", "flip", "rot90", "unfold", "diff"):
            given = [a for a in node.args[1:] if isinstance(a, (int, list, tuple))]
            if name == "one_hot":
                return False
            if name == "index":
                return source is node.args[0] or layout.dim != 0
            flat = [x for a in given for x in (a if isinstance(a, (list, tuple)) else [a])]
            if name == "roll" and len(node.args) < 3 and "dims" not in node.kwargs:
                return True
            if name in ("repeat", "tile"):
                return not all(x == 1 for i, x in enumerate(flat[-dims:]) if i == layout.dim)
            return not flat or any(isinstance(x, int) and x % max(dims, 1) == layout.dim for x in flat)
        if name in ("permute", "expand", "transpose", "movedim", "unsqueeze", "pad", "constant_pad_nd", "select", "stack", "cat", "slice"):
            return False
        schema = getattr(node.target, "_schema", None)
        named = {a.name: position for position, a in enumerate(schema.arguments)} if schema else {}
        for key in ("dim", "dims"):
            if key not in named:
                continue
            value = node.args[named[key]] if named[key] < len(node.args) else node.kwargs.get(key)
            values = value if isinstance(value, (list, tuple)) else [value]
            if any(isinstance(x, int) and x % max(dims, 1) == layout.dim for x in values):
                return True
        if name in ("layer_norm", "rms_norm"):
            return layout.dim >= dims - len(node.args[1])
        if name == "linear":
            return layout.dim == dims - 1 or source is not node.args[0]
        if name == "embedding":
            return source is node.args[0]
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):  # The input has samples first, or times.
            return source is node.args[0] and layout.dim != (0 if node.args[-1] else 1)
        if name.startswith(("conv", "max_pool", "avg_pool", "adaptive", "upsample", "pixel", "group_norm", "instance_norm", "batch_norm")):
            return layout.dim != 0
        if name == "scaled_dot_product_attention":
            return layout.dim >= dims - 2
        if name in ("tril", "triu"):
            return layout.dim >= dims - 2
        return False
