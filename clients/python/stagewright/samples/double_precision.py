"""Operators that PyTorch has in single precision only, written out so that a trial can run them in double."""

import torch

aten = torch.ops.aten


def _grouped_mm(
    left: torch.Tensor, right: torch.Tensor, offs: torch.Tensor | None = None, bias: object = None, out_dtype: object = None
) -> torch.Tensor:
    """Products of groups: `offs` has the ends of the groups in the dimension that two matrices share, or that one of two
    operands lists by group. Rows after the last end are zeros."""
    if offs is None:
        return left @ right
    ends = offs.tolist()
    spans = list(zip([0, *ends], ends))
    if left.dim() == 2 and right.dim() == 2:
        return torch.stack([left[:, a:b] @ right[a:b] for a, b in spans])
    if left.dim() == 2:
        result = left.new_zeros(left.shape[0], right.shape[2])
        for group, (a, b) in enumerate(spans):
            result[a:b] = left[a:b] @ right[group]
        return result
    result = right.new_zeros(left.shape[1], right.shape[1])
    for group, (a, b) in enumerate(spans):
        result[:, a:b] = left[group] @ right[:, a:b]
    return result


IN_DOUBLE = {aten._grouped_mm.default: _grouped_mm}
