"""Which arguments autocast would cast, found by running an operator under it on shapes."""

import dataclasses
from collections.abc import Sequence

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class _Run:
    """The casts that happen while an operator runs, as (position of the argument or None, dtype), and its results."""

    casts: tuple[tuple[int | None, torch.dtype], ...]
    results: tuple[torch.dtype, ...]


class _Recorder(TorchDispatchMode):
    """Records casts between floating types, of which argument or view of one."""

    def __init__(self, arguments: Sequence[torch.Tensor]):
        super().__init__()
        self._position = {argument.untyped_storage()._cdata: index for index, argument in enumerate(arguments)}
        self.casts: list[tuple[int | None, torch.dtype]] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if operator is _aten._to_copy.default and result.dtype != args[0].dtype and result.is_floating_point():
            self.casts.append((self._position.get(args[0].untyped_storage()._cdata), result.dtype))
        return result


def autocast_arguments(
    operator: torch._ops.OpOverload, args: tuple, kwargs: dict, dtype: torch.dtype
) -> list[torch.dtype | None] | None:
    """For every tensor in (args, kwargs), in the order of their leaves, the type that autocast to `dtype` casts it to,
    or None where it does not. None altogether if casts of the arguments cannot have the effect of autocast.

    The tensors are fake. An operator of several steps is taken as one: after its arguments are cast, autocast must find
    nothing left to cast inside it.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not places:
        return []
    mode = leaves[places[0]].fake_mode

    def run(casts: Sequence[torch.dtype | None], enabled: bool) -> _Run | None:
        """A run on new tensors, so that none shares its memory with another; None if the operator refuses."""
        given = list(leaves)
        with enable_python_dispatcher(), mode, torch.no_grad():
            for place, cast in zip(places, casts):
                given[place] = torch.empty_like(leaves[place], dtype=cast or leaves[place].dtype)
            with torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=False):
                called_args, called_kwargs = pytree.tree_unflatten(given, spec)
                try:
                    with _Recorder([given[place] for place in places]) as recorder:
                        results = operator(*called_args, **called_kwargs)
                except RuntimeError:
                    return None
        tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
        return _Run(tuple(recorder.casts), tuple(tensor.dtype for tensor in tensors))

    none = [None] * len(places)
    plain, automatic = run(none, enabled=False), run(none, enabled=True)
    if automatic is None or plain == automatic:
        return none if plain == automatic else None
    casts = list(none)
    for position, cast in automatic.casts:
        if position is not None and casts[position] is None:
            casts[position] = cast
    explicit = run(casts, enabled=False)
    if explicit is None or explicit != run(casts, enabled=True) or explicit.results != automatic.results:
        return None
    return casts
